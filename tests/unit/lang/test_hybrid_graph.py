"""Graphs of a hybrid model against brute force: what they accept, at the weight of the LM."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import kaldifst
import pytest
from test_decoding_graph import lowest_weight, sentences_of
from toy_graph import WORDS, Labels, accept, load_graph, make_toy_tree, write_toy

from asrtool.lang.graph import build_graph
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.models.objectives.topology import LeafTopology

NUM_TOKENS = 4  # silence, x, y and z


TREE = make_toy_tree()


def tokens_of(leaves: Sequence[int]) -> Labels | None:
    """The tokens, as labels of the tokenizer's table, that a sequence of leaves says; None where none do."""
    tokens: list[int] = []
    left = before = 0  # the left context of the token that is said, and that token
    for leaf in leaves:
        firsts = [token for token in range(1, NUM_TOKENS) if TREE.leaves_VV2[before, token, 0] == leaf]
        if leaf == 0:
            before = 0
        elif firsts:
            left, before = before, firsts[0]
            tokens.append(before + 1)
        elif before == 0 or TREE.leaves_VV2[left, before, 1] != leaf:
            return None
    return tuple(tokens)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_toy(folder)
    build_graph(folder / "lang", folder / "G.arpa", folder / "graph", LeafTopology(TREE, 1.0).transducer)
    return folder


def test_h_reads_exactly_the_leaves_of_tokens_each_in_one_way() -> None:
    graph = kaldifst.compile(LeafTopology(TREE, 1.0).transducer([1, 2, 3]), acceptor=False)
    num_accepted = 0
    for length in range(5):
        for leaves in itertools.product(range(10), repeat=length):
            tokens = tokens_of(leaves)
            assert accept(graph, [leaf + 1 for leaf in leaves]) == ({} if tokens is None else {tokens: 0.0}), leaves
            num_accepted += tokens is not None
    assert 500 < num_accepted < 5000


def test_the_graph_gives_the_words_of_leaves_at_the_weight_of_the_lm(toy: Path) -> None:
    graph, model, num_accepted = load_graph(toy / "graph"), read_arpa(toy / "G.arpa"), 0
    weight = cache(lambda words: lowest_weight(model, words))
    for length in range(5):
        for leaves in itertools.product(range(10), repeat=length):
            tokens = tokens_of(leaves)
            sentences = [] if tokens is None else sentences_of(tokens)
            expected = {tuple(map(WORDS.index, words)): weight(words) for words in sentences}
            found = accept(graph, [leaf + 1 for leaf in leaves])
            assert found == pytest.approx(expected, abs=1e-3), leaves
            num_accepted += len(found)
    assert num_accepted > 500
