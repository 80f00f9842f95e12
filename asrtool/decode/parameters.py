"""Decoding parameters of a method, as tuned on dev and stored in tuning.json."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from asrtool.errors import AsrtoolError
from asrtool.settings.decode import LM_WEIGHTS, WORD_PENALTIES

ANY = (-sys.float_info.max, sys.float_info.max)
POSITIVE = (math.ulp(0.0), sys.float_info.max)


@dataclass(frozen=True)
class DecodingParameters:
    """Method and the value of each of its axes; `base` are its base method's.

    Hypotheses are ranked by

        ln p(words | speech) + lm_weight (ln p(words) - word_penalty number of words) + nnlm_weight ln p_neural(words)

    The penalty is in the scale of the language model, as in Kaldi, and may be negative. `beam` is the number of
    prefixes of the prefix beam; of graph search and lattices, a range of log probability.
    """

    method: str
    items: tuple[tuple[str, float], ...] = ()
    base: DecodingParameters | None = None

    @classmethod
    def of(cls, method: str, base: DecodingParameters | None = None, /, **values: float) -> DecodingParameters:
        """Build parameters of `method` with these values."""
        return cls(method, tuple(values.items()), base)

    def values(self) -> dict[str, float]:
        """Return name -> value."""
        return dict(self.items)

    def vary(self, /, **changed: float) -> DecodingParameters:
        """Return a copy with the values `changed`."""
        return DecodingParameters.of(self.method, self.base, **{**self.values(), **changed})

    def __getitem__(self, name: str) -> float:
        return self.values()[name]

    def __str__(self) -> str:
        return " ".join([self.method, *(f"{name}={value:g}" for name, value in self.items)])


class Weights(NamedTuple):
    """Weights of a search with an n-gram; see DecodingParameters."""

    lm_weight: float
    word_penalty: float = 0.0
    beam: float = 0.0

    @classmethod
    def of(cls, parameters: DecodingParameters) -> Weights:
        """Select the weights among `parameters`."""
        return cls(parameters["lm_weight"], parameters["word_penalty"], parameters["beam"])


@dataclass(frozen=True)
class Axis:
    """Parameter of a method and values to tune; without any, its base's value."""

    name: str
    values: Sequence[float] = ()
    start: float | None = None  # while earlier axes are tuned; None is the first value
    prefer: Callable[[float], float] = float  # among values with equally many errors the one for which this is lowest
    limits: tuple[float, float] = ANY  # least and greatest value that a tuning.json may have
    whole: bool = False
    grows: bool = False  # values beyond an end are tried while that is best
    expected: str = ""  # for the error of a value out of range; by default the limits

    def tried(self, base: DecodingParameters | None) -> list[float]:
        """Return every value once, in order."""
        if self.values:
            return list(dict.fromkeys(map(float, self.values)))
        assert base is not None, f"axis {self.name} has no values and no base"
        return [base[self.name]]

    def first(self, base: DecodingParameters | None) -> float:
        """Return the value while earlier axes are tuned."""
        return self.tried(base)[0] if self.start is None else float(self.start)

    def admits(self, value: float) -> bool:
        """Return whether `value` is allowed."""
        low, high = self.limits
        return low <= value <= high and (not self.whole or value == int(value))

    def describe(self) -> str:
        """Describe the allowed values."""
        if self.expected:
            return self.expected
        if self.limits in (ANY, POSITIVE):
            return "a positive number" if self.limits == POSITIVE else "a finite number"
        low, high = self.limits
        return f"a whole number from {low} to {high}" if self.whole else f"{low} to {high}"


def lm_axes(settings: Any) -> tuple[Axis, Axis]:
    """Return the axes of n-gram weight and word penalty; prefer small penalties."""
    penalties = settings.word_penalties
    return (
        Axis("lm_weight", settings.lm_weights, limits=LM_WEIGHTS, grows=True),
        Axis("word_penalty", penalties, start=min(penalties, key=abs), prefer=abs, limits=WORD_PENALTIES, grows=True),
    )


def combine(method: str, axes: Sequence[Axis], base: DecodingParameters | None) -> list[DecodingParameters]:
    """Return all combinations of the values of `axes`."""
    names = [axis.name for axis in axes]
    combined = itertools.product(*(axis.tried(base) for axis in axes))
    return [DecodingParameters(method, tuple(zip(names, values, strict=True)), base) for values in combined]


def format_parameters(parameters: Iterable[DecodingParameters]) -> str:
    """Format tuning.json."""
    return json.dumps({"methods": {each.method: each.values() for each in parameters}}, indent=1) + "\n"


class TuningFile:
    """A tuning.json; raises AsrtoolError if it is missing or malformed."""

    hint = "run `asrtool tune` with these settings"

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.table: Mapping[str, Mapping[str, float]] = json.loads(path.read_text(encoding="utf-8"))["methods"]
        except OSError as error:
            raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", self.hint) from error
        except (ValueError, KeyError, TypeError) as error:
            raise AsrtoolError(f"{path}: no tuning, expected JSON with methods", self.hint) from error

    def read(self, method: str, axes: Sequence[Axis], base: DecodingParameters | None = None) -> DecodingParameters:
        """Return the parameters of `method`; AsrtoolError if missing or out of range."""
        if not isinstance(self.table, dict) or method not in self.table:
            raise AsrtoolError(f"{self.path}: no results for method {method}", self.hint)
        found, names = self.table[method], [axis.name for axis in axes]
        numbers = isinstance(found, dict) and all(type(value) in (int, float) for value in found.values())
        if not numbers or set(found) != set(names):
            expected = f"a number for each of {', '.join(sorted(names))}" if names else "{}"
            raise AsrtoolError(f"{self.path}: {method} has {json.dumps(found)}, expected {expected}", self.hint)
        for axis in axes:
            if not axis.admits(found[axis.name]):
                raise AsrtoolError(
                    f"{self.path}: {method} has {axis.name} {found[axis.name]}, expected {axis.describe()}", self.hint
                )
        return DecodingParameters.of(method, base, **{name: float(value) for name, value in found.items()})
