"""Method rescore: n-best lists of lattices, ranked by other language models.

Letters in names: H candidates of a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from asrtool.decode.parameters import (
    POSITIVE,
    Axis,
    DecodingParameters,
    Weights,
    lm_weight_axis,
    word_penalty_axis,
)
from asrtool.decode.search.lattice import LatticeSearch
from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.decode.words import Word
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.estimate import LARGE
from asrtool.lang.ngram.model import NgramLm
from asrtool.models.acoustic import choose_device
from asrtool.models.files.safetensors_file import model_in
from asrtool.models.lm.neural_lm import NeuralLm, load_neural_lm
from asrtool.models.precision import choose_precision
from asrtool.settings.decode import NNLM_WEIGHTS, settings_of


class Rescore(SearchMethod):
    """Method rescore; its lattices use the weights that were tuned for graph."""

    based_on = "graph"
    jointly = True
    ngram: NgramScorer | None = None
    neural: NeuralScorer | None = None

    def axes(self) -> Sequence[Axis]:
        neural = Axis("nnlm_weight", self.settings.nnlm_weights, limits=NNLM_WEIGHTS)
        if not self.resources.config.nnlm.enabled:
            neural = Axis("nnlm_weight", (0.0,), limits=(0, 0), expected="0, because nnlm.enabled is false")
        return (
            lm_weight_axis(self.settings.lm_weights),
            word_penalty_axis(self.settings.word_penalties),
            Axis("beam", limits=POSITIVE),
            neural,
        )

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        resources = self.resources
        graph = resources.graph
        self.reader, self.graph_words = resources.word_reader, graph.words
        max_active: int = settings_of(resources.config.decode, self.based_on).max_active
        self.lattices = LatticeSearch(graph.arrays, max_active, self.settings.lattice_beam, self.settings.num_paths)
        self.ngram = NgramLm(read_arpa(resources.folder("lm") / LARGE)) if resources.config.lm.large else None
        if resources.config.nnlm.enabled:
            self.neural = load_neural_lm(model_in(resources.folder("nnlm")))
            self.completes_in_main = choose_device().type != "cpu"

    def first_pass(self, parameters: DecodingParameters) -> DecodingParameters:
        """The parameters of graph."""
        assert parameters.base is not None, "graph is tuned before"
        return DecodingParameters(self.name, parameters.base.items)

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        """The n-best list, best first; its words are not chosen yet."""
        weights = Weights.of(parameters)
        candidates = []
        for path in self.lattices.search(scores_TV, weights):
            sentence = [self.graph_words[word] for word in path.words]
            words = self.reader.read(path.tokens, scores_TV, weights.word_penalty, sentence)
            candidates.append(Candidate(words, tuple(sentence), path.acoustic, path.lm))
        self.resources.graph.arrays.let_go()  # a lattice touches pages all over it
        return SearchResult((), tuple(candidates))

    def complete(self, results: list[SearchResult]) -> list[SearchResult]:
        """Replace the graph's scores by `ngram` ones, and add `neural` ones."""
        if self.completes_in_main and isinstance(self.neural, NeuralLm):
            self.neural.to(choose_device())  # only now: CUDA does not survive a fork
        with self._format():
            lists = score_lists([result.candidates for result in results], self.ngram, self.neural)
        return [SearchResult((), candidates) for candidates in lists]

    def _format(self) -> AbstractContextManager[object]:
        """Return the autocast format of the neural model: the one it was trained in.

        The GPU is looked for only now, and not in a forked process without such a model.
        """
        if self.neural is None:
            return nullcontext()
        trained = self.resources.config.nnlm.precision
        return choose_precision("fp32" if trained == "fp32" else "auto").autocast()

    def choose(self, result: SearchResult, parameters: Sequence[DecodingParameters]) -> list[tuple[Word, ...]]:
        scored = ScoredList.of(result.candidates)
        best = [scored.best(Weights.of(each), each["nnlm_weight"]) for each in parameters]
        return [candidate.words if candidate else () for candidate in best]


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
    nnlm: float = 0.0  # of the neural language model


@dataclass(frozen=True)
class ScoredList:
    """N-best list as the columns of its ranking, shape (H,) each, best first."""

    candidates: Sequence[Candidate]
    acoustic_H: np.ndarray
    lm_H: np.ndarray
    nnlm_H: np.ndarray
    num_words_H: np.ndarray

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> ScoredList:
        """The columns of `candidates`."""
        scores = [(each.acoustic, each.lm, each.nnlm, len(each.sentence)) for each in candidates]
        return cls(candidates, *np.array(scores, dtype=np.float64).reshape(-1, 4).T)

    def best(self, weights: Weights, nnlm_weight: float = 0.0) -> Candidate | None:
        """Return the best candidate by the equation of DecodingParameters, or None."""
        if not self.candidates:
            return None
        lm_H = self.lm_H - weights.word_penalty * self.num_words_H
        return self.candidates[int(np.argmax(self.acoustic_H + weights.lm_weight * lm_H + nnlm_weight * self.nnlm_H))]


def score_lists(
    lists: Sequence[Sequence[Candidate]], ngram: NgramScorer | None = None, neural: NeuralScorer | None = None
) -> list[tuple[Candidate, ...]]:
    """Return candidates with `ngram` scores in place of the search's, and `neural`."""
    if ngram is not None:
        lists = [[replace(each, lm=ngram.log_prob(list(each.sentence))) for each in some] for some in lists]
    if neural is not None:
        scores = iter(neural.log_probs([candidate.sentence for some in lists for candidate in some]))
        lists = [[replace(each, nnlm=next(scores)) for each in some] for some in lists]
    return [tuple(some) for some in lists]
