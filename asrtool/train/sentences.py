"""A text as a source: each sentence once an epoch, in batches of sentences of like length.

Letters in names: N sentences, T words, W all words of a text.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.lang.text import number_sentences
from asrtool.models.neural_lm import NeuralLm, pad_sentences
from asrtool.train.batch import TrainingBatch
from asrtool.train.source import BatchSource, Planned, Size


class Sentences(BatchSource):
    """The sentences of `text`, in which a frame is a word that is read; AsrtoolError where it cannot be read.

    They are held as numbers, four bytes a word.
    """

    def __init__(self, text: Path, model: NeuralLm, batch_words: int, seed: int) -> None:
        self.name = text.name
        self.batch_words = batch_words
        self.seed = seed
        numbers, lines, lengths = array("i"), array("i"), array("i")
        for line, words in number_sentences(text):
            lines.append(line)
            lengths.append(len(words) + 1)
            numbers.extend(model.number(words)[:-1])
        self._edge = numbers[0]
        self._numbers_W, self._lines_N = np.asarray(numbers), np.asarray(lines)
        self._lengths_N = np.asarray(lengths)  # words that are read and predicted, the edges of sentences included
        self._begins_N = np.concatenate([[0], np.cumsum(self._lengths_N)])

    def size(self) -> Size:
        return Size(len(self._lines_N), len(self._numbers_W))

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        random = np.random.default_rng((self.seed, epoch))
        yield from islice(self._planned(plan_batches(self._lengths_N, self.batch_words, random)), batch, None)

    def plan_eval(self) -> list[Planned]:
        """Batches for evaluation, always the same."""
        return list(self._planned(plan_batches(self._lengths_N, self.batch_words, None)))

    def read(self, batch: Planned) -> TrainingBatch:
        read_NT, lens_N, predicted_NT = pad_sentences([[*self._words(i), self._edge] for i in batch.content])
        return TrainingBatch(
            ids=[f"{self.name}:{self._lines_N[i]}" for i in batch.content],
            inputs_NT=read_NT.numpy(),
            input_lens_N=lens_N.numpy(),
            targets_NU=predicted_NT,
            target_lens_N=lens_N,
            normaliser=batch.normaliser,
        )

    def _words(self, i: int) -> list[int]:
        words: list[int] = self._numbers_W[self._begins_N[i] : self._begins_N[i + 1]].tolist()
        return words

    def _planned(self, batches: Iterable[np.ndarray]) -> Iterator[Planned]:
        for batch in batches:
            yield Planned(tuple(batch.tolist()), len(batch), int(self._lengths_N[batch].sum()))


def plan_batches(lengths_N: np.ndarray, batch_words: int, random: np.random.Generator | None) -> list[np.ndarray]:
    """Sentences of like length together, at most `batch_words` positions with padding, in random order if asked for."""
    noise = random.random(len(lengths_N)) if random else np.zeros(len(lengths_N))
    order = np.lexsort((noise, lengths_N))
    begins = [0]
    for end, length in enumerate(lengths_N[order].tolist()):
        if end > begins[-1] and (end + 1 - begins[-1]) * length > batch_words:
            begins.append(end)
    batches = [order[begin:end] for begin, end in itertools.pairwise([*begins, len(order)])]
    return [batches[i] for i in random.permutation(len(batches))] if random else batches
