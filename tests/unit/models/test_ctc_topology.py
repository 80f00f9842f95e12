"""CTC paths and the spans in them, against all paths."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.models.objectives.topology import CtcTopology, load_topology
from asrtool.settings.schema import Choice

CTC = CtcTopology()


def log_of(rows: list[list[float]]) -> np.ndarray:
    return np.log(np.array(rows, dtype=np.float32))


def collapse(path: tuple[int, ...]) -> list[int]:
    return [token for token, _ in itertools.groupby(path) if token != 0]


def test_the_best_path_has_the_best_token_of_each_row_and_spans_join_runs_but_not_across_a_blank() -> None:
    scores_TV = log_of(
        [[0.1, 0.7, 0.2], [0.2, 0.6, 0.2], [0.8, 0.1, 0.1], [0.3, 0.5, 0.2], [0.1, 0.1, 0.8], [0.9, 0.05, 0.05]]
    )
    path = CTC.best_path(scores_TV)
    assert path == [1, 1, 0, 1, 2, 0]
    spans = CTC.spans(path, scores_TV)
    assert [span[:3] for span in spans] == [(1, 0, 2), (1, 3, 4), (2, 4, 5)]
    assert [math.exp(peak) for *_, peak in spans] == pytest.approx([0.7, 0.5, 0.8], rel=1e-5)


def test_no_rows_and_only_blanks_hold_no_spans() -> None:
    empty_TV = np.zeros((0, 3), dtype=np.float32)
    assert CTC.spans(CTC.best_path(empty_TV), empty_TV) == []
    scores_TV = log_of([[0.9, 0.1], [0.8, 0.2]])
    assert CTC.spans(CTC.align(scores_TV, ()), scores_TV) == []


def test_a_token_twice_in_a_row_keeps_a_blank_between() -> None:
    scores_TV = log_of([[0.01, 0.99], [0.01, 0.99], [0.01, 0.99]])
    assert CTC.align(scores_TV, (1, 1)) == [1, 0, 1]
    assert CTC.spans([1, 0, 1], scores_TV)[1] == (1, 2, 3, pytest.approx(math.log(0.99), rel=1e-4))


def test_more_tokens_than_rows_is_an_assertion() -> None:
    with pytest.raises(AssertionError, match="3 tokens do not fit 2 rows"):
        CTC.align(log_of([[0.5, 0.5], [0.5, 0.5]]), (1, 1, 1))


@given(st.integers(1, 4), st.integers(0, 2**31))
def test_the_alignment_is_the_best_of_all_paths_of_the_tokens(num_rows: int, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(scale=3, size=(num_rows, 4))
    scores_TV = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)
    best: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(4), repeat=num_rows):
        tokens, score = tuple(collapse(path)), sum(float(scores_TV[t, v]) for t, v in enumerate(path))
        best[tokens] = max(score, best.get(tokens, -math.inf))
    for tokens, score in best.items():
        found = CTC.align(scores_TV, tokens)
        assert collapse(tuple(found)) == list(tokens)
        assert float(scores_TV[np.arange(num_rows), found].sum()) == pytest.approx(score, abs=1e-4)


@given(st.lists(st.integers(1, 2), max_size=4))
def test_the_rows_needed_are_those_of_the_shortest_path(tokens: list[int]) -> None:
    shortest = next(
        length
        for length in itertools.count()
        if any(collapse(path) == tokens for path in itertools.product(range(3), repeat=length))
    )
    assert CTC.rows_needed(tokens) == shortest


def test_a_topology_is_loaded_without_torch() -> None:
    script = (
        "import sys; from asrtool.models.objectives.topology import load_topology\n"
        "from asrtool.settings.schema import Choice\n"
        "print(type(load_topology(Choice.of('objective', 'ctc'))).__name__, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["CtcTopology", "False"]


class Bare:
    """Settings without a topology."""


class Elsewhere:
    """Settings whose topology is nowhere."""

    topology = "asrtool.models.objectives.topology:Missing"


class Incomplete:
    """Settings whose topology has nothing of one."""

    topology = "collections:OrderedDict"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Bare(), r"model\.objective = mine names no topology"),
        (Elsewhere(), r"topology:Missing cannot be loaded"),
        (Incomplete(), r"collections:OrderedDict: no topology, it lacks .*align"),
    ],
)
def test_an_objective_without_a_topology_is_one_line(settings: object, message: str) -> None:
    with pytest.raises(AsrtoolError, match=message):
        load_topology(Choice("objective", "mine", settings))
