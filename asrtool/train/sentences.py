"""A text as a source: each sentence once an epoch, in batches of sentences of like length.

Letters in names: N sentences, T words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.lang.text import number_sentences
from asrtool.models.neural_lm import NeuralLm, pad_sentences
from asrtool.train.batch import TrainingBatch
from asrtool.train.source import BatchSource, Planned, Size


class Sentences(BatchSource):
    """The sentences of `text`, in which a frame is a word that is read; AsrtoolError where it cannot be read."""

    def __init__(self, text: Path, model: NeuralLm, batch_words: int, seed: int) -> None:
        self.name = text.name
        self.lines, self.sentences = zip(*number_sentences(text), strict=True)
        self.model = model
        self.batch_words = batch_words
        self.seed = seed

    def size(self) -> Size:
        return Size(len(self.sentences), sum(self._lengths()))

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        random = np.random.default_rng((self.seed, epoch))
        yield from islice(self._planned(plan_batches(self._lengths(), self.batch_words, random)), batch, None)

    def plan_eval(self) -> list[Planned]:
        """Batches for evaluation, always the same."""
        return list(self._planned(plan_batches(self._lengths(), self.batch_words, None)))

    def read(self, batch: Planned) -> TrainingBatch:
        sentences = [self.sentences[i] for i in batch.content]
        read_NT, lens_N, predicted_NT = pad_sentences([self.model.number(words) for words in sentences])
        return TrainingBatch(
            ids=[f"{self.name}:{self.lines[i]}" for i in batch.content],
            inputs_NT=read_NT.numpy(),
            input_lens_N=lens_N.numpy(),
            targets_NU=predicted_NT,
            target_lens_N=lens_N,
            normaliser=batch.normaliser,
        )

    def _lengths(self) -> list[int]:
        """Words that are read and predicted, the edges of sentences included."""
        return [len(words) + 1 for words in self.sentences]

    def _planned(self, batches: Iterable[Sequence[int]]) -> Iterator[Planned]:
        lengths = self._lengths()
        for batch in batches:
            yield Planned(tuple(batch), len(batch), sum(lengths[i] for i in batch))


def plan_batches(lengths: Sequence[int], batch_words: int, random: np.random.Generator | None) -> list[list[int]]:
    """Sentences of like length together, at most `batch_words` positions with padding, in random order if asked for."""
    noise = random.random(len(lengths)) if random else np.zeros(len(lengths))
    order = np.lexsort((noise, np.array(lengths))).tolist()
    batches: list[list[int]] = []
    for i in order:
        if batches and (len(batches[-1]) + 1) * lengths[i] <= batch_words:
            batches[-1].append(i)
        else:
            batches.append([i])
    return [batches[i] for i in random.permutation(len(batches))] if random else batches
