"""Method rescore: n-best lists of lattices, ranked by other language models.

Letters in names: H candidates of a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from asrtool.decode.parameters import POSITIVE, Axis, DecodingParameters, Weights, lm_axes
from asrtool.decode.search.lattice import LatticeSearch
from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.decode.words import Word
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.estimate import LARGE
from asrtool.lang.ngram.model import NgramLm
from asrtool.models.files.safetensors_file import model_in
from asrtool.settings.decode import NNLM_WEIGHTS, settings_of

if TYPE_CHECKING:
    from asrtool.models.lm.neural_lm import NeuralLm


class Rescore(SearchMethod):
    """Method rescore; its lattices use the weights that were tuned for graph."""

    based_on = "graph"
    jointly = True
    ngram: NgramLm | None = None
    neural: NeuralLm | None = None

    def axes(self) -> Sequence[Axis]:
        neural = Axis("nnlm_weight", self.settings.nnlm_weights, limits=NNLM_WEIGHTS)
        if not self.resources.config.nnlm.enabled:
            neural = Axis("nnlm_weight", (0.0,), limits=(0, 0), expected="0, because nnlm.enabled is false")
        return *lm_axes(self.settings), Axis("beam", limits=POSITIVE), neural

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        resources = self.resources
        self.reader, self.graph_words = resources.word_reader, resources.graph_words
        max_active: int = settings_of(resources.config.decode, self.based_on).max_active
        self.lattices = LatticeSearch(resources.graph, max_active, self.settings.lattice_beam, self.settings.num_paths)
        self.ngram = NgramLm(read_arpa(resources.folder("lm") / LARGE)) if resources.config.lm.large else None
        if resources.config.nnlm.enabled:
            from asrtool.models.acoustic import choose_device
            from asrtool.models.lm.neural_lm import load_neural_lm

            self.neural = load_neural_lm(model_in(resources.folder("nnlm")))
            self.completes_in_main = choose_device().type != "cpu"

    def first_pass(self, parameters: DecodingParameters) -> DecodingParameters:
        """Return the parameters of graph."""
        assert parameters.base is not None, "graph is tuned before"
        return DecodingParameters(self.name, parameters.base.items)

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        """Return the n-best list, best first; `choose` selects its words."""
        weights = Weights.of(parameters)
        candidates = []
        for path in self.lattices.search(scores_TV, weights):
            sentence = [self.graph_words[word] for word in path.words]
            words = self.reader.read(path.tokens, scores_TV, weights.word_penalty, sentence)
            candidates.append(Candidate(words, tuple(sentence), path.acoustic, path.lm))
        self.resources.graph.release_pages()  # a lattice touches pages all over it
        return SearchResult((), tuple(candidates))

    def complete(self, results: list[SearchResult]) -> list[SearchResult]:
        """Replace the graph's scores by `ngram` ones, and add `neural` ones."""
        lists: list[Sequence[Candidate]] = [result.candidates for result in results]
        if self.ngram is not None:
            ngram = self.ngram
            lists = [[replace(each, lm=ngram.log_prob(list(each.sentence))) for each in some] for some in lists]
        if self.neural is not None:
            from asrtool.models.acoustic import choose_device
            from asrtool.models.precision import choose_precision

            if self.completes_in_main:
                self.neural.to(choose_device())  # only now: CUDA does not survive a fork
            trained = self.resources.config.nnlm.precision
            with choose_precision("fp32" if trained == "fp32" else "auto").autocast():  # the precision of its training
                scores = iter(self.neural.log_probs([candidate.sentence for some in lists for candidate in some]))
            lists = [[replace(each, nnlm=next(scores)) for each in some] for some in lists]
        return [SearchResult((), tuple(some)) for some in lists]

    def choose(self, result: SearchResult, parameters: Sequence[DecodingParameters]) -> list[tuple[Word, ...]]:
        candidates: Sequence[Candidate] = result.candidates
        if not candidates:
            return [() for _ in parameters]
        scores = [(each.acoustic, each.lm, len(each.sentence), each.nnlm) for each in candidates]
        acoustic_H, ngram_H, num_words_H, neural_H = np.array(scores, dtype=np.float64).T
        chosen = []
        for each in parameters:
            lm_H = each["lm_weight"] * (ngram_H - each["word_penalty"] * num_words_H)
            best = int(np.argmax(acoustic_H + lm_H + each["nnlm_weight"] * neural_H))
            chosen.append(candidates[best].words)
        return chosen


@dataclass(frozen=True)
class Candidate:
    """A sentence of an n-best list; scores are natural logarithms."""

    words: tuple[Word, ...]  # words of a ctm, with times
    sentence: tuple[str, ...]  # all words, tags too
    acoustic: float
    lm: float  # ln p by the n-gram
    nnlm: float = 0.0  # ln p by the neural language model
