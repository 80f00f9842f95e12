"""Graph search, lattices and n-best lists against all paths of small graphs."""

from __future__ import annotations

import errno
import itertools
import math
from pathlib import Path as FilePath

import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.decode.parameters import Weights
from asrtool.decode.search.graph import GraphSearch
from asrtool.decode.search.lattice import LatticeSearch, Path
from asrtool.errors import AsrtoolError
from asrtool.lang import graph_file
from asrtool.lang.graph_file import GraphArrays, load_fst, read_graph

# State 0 is between words, with a silent arc to a word of its own (state 3); words 1, 2, 3 are begun by tokens 1, 2, 2.
ARCS = [
    "0 0 1 0 0",  # blank
    "0 1 2 1 0.5", "0 2 3 2 1.0", "0 3 0 0 0.25", "3 2 3 3 0.5",
    "1 1 2 0 0", "1 0 1 0 0", "1 2 3 2 1.5", "1 3 0 0 0.75",
    "2 2 3 0 0", "2 0 1 0 0", "2 1 2 1 0.1",
    "0 0.1", "1 0.2", "2 0.3",
]  # fmt: skip
WIDE = Weights(1.0, 0.0, 1000.0)


def arrays_of(folder: FilePath, arcs: list[str]) -> GraphArrays:
    fst = kaldifst.compile(acceptor=False, s="\n".join(arcs) + "\n")
    assert kaldifst.StdConstFst(fst).write(str(folder / "HLG.fst"))
    return read_graph(folder)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> GraphArrays:
    return arrays_of(tmp_path_factory.mktemp("graph"), ARCS)


def posteriors(num_frames: int, seed: int, scale: float = 2.0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(scale=scale, size=(num_frames, 3))
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)


def all_paths(scores_TV: np.ndarray, weights: Weights) -> list[tuple[float, tuple[int, ...], float, tuple[int, ...]]]:
    """(total, words, graph cost, tokens) of every path through ARCS, by walking along all of them."""
    arcs = [line.split() for line in ARCS]
    leaving = [tuple(map(float, arc)) for arc in arcs if len(arc) == 5]
    final = {int(arc[0]): float(arc[1]) for arc in arcs if len(arc) == 2}
    found = []

    def walk(state: int, t: int, total: float, words: tuple[int, ...], cost: float, tokens: tuple[int, ...]) -> None:
        if t == len(scores_TV) and state in final:
            found.append((total + final[state], words, cost + final[state], tokens))
        for source, to, label, word, weight in leaving:
            if source != state or (label and t == len(scores_TV)):
                continue
            said = (*words, int(word)) if word else words
            penalty = weights.word_penalty if word else 0.0
            if label:
                acoustic = -float(scores_TV[t, int(label) - 1]) / weights.lm_weight
                walk(
                    int(to), t + 1, total + weight + penalty + acoustic, said, cost + weight, (*tokens, int(label) - 1)
                )
            else:
                walk(int(to), t, total + weight + penalty, said, cost + weight, tokens)

    walk(0, 0, 0.0, (), 0.0, ())
    return found


def best_by_sentence(scores_TV: np.ndarray, weights: Weights) -> dict[tuple[int, ...], float]:
    best: dict[tuple[int, ...], float] = {}
    for total, words, _, _ in all_paths(scores_TV, weights):
        best[words] = min(total, best.get(words, math.inf))
    return best


def total_of(path: Path, weights: Weights) -> float:
    return -path.acoustic / weights.lm_weight - path.lm + weights.word_penalty * len(path.words)


