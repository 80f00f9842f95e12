"""What a search process does for one utterance."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asrtool.decode.method import SearchMethod, SearchResult
from asrtool.decode.parameters import DecodingParameters

Item = tuple[np.ndarray, Sequence[DecodingParameters]]


class Timed(NamedTuple):
    """What a search found, and the CPU seconds it took."""

    result: SearchResult
    cpu_s: float


@dataclass(frozen=True)
class Searches:
    """The methods, which are open."""

    methods: Mapping[str, SearchMethod]

    def __call__(self, item: Item) -> list[Timed]:
        """Search the scores of an utterance, float32 (T, V), with each of the parameters; without rows no words."""
        scores_TV, parameters = item
        return [self._search(scores_TV, each) for each in parameters]

    def _search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> Timed:
        start_s = time.thread_time()
        method = self.methods[parameters.method]
        result = method.search(scores_TV, parameters) if len(scores_TV) else SearchResult(())
        return Timed(result, time.thread_time() - start_s)
