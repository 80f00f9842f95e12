"""Method graph: the best path through the decoding graph HLG, by kaldi-decoder or k2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from asrtool.decode.graph_search import GraphSearch, add_word_penalty
from asrtool.decode.method import SearchMethod, SearchResult
from asrtool.decode.parameters import (
    POSITIVE,
    Axis,
    DecodingParameters,
    Weights,
    lm_weight_axis,
    word_penalty_axis,
)
from asrtool.decode.resources import SearchGraph
from asrtool.lang.graph import load_graph
from asrtool.optional import require_k2


class PathSearch(Protocol):
    """Search on a graph that holds the language model at weight 1."""

    def search(self, scores_TV: np.ndarray, lm_weight: float, beam: float) -> list[int] | None:
        """The best path, a column a row; None when there is none."""


class Graph(SearchMethod):
    """It has a graph for each word penalty, with that on its arcs."""

    def axes(self) -> Sequence[Axis]:
        """As SearchMethod.axes."""
        beams = self.settings.beams
        return (
            lm_weight_axis(self.settings.lm_weights),
            word_penalty_axis(self.settings.word_penalties),
            Axis("beam", beams, start=max(beams), limits=POSITIVE),
        )

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        """As SearchMethod.open."""
        self.reader = self.resources.word_reader
        self.searches = self._open_searches(self.resources.graph, [float(value) for value in values["word_penalty"]])

    def _open_searches(self, graph: SearchGraph, penalties: Sequence[float]) -> Mapping[float, PathSearch]:
        max_active: int = self.settings.max_active
        if self.settings.backend == "k2":
            require_k2("decode.graph.backend = k2")
            from asrtool.decode.k2_search import K2Search

            return {penalty: K2Search(graph.folder, max_active, penalty) for penalty in penalties}
        plain = load_graph(graph.folder)
        return {
            penalty: GraphSearch(add_word_penalty(plain, penalty, len(graph.words)), max_active)
            for penalty in penalties
        }

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        """As SearchMethod.search."""
        weights = Weights.of(parameters)
        path = self.searches[weights.word_penalty].search(scores_TV, weights.lm_weight, weights.beam)
        return SearchResult(() if path is None else self.reader.read(path, scores_TV, weights.word_penalty))
