"""Training on audio that is changed anew in each epoch: plans, batches, resuming, and what is refused."""

from __future__ import annotations

import dataclasses
import multiprocessing
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from toy_task import assert_same_bits
from trainings import components_of, run_training, source_context

from asrtool.data.storage.alignment import Alignment
from asrtool.data.storage.index import read_feature_settings, write_feature_settings
from asrtool.data.storage.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.models.objectives.ctc import Ctc
from asrtool.models.objectives.decision_tree import FIRST, SILENCE, Tree
from asrtool.settings.data import Augment
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.frame_targets import TargetsFolder
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import Epoch, SourceContext, build_source
from asrtool.train.inputs import describe_inputs

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has memory without a name")
TEMPO = Augment(tempo=(0.8, 1.25))
BAND = Augment(band_prob=1.0)
TRAINED = ("augment.tempo=[0.8, 1.25]", "augment.band_prob=0.5", "train.num_epochs=2")


@pytest.fixture
def context(toy: Path) -> Callable[..., SourceContext]:
    return lambda augment, **changes: source_context(toy, augment=augment, **{"max_frames": 180, **changes})


def batches(source: Shards, epoch: int) -> list[TrainingBatch]:
    return list(source.load(source.plan(epoch, 0, {}), prefetch=1))


def by_id(batches: list[TrainingBatch]) -> dict[str, np.ndarray]:
    """The features of each utterance."""
    found: dict[str, np.ndarray] = {}
    for batch in batches:
        assert not found.keys() & set(batch.ids)
        lens = batch.input_lens_N.tolist()
        found |= {name: batch.inputs_NT[n, : lens[n]] for n, name in enumerate(batch.ids)}
    return found


def test_a_plan_at_other_tempos_is_kept_to_and_may_begin_anywhere(context) -> None:
    made = context(TEMPO)
    with closing(Shards(made)) as source:
        for epoch in range(2):
            whole = list(source.plan(epoch, 0, {}))
            for begin in range(len(whole) + 1):
                assert list(source.plan(epoch, begin, {})) == whole[begin:]
            for planned, batch in zip(whole, source.load(whole), strict=True):
                assert planned.num_samples == len(batch.ids)
                assert batch.padded_frames <= made.max_frames
                assert batch.normaliser == planned.normaliser == int(batch.target_lens_N.sum())
                expected = source.audio.lengths(epoch).num_frames[np.asarray(planned.content[1])]
                assert batch.input_lens_N.tolist() == expected.tolist()
        assert Epoch(source, 0).extend(10**6) > 3


def test_what_does_not_fit_at_the_fastest_tempo_keeps_its_own(context, monkeypatch) -> None:
    with closing(Shards(context(TEMPO))) as source:
        plain = source.lengths.num_frames.copy()
    least = int(np.median(plain)) // 2
    monkeypatch.setattr(Ctc, "fits", lambda self, num_rows, targets: "" if num_rows >= least else "few rows")
    with closing(Shards(context(TEMPO))) as source:
        kept = source.lengths.num_frames
        stays = np.rint(kept / 1.25) < 2 * least - 1
        assert 0 < stays.sum() < len(kept)
        for epoch in range(20):
            found = source.audio.lengths(epoch).num_frames
            np.testing.assert_array_equal(found[stays], kept[stays])
            assert (found >= 2 * least - 1).all()
            assert (found[~stays] != kept[~stays]).any()


def test_an_utterance_that_no_batch_holds_at_the_slowest_tempo_is_named_at_once(context, toy: Path) -> None:
    longest = max(utterance.num_frames for utterance in FeatureReader(toy / "features" / "train", "none").index)
    Shards(context(TEMPO, max_frames=round(longest / 0.8))).close()
    with pytest.raises(AsrtoolError, match=rf"utterance train-\d+ has {round(longest / 0.8)} frames, a batch holds"):
        Shards(context(TEMPO, max_frames=round(longest / 0.8) - 1))


