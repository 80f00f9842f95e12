"""The decoding graph over phones against brute force: homophones, variants, and words hidden in other words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from toy_graph import accept, load_graph

from asrtool.lang.graph import build_graph
from asrtool.lang.lexicon import build_lang
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.estimate import build_lm
from asrtool.lang.ngram.model import NgramLm
from asrtool.lang.phones import write_phones
from asrtool.lang.text import read_symbols
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.objectives.topology import CtcTopology
from asrtool.settings.lang import Lm

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


def sentences_of(tokenizer: Tokenizer, phones: Phones) -> Iterator[tuple[str, ...]]:
    """Every sequence of words that `phones` may be."""
    if not phones:
        yield ()
    for word in sorted(set(TEXT.split())):
        for said in tokenizer.tokenizations(word):
            if phones[: len(said)] == said:
                yield from ((word, *others) for others in sentences_of(tokenizer, phones[len(said) :]))


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
        expected = {tuple(map(words.index, sentence)): sentence for sentence in sentences_of(tokenizer, said)}
        assert found.keys() == expected.keys(), said
        for labels, sentence in expected.items():
            weight = -lm.log_prob(list(sentence))
            # Backing off too early can make a path of a bigram cheaper than its ARPA score.
            cheaper = work.name.startswith("order2") and found[labels] < weight
            assert cheaper or found[labels] == pytest.approx(weight, abs=1e-3), sentence
        num_sentences += len(expected)
    assert num_sentences > 500
