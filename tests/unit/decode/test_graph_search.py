"""Graph search against the best of all paths."""

from __future__ import annotations

import errno
import itertools
import math
from pathlib import Path

import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.decode.search.graph import GraphSearch
from asrtool.errors import AsrtoolError
from asrtool.lang import graph_file
from asrtool.lang.graph_file import GraphArrays, load_fst, read_graph

# Words of one token each: token 1 costs 0.5, token 2 costs 1.0; a sentence's end costs 0.1. State = token before.
COSTS = {1: 0.5, 2: 1.0}
ARCS = [
    *(f"{state} 0 1 0" for state in range(3)),
    *(
        f"{state} {token} {token + 1} {token} {COSTS[token]}"
        for state in range(3)
        for token in (1, 2)
        if state != token
    ),
    *(f"{token} {token} {token + 1} 0" for token in (1, 2)),
    *(f"{state} 0.1" for state in range(3)),
]


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> GraphArrays:
    folder = tmp_path_factory.mktemp("graph")
    fst = kaldifst.compile(acceptor=False, s="\n".join(ARCS) + "\n")
    kaldifst.arcsort(fst, "ilabel")
    kaldifst.StdConstFst(fst).write(str(folder / "HLG.fst"))
    return read_graph(folder)


@pytest.fixture(scope="module")
def graph(arrays: GraphArrays) -> kaldifst.StdConstFst:
    return load_fst(arrays)


def cost(path: tuple[int, ...], scores_TV: np.ndarray, lm_weight: float, word_penalty: float) -> float:
    words = [token for token, _ in itertools.groupby(path) if token != 0]
    acoustic = -sum(float(scores_TV[t, v]) for t, v in enumerate(path))
    return acoustic / lm_weight + sum(COSTS[word] + word_penalty for word in words) + 0.1


@given(st.integers(1, 5), st.integers(0, 2**31), st.sampled_from([0.2, 1.0, 3.0]), st.sampled_from([-0.7, 0.0, 0.4]))
@settings(max_examples=50, deadline=None)
def test_the_path_found_is_the_cheapest_of_all(
    arrays: GraphArrays, num_frames: int, seed: int, lm_weight: float, word_penalty: float
) -> None:
    logits = np.random.default_rng(seed).normal(scale=2, size=(num_frames, 3))
    scores_TV = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_file, "CHUNK_ARCS", 2)
        penalised = load_fst(arrays, word_penalty)
    found = GraphSearch(penalised, max_active=1000).search(scores_TV, lm_weight, beam=1000.0)
    assert found is not None
    best = min(
        cost(path, scores_TV, lm_weight, word_penalty) for path in itertools.product(range(3), repeat=num_frames)
    )
    assert cost(tuple(found), scores_TV, lm_weight, word_penalty) == pytest.approx(best, abs=1e-3)


def test_posteriors_that_no_path_survives_give_none(graph: object) -> None:
    impossible_TV = np.full((3, 3), -math.inf, dtype=np.float32)
    assert GraphSearch(graph, max_active=100).search(impossible_TV, 1.0, beam=14.0) is None


def test_a_graph_with_a_penalty_leaves_no_file_and_the_graph_as_it_was(
    arrays: GraphArrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = arrays.path.read_bytes()
    assert load_fst(arrays, 0.5).num_states == len(arrays.states)
    assert arrays.path.read_bytes() == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux says what of a file is resident")
def test_a_graph_that_was_checked_or_copied_is_no_memory_until_it_is_searched(arrays: GraphArrays) -> None:
    def resident_kib(graph: GraphArrays) -> int:
        lines = Path("/proc/self/smaps").read_text().splitlines()
        begins = [i for i, line in enumerate(lines) if line.endswith(str(graph.path))]
        return sum(int(line.split()[1]) for i in begins for line in lines[i : i + 8] if line.startswith("Rss:"))

    arrays.let_go()
    graph = read_graph(arrays.path.parent)
    assert resident_kib(graph) == 0
    load_fst(graph, 0.5)
    assert resident_kib(graph) == 0
    assert graph.arcs["to"].max() < len(graph.states)
    assert resident_kib(graph) > 0


def test_a_full_disk_is_one_line(arrays: GraphArrays, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(graph_file, "_write_with_penalty", write)
    with pytest.raises(AsrtoolError, match=r"HLG\.fst: .* cannot be written, No space left.*TMPDIR="):
        load_fst(arrays, 0.5)
