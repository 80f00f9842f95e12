"""What every search method offers, scores of an utterance to words, and greedy search, the simplest of them.

Letters in names: T rows, V columns of the scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from asrtool.decode.parameters import Axis, DecodingParameters
from asrtool.decode.resources import Resources
from asrtool.decode.words import Word
from asrtool.errors import AsrtoolError
from asrtool.settings.decode import Decode


class SearchResult(NamedTuple):
    """The words found in an utterance, or where `choose` does the rest, what it chooses from."""

    words: tuple[Word, ...]
    candidates: tuple[Any, ...] = ()


class SearchMethod(ABC):
    """A method that `decode.methods` names; subclasses are listed in asrtool/settings/registry.py, or a person's own.

    Its settings class may name the objectives whose scores it can search (`objectives`) and the stages whose outputs
    it reads (`needs`). Nothing is read when it is made.
    """

    based_on: ClassVar[str] = ""  # a method that is tuned before; its parameters are the `base` of those of this one
    completes_in_main = False  # whether `complete` runs in the main process, the only one that may use a GPU
    one_at_a_time: ClassVar[str] = ""  # an axis of whose values `prepare` is given one alone, for want of memory
    jointly: ClassVar[bool] = False  # whether tune tries all combinations, for a method that need not search for each

    def __init__(self, name: str, settings: Any, resources: Resources) -> None:
        self.name = name
        self.settings = settings
        self.resources = resources

    def axes(self) -> Sequence[Axis]:
        """What tune may vary, one after the other; among equals the last axis decides first which value wins."""
        return ()

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        """Read what is searched, once, before processes are forked; `values` are those each axis can have in this run.

        Raises AsrtoolError when something is missing or broken, or when parts do not belong together.
        """

    def prepare(self, parameters: Sequence[DecodingParameters]) -> None:
        """Hold what `search` reads for these; before each set of searches, and before processes are forked for it.

        `parameters` are first passes of this method that are searched side by side. Raises AsrtoolError as `open`.
        """

    @abstractmethod
    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        """What is found in an utterance of at least one row, float32.

        Runs in a forked process, or on a worker of a cluster; it uses no GPU.
        """

    def complete(self, results: list[SearchResult]) -> list[SearchResult]:
        """What `search` found in several utterances, with what is better done for them side by side.

        Runs in the process of the searches, for those of one piece, or where `completes_in_main` says.
        """
        return results

    def first_pass(self, parameters: DecodingParameters) -> DecodingParameters:
        """Those that `search` is given: parameters with the same ones share a search, and differ in `choose` alone."""
        return parameters

    def choose(self, result: SearchResult, parameters: Sequence[DecodingParameters]) -> list[tuple[Word, ...]]:
        """The words for each of `parameters`, whose first pass gave `result`.

        Runs in the main process, or on the worker that searched.
        """
        return [result.words for _ in parameters]


class Greedy(SearchMethod):
    """The best column of each row; no language model, and nothing to tune."""

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        """As SearchMethod.open."""
        self.reader = self.resources.word_reader_by_marks(self.name)

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        """As SearchMethod.search."""
        return SearchResult(self.reader.read(self.resources.topology.best_path(scores_TV), scores_TV))


def make_methods(settings: Decode, resources: Resources) -> dict[str, SearchMethod]:
    """The methods of `settings` by name, not yet open, in the order named.

    Raises AsrtoolError for one that cannot be loaded, and for one without the method that it is based on.
    """
    methods: dict[str, SearchMethod] = {
        chosen.name: chosen.load()(chosen.name, chosen.settings, resources) for chosen in settings.methods
    }
    for method in methods.values():
        if method.based_on and method.based_on not in methods:
            raise AsrtoolError(
                f"decode.methods has {method.name} without {method.based_on}, which it is based on",
                f"add {method.based_on}",
            )
    return methods


def bases_first(methods: Mapping[str, SearchMethod]) -> list[list[SearchMethod]]:
    """The methods in groups: those based on none, then those based on one of the group before, and so on."""
    groups: list[list[SearchMethod]] = []
    names = {""}
    while names:
        group = [method for method in methods.values() if method.based_on in names]
        groups.append(group)
        names = {method.name for method in group}
    return groups[:-1]
