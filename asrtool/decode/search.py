"""One interface to every search method: posteriors of an utterance to words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from asrtool.decode.path import find_spans, greedy_path, viterbi_path
from asrtool.decode.prefix_beam import PrefixBeam
from asrtool.decode.word_parse import WordParser
from asrtool.decode.words import Word, find_words, place_words


@dataclass(frozen=True)
class Trial:
    """A method and its language-model weight; greedy search has no language model, its weight is 0."""

    method: str
    lm_weight: float


@dataclass(frozen=True)
class Found:
    """The words of an utterance and the processor seconds their search took."""

    words: tuple[Word, ...]
    cpu_s: float


class PathSearch(Protocol):
    """Search on a graph that holds the language model at weight 1."""

    def search(self, log_probs_TV: np.ndarray, lm_weight: float) -> np.ndarray | None:
        """The best path, a token a frame, shape (T,); None when there is none."""


class Search:
    """The trials to make on every utterance, with what they search in.

    `pieces` are the tokens of the posteriors' columns, `frame_s` the time from one row to the next.
    """

    def __init__(
        self, pieces: Sequence[str], frame_s: float, beam: PrefixBeam | None = None, graph: PathSearch | None = None
    ) -> None:
        self.pieces = pieces
        self.frame_s = frame_s
        self.beam = beam
        self.graph = graph
        self.parser: WordParser | None = None  # for pieces that do not mark where a word begins

    def __call__(self, item: tuple[np.ndarray, Sequence[Trial]]) -> list[Found]:
        """Make all trials on the log posteriors of an utterance, float32 (T, V)."""
        log_probs_TV, trials = item
        return [self._try(trial, log_probs_TV) for trial in trials]

    def _try(self, trial: Trial, log_probs_TV: np.ndarray) -> Found:
        start_s = time.thread_time()
        path_T = self._find_path(trial, log_probs_TV) if len(log_probs_TV) else None
        spans = [] if path_T is None else find_spans(path_T, log_probs_TV)
        if self.parser is None:
            words = find_words(spans, self.pieces, self.frame_s, len(log_probs_TV))
        else:
            words = place_words(self.parser.group(spans), self.frame_s, len(log_probs_TV))
        return Found(tuple(words), time.thread_time() - start_s)

    def _find_path(self, trial: Trial, log_probs_TV: np.ndarray) -> np.ndarray | None:
        if trial.method == "beam":
            assert self.beam is not None, "no prefix beam was set up"
            return viterbi_path(log_probs_TV, self.beam.search(log_probs_TV, trial.lm_weight).tokens)
        if trial.method == "graph":
            assert self.graph is not None, "no graph was loaded"
            return self.graph.search(log_probs_TV, trial.lm_weight)
        return greedy_path(log_probs_TV)
