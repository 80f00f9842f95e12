"""Choosing from n-best lists with other language models than the search had.

Letters in names: H candidates of a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from asrtool.decode.trial import Trial
from asrtool.decode.words import Word


class NgramScorer(Protocol):
    """An n-gram language model."""

    def log_prob(self, words: list[str]) -> float:
        """Natural log probability of a sentence, its end included."""


class NeuralScorer(Protocol):
    """A language model that scores sentences side by side."""

    def log_probs(self, sentences: Sequence[Sequence[str]]) -> list[float]:
        """Natural log probability of each sentence, its end included."""


@dataclass(frozen=True)
class Candidate:
    """A sentence of an n-best list; scores are natural logarithms."""

    words: tuple[Word, ...]  # what a ctm holds, with times
    sentence: tuple[str, ...]  # all words, tags too
    acoustic: float
    lm: float  # of the n-gram


@dataclass(frozen=True)
class ScoredList:
    """An n-best list, best of the search first, as the columns its ranking needs, shape (H,) each."""

    candidates: Sequence[Candidate]
    acoustic_H: np.ndarray
    lm_H: np.ndarray
    nnlm_H: np.ndarray
    num_words_H: np.ndarray

    def best(self, trial: Trial) -> Candidate | None:
        """The candidate that scores highest by the equation of Trial, the first among equals; None of an empty list."""
        if not self.candidates:
            return None
        lm_H = self.lm_H - trial.word_penalty * self.num_words_H
        return self.candidates[
            int(np.argmax(self.acoustic_H + trial.lm_weight * lm_H + trial.nnlm_weight * self.nnlm_H))
        ]


def score_list(
    candidates: Sequence[Candidate], ngram: NgramScorer | None = None, neural: NeuralScorer | None = None
) -> ScoredList:
    """Score the sentences of a list: `ngram` in place of the one of the search, and `neural` beside it."""
    sentences = [candidate.sentence for candidate in candidates]
    lm = [candidate.lm if ngram is None else ngram.log_prob(list(candidate.sentence)) for candidate in candidates]
    nnlm = neural.log_probs(sentences) if neural else [0.0] * len(sentences)
    return ScoredList(
        candidates,
        np.array([candidate.acoustic for candidate in candidates]),
        np.array(lm),
        np.array(nnlm),
        np.array([len(sentence) for sentence in sentences]),
    )
