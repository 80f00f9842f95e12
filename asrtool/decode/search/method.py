"""Interface of search methods, and greedy search.

Letters in names: T rows, V columns of the scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from asrtool.decode.parameters import Axis, DecodingParameters, TuningFile
from asrtool.decode.resources import Resources
from asrtool.decode.words import Word, WordPieces, place_words
from asrtool.errors import AsrtoolError
from asrtool.models.objectives.topology import Span
from asrtool.settings.decode import Decode


class SearchResult(NamedTuple):
    """Words of an utterance, or candidates that `choose` selects from."""

    words: tuple[Word, ...]
    candidates: tuple[Any, ...] = ()
    cpu_s: float = 0.0  # CPU seconds of the search, set by the decoder


class SearchMethod(ABC):
    """Search method that `decode.methods` names; built-in or custom.

    Its settings class may name the objectives whose scores it searches (`objectives`) and the stages whose outputs it
    reads (`needs`). Nothing is read when it is constructed.
    """

    based_on: ClassVar[str] = ""  # method that is tuned before this one; its parameters become `base`
    completes_in_main = False  # `complete` runs in the main process, the only one that may use a GPU
    one_at_a_time: ClassVar[str] = ""  # an axis of whose values `prepare` is given one alone, for want of memory
    jointly: ClassVar[bool] = False  # tune tries all combinations, as no search is needed for each

    def __init__(self, name: str, settings: Any, resources: Resources) -> None:
        self.name = name
        self.settings = settings
        self.resources = resources

    def axes(self) -> Sequence[Axis]:
        """Return the parameters that tune varies in turn.

        Among equal results the last axis decides first which value wins.
        """
        return ()

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        """Read all inputs once, before processes are forked.

        `values` are the values that each axis can have. Raises AsrtoolError if an input is missing or broken, or if
        parts do not belong together.
        """

    def prepare(self, parameters: Sequence[DecodingParameters]) -> None:
        """Load the inputs of `search` for `parameters`, before processes are forked.

        `parameters` are first passes of this method that are searched side by side. Raises AsrtoolError as `open`.
        """

    @abstractmethod
    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        """Search an utterance of at least one row, float32.

        Runs in a forked process or on a worker of a cluster, without a GPU.
        """

    def complete(self, results: list[SearchResult]) -> list[SearchResult]:
        """Complete the results of several utterances side by side.

        Runs in the process of the searches for one piece of work, or in the main process if `completes_in_main`.
        """
        return results

    def first_pass(self, parameters: DecodingParameters) -> DecodingParameters:
        """Return the parameters that `search` gets; equal ones share a search."""
        return parameters

    def choose(self, result: SearchResult, parameters: Sequence[DecodingParameters]) -> list[tuple[Word, ...]]:
        """Return the words for each of `parameters`, whose first pass gave `result`.

        Runs in the main process, or on the worker that searched.
        """
        return [result.words for _ in parameters]


class Greedy(SearchMethod):
    """Greedy search: the best column of each row; nothing to tune."""

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        self.reader = self.resources.word_reader_by_marks(self.name)

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        return SearchResult(self.reader.read(self.resources.topology.best_path(scores_TV), scores_TV))


class ModelSearch(SearchMethod):
    """Base of searches that compute the objective; words by marks of tokens.

    `weights` of the objective are in NumPy, since search processes have no torch.
    """

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        self.resources.check_marks(self.name)
        self.grouping = WordPieces(self.resources.pieces)
        objective: Any = self.resources.acoustic.model.objective
        self.weights = {name: value.detach().cpu().float().numpy() for name, value in objective.state_dict().items()}

    def words_of(self, spans: Sequence[Span], num_rows: int) -> tuple[Word, ...]:
        """Return words and their times."""
        return tuple(place_words(self.grouping.group(spans), self.resources.acoustic.frame_s, num_rows))


def log_softmax(values: np.ndarray) -> np.ndarray:
    """Return the log softmax over the last axis."""
    shifted = values - values.max(axis=-1, keepdims=True)
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def make_methods(settings: Decode, resources: Resources) -> dict[str, SearchMethod]:
    """Return the methods of `settings` by name, in order, not yet open.

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
    """Return the methods in groups: those without a base, then those based on them."""
    groups: list[list[SearchMethod]] = []
    names = {""}
    while names:
        group = [method for method in methods.values() if method.based_on in names]
        groups.append(group)
        names = {method.name for method in group}
    return groups[:-1]


def read_tuning(path: Path, methods: Mapping[str, SearchMethod]) -> dict[str, DecodingParameters]:
    """Return the parameters of each method; AsrtoolError as TuningFile."""
    tuning = TuningFile(path)
    found: dict[str, DecodingParameters] = {}
    for group in bases_first(methods):
        for method in group:
            found[method.name] = tuning.read(method.name, method.axes(), found.get(method.based_on))
    return {name: found[name] for name in methods}
