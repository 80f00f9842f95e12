"""Words of tokens without word marks, against brute force and against what the graph writes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import kaldi_decoder
import kaldifst
import numpy as np
import pytest
from made_up import write_phone_language
from toy_graph import load_graph

from asrtool.decode.words import WordParser
from asrtool.lang.graph import build_graph
from asrtool.lang.lexicon import read_lexicon
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.model import NgramLm
from asrtool.lang.phones import TOKENS
from asrtool.lang.text import read_symbols
from asrtool.models.objectives.topology import CtcTopology, Span

# x is a and b; "x y" is ab too; d may be c c; e begins as c does and ends in a token of no other word.
LEXICON = [("a", (1,)), ("b", (1,)), ("ab", (1, 2)), ("y", (2,)), ("c", (3,))]
LEXICON += [("d", (3, 3)), ("d", (3,)), ("e", (3, 4)), ("[noise]", (5,))]


class RandomLm:
    """A bigram with a probability for every pair of words, not normalised; its states are words."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        words = ["<s>", "</s>", *(word for word, _ in LEXICON)]
        self.log_probs = {(left, right): -choose.uniform(0.1, 5.0) for left in words for right in words}

    def start(self) -> str:
        return "<s>"

    def step(self, state: str, word: str) -> tuple[float, str]:
        return self.log_probs[state, word], word

    def score(self, words: list[str]) -> float:
        return sum(self.log_probs[pair] for pair in zip(["<s>", *words], [*words, "</s>"], strict=True))


def parses(tokens: tuple[int, ...]) -> Iterator[list[tuple[str, int]]]:
    if not tokens:
        yield []
    for word, pronunciation in LEXICON:
        if tokens[: len(pronunciation)] == pronunciation:
            yield from ([(word, len(pronunciation)), *others] for others in parses(tokens[len(pronunciation) :]))


def spans_of(tokens: Sequence[int]) -> list[Span]:
    return [(token, 2 * i, 2 * i + 1, -0.1) for i, token in enumerate(tokens)]


@pytest.mark.parametrize("word_penalty", [0.0, 1.5, -2.0])
def test_the_words_are_those_of_the_highest_score_of_all_parses(word_penalty: float) -> None:
    choose = random.Random(7)
    num_choices = 0
    for seed in range(300):
        lm = RandomLm(seed)
        tokens = tuple(choose.choices((1, 2, 3, 4), k=choose.randint(0, 7)))
        scores = {}
        for parse in parses(tokens):
            words = [word for word, _ in parse]
            scores[tuple(parse)] = lm.score(words) - word_penalty * len(words)
        if scores:
            groups = WordParser(LEXICON, lm).group(spans_of(tokens), word_penalty)
            found = tuple((word, len(spans)) for word, spans in groups)
            assert found in scores, tokens
            assert math.isclose(scores[found], max(scores.values())), tokens
            assert [span for _, spans in groups for span in spans] == spans_of(tokens)
            num_choices += len(scores) > 1
    assert num_choices > 50


def test_words_that_are_known_are_only_placed() -> None:
    parser = WordParser(LEXICON, RandomLm(3))
    for parse in parses((1, 2, 3, 3, 1)):
        words = [word for word, _ in parse]
        assert [word for word, _ in parser.group(spans_of((1, 2, 3, 3, 1)), words=words)] == words


def test_tags_are_left_out() -> None:
    groups = WordParser(LEXICON, RandomLm(3)).group(spans_of((5, 2, 5)))
    assert groups == [("y", spans_of((5, 2, 5))[1:2])]


@pytest.mark.parametrize(("tokens", "num_read"), [((), 0), ((4,), 0), ((2, 4, 1), 1), ((2, 2, 3, 4, 4), 4)])
def test_tokens_after_the_last_whole_word_are_left(tokens: tuple[int, ...], num_read: int) -> None:
    found = WordParser(LEXICON, RandomLm(2)).group(spans_of(tokens))
    assert sum(len(spans) for _, spans in found) == num_read


TEXT = """to the two too
a way away there
their th- the [noise]
i scream ice cream
the t v a way
i know no two ways to read
i read the ice there
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("work")
    write_phone_language(work, TEXT.splitlines(), order=1)
    build_graph(work / "lang", work / "lm" / "G.arpa", work / "graph", CtcTopology().transducer)
    return work


def test_the_words_of_a_path_are_those_the_graph_writes(work: Path) -> None:
    graph, lm = load_graph(work / "graph"), NgramLm(read_arpa(work / "lm" / "G.arpa"))
    words = read_symbols(work / "lang" / "words.txt", "lang")
    lexicon = read_lexicon(work / "lang" / "lexicon.txt", words, TOKENS)
    parser = WordParser([(word, tuple(map(TOKENS.index, phones))) for word, phones in lexicon], lm)
    random_TV = np.random.default_rng(4)
    num_words = 0
    for _ in range(60):
        scores_TV = np.log(random_TV.dirichlet(np.full(len(TOKENS), 0.3), size=40)).clip(-20).astype(np.float32)
        decoder = kaldi_decoder.FasterDecoder(graph, kaldi_decoder.FasterDecoderOptions(beam=200.0))
        decoder.decode(kaldi_decoder.DecodableCtc(scores_TV))
        assert decoder.reached_final()
        _, labels, written, _ = kaldifst.get_linear_symbol_sequence(decoder.get_best_path()[1])
        spans = CtcTopology().spans([label - 1 for label in labels], scores_TV)
        found = [word for word, _ in parser.group(spans)]
        expected = [words[label] for label in written if not words[label].startswith("[")]
        # Where two sentences are equally probable, either will do.
        assert found == expected or lm.log_prob(found) == pytest.approx(lm.log_prob(expected), abs=1e-4)
        num_words += len(expected)
    assert num_words > 300
