"""One interface to every search method: posteriors of an utterance to words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from asrtool.decode.lattice import LatticeSearch
from asrtool.decode.path import find_spans, greedy_path, viterbi_path
from asrtool.decode.prefix_beam import PrefixBeam
from asrtool.decode.rescore import Candidate
from asrtool.decode.trial import Trial
from asrtool.decode.word_parse import WordParser
from asrtool.decode.words import Word, WordPieces, place_words


class Found(NamedTuple):
    """What a search found in an utterance, and the processor seconds it took.

    `candidates` are the n-best list of method rescore, best first; their words are not chosen yet.
    """

    words: tuple[Word, ...]
    cpu_s: float
    candidates: tuple[Candidate, ...] = ()


class PathSearch(Protocol):
    """Search on a graph that holds the language model at weight 1."""

    def search(self, log_probs_TV: np.ndarray, lm_weight: float, beam: float) -> list[int] | None:
        """The best path, a token a frame; None when there is none."""


@dataclass
class Search:
    """The trials to make on every utterance, with what they search in.

    `pieces` read the tokens of the posteriors' columns as words, `frame_s` is the time from one row to the next.
    `graphs` are given by the word penalty they hold, and `symbols` are the words of their output labels.
    """

    pieces: WordPieces
    frame_s: float
    beam: PrefixBeam | None = None
    graphs: Mapping[float, PathSearch] | None = None
    lattice: LatticeSearch | None = None
    symbols: Sequence[str] = ()
    parser: WordParser | None = None  # for pieces that do not mark where a word begins

    def __call__(self, item: tuple[np.ndarray, Sequence[Trial]]) -> list[Found]:
        """Make all trials on the log posteriors of an utterance, float32 (T, V).

        A trial of method rescore holds the weights by which its n-best list is made.
        """
        log_probs_TV, trials = item
        return [self._try(trial, log_probs_TV) for trial in trials]

    def _try(self, trial: Trial, log_probs_TV: np.ndarray) -> Found:
        start_s = time.thread_time()
        words: tuple[Word, ...] = ()
        candidates: tuple[Candidate, ...] = ()
        if len(log_probs_TV) and trial.method == "rescore":
            candidates = self._find_candidates(trial, log_probs_TV)
        elif len(log_probs_TV):
            path = self._find_path(trial, log_probs_TV)
            words = () if path is None else self._find_words(path, log_probs_TV, trial)
        return Found(words, time.thread_time() - start_s, candidates)

    def _find_path(self, trial: Trial, log_probs_TV: np.ndarray) -> list[int] | None:
        if trial.method == "beam":
            assert self.beam is not None, "no prefix beam was set up"
            return viterbi_path(log_probs_TV, self.beam.search(log_probs_TV, trial).tokens)
        if trial.method == "graph":
            assert self.graphs is not None, "no graph was loaded"
            return self.graphs[trial.word_penalty].search(log_probs_TV, trial.lm_weight, trial.beam)
        return greedy_path(log_probs_TV)

    def _find_candidates(self, trial: Trial, log_probs_TV: np.ndarray) -> tuple[Candidate, ...]:
        assert self.lattice is not None, "no lattices were set up"
        return tuple(
            Candidate(
                self._find_words(path.tokens, log_probs_TV, trial, path.words),
                tuple(self.symbols[word] for word in path.words),
                path.acoustic,
                path.lm,
            )
            for path in self.lattice.search(log_probs_TV, trial)
        )

    def _find_words(
        self, path: Sequence[int], log_probs_TV: np.ndarray, trial: Trial, said: Sequence[int] | None = None
    ) -> tuple[Word, ...]:
        """The words of a path, which are `said` (output labels) if given."""
        spans, num_frames = find_spans(path, log_probs_TV), len(log_probs_TV)
        if self.parser is None:
            groups = self.pieces.group(spans)
        else:
            words = None if said is None else [self.symbols[label] for label in said]
            groups = self.parser.group(spans, trial.word_penalty, words)
        return tuple(place_words(groups, self.frame_s, num_frames))
