"""Features that were interrupted: what is finished stays, the rest is computed, and the bytes are the same."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import SupervisionSegment
from small_releases import read_manifests
from tones import PLAIN, read_all

from asrtool.data.features import compute_sets
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.manifests.manifest import read_drops, write_manifests
from asrtool.data.storage.shard_offsets import TABLE

MakeManifests = Callable[..., Path]
SMALL = dataclasses.replace(PLAIN, shard_cuts=6, bad_fraction=0.5)

# Each run is a fork of one process that has loaded torch, and has not computed with it. It kills itself before the n-th
# change of the file system below the folder of features.
DRIVER = """
import os, signal, sys
from pathlib import Path
from asrtool.data.features.compute_sets import compute_features
sys.path += ["tests", "tests/unit/data"]
from test_resume_features import SMALL

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}

def run(out, kill_at):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    num = 0
    def count(event, arguments):
        nonlocal num
        writes = event == "open" and isinstance(arguments[1], str) and arguments[1][:1] in "wax"
        if (writes or event in CHANGES) and str(out) in str(arguments[0]):
            num += 1
            if num == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    compute_features(Path(sys.argv[1]), out, SMALL, code="the same")
    os._exit(0)

root, first, step = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
assert run(root / "whole", 0) == 0
at = first
while run(root / f"{at}", at) == signal.SIGKILL:
    assert run(root / f"{at}", 0) == 0
    at += step
