"""Decoding parameters, and what tuning hands to decoding."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from asrtool.decode.decode import read_tuning
from asrtool.decode.parameters import Axis, DecodingParameters, format_parameters
from asrtool.decode.resources import Resources
from asrtool.decode.search.method import SearchMethod, make_methods
from asrtool.errors import AsrtoolError
from asrtool.settings.config import Config, Decode
from asrtool.settings.schema import Choice
from asrtool.settings.train import Nnlm

GRAPH = DecodingParameters.of("graph", lm_weight=0.8, word_penalty=0.0, beam=14.0)
CHOSEN = (
    DecodingParameters("greedy"),
    DecodingParameters.of("beam", lm_weight=0.5, word_penalty=-0.5, beam=16.0),
    GRAPH,
    DecodingParameters.of("rescore", GRAPH, lm_weight=0.3, word_penalty=0.5, beam=14.0, nnlm_weight=0.4),
)


def methods(*names: str, neural: bool = True) -> dict[str, SearchMethod]:
    """Methods that have read nothing."""
    chosen = tuple(Choice.of("search", name) for name in names)
    config = Config(decode=Decode(methods=chosen), nnlm=Nnlm(enabled=neural))
    return make_methods(config.decode, Resources(None, {}, config))  # type: ignore[arg-type]


def test_parameters_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(format_parameters(CHOSEN))
    assert list(read_tuning(path, methods("greedy", "beam", "graph", "rescore")).values()) == list(CHOSEN)
    assert list(read_tuning(path, methods("rescore", "graph"))) == ["rescore", "graph"]
    expected = (
        r"tuning\.json: rescore has nnlm_weight 0\.4, expected 0, because nnlm\.enabled is false; run `asrtool tune`"
    )
    with pytest.raises(AsrtoolError, match=expected):
        read_tuning(path, methods("rescore", "graph", neural=False))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no tuning, expected JSON with methods"),
        ("{}", "no tuning, expected JSON with methods"),
        ('{"methods": []}', "no results for method graph"),
        ('{"methods": {"beam": {}}}', "no results for method graph"),
        ('{"methods": {"graph": {"lm_weight": 1}}}', "graph has .*expected a number for each of beam, lm_weight, word"),
        ('{"methods": {"graph": {"lm_weight": "1", "word_penalty": 0, "beam": 1}}}', "graph has .* expected a number"),
        ('{"methods": {"graph": 3}}', "graph has 3, expected a number"),
    ],
)
def test_a_file_that_is_no_tuning_is_one_line_that_names_the_command(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(text)
    with pytest.raises(AsrtoolError, match=rf"tuning\.json: {message}.*; run `asrtool tune`"):
        read_tuning(path, methods("graph"))
    path.unlink()
    with pytest.raises(AsrtoolError, match=r"cannot be read, No such file.*; run `asrtool tune`"):
        read_tuning(path, methods("graph"))


@pytest.mark.parametrize(
    ("method", "name", "value", "expected"),
    [
        ("graph", "lm_weight", 0, "0.001 to 1000"),
        ("beam", "lm_weight", math.nan, "0.001 to 1000"),
        ("graph", "beam", math.inf, "a positive number"),
        pytest.param("graph", "beam", 10**400, "a positive number", id="more than a float holds"),
        ("rescore", "beam", 0.0, "a positive number"),
        ("beam", "beam", 0.5, "a whole number from 1 to 10000"),
        ("beam", "beam", 16.5, "a whole number from 1 to 10000"),
        ("graph", "word_penalty", -21, "-20 to 20"),
        ("rescore", "nnlm_weight", -0.1, "0 to 100"),
    ],
)
def test_a_weight_that_the_configuration_would_refuse_is_named(
    tmp_path: Path, method: str, name: str, value: float, expected: str
) -> None:
    path = tmp_path / "tuning.json"
    table = json.loads(format_parameters(CHOSEN))
    table["methods"][method][name] = value
    path.write_text(json.dumps(table))
    message = rf"tuning\.json: {method} has {name} .*, expected {expected}; run `asrtool tune`"
    with pytest.raises(AsrtoolError, match=message):
        read_tuning(path, methods("greedy", "beam", "graph", "rescore"))


def test_an_axis_without_values_has_the_value_of_the_base() -> None:
    assert Axis("beam").tried(GRAPH) == [14.0]
    assert Axis("beam", (2, 1, 2)).tried(GRAPH) == [2.0, 1.0]
