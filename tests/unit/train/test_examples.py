"""Utterances become batches with tokens; those that cannot be learnt from are told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from asrtool.corpus.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.train.examples import Examples, load_examples


def stacked(num: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda lens: (lens + num - 1) // num


@pytest.fixture
def load(toy: Path) -> Callable[..., Examples]:
    reader = FeatureReader(toy / "features" / "train", "none")
    return lambda stack_frames=2: load_examples(reader, Tokenizer.load(toy / "tokenizer"), stacked(stack_frames))


def test_an_epoch_holds_every_utterance_once_with_its_features_and_tokens(load, toy: Path) -> None:
    examples, tokenizer = load(), Tokenizer.load(toy / "tokenizer")
    seen = []
    for batch in examples.load(examples.plan_epoch(150, seed=1, epoch=0)):
        for n, utterance in enumerate(batch.loaded.utterances):
            seen.append(utterance.id)
            ids = batch.tokens_NU[n, : batch.token_lens_N[n]].tolist()
            assert tokenizer.decode(ids) == utterance.text
            assert (batch.tokens_NU[n, batch.token_lens_N[n] :] == 0).all()
            i = examples.reader.index.index(utterance)
            assert np.array_equal(batch.loaded.feats_NTF[n, : utterance.num_frames], examples.reader.read(i))
        assert batch.frames == sum(utterance.num_frames for utterance in batch.loaded.utterances)
        assert batch.padded_frames == len(batch.ids) * max(u.num_frames for u in batch.loaded.utterances)
    assert sorted(seen) == sorted(utterance.id for utterance in examples.reader.index)


def test_utterances_too_short_for_their_text_are_named_counted_and_in_no_batch(
    load, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        examples = load(stack_frames=9)
    num_kept = len(examples.tokens)
    assert 0 < num_kept < 24
    assert examples.num_dropped == 24 - num_kept
    assert f"{24 - num_kept} of 24 utterances are too short for their text: train-" in caplog.text
    kept_ids = {examples.reader.index[i].id for i in examples.tokens}
    for batches in (examples.plan_epoch(150, seed=1, epoch=0), examples.plan_eval(150)):
        ids = [utterance_id for batch in examples.load(batches) for utterance_id in batch.ids]
        assert sorted(ids) == sorted(kept_ids)
    assert examples.duration_s == pytest.approx(sum(examples.reader.index[i].duration_s for i in examples.tokens))


def test_a_set_of_which_nothing_is_left_is_an_error(load) -> None:
    with pytest.raises(AsrtoolError, match=r"24 of 24 utterances are too short.*lower model\.stack_frames"):
        load(stack_frames=200)


def test_characters_outside_the_tokenizer_are_named_with_their_utterance(toy: Path, monkeypatch) -> None:
    reader = FeatureReader(toy / "features" / "train", "none")
    monkeypatch.setattr(reader, "index", [_with_text(u, "abc d7!") if u.id == "train-9" else u for u in reader.index])
    with pytest.raises(AsrtoolError, match=r"utterance train-9: .*'!', '7' outside the tokenizer"):
        load_examples(reader, Tokenizer.load(toy / "tokenizer"), stacked(2))


def _with_text(utterance, text: str):
    return type(utterance)(**{name: getattr(utterance, name) for name in utterance.__slots__} | {"text": text})
