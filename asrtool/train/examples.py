"""Utterances to train on or to evaluate with: features and tokens, in batches.

Letters in names: N utterances, T frames, F filterbank bins, U labels of an utterance.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from asrtool.corpus.batches import Batch, LoadedBatch, load_batches, plan_epoch, plan_eval
from asrtool.corpus.index import Utterance
from asrtool.corpus.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.acoustic import AcousticModel

NUM_NAMED = 5  # utterances named in a message


@dataclass
class Examples:
    """The utterances of a feature set that a model can learn from."""

    reader: FeatureReader
    targets: dict[int, list[int]]  # position in the index -> token ids, in storage order
    normalisers: dict[int, int]  # and the part of each in the normaliser of the loss
    num_dropped: int  # that the objective cannot be trained on

    @property
    def duration_s(self) -> float:
        """Seconds of speech, without those dropped."""
        return sum(self.reader.index[i].duration_s for i in self.targets)

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
                yield self._with_targets(batch, wait_s)
                start = time.perf_counter()

    def _utterances(self) -> list[Utterance]:
        return [self.reader.index[i] for i in self.targets]

    def _in_index(self, batches: Sequence[Batch]) -> list[Batch]:
        positions = list(self.targets)
        return [Batch(batch.number, tuple(positions[i] for i in batch.indices)) for batch in batches]

    def _with_targets(self, batch: LoadedBatch, wait_s: float) -> ExampleBatch:
        targets = [torch.tensor(self.targets[i], dtype=torch.int64) for i in batch.indices]
        targets_NU = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True)
        target_lens_N = torch.tensor([len(ids) for ids in targets])
        return ExampleBatch(batch, targets_NU, target_lens_N, sum(self.normalisers[i] for i in batch.indices), wait_s)


@dataclass
class ExampleBatch:
    """A batch ready for the model."""

    loaded: LoadedBatch
    targets_NU: Tensor  # int64, padded with zeros
    target_lens_N: Tensor
    normaliser: int  # of the loss of the batch
    wait_s: float  # how long training waited for it

    @property
    def ids(self) -> list[str]:
        return [utterance.id for utterance in self.loaded.utterances]

    @property
    def frames(self) -> int:
        return int(self.loaded.feat_lens_N.sum())

    @property
    def padded_frames(self) -> int:
        return int(np.prod(self.loaded.feats_NTF.shape[:2]))


def load_examples(reader: FeatureReader, tokenizer: Tokenizer, model: AcousticModel) -> Examples:
    """Tokenize the utterances of `reader`, and leave out those that the objective of `model` cannot be trained on.

    Raises AsrtoolError naming an utterance that the tokenizer cannot encode, and when nothing is left.
    """
    num_frames = torch.tensor([utterance.num_frames for utterance in reader.index])
    num_rows = model.encoder.output_lens(num_frames).tolist()
    encoded: dict[str, list[int]] = {}  # speed-perturbed copies share their text
    examples = Examples(reader, {}, {}, 0)
    unfit = []
    for i, utterance in enumerate(reader.index):
        if utterance.text not in encoded:
            encoded[utterance.text] = _encode(tokenizer, utterance.id, utterance.text)
        targets = encoded[utterance.text]
        reason = model.objective.fits(num_rows[i], targets)
        if reason:
            unfit.append(f"{utterance.id} ({reason})")
        else:
            examples.targets[i] = targets
            examples.normalisers[i] = model.objective.normaliser(num_rows[i], targets)
    _report_dropped(reader, unfit)
    examples.num_dropped = len(unfit)
    return examples


def _report_dropped(reader: FeatureReader, unfit: list[str]) -> None:
    if not unfit:
        return
    named = ", ".join(unfit[:NUM_NAMED]) + (", ..." if len(unfit) > NUM_NAMED else "")
    what = f"{reader.directory}: {len(unfit)} of {len(reader.index)} utterances are too short for their text: {named}"
    if len(unfit) == len(reader.index):
        raise AsrtoolError(what, "use an encoder with less subsampling, or check that texts belong to their audio")
    logging.info("%s; left out", what)


def _encode(tokenizer: Tokenizer, utterance_id: str, text: str) -> list[int]:
    try:
        return tokenizer.encode(text)
    except AsrtoolError as error:
        raise AsrtoolError(f"utterance {utterance_id}: {error.what}", error.hint) from error
