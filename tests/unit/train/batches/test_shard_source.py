"""Utterances become batches with tokens; those that cannot be learnt from are reported."""

from __future__ import annotations

import functools
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from trainings import source_context

from asrtool.data.storage.transcripts import write_transcripts
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.objectives.ctc import Ctc
from asrtool.settings.schema import Choice
from asrtool.train.batches import shard_source
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import Epoch, SourceContext, build_source

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


def test_utterances_too_short_for_their_text_are_named_counted_and_in_no_batch(
    context, caplog: pytest.LogCaptureFixture
) -> None:
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
