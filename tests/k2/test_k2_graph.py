"""The graph that k2 makes against the one that kaldifst makes of the same parts."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from toy_graph import accept, arcs_of, load_graph, make_sentences, make_toy_tree, write_language, write_toy

from asrtool.lang.graph import build_graph
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.objectives.topology import CtcTopology, LeafTopology, Topology

pytest.importorskip("k2.fsa", reason="k2 is not installed; make test-k2 makes an environment that has it")

BACKENDS = ("kaldifst", "k2")


def build_both(folder: Path, topology: Topology | None = None) -> Path:
    transducer = (topology or CtcTopology()).transducer
    for backend in BACKENDS:
        build_graph(folder / "lang", folder / "G.arpa", folder / backend, transducer, backend)
    return folder


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_toy(folder)
    return build_both(folder)


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    write_language(folder)
    return build_both(folder)


def test_every_short_frame_sequence_has_the_same_best_words_and_weight_in_both_graphs(toy: Path) -> None:
    """Where words share a pronunciation, k2 keeps those that can be on a best path, with the same weight."""
    theirs, ours = (load_graph(toy / backend) for backend in BACKENDS)
    num_accepted = 0
    for length in range(6):
        for labels in itertools.product(range(1, 5), repeat=length):
            expected, found = accept(theirs, labels), accept(ours, labels)
            assert found == pytest.approx({words: expected[words] for words in found}, abs=1e-4), labels
            if expected:
                assert min(found.values()) == pytest.approx(min(expected.values()), abs=1e-4), labels
            num_accepted += len(found)
    assert num_accepted > 500


def test_the_graphs_of_a_hybrid_model_have_the_same_best_weights(tmp_path: Path) -> None:
    write_toy(tmp_path)
    theirs, ours = (load_graph(build_both(tmp_path, LeafTopology(make_toy_tree(), 1.0)) / name) for name in BACKENDS)
    num_accepted = 0
    for leaves in itertools.product(range(1, 11), repeat=3):
        expected, found = accept(theirs, leaves), accept(ours, leaves)
        assert min(found.values(), default=0) == pytest.approx(min(expected.values(), default=0), abs=1e-4), leaves
        num_accepted += bool(found)
    assert num_accepted == 50


def test_both_graphs_accept_random_sentences_with_equal_weights(language: Path) -> None:
    theirs, ours = (load_graph(language / backend) for backend in BACKENDS)
    tokenizer = Tokenizer.load(language / "tokenizer")
    choose = random.Random(3)
    for sentence in make_sentences(language, 200):
        labels = [1] * choose.randint(0, 1)
        for token in tokenizer.encode(" ".join(sentence)):
            labels += [token + 1] * choose.randint(1, 2) + [1]
        expected = accept(theirs, labels)
        assert len(expected) == 1
        assert accept(ours, labels) == pytest.approx(expected, abs=1e-4), sentence


def test_both_graphs_reject_the_same_frame_sequences(language: Path) -> None:
    theirs, ours = (load_graph(language / backend) for backend in BACKENDS)
    num_tokens = Tokenizer.load(language / "tokenizer").num_tokens
    choose = random.Random(4)
    frames = [choose.choices(range(1, num_tokens + 1), k=choose.randint(1, 4)) for _ in range(500)]
    accepted = [bool(accept(theirs, labels)) for labels in frames]
    assert [bool(accept(ours, labels)) for labels in frames] == accepted
    assert 0 < sum(accepted) < len(frames)


def test_arcs_are_sorted_and_no_disambiguation_symbol_is_left(toy: Path) -> None:
    graph = load_graph(toy / "k2")
    for state in range(graph.num_states):
        labels = [read for read, _, _, _ in arcs_of(graph, state)]
        assert labels == sorted(labels)
        assert set(labels) <= {0, 1, 2, 3, 4}
