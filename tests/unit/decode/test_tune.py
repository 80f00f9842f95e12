"""Choosing decoding parameters on dev, and what tuning hands to decoding."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from asrtool.decode.parameters import DecodingParameters, format_parameters
from asrtool.decode.resources import Resources
from asrtool.decode.search.method import SearchMethod, make_methods, read_tuning
from asrtool.decode.tune import Results, choose, count_errors, format_tuning, group_trials, tune_methods
from asrtool.errors import AsrtoolError
from asrtool.score.result import Counts
from asrtool.settings.config import Config, Decode
from asrtool.settings.schema import Choice
from asrtool.settings.train import Nnlm

GREEDY = DecodingParameters("greedy")
LOW, MIDDLE = (DecodingParameters.of("beam", lm_weight=weight, word_penalty=0.0, beam=16.0) for weight in (0.3, 0.5))


def make(*chosen: Choice | str, neural: bool = True) -> dict[str, SearchMethod]:
    """Methods that have read nothing."""
    methods = tuple(Choice.of("search", each) if isinstance(each, str) else each for each in chosen)
    config = Config(decode=Decode(methods=methods), nnlm=Nnlm(enabled=neural))
    return make_methods(config.decode, Resources(None, {}, config))  # type: ignore[arg-type]


def axes_of(methods: dict[str, SearchMethod]) -> dict[str, Sequence[object]]:
    return {name: method.axes() for name, method in methods.items()}


def test_tags_count_neither_in_the_transcript_nor_in_what_was_found() -> None:
    counts = count_errors("[noise] uh that is th- fine [laughter]", ["uh", "that", "[noise]", "was", "fine"])
    assert (counts.num_words, counts.sub, counts.del_, counts.ins) == (5, 1, 1, 0)
    assert count_errors("[noise]", []).num_words == 0


def test_what_is_searched_side_by_side_has_one_word_penalty_of_the_graph_and_any_of_the_beam() -> None:
    methods = make("greedy", "beam", "graph")
    values = [(name, penalty) for penalty in (-0.5, 0.5) for name in ("beam", "graph")]
    beam, graph, other_beam, other_graph = (
        DecodingParameters.of(name, lm_weight=0.3, word_penalty=penalty, beam=16.0) for name, penalty in values
    )
    groups = group_trials(methods, [GREEDY, beam, graph, other_beam, other_graph])
    assert groups == [[GREEDY, beam, graph, other_beam], [other_graph]]


def rescore(lm_weight: float, word_penalty: float, nnlm_weight: float) -> DecodingParameters:
    return DecodingParameters.of(
        "rescore", lm_weight=lm_weight, word_penalty=word_penalty, beam=10.0, nnlm_weight=nnlm_weight
    )


def test_among_equals_no_neural_model_wins_then_the_smallest_penalty_and_the_narrowest_beam() -> None:
    axes = axes_of(make("graph", "rescore"))
    same = Counts(corr=8, sub=2)
    plain, neural, penal = rescore(0.8, 0.5, 0.0), rescore(0.3, 0.0, 0.2), rescore(0.3, -1.0, 0.0)
    results = dict.fromkeys((neural, penal, plain), same)
    narrow, wide = (
        DecodingParameters.of("graph", lm_weight=w, word_penalty=0.0, beam=b) for w, b in ((1, 6), (0.3, 9))
    )
    results |= dict.fromkeys((wide, narrow), same)
    assert choose(results, axes) == {"rescore": plain, "graph": narrow}  # type: ignore[arg-type]


GOLDEN = (Path(__file__).parent / "tuning.tsv").read_text()  # of the ci recipe, before methods had a protocol


def test_what_is_tried_and_chosen_is_what_always_was() -> None:
    rows = [line.split("\t") for line in GOLDEN.splitlines()[1:]]
    counted = {
        tuple(row[:5]): Counts(
            corr=int(row[5]) - int(row[6]) - int(row[7]),
            **dict(zip(("sub", "del_", "ins"), map(int, row[6:9]), strict=True)),
        )
        for row in rows
    }

    def count(parameters: Sequence[DecodingParameters]) -> Results:
        return {each: counted.get(tuple(row_of(each)), Counts(del_=200)) for each in parameters}

    weights = {"lm_weights": (0.3, 0.5, 0.8), "word_penalties": (-1.0, 0.0, 0.5)}
    methods = make(
        Choice.of("search", "greedy"),
        Choice.of("search", "beam", **weights, beam_sizes=(4, 8, 16)),
        Choice.of("search", "graph", **weights, beams=(6.0, 10.0, 14.0)),
        Choice.of("search", "rescore", **weights),
        neural=True,
    )
    results, chosen = tune_methods(methods, count)
    beyond = "\t200\t0\t200\t0\t100.00\tno\n"  # weights beyond the lists
    assert [line for line in format_tuning(results, chosen).splitlines(True) if not line.endswith(beyond)] == (
        GOLDEN.splitlines(True)
    )
    assert [row_of(chosen[name]) for name in methods] == [row[:5] for row in rows if row[-1] == "yes"]


@pytest.mark.parametrize(
    ("lm_weights", "best", "tried"),
    [
        ((0.3, 0.5), 1.0, [0.3, 0.5, 0.7, 0.9, 1.1]),
        ((0.3, 0.5), 0.2, [0.3, 0.5, 0.1]),  # the next one would be negative
        ((0.5, 0.9, 1.1), 0.9, [0.5, 0.9, 1.1]),
        ((0.5, 0.7), 0.6, [0.5, 0.7]),  # equally good
        ((0.5,), 0.9, [0.5]),
    ],
)
def test_weights_go_on_beyond_a_list_whose_end_alone_is_best(
    lm_weights: Sequence[float], best: float, tried: Sequence[float]
) -> None:
    def count(parameters: Sequence[DecodingParameters]) -> Results:
        errors = {each: abs(each["lm_weight"] - best) + abs(each["word_penalty"] + 2) for each in parameters}
        return {each: Counts(corr=1000, sub=round(100 * errors[each])) for each in parameters}

    methods = make(Choice.of("search", "beam", lm_weights=lm_weights, word_penalties=(-0.5, 0.0), beam_sizes=(4, 8)))
    results, chosen = tune_methods(methods, count)
    assert list(dict.fromkeys(each["lm_weight"] for each in results)) == list(tried)
    penalties = dict.fromkeys(each["word_penalty"] for each in results)
    assert list(penalties) == [0.0, -0.5, -1.0, -1.5, -2.0, -2.5]
    assert chosen["beam"]["word_penalty"] == -2.0
    assert chosen["beam"]["beam"] == 4


def row_of(parameters: DecodingParameters) -> list[str]:
    """The first columns of the table."""
    values = parameters.values()
    names = ("lm_weight", "word_penalty", "beam", "nnlm_weight")
    return [parameters.method, *(f"{values[name]:g}" if name in values else "-" for name in names)]


def test_the_table_names_all_that_was_tried_and_marks_the_chosen() -> None:
    own = DecodingParameters.of("own", threshold=2.5)
    results = {
        GREEDY: Counts(),
        LOW: Counts(corr=7, sub=1, del_=2, ins=3),
        MIDDLE: Counts(corr=10),
        own: Counts(corr=10),
    }
    chosen = {"greedy": GREEDY, "beam": MIDDLE, "own": own}
    assert format_tuning(results, chosen).splitlines() == [
        "method\tlm_weight\tword_penalty\tbeam\tnnlm_weight\tthreshold\twords\tsub\tdel\tins\twer_percent\tchosen",
        "greedy\t-\t-\t-\t-\t-\t0\t0\t0\t0\t-\tyes",
        "beam\t0.3\t0\t16\t-\t-\t10\t1\t2\t3\t60.00\tno",
        "beam\t0.5\t0\t16\t-\t-\t10\t0\t0\t0\t0.00\tyes",
        "own\t-\t-\t-\t-\t2.5\t10\t0\t0\t0\t0.00\tyes",
    ]


GRAPH = DecodingParameters.of("graph", lm_weight=0.8, word_penalty=0.0, beam=14.0)
CHOSEN = (
    DecodingParameters("greedy"),
    DecodingParameters.of("beam", lm_weight=0.5, word_penalty=-0.5, beam=16.0),
    GRAPH,
    DecodingParameters.of("rescore", GRAPH, lm_weight=0.3, word_penalty=0.5, beam=14.0, nnlm_weight=0.4),
)


def test_parameters_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(format_parameters(CHOSEN))
    assert list(read_tuning(path, make("greedy", "beam", "graph", "rescore")).values()) == list(CHOSEN)
    assert list(read_tuning(path, make("rescore", "graph"))) == ["rescore", "graph"]
    expected = (
        r"tuning\.json: rescore has nnlm_weight 0\.4, expected 0, because nnlm\.enabled is false; run `asrtool tune`"
    )
    with pytest.raises(AsrtoolError, match=expected):
        read_tuning(path, make("rescore", "graph", neural=False))


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
        read_tuning(path, make("graph"))
    path.unlink()
    with pytest.raises(AsrtoolError, match=r"cannot be read, No such file.*; run `asrtool tune`"):
        read_tuning(path, make("graph"))


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
        read_tuning(path, make("greedy", "beam", "graph", "rescore"))
