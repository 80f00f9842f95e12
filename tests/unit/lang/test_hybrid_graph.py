"""Graphs of a hybrid model and of phones against brute force: what they accept, at the weight of the LM."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import kaldifst
import pytest
from test_decoding_graph import lowest_weight, sentences_of
from toy_graph import WORDS, Labels, accept, load_graph, make_toy_tree, write_toy

from asrtool.lang.graph import build_graph
from asrtool.lang.lexicon import build_lang
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.estimate import build_lm
from asrtool.lang.ngram.model import NgramLm
from asrtool.lang.phones import write_phones
from asrtool.lang.text import read_symbols
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.objectives.topology import CtcTopology, LeafTopology
from asrtool.settings.lang import Lm

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


# to, too, two and there, their sound alike; a and the have variants; "a way" is "away"; "i scream" is "ice cream".
TEXT = """to the two too
a way away there
their th- the [noise]
i scream ice cream
the t v a
"""
Phones = tuple[str, ...]


@pytest.fixture(scope="module", params=[1, 2])
def work(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Phones, lexicon, n-gram of order 1 or 2, and graph."""
    work = tmp_path_factory.mktemp(f"order{request.param}")
    (work / "text").write_text(TEXT)
    write_phones(work / "text", work / "tokenizer")
    build_lang(work / "text", work / "tokenizer", work / "lang", 0)
    build_lm([work / "text"], work / "G.arpa", Lm(order=request.param), work / "lang" / "words.txt")
    build_graph(work / "lang", work / "G.arpa", work / "graph", CtcTopology().transducer)
    return work


def spoken_as(tokenizer: Tokenizer, phones: Phones) -> Iterator[tuple[str, ...]]:
    """Every sequence of words that `phones` may be."""
    if not phones:
        yield ()
    for word in sorted(set(TEXT.split())):
        for said in tokenizer.tokenizations(word):
            if phones[: len(said)] == said:
                yield from ((word, *others) for others in spoken_as(tokenizer, phones[len(said) :]))


def frames(tokenizer: Tokenizer, phones: Sequence[str]) -> list[int]:
    """Input labels of a path of `phones`, a blank behind each."""
    return [label for phone in phones for label in (tokenizer.pieces.index(phone) + 1, 1)]


def test_phones_are_read_as_every_sentence_that_sounds_so_and_no_other(work: Path) -> None:
    tokenizer, graph = Tokenizer.load(work / "tokenizer"), load_graph(work / "graph")
    lm, words = NgramLm(read_arpa(work / "G.arpa")), read_symbols(work / "graph" / "words.txt", "lang")
    pronunciations = [phones for word in set(TEXT.split()) for phones in tokenizer.tokenizations(word)]
    num_sentences = 0
    for said in {tuple(itertools.chain(*pair)) for pair in itertools.product(pronunciations, repeat=2)}:
        found = accept(graph, frames(tokenizer, said))
        expected = {tuple(map(words.index, sentence)): sentence for sentence in spoken_as(tokenizer, said)}
        assert found.keys() == expected.keys(), said
        for labels, sentence in expected.items():
            weight = -lm.log_prob(list(sentence))
            # Backing off too early can make a path of a bigram cheaper than its ARPA score.
            cheaper = work.name.startswith("order2") and found[labels] < weight
            assert cheaper or found[labels] == pytest.approx(weight, abs=1e-3), sentence
        num_sentences += len(expected)
    assert num_sentences > 500