def test_leaves_of_a_copy_are_those_of_the_same_part_of_the_utterance_and_begin_each_token_once(
    context, toy, targets, monkeypatch
) -> None:
    folder = TargetsFolder(targets, Tree.load(targets))
    monkeypatch.setattr(Ctc, "normaliser", lambda self, num_rows, targets: num_rows)
    with closing(Shards(context(TEMPO, targets=folder))) as source:
        row_of = {source.index[position].id: row for row, position in enumerate(source.columns.positions.tolist())}
        for batch in batches(source, 0):
            for n, name in enumerate(batch.ids):
                leaves = batch.targets_NU[n, : batch.target_lens_N[n]].numpy()
                assert len(leaves) == -(-batch.input_lens_N[n] // 2)
                row = row_of[name]
                tempo = int(source.columns.num_frames[row]) / int(batch.input_lens_N[n])
                segments = Alignment(targets / "train").segments(int(source.columns.positions[row])).tolist()
                said, first = [], []  # of each row: the token, and whether it begins there
                for middle in range(1, 2 * len(leaves), 2):
                    part = max(i for i, (_, begin) in enumerate(segments) if begin <= middle * tempo + 1e-9)
                    first.append(not said or part != said[-1])
                    said.append(part)
                tokens = [segments[part][0] for part in said]
                assert tokens == folder.tree.tokens_L[leaves].tolist()
                is_first = (folder.tree.positions_L[leaves] == FIRST).tolist()
                assert is_first == [begins and token != SILENCE for begins, token in zip(first, tokens, strict=True)]
            assert batch.normaliser == batch.target_lens_N.sum()


def test_dev_is_never_changed(toy: Path, toy_config: Path) -> None:
    components = components_of(toy, toy_config, *TRAINED, "augment.band_prob=1")
    stored = FeatureReader(toy / "features" / "dev", "none")
    found = by_id(list(components.dev_set.load(components.dev_set.plan_eval())))
    assert len(found) == len(stored.index)
    for i, utterance in enumerate(stored.index):
        np.testing.assert_array_equal(found[utterance.id], stored.read(i))
    assert components.train_set.audio is not None
    assert components.dev_set.audio is None  # nor are there processes and folders of sounds for it


def test_a_training_ends_in_the_same_bits_with_any_number_of_processes(train_toy, tmp_path: Path) -> None:
    expected = train_toy(tmp_path / "one", *TRAINED)
    assert_same_bits(train_toy(tmp_path / "three", *TRAINED, "train.loader_processes=3"), expected)
    plain = train_toy(tmp_path / "plain", "train.num_epochs=2")
    assert any(not torch.equal(expected[name], plain[name]) for name in plain)
    assert not [process for process in multiprocessing.active_children() if process.name == "decoder"]


def test_other_sounds_make_another_training(toy: Path, tmp_path: Path) -> None:
    def sha256(prob: float = 0.5) -> dict[str, str]:
        config = load_config(overrides=[f"augment.noise_dir={tmp_path}", f"augment.noise_prob={prob}"])
        return describe_inputs(toy / "features", toy / "tokenizer", config).sha256

    with pytest.raises(AsrtoolError, match=r"augment\.noise_dir: .* has no sound file"):
        sha256()
    soundfile.write(tmp_path / "a.wav", np.full(900, 0.1), 8000)
    before = sha256()
    assert before == sha256()
    soundfile.write(tmp_path / "b.wav", np.full(900, 0.1), 8000)
    assert before != sha256()
    assert "augment.noise_dir" not in sha256(prob=0)


def test_features_without_samples_are_refused_with_what_to_do(toy: Path, toy_config: Path, tmp_path: Path) -> None:
    shutil.copytree(toy, tmp_path, dirs_exist_ok=True)
    settings = read_feature_settings(tmp_path / "features")
    write_feature_settings(tmp_path / "features", dataclasses.replace(settings, keep_audio=False))
    message = r"features: \[augment\] changes audio but features\.keep_audio is false.*run the features stage"
    with pytest.raises(AsrtoolError, match=message):
        run_training(tmp_path, toy_config, tmp_path / "o", TRAINED)


class Plain(Shards):
    """A source without augmentation."""

    augments = False


def test_a_source_that_changes_no_audio_is_refused_where_it_should(context) -> None:
    chosen = Choice("source", f"{__name__}:Plain", None)
    message = r"train\.source = .*:Plain reads features as they are, but \[augment\] is to change audio; leave out"
    with pytest.raises(AsrtoolError, match=message):
        build_source(chosen, context(BAND))
