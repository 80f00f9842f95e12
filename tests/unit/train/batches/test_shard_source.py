"""Utterances become batches with tokens, by any number of processes; those that cannot be learnt from are reported."""

from __future__ import annotations

import dataclasses
import functools
import logging
import multiprocessing
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_task import assert_same_bits
from trainings import source_context

from asrtool.data.storage.transcripts import write_transcripts
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.objectives.ctc import Ctc
from asrtool.settings.schema import Choice
from asrtool.settings.train import Shards as ShardsSettings
from asrtool.train.batches import shard_source
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import Epoch, Planned, SourceContext, build_source

SHARDS = Choice.of("source", "shards")


@pytest.fixture
def context(toy: Path) -> Callable[..., SourceContext]:
    return functools.partial(source_context, toy)


def test_an_epoch_holds_every_utterance_once_with_its_features_and_tokens(context, toy: Path) -> None:
    source, tokenizer = Shards(context()), Tokenizer.load(toy / "tokenizer")
    utterances = {utterance.id: (i, utterance) for i, utterance in enumerate(source.reader.index)}
    seen = []
    for planned in source.plan(0, 0, {}):
        (batch,) = source.load([planned])
        for n, name in enumerate(batch.ids):
            seen.append(name)
            i, utterance = utterances[name]
            ids = batch.targets_NU[n, : batch.target_lens_N[n]].tolist()
            assert tokenizer.decode(ids) == utterance.text
            assert (batch.targets_NU[n, batch.target_lens_N[n] :] == 0).all()
            assert np.array_equal(batch.inputs_NT[n, : utterance.num_frames], source.reader.read(i))
        lens = [utterances[name][1].num_frames for name in batch.ids]
        assert batch.input_lens_N.tolist() == lens
        assert batch.frames == sum(lens)
        assert batch.padded_frames == len(lens) * max(lens)
        assert batch.normaliser == planned.normaliser == int(batch.target_lens_N.sum())
        assert planned.num_samples == len(lens)
    assert sorted(seen) == sorted(utterances)
    assert source.size().num_samples == len(seen)
    assert source.size().num_frames == sum(utterance.num_frames for _, utterance in utterances.values())


def test_a_plan_may_begin_at_any_batch(context) -> None:
    source = Shards(context())
    whole = list(source.plan(1, 0, {}))
    assert whole != list(source.plan(0, 0, {}))
    for begin in range(len(whole) + 1):
        assert list(source.plan(1, begin, {})) == whole[begin:]
        epoch = Epoch(source, 1, begin)
        assert epoch.extend(begin + 2) == min(begin + 2, len(whole))
        assert epoch.extend(10**6) == epoch.extend(begin) == len(whole)
        rest = range(begin, len(whole))
        assert [epoch.batch(position) for position in rest] == whole[begin:]
        assert epoch.num_samples(rest) == sum(batch.num_samples for batch in whole[begin:])


def test_utterances_too_short_for_their_text_are_named_counted_and_in_no_batch(context, caplog) -> None:
    with caplog.at_level(logging.INFO):
        source = Shards(context(row_frames=9))
    num_kept = source.size().num_samples
    assert 0 < num_kept < 24
    assert source.describe()["num_dropped"] == 24 - num_kept
    assert f"{24 - num_kept} of 24 utterances are too short for their text: train-" in caplog.text
    kept = [source.reader.index[i] for i in source.columns.positions]
    for batches in (source.plan(0, 0, {}), source.plan_eval()):
        ids = [utterance_id for batch in source.load(batches) for utterance_id in batch.ids]
        assert sorted(ids) == sorted(utterance.id for utterance in kept)
    assert source.describe()["hours"] * 3600 == pytest.approx(sum(utterance.duration_s for utterance in kept))


def test_a_set_of_which_nothing_is_left_is_an_error(context) -> None:
    with pytest.raises(AsrtoolError, match=r"24 of 24 utterances are too short.*use an encoder with less subsampling"):
        Shards(context(row_frames=200))


