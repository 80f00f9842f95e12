"""What a search is asked to do: a method and its weights, as tuned on dev and handed to decoding in tuning.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from asrtool.decode.settings import BEAM_SIZES, LM_WEIGHTS, NNLM_WEIGHTS, WORD_PENALTIES
from asrtool.errors import AsrtoolError

FIELDS = {
    "greedy": (),
    "beam": ("lm_weight", "word_penalty", "beam"),
    "graph": ("lm_weight", "word_penalty", "beam"),
    "rescore": ("lm_weight", "word_penalty", "beam", "nnlm_weight"),
}
RANGES = {"lm_weight": LM_WEIGHTS, "word_penalty": WORD_PENALTIES, "nnlm_weight": NNLM_WEIGHTS}


@dataclass(frozen=True)
class Trial:
    """A method and what it weighs. Greedy search has no language model: all zeros.

    Hypotheses are ranked by

        ln p(words | speech) + lm_weight (ln p(words) - word_penalty number of words) + nnlm_weight ln p_neural(words)

    The penalty is in the scale of the language model, as in Kaldi, and may be negative. `beam` is how many prefixes the
    prefix beam keeps; of graph search, and of the lattices that are rescored, a range of log probability.
    """

    method: str
    lm_weight: float = 0.0
    word_penalty: float = 0.0
    beam: float = 0.0
    nnlm_weight: float = 0.0

    def settings(self) -> dict[str, float]:
        """Those numbers that mean something to the method."""
        return {name: getattr(self, name) for name in FIELDS[self.method]}


def format_trials(trials: Iterable[Trial]) -> str:
    """The text of tuning.json."""
    return json.dumps({"methods": {trial.method: trial.settings() for trial in trials}}, indent=1) + "\n"


def read_trials(path: Path, methods: Iterable[str]) -> dict[str, Trial]:
    """The trial of each of `methods` in a tuning.json.

    Raises AsrtoolError when the file is missing or malformed, when it lacks a method, and for a number that the
    configuration would refuse.
    """
    hint = "run `asrtool tune` with these settings"
    try:
        table = json.loads(path.read_text(encoding="utf-8"))["methods"]
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", hint) from error
    except (ValueError, KeyError, TypeError) as error:
        raise AsrtoolError(f"{path}: no tuning, expected JSON with methods", hint) from error
    return {method: _parse(path, table, method, hint) for method in dict.fromkeys(methods)}


def _parse(path: Path, table: Mapping[str, Mapping[str, float]], method: str, hint: str) -> Trial:
    if not isinstance(table, dict) or method not in table:
        raise AsrtoolError(f"{path}: no results for method {method}", hint)
    found, expected = table[method], set(FIELDS[method])
    numbers = isinstance(found, dict) and all(type(value) in (int, float) for value in found.values())
    if not numbers or set(found) != expected:
        raise AsrtoolError(
            f"{path}: {method} has {json.dumps(found)}, expected a number for each of {', '.join(sorted(expected))}",
            hint,
        )
    for name, value in found.items():
        expected_range = _out_of_range(method, name, value)
        if expected_range:
            raise AsrtoolError(f"{path}: {method} has {name} {value}, expected {expected_range}", hint)
    return Trial(method, **{name: float(value) for name, value in found.items()})


def _out_of_range(method: str, name: str, value: float) -> str:
    """What is expected of a value that the configuration would refuse, nothing for another."""
    if method == "beam" and name == "beam":
        low, high = BEAM_SIZES
        return "" if low <= value <= high and value == int(value) else f"a whole number from {low} to {high}"
    if name in RANGES:
        least, most = RANGES[name]
        return "" if least <= value <= most else f"{least} to {most}"
    return "" if 0 < value <= sys.float_info.max else "a positive number"


NUMBERS = tuple(field.name for field in fields(Trial) if field.name != "method")
