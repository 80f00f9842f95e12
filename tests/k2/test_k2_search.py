"""Search by k2 against the best of all paths, and against kaldi-decoder."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_graph import accept, load_graph, write_language

from asrtool.decode.search.graph import GraphSearch
from asrtool.errors import AsrtoolError
from asrtool.lang.graph import build_graph
from asrtool.models.objectives.topology import CtcTopology

pytest.importorskip("k2.fsa", reason="k2 is not installed; make test-k2 makes an environment that has it")

from asrtool.decode.search.graph import K2Search

WIDE, MAX_ACTIVE = 1000.0, 1_000_000  # so wide that no search makes an error
# Words of one token each, with a way back to state 0 that reads nothing and costs something, and two final weights.
ARCS = ["0 0 1 0", "0 1 2 1 0.5", "0 2 3 2 1.0", "1 1 2 0", "2 2 3 0", "1 0 0 0 0.25", "2 0 0 0", "0 0.1", "2 0.4"]


def write_graph(folder: Path, text: str, start: int = 0) -> Path:
    graph = kaldifst.compile(text, acceptor=False)
    graph.start = start
    folder.mkdir()
    kaldifst.StdConstFst(graph).write(str(folder / "HLG.fst"))
    return folder


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graph(tmp_path_factory.mktemp("toy") / "graph", "\n".join(ARCS) + "\n")


def random_posteriors(num_frames: int, num_tokens: int, seed: int, scale: float) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(scale=scale, size=(num_frames, num_tokens))
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)


def cost(graph: kaldifst.StdConstFst, path: list[int], scores_TV: np.ndarray, lm_weight: float) -> float:
    """Return the cost of the cheapest way through the graph that reads `path`; infinite if it has none."""
    weights = accept(graph, [token + 1 for token in path]).values()
    acoustic = -float(scores_TV[np.arange(len(path)), path].astype(np.float64).sum())
    return acoustic / lm_weight + min(weights, default=math.inf)


@given(st.integers(1, 5), st.integers(0, 2**31), st.sampled_from([0.2, 1.0, 3.0]))
@settings(max_examples=50, deadline=None)
def test_the_path_found_is_the_cheapest_of_all(toy: Path, num_frames: int, seed: int, lm_weight: float) -> None:
    scores_TV = random_posteriors(num_frames, 3, seed, scale=2)
    found = K2Search(toy, MAX_ACTIVE).search(scores_TV, lm_weight, WIDE)
    assert found is not None
    paths = (list(path) for path in itertools.product(range(3), repeat=num_frames))
    graph = load_graph(toy)
    best = min(cost(graph, path, scores_TV, lm_weight) for path in paths)
    assert cost(graph, found, scores_TV, lm_weight) == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize("backend", ["kaldifst", "k2"])
def test_both_searches_find_the_same_path_in_either_graph(tmp_path: Path, backend: str) -> None:
    write_language(tmp_path)
    build_graph(tmp_path / "lang", tmp_path / "G.arpa", tmp_path / "graph", CtcTopology().transducer, backend)
    graph = load_graph(tmp_path / "graph")
    theirs, ours = GraphSearch(graph, MAX_ACTIVE), K2Search(tmp_path / "graph", MAX_ACTIVE)
    for seed in range(20):
        scores_TV = random_posteriors(12 + seed, 60, seed, scale=4)
        expected, found = (search.search(scores_TV, 0.7, WIDE) for search in (theirs, ours))
        assert expected is not None
        assert found is not None
        costs = [cost(graph, path, scores_TV, 0.7) for path in (expected, found)]
        assert costs[0] == pytest.approx(costs[1], abs=1e-3)
        assert found == expected


def test_a_word_penalty_is_paid_for_every_word(tmp_path: Path) -> None:
    directory = write_graph(tmp_path / "graph", "0 0 1 0\n0 0 2 1\n0 0 3 0 0.5\n0\n")  # token 2 writes no word
    scores_TV = np.log(np.full((3, 3), 1 / 3, dtype=np.float32)) + np.array([-9, 0, 0], dtype=np.float32)
    paths = [K2Search(directory, MAX_ACTIVE, penalty).search(scores_TV, 1.0, WIDE) for penalty in (0.0, 0.4, 0.6)]
    assert paths == [[1, 1, 1], [1, 1, 1], [2, 2, 2]]


def test_a_graph_whose_first_state_is_not_0_is_read_too(tmp_path: Path) -> None:
    directory = write_graph(tmp_path / "graph", "0 1 3 2 0.5\n1 2 1 0\n2 0 2 1\n0 0.1\n2 0.2\n", start=1)
    found = K2Search(directory, MAX_ACTIVE).search(random_posteriors(4, 3, seed=1, scale=1), 1.0, WIDE)
    assert found is not None
    assert found == [0, 1, 2, 0]


def test_a_narrow_beam_finds_a_path_that_the_graph_accepts(toy: Path) -> None:
    scores_TV = random_posteriors(30, 3, seed=2, scale=2)
    found = K2Search(toy, max_active=2).search(scores_TV, 1.0, beam=1.0)
    assert found is not None
    assert math.isfinite(cost(load_graph(toy), found, scores_TV, 1.0))


def test_a_path_that_ends_within_a_word_is_found_where_no_other_is(tmp_path: Path) -> None:
    directory = write_graph(tmp_path / "graph", "0 1 2 1\n1 2 3 0\n2 3 2 0\n3 4 3 0\n4 0.1\n")  # tokens 1 2 1 2
    scores_TV = np.log(np.array([[1e-9, 1, 1e-9], [1e-9, 1e-9, 1], [1e-9, 1, 1e-9]], dtype=np.float32))
    for search in (K2Search(directory, max_active=100), GraphSearch(load_graph(directory), max_active=100)):
        found = search.search(scores_TV, 1.0, beam=5.0)
        assert found is not None
        assert found == [1, 2, 1]


def test_posteriors_that_no_path_survives_give_none(tmp_path: Path) -> None:
    directory = write_graph(tmp_path / "graph", "0 1 2 1\n1 0.1\n")  # one frame, of token 1
    assert K2Search(directory, max_active=100).search(random_posteriors(2, 3, 3, 1.0), 1.0, beam=14.0) is None


def test_a_missing_and_a_cut_graph_are_errors(toy: Path, tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"HLG\.fst: no decoding graph"):
        K2Search(tmp_path, MAX_ACTIVE)
    (tmp_path / "HLG.fst").write_bytes((toy / "HLG.fst").read_bytes()[:-1])
    with pytest.raises(AsrtoolError, match=r"HLG\.fst: not a complete graph"):
        K2Search(tmp_path, MAX_ACTIVE)
