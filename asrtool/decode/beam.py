"""Method beam: CTC prefix beam search with the n-gram of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asrtool.decode.method import SearchMethod, SearchResult
from asrtool.decode.parameters import Axis, DecodingParameters, Weights, lm_weight_axis, word_penalty_axis
from asrtool.decode.prefix_beam import PrefixBeam
from asrtool.decode.settings import BEAM_SIZES
from asrtool.errors import AsrtoolError


def prefix_axes(settings: Any) -> Sequence[Axis]:
    """Those of a search that keeps the best `beam_sizes` sequences."""
    sizes = settings.beam_sizes
    return (
        lm_weight_axis(settings.lm_weights),
        word_penalty_axis(settings.word_penalties),
        Axis("beam", sizes, start=max(sizes), limits=BEAM_SIZES, whole=True),
    )


class Beam(SearchMethod):
    """Times are those of the best path of the tokens found."""

    def axes(self) -> Sequence[Axis]:
        """As SearchMethod.axes."""
        return prefix_axes(self.settings)

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        """As SearchMethod.open."""
        resources = self.resources
        blank = getattr(resources.topology, "blank", None)
        if blank is None:
            raise AsrtoolError(
                f"method {self.name} searches scores that have a blank, {resources.acoustic.path} gives none",
                "choose other decode.methods",
            )
        self.reader = resources.word_reader_by_marks(self.name)
        self.prefix_beam = PrefixBeam(resources.pieces, resources.ngram, resources.words, blank)

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        """As SearchMethod.search."""
        tokens = self.prefix_beam.search(scores_TV, Weights.of(parameters)).tokens
        return SearchResult(self.reader.read(self.resources.topology.align(scores_TV, tokens), scores_TV))