@given(
    st.integers(1, 5), st.integers(0, 2**31), st.sampled_from([0.3, 1.0, 3.0]), st.sampled_from([-0.7, 0.0, 0.4]),
    st.sampled_from([1, 3, 1000]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_list_holds_the_cheapest_sentences_of_all_in_order(
    graph: GraphArrays, num_frames: int, seed: int, lm_weight: float, word_penalty: float, num: int
) -> None:
    scores_TV = posteriors(num_frames, seed)
    weights = Weights(lm_weight, word_penalty, 1000.0)
    found = LatticeSearch(graph, 1000, lattice_beam=1000.0, num_paths=num).search(scores_TV, weights)
    expected = best_by_sentence(scores_TV, weights)
    totals = [total_of(path, weights) for path in found]
    assert totals == pytest.approx(sorted(expected.values())[:num], abs=1e-4)
    assert len({path.words for path in found}) == len(found) == min(num, len(expected))
    assert totals == pytest.approx([expected[path.words] for path in found], abs=1e-4)
    paths = {(words, tokens): cost for _, words, cost, tokens in all_paths(scores_TV, weights)}
    for path in found:
        tokens = tuple(path.tokens)
        assert path.acoustic == pytest.approx(sum(float(scores_TV[t, v]) for t, v in enumerate(tokens)), abs=1e-5)
        assert path.lm == pytest.approx(-paths[path.words, tokens], abs=1e-5)


@given(st.integers(2, 6), st.integers(0, 2**31), st.sampled_from([0.5, 2.0, 5.0]))
@settings(max_examples=30, deadline=None)
def test_a_lattice_beam_keeps_exactly_the_sentences_that_near_the_best(
    graph: GraphArrays, num_frames: int, seed: int, lattice_beam: float
) -> None:
    scores_TV = posteriors(num_frames, seed)
    found = LatticeSearch(graph, 1000, lattice_beam, num_paths=1000).search(scores_TV, WIDE)
    expected = best_by_sentence(scores_TV, WIDE)
    limit = min(expected.values()) + lattice_beam
    near = {words for words, total in expected.items() if total <= limit - 1e-3}
    possible = {words for words, total in expected.items() if total <= limit + 1e-3}
    assert near <= {path.words for path in found}
    # A sentence further off may be read along arcs that each lie on a near path; the best of its paths is kept whole.
    assert all(
        total_of(path, WIDE) == pytest.approx(expected[path.words], abs=1e-3)
        for path in found
        if path.words in possible
    )


@pytest.mark.parametrize("beam", [1.0, 3.0, 12.0])
def test_the_first_of_the_list_is_what_one_best_search_finds(
    graph: GraphArrays, tmp_path: FilePath, beam: float
) -> None:
    fst = kaldifst.compile(acceptor=False, s="\n".join(ARCS) + "\n")
    for seed in range(20):
        scores_TV = posteriors(12, seed)
        expected = GraphSearch(fst, max_active=1000).search(scores_TV, 0.7, beam)
        found = LatticeSearch(graph, 1000, lattice_beam=5.0, num_paths=3).search(scores_TV, Weights(0.7, 0.0, beam))
        assert found[0].tokens == expected


def test_posteriors_that_no_path_survives_give_no_list(graph: GraphArrays) -> None:
    impossible_TV = np.full((3, 3), -math.inf, dtype=np.float32)
    assert LatticeSearch(graph, 100, 5.0, 10).search(impossible_TV, WIDE) == []


def test_without_a_final_state_in_reach_every_token_at_the_end_counts(tmp_path: FilePath) -> None:
    unfinished = arrays_of(tmp_path, ["0 1 2 1 0.5", "1 2 3 2 1.0", "2 3 3 0 0", "3 0"])
    paths = LatticeSearch(unfinished, 100, 1000.0, 10).search(posteriors(1, seed=1), WIDE)
    assert [path.words for path in paths] == [(1,)]
    assert paths[0].lm == pytest.approx(-0.5)


# Words of one token each: token 1 costs 0.5, token 2 costs 1.0; a sentence's end costs 0.1. State = token before.
COSTS = {1: 0.5, 2: 1.0}
WORD_ARCS = [
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
    fst = kaldifst.compile(acceptor=False, s="\n".join(WORD_ARCS) + "\n")
    kaldifst.arcsort(fst, "ilabel")
    kaldifst.StdConstFst(fst).write(str(folder / "HLG.fst"))
    return read_graph(folder)


@pytest.fixture(scope="module")
def word_graph(arrays: GraphArrays) -> kaldifst.StdConstFst:
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


def test_posteriors_that_no_path_survives_give_none(word_graph: object) -> None:
    impossible_TV = np.full((3, 3), -math.inf, dtype=np.float32)
    assert GraphSearch(word_graph, max_active=100).search(impossible_TV, 1.0, beam=14.0) is None


def test_a_graph_with_a_penalty_leaves_no_file_and_the_graph_as_it_was(
    arrays: GraphArrays, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = arrays.path.read_bytes()
    assert load_fst(arrays, 0.5).num_states == len(arrays.states)
    assert arrays.path.read_bytes() == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not FilePath("/proc/self/smaps").exists(), reason="only Linux says what of a file is resident")
def test_a_graph_that_was_checked_or_copied_is_no_memory_until_it_is_searched(arrays: GraphArrays) -> None:
    def resident_kib(graph: GraphArrays) -> int:
        lines = FilePath("/proc/self/smaps").read_text().splitlines()
        begins = [i for i, line in enumerate(lines) if line.endswith(str(graph.path))]
        return sum(int(line.split()[1]) for i in begins for line in lines[i : i + 8] if line.startswith("Rss:"))

    arrays.release_pages()
    graph = read_graph(arrays.path.parent)
    assert resident_kib(graph) == 0
    load_fst(graph, 0.5)
    assert resident_kib(graph) == 0
    assert graph.arcs["to"].max() < len(graph.states)
    assert resident_kib(graph) > 0


def test_a_full_disk_is_one_line(arrays: GraphArrays, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(graph_file, "write_with_penalty", write)
    with pytest.raises(AsrtoolError, match=r"HLG\.fst: .* cannot be written, No space left.*TMPDIR="):
        load_fst(arrays, 0.5)
