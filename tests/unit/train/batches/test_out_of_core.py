"""Training on features at an address: the bits, the order of batches, what is fetched."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from servers import WebServer, patient_no_more, serving
from toy_task import SETTINGS, assert_same_bits, last_weights, make_texts, write_set

from asrtool.data.manifests.sets import DEV, TRAIN, Sets, write_sets
from asrtool.data.remote.cache import FETCHED
from asrtool.data.remote.features import open_features
from asrtool.data.storage.index import write_feature_settings
from asrtool.data.storage.reader import SampleReader
from asrtool.settings.data import Remote
from asrtool.settings.toml_files import load_config
from asrtool.train.batches.shard_source import Shards
from asrtool.train.run import train
from asrtool.train.train import acoustic_job, build_components

NUM_EPOCHS = 2


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    patient_no_more(monkeypatch, (0.001,))


@pytest.fixture(scope="module")
def wide(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy task with twenty shards, which are three windows; to be read only."""
    root = tmp_path_factory.mktemp("wide")
    write_set(root / TRAIN, make_texts(160, seed=5), seed=5)
    shutil.copytree(toy / "features" / DEV, root / DEV)
    write_feature_settings(root, SETTINGS)
    write_sets(root, Sets(()))
    return root


@pytest.fixture
def web(wide: Path) -> Iterator[WebServer]:
    with serving(wide) as server:
        yield server


@pytest.fixture
def remote(web: WebServer, tmp_path: Path) -> Path:
    return open_features(Path(web.url), Remote(str(tmp_path / "cache")), (TRAIN, DEV))


def source_of(features: Path, toy: Path, config: Path) -> Shards:
    source = build_components(features, toy / "tokenizer", load_config([config])).train_set
    assert isinstance(source, Shards)
    return source


def windows_of(source: Shards, epoch: int) -> list[set[int]]:
    """The shards of each window, in their order, by what is planned of them."""
    windows: dict[int, set[int]] = {}
    for batch in source.plan(epoch, 0, {}):
        assert batch.window is not None
        shards = {source.index[int(source.columns.positions[i])].shard for i in batch.content[1]}
        windows.setdefault(batch.window, set()).update(shards)
    return [windows[number] for number in sorted(windows)]


def wait_for_shards(web: WebServer, shards: set[int]) -> list[str]:
    """The requests until all files of these are fetched, and of no others."""
    names = ("cuts.{:06d}.jsonl.gz", "feats.{:06d}.lca")
    expected = sorted(f"/train/{name.format(number)}" for number in shards for name in names)
    while not set(expected) <= set(web.got()):
        time.sleep(0.001)
    time.sleep(0.1)
    assert sorted(web.got()) == expected
    return web.got()


def test_what_a_learner_reads_is_fetched_in_the_order_of_the_plan(web, remote, wide, toy, toy_config) -> None:
    local, source = source_of(wide, toy, toy_config), source_of(remote, toy, toy_config)
    windows = windows_of(source, 0)
    assert sorted(shard for window in windows for shard in window) == list(range(20))
    web.requests.clear()
    for _ in range(2):  # each batch of the window says it
        source.expect(0, 0, 1, NUM_EPOCHS)
        got = wait_for_shards(web, windows[0] | windows[1])
    of_first = [path for path in got[:16] if int(path.split(".")[1]) in windows[0]]
    assert len(of_first) >= 12  # four at a time
    first = next(iter(source.plan(0, 0, {})))
    one, other = source.read(first), local.read(first)
    assert one.ids == other.ids
    np.testing.assert_array_equal(one.inputs_NT, other.inputs_NT)
    samples = [SampleReader(place / TRAIN, source.index, 8000).read(3) for place in (remote, wide)]
    np.testing.assert_array_equal(*samples)
    source.close()


def test_windows_behind_the_end_of_an_epoch_are_those_of_the_next_and_behind_the_last_none(
    web, remote, toy, toy_config
) -> None:
    source = source_of(remote, toy, toy_config)
    last, then = windows_of(source, 0)[2], windows_of(source, 1)
    web.requests.clear()
    source.expect(0, 2, 1, NUM_EPOCHS)
    wait_for_shards(web, last | then[0])
    source.expect(1, 2, 1, NUM_EPOCHS)
    wait_for_shards(web, last | then[0] | then[2])
    source.close()


def test_training_from_http_has_the_bits_of_training_from_the_folder(web, wide, toy, toy_config, tmp_path) -> None:
    """Less than a window stays on the disk, and the server fails now and then."""
    config = load_config([toy_config], ["train.num_epochs=2", "train.batch_s=8"])
    train(acoustic_job(wide, toy / "tokenizer", tmp_path / "local", config))
    for number, faults in enumerate(([503], [-100], [-1, 500])):
        web.faults[f"/train/feats.{number:06d}.lca"] = faults
    features = open_features(Path(web.url), Remote(str(tmp_path / "cache"), 1e-6), (TRAIN, DEV))
    train(acoustic_job(features, toy / "tokenizer", tmp_path / "there", config))
    assert_same_bits(last_weights(tmp_path / "there"), last_weights(tmp_path / "local"))
    kept = [path for path in features.glob(f"*/{FETCHED}/feats.*") if path.suffix == ".lca"]
    assert len(kept) <= 1
    assert not any(web.faults.values())
