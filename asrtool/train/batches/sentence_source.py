"""Source of sentences, each read once or several times an epoch.

Batches have sentences of like length. Letters in names: N sentences, E sentences of an epoch, T words, W all words of
the texts.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.lang.text import number_sentences
from asrtool.models.lm.neural_lm import NeuralLm, pad_sentences
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.source import BatchSource, Planned, Size


@dataclass(frozen=True)
class Text:
    """Text file with one sentence a line."""

    path: Path
    repeats: int = 1  # times that each of its sentences is read in an epoch


class Sentences(BatchSource):
    """Sentences of `texts` as four bytes a word; a frame is a word.

    Raises AsrtoolError if a text cannot be read.
    """

    def __init__(self, texts: Sequence[Text], model: NeuralLm, batch_words: int, seed: int) -> None:
        self.batch_words = batch_words
        self.seed = seed
        numbers, lines, lengths = array("i"), array("i"), array("i")
        self._ends = []  # end of each text, in sentences
        for text in texts:
            for line, words in number_sentences(text.path):
                lines.append(line)
                lengths.append(len(words) + 1)
                numbers.extend(model.number(words)[:-1])
            self._ends.append(len(lines))
        self._texts = texts
        self._edge = numbers[0]
        self._numbers_W, self._lines_N = np.asarray(numbers), np.asarray(lines)
        self._lengths_N = np.asarray(lengths)  # words that are read and predicted, the edges of sentences included
        self._begins_N = np.concatenate([[0], np.cumsum(self._lengths_N)])

    def size(self) -> Size:
        sentences_E = self._sentences_of_epoch()
        return Size(len(sentences_E), int(self._lengths_N[sentences_E].sum()))

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        random = np.random.default_rng((self.seed, epoch))
        yield from islice(self._planned(random), batch, None)

    def plan_eval(self) -> list[Planned]:
        """Return the batches for evaluation, always the same."""
        return list(self._planned(None))

    def read(self, batch: Planned) -> TrainingBatch:
        read_NT, lens_N, predicted_NT = pad_sentences([[*self._words(i), self._edge] for i in batch.content])
        return TrainingBatch(
            ids=[f"{self._texts[bisect_right(self._ends, i)].path.name}:{self._lines_N[i]}" for i in batch.content],
            inputs_NT=read_NT.numpy(),
            input_lens_N=lens_N.numpy(),
            targets_NU=predicted_NT,
            target_lens_N=lens_N,
            normaliser=batch.normaliser,
        )

    def _words(self, i: int) -> list[int]:
        words: list[int] = self._numbers_W[self._begins_N[i] : self._begins_N[i + 1]].tolist()
        return words

    def _sentences_of_epoch(self) -> np.ndarray:
        """Return the sentence of each place in an epoch, (E,)."""
        spans = zip(self._texts, [0, *self._ends], self._ends, strict=False)
        return np.concatenate([np.tile(np.arange(begin, end), text.repeats) for text, begin, end in spans])

    def _planned(self, random: np.random.Generator | None) -> Iterator[Planned]:
        sentences_E = self._sentences_of_epoch()
        for batch in plan_batches(self._lengths_N[sentences_E], self.batch_words, random):
            sentences = sentences_E[batch]
            yield Planned(tuple(sentences.tolist()), len(batch), int(self._lengths_N[sentences].sum()))


def plan_batches(lengths_N: np.ndarray, batch_words: int, random: np.random.Generator | None) -> list[np.ndarray]:
    """Return batches of sentences of like length, shuffled if `random` is given.

    A batch has at most `batch_words` positions with padding.
    """
    noise = random.random(len(lengths_N)) if random else np.zeros(len(lengths_N))
    order = np.lexsort((noise, lengths_N))
    begins = [0]
    for end, length in enumerate(lengths_N[order].tolist()):
        if end > begins[-1] and (end + 1 - begins[-1]) * length > batch_words:
            begins.append(end)
    batches = [order[begin:end] for begin, end in itertools.pairwise([*begins, len(order)])]
    return [batches[i] for i in random.permutation(len(batches))] if random else batches