"""


def files(out: Path) -> dict[str, int]:
    """Return the archives of the training set with their numbers of shards."""
    table = np.load(out / "train" / TABLE)
    return {name: int((table[:, 4] == int(name.split(".")[1])).sum()) for name in archives(out)}


def archives(out: Path) -> list[str]:
    return [path.name for path in sorted((out / "train").glob("feats.*"))]


@pytest.mark.slow
def test_killed_at_any_step_and_run_again_the_bytes_are_the_same(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests = make_manifests(train=2)
    command = [sys.executable, "-c", DRIVER, str(manifests), str(tmp_path / "out"), "4", "11"]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    expected = read_all(tmp_path / "out" / "whole")
    killed = [path for path in (tmp_path / "out").iterdir() if path.name != "whole"]
    assert len(killed) > 4, done
    for out in killed:
        assert read_all(out) == expected, out.name


def test_a_process_that_is_killed_leaves_nothing_in_the_set(
    make_manifests: MakeManifests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_shard = compute_sets.compute_shard

    def leaving_a_folder(job, directory: Path, *rest) -> int:
        (directory / f".999999999.tmp.{job.number:06d}").mkdir()
        return compute_shard(job, directory, *rest)

    monkeypatch.setattr(compute_sets, "compute_shard", leaving_a_folder)
    compute_features(make_manifests(train=1), tmp_path / "features", SMALL)
    assert not list((tmp_path / "features").glob("*/.*.tmp.*"))


def change_segments(manifests: Path, change: Callable[[int, SupervisionSegment], float]) -> None:
    """Set the durations of the segments to train on."""
    recordings, segments = read_manifests(manifests / "train")
    changed = [dataclasses.replace(one, duration=change(n, one)) for n, one in enumerate(segments)]
    write_manifests(manifests / "train", recordings, changed, [], 0.01, {})


class Stopped(Exception):
    """Exception in place of a kill."""


def test_only_what_is_missing_is_computed(
    make_manifests: MakeManifests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests, out = make_manifests(train=5), tmp_path / "features"
    compute_shard = compute_sets.compute_shard
    numbers = []

    def stopping(job, *rest) -> int:
        if len(numbers) == 2:
            raise Stopped
        numbers.append(job.number)
        return compute_shard(job, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(compute_sets, "compute_shard", stopping)
        for code, expected in (
            ("c", [0, 1]),
            ("d", [0, 1]),
            ("c", [0, 1]),
            ("c", [2, 3]),
        ):
            numbers.clear()
            with pytest.raises(Stopped):
                compute_features(manifests, out, SMALL, code=code)
            assert numbers == expected
    assert not (out / "train").exists()
    compute_features(manifests, out, SMALL, code="c")
    assert files(out) == {"feats.000000.lca": 5}


def test_a_change_computes_its_shard_and_a_changed_setting_all(
    make_manifests: MakeManifests, tmp_path: Path, computed: list
) -> None:
    manifests, out = make_manifests(train=3), tmp_path / "features"
    away = (tmp_path / "audio" / "train0.wav").rename(tmp_path / "away.wav")
    compute_features(manifests, out, SMALL, code="c")
    assert len(read_drops(out / "train" / "dropped.tsv")) == 6
    away.rename(tmp_path / "audio" / "train0.wav")  # audio that can be read now
    computed.clear()
    compute_features(manifests, out, SMALL, code="c")
    assert computed == [("train", 0)]
    assert read_drops(out / "train" / "dropped.tsv") == []
    computed.clear()
    change_segments(manifests, lambda n, one: one.duration - 0.5 * (n == 8))
    audio = tmp_path / "audio" / "train2.wav"
    samples, rate_hz = soundfile.read(audio)
    soundfile.write(audio, samples[::-1], rate_hz, subtype="PCM_16")
    compute_features(manifests, out, SMALL, code="c")
    assert computed == [("train", 1), ("train", 2)]
    computed.clear()
    compute_features(manifests, out, dataclasses.replace(SMALL, cmvn="global", bad_fraction=0.1), code="c")
    assert computed == []
    fresh = tmp_path / "fresh"
    compute_features(manifests, fresh, dataclasses.replace(SMALL, cmvn="global", bad_fraction=0.1), code="c")
    assert read_all(fresh) == read_all(out)
    compute_features(manifests, out, dataclasses.replace(SMALL, frame_shift_ms=12.5), code="c")
    assert len(computed) == 2 * 5  # once in the fresh folder


@pytest.fixture
def two_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_sets, "FILE_BYTES", 40_000)  # a shard has 24,000 or so


@pytest.mark.usefixtures("two_a_file")
def test_shards_of_a_file_that_lost_a_part_are_computed_again(
    make_manifests: MakeManifests, tmp_path: Path, computed: list
) -> None:
    manifests, out = make_manifests(train=5), tmp_path / "features"
    compute_features(manifests, out, SMALL, code="c")
    assert files(out) == {"feats.000000.lca": 2, "feats.000002.lca": 2, "feats.000004.lca": 1}
    table = np.load(out / "train" / TABLE)
    assert table[:, 6].tolist()[1::2] == [(out / "train" / name).stat().st_size for name in archives(out)[:2]]
    assert all(table[:2, 6] > [0, 40_000])
    assert all(table[::2, 6] < 40_000)
    expected = read_all(out)
    for name in ("feats.000002.lca", "cuts.000002.jsonl.gz", "shard.000002.json.gz", ""):
        computed.clear()
        path = out / "train" / (name or "feats.000002.lca")
        path.write_bytes(path.read_bytes()[:-100]) if name else path.unlink()
        (out / "features.json").unlink()  # as where the machine stopped before it was written
        compute_features(manifests, out, SMALL, code="c")
        assert read_all(out) == expected
        assert computed == [("train", 2), ("train", 3)]


@pytest.mark.parametrize("storage", ["lilcom", "shar", "flac"])
@pytest.mark.usefixtures("two_a_file")
def test_of_a_file_with_a_changed_shard_the_others_are_taken(
    make_manifests: MakeManifests, tmp_path: Path, storage: str, computed: list
) -> None:
    """Here shard 2 gets so small that files have other borders than before."""
    manifests, out = make_manifests(train=6), tmp_path / "features"
    settings = dataclasses.replace(SMALL, storage=storage, keep_audio=True)
    compute_features(manifests, out, settings, code="c")
    before = np.load(out / "train" / TABLE)[:, 4].tolist()
    change_segments(manifests, lambda n, one: 0.05 if 12 <= n < 18 else one.duration)
    compute_features(manifests, tmp_path / "fresh", settings, code="c")
    after = np.load(tmp_path / "fresh" / "train" / TABLE)[:, 4].tolist()
    assert before[2:] != after[2:]
    computed.clear()
    compute_features(manifests, out, settings, code="c")
    assert computed == [("train", 2)]
    assert read_all(out) == read_all(tmp_path / "fresh")
