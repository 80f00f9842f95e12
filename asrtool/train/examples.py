"""Utterances to train on or to evaluate with: features and tokens, in batches.

Letters in names: N utterances, T frames, F filterbank bins, U labels of an utterance.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from asrtool.corpus.batches import Batch, LoadedBatch, load_batches, plan_epoch, plan_eval
from asrtool.corpus.index import Utterance
from asrtool.corpus.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.criterion import ctc_frames_needed

NUM_NAMED = 5  # utterances named in a message


@dataclass
class Examples:
    """The utterances of a feature set that a model can learn from."""

    reader: FeatureReader
    tokens: dict[int, list[int]]  # position in the index -> token ids, in storage order
    num_dropped: int  # too short for their text

    @property
    def duration_s(self) -> float:
        """Seconds of speech, without those dropped."""
        return sum(self.reader.index[i].duration_s for i in self.tokens)

    def plan_epoch(self, max_frames: int, seed: int, epoch: int) -> list[Batch]:
        """The batches of an epoch; a pure function of the set, `seed` and `epoch`."""
        return self._in_index(plan_epoch(self._utterances(), max_frames, seed, epoch))

    def plan_eval(self, max_frames: int) -> list[Batch]:
        """Batches for evaluation, always the same."""
        return self._in_index(plan_eval(self._utterances(), max_frames))

    def load(self, batches: Iterable[Batch], prefetch: int = 4) -> Iterator[ExampleBatch]:
        """`batches`, read `prefetch` ahead in a thread."""
        with contextlib.closing(load_batches(self.reader, batches, prefetch)) as loaded:  # type: ignore[type-var]
            start = time.perf_counter()
            for batch in loaded:
                wait_s = time.perf_counter() - start
                yield ExampleBatch(batch, *self._tokens(batch), wait_s)
                start = time.perf_counter()

    def _utterances(self) -> list[Utterance]:
        return [self.reader.index[i] for i in self.tokens]

    def _in_index(self, batches: Sequence[Batch]) -> list[Batch]:
        positions = list(self.tokens)
        return [Batch(batch.number, tuple(positions[i] for i in batch.indices)) for batch in batches]

    def _tokens(self, batch: LoadedBatch) -> tuple[Tensor, Tensor]:
        tokens = [torch.tensor(self.tokens[i], dtype=torch.int64) for i in batch.indices]
        return torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True), torch.tensor([len(ids) for ids in tokens])


@dataclass
class ExampleBatch:
    """A batch ready for the model."""

    loaded: LoadedBatch
    tokens_NU: Tensor  # int64, padded with blanks
    token_lens_N: Tensor
    wait_s: float  # how long training waited for it

    @property
    def ids(self) -> list[str]:
        return [utterance.id for utterance in self.loaded.utterances]

    @property
    def num_tokens(self) -> int:
        return int(self.token_lens_N.sum())

    @property
    def frames(self) -> int:
        return int(self.loaded.feat_lens_N.sum())

    @property
    def padded_frames(self) -> int:
        return int(np.prod(self.loaded.feats_NTF.shape[:2]))


def load_examples(reader: FeatureReader, tokenizer: Tokenizer, output_lens: Callable[[Tensor], Tensor]) -> Examples:
    """Spell the utterances of `reader`, and leave out those that a model gives too few rows for their tokens.

    Raises AsrtoolError naming an utterance that the tokenizer cannot spell, and when nothing is left.
    """
    num_rows = output_lens(torch.tensor([utterance.num_frames for utterance in reader.index])).tolist()
    spelt: dict[str, list[int]] = {}  # speed-perturbed copies share their text
    tokens: dict[int, list[int]] = {}
    too_short = []
    for i, utterance in enumerate(reader.index):
        if utterance.text not in spelt:
            spelt[utterance.text] = _spell(tokenizer, utterance.id, utterance.text)
        needed = ctc_frames_needed(spelt[utterance.text])
        if max(needed, 1) <= num_rows[i]:
            tokens[i] = spelt[utterance.text]
        else:
            too_short.append(f"{utterance.id} ({num_rows[i]} rows, {needed} needed)")
    _tell_dropped(reader, too_short)
    return Examples(reader, tokens, len(too_short))


def _tell_dropped(reader: FeatureReader, too_short: list[str]) -> None:
    if not too_short:
        return
    named = ", ".join(too_short[:NUM_NAMED]) + (", ..." if len(too_short) > NUM_NAMED else "")
    what = (
        f"{reader.directory}: {len(too_short)} of {len(reader.index)} utterances are too short for their text: {named}"
    )
    if len(too_short) == len(reader.index):
        raise AsrtoolError(what, "lower model.stack_frames, or look whether texts belong to their audio")
    logging.info("%s; left out", what)


def _spell(tokenizer: Tokenizer, utterance_id: str, text: str) -> list[int]:
    try:
        return tokenizer.encode(text)
    except AsrtoolError as error:
        raise AsrtoolError(f"utterance {utterance_id}: {error.what}", error.hint) from error
