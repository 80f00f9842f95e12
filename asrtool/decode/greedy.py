"""Greedy search: the best column of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from asrtool.decode.method import SearchMethod, SearchResult
from asrtool.decode.parameters import DecodingParameters


class Greedy(SearchMethod):
    """No language model, and nothing to tune."""

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        """As SearchMethod.open."""
        self.reader = self.resources.word_reader_by_marks(self.name)

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        """As SearchMethod.search."""
        return SearchResult(self.reader.read(self.resources.topology.best_path(scores_TV), scores_TV))
