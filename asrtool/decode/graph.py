"""Method graph: the best path through the decoding graph HLG, by kaldi-decoder or k2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import kaldi_decoder
import kaldifst
import numpy as np

from asrtool.decode.method import SearchMethod, SearchResult
from asrtool.decode.parameters import (
    POSITIVE,
    Axis,
    DecodingParameters,
    Weights,
    lm_weight_axis,
    word_penalty_axis,
)
from asrtool.lang.graph_file import load_fst
from asrtool.optional import require_k2


class PathSearch(Protocol):
    """Search on a graph that holds the language model at weight 1."""

    def search(self, scores_TV: np.ndarray, lm_weight: float, beam: float) -> list[int] | None:
        """The best path, a column a row; None when there is none."""


class Graph(SearchMethod):
    """It has a graph for each word penalty, with that on its arcs: the one that is searched is in memory."""

    one_at_a_time = "word_penalty"

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
        self.graph = self.resources.graph
        self.searches: dict[float, PathSearch] = {}

    def prepare(self, parameters: Sequence[DecodingParameters]) -> None:
        """As SearchMethod.prepare. Graphs of other word penalties than those of `parameters` go first."""
        penalties = dict.fromkeys(each["word_penalty"] for each in parameters)
        self.searches = {penalty: search for penalty, search in self.searches.items() if penalty in penalties}
        for penalty in penalties:
            if penalty not in self.searches:
                self.searches[penalty] = self._open_search(penalty)

    def _open_search(self, penalty: float) -> PathSearch:
        max_active: int = self.settings.max_active
        if self.settings.backend == "k2":
            require_k2("decode.graph.backend = k2")
            from asrtool.decode.k2_search import K2Search

            return K2Search(self.graph.folder, max_active, penalty)
        return GraphSearch(load_fst(self.graph.arrays, penalty), max_active)

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        """As SearchMethod.search."""
        weights = Weights.of(parameters)
        path = self.searches[weights.word_penalty].search(scores_TV, weights.lm_weight, weights.beam)
        return SearchResult(() if path is None else self.reader.read(path, scores_TV, weights.word_penalty))


class GraphSearch:
    """One-best search on `graph`, a kaldifst transducer whose input label i + 1 reads column i of the scores.

    `max_active` bounds the states of a frame.
    """

    def __init__(self, graph: Any, max_active: int) -> None:
        self.graph = graph  # kept, because the decoder does not
        self.max_active = max_active
        self.decoder = kaldi_decoder.FasterDecoder(graph, kaldi_decoder.FasterDecoderOptions())
        self._beam: float | None = None  # that the decoder was given

    def search(self, scores_TV: np.ndarray, lm_weight: float, beam: float) -> list[int] | None:
        """The best path; None when the graph accepts no path.

        The graph holds the language model at weight 1, so the scores are scaled by 1 / lm_weight instead. `beam`
        is a range of log probability in the scale of the language model.
        """
        if beam != self._beam:
            self.decoder.set_options(kaldi_decoder.FasterDecoderOptions(beam=beam, max_active=self.max_active))
            self._beam = beam
        self.decoder.decode(kaldi_decoder.DecodableCtc(np.divide(scores_TV, lm_weight, dtype=np.float32)))
        found, path = self.decoder.get_best_path()
        if not found:
            return None
        _, labels, _, _ = kaldifst.get_linear_symbol_sequence(path)
        assert len(labels) == len(scores_TV), f"{len(labels)} labels on {len(scores_TV)} frames"
        return [label - 1 for label in labels]