def test_a_set_without_any_text_is_an_error(context, toy: Path, tmp_path: Path) -> None:
    features = shutil.copytree(toy / "features" / "train", tmp_path / "train")
    write_transcripts(features, [("another", "hello")])
    with pytest.raises(AsrtoolError, match=r"train: none of 24 utterances has a text; run the features stage again"):
        Shards(context(directory=features))


def test_targets_that_a_source_does_not_have_are_refused(context, monkeypatch) -> None:
    assert isinstance(build_source(SHARDS, context()), Shards)
    monkeypatch.setattr(Ctc, "targets", "states")
    message = r"train\.source = shards has tokens, leaves, but model\.objective is trained on states; choose"
    with pytest.raises(AsrtoolError, match=message):
        build_source(SHARDS, context())


def test_a_source_that_plans_no_batches_is_refused(context) -> None:
    with pytest.raises(AsrtoolError, match=r"asrtool\.models\S+:Ctc: no source, it lacks plan, read, size"):
        build_source(Choice("source", "asrtool.models.objectives.ctc:Ctc", None), context())


def test_batches_of_dev_hold_more_than_those_of_training_where_these_are_small(context, monkeypatch) -> None:
    def longest(num_frames: int) -> int:
        """Frames of the longest batch, padding included, where it may have `num_frames`."""
        monkeypatch.setattr(shard_source, "EVAL_FRAMES", num_frames)
        return max(batch.inputs_NT.shape[0] * batch.inputs_NT.shape[1] for batch in source.load(source.plan_eval()))

    source = Shards(context())
    small, more, all_of_it = longest(0), longest(2 * source.max_frames), longest(10**6)
    assert small <= source.max_frames < more <= 2 * source.max_frames < all_of_it


on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has memory without a name")


def decoders() -> list[multiprocessing.Process]:
    return [process for process in multiprocessing.active_children() if process.name == "decoder"]


def batches(context: SourceContext, num: int) -> list[TrainingBatch]:
    with closing(Shards(dataclasses.replace(context, loader_processes=num))) as source:
        return [batch for epoch in range(2) for batch in source.load(source.plan(epoch, 0, {}), prefetch=1)]


@on_linux
def test_batches_and_their_order_do_not_depend_on_the_number_of_processes(toy: Path) -> None:
    context = source_context(toy, settings=ShardsSettings(cache_gib=0))
    expected = batches(context, 0)
    assert len(expected) > 10
    for num in (1, 3):
        for one, other in zip(batches(context, num), expected, strict=True):
            assert (one.ids, one.normaliser) == (other.ids, other.normaliser)
            np.testing.assert_array_equal(one.inputs_NT, other.inputs_NT)
            np.testing.assert_array_equal(one.input_lens_N, other.input_lens_N)
            assert torch.equal(one.targets_NU, other.targets_NU)
        assert not decoders()


@on_linux
def test_a_process_that_is_killed_ends_the_training_in_one_line_and_it_can_be_resumed(
    train_toy, tmp_path, monkeypatch
) -> None:
    expected, read, num_read = train_toy(tmp_path / "undisturbed"), Shards.read, 0

    def read_or_kill(self: Shards, batch: Planned) -> TrainingBatch:
        nonlocal num_read
        num_read += bool(self.decoders)
        if self.decoders and num_read == 8:
            for process in decoders():
                process.kill()
                process.join()
        return read(self, batch)

    monkeypatch.setattr(Shards, "read", read_or_kill)
    with pytest.raises(AsrtoolError, match="a process that loads batches was killed"):
        train_toy(tmp_path / "train", "train.loader_processes=2", "train.shards.cache_gib=0")
    assert not decoders()
    assert_same_bits(train_toy(tmp_path / "train", "train.loader_processes=2"), expected)
