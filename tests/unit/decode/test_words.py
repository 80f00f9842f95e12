"""Tokens to words with times, and the ctm form."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import kaldi_decoder
import kaldifst
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import write_phone_language
from toy_graph import load_graph

from asrtool.decode.ctm import Segment, format_ctm
from asrtool.decode.words import Word, WordParser, WordPieces, place_words
from asrtool.lang.graph import build_graph
from asrtool.lang.lexicon import read_lexicon
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.model import NgramLm
from asrtool.lang.phones import TOKENS
from asrtool.lang.text import read_symbols
from asrtool.models.objectives.topology import CtcTopology, Span
from asrtool.score.stm_ctm import read_ctm

PIECES = ("<blk>", "<unk>", "[noise]", "\u2581", "\u2581hi", "\u2581the", "re", "\u2581th", "-")


def spans(*items: tuple[str, int, int]) -> list[Span]:
    return [(PIECES.index(piece), begin, end, -0.1) for piece, begin, end in items]


def find_words(found: list[Span], num_frames: int) -> list[Word]:
    return place_words(WordPieces(PIECES).group(found), 0.03, num_frames)


def texts(*items: tuple[str, int, int]) -> list[str]:
    return [word.text for word in find_words(spans(*items), 100)]


def test_a_word_begins_at_the_mark_and_joins_its_pieces() -> None:
    assert texts(("\u2581hi", 1, 2), ("\u2581the", 5, 6), ("re", 8, 9), ("\u2581th", 12, 13), ("-", 14, 15)) == [
        "hi",
        "there",
        "th-",
    ]


def test_tags_and_unknown_pieces_are_no_words() -> None:
    assert texts(("\u2581", 1, 2), ("[noise]", 3, 4), ("\u2581hi", 5, 6), ("<unk>", 7, 8), ("\u2581", 9, 10)) == ["hi"]


BYTES = ("<blk>", "<unk>", "[noise]", "\u2581", "\u2581a", *(f"<0x{byte:02X}>" for byte in range(256)))


def in_bytes(*tokens: int) -> list[str]:
    found = [(token, 2 * i, 2 * i + 1, -0.1) for i, token in enumerate(tokens)]
    return [text for text, _ in WordPieces(BYTES).group(found)]


def spell(text: str) -> list[int]:
    """The tokens of words, each after the mark of a word."""
    return [token for word in text.split(" ") for token in (3, *(5 + byte for byte in word.encode()))]


@given(st.lists(st.text(st.characters(categories=["L", "N", "M"]), min_size=1, max_size=3), max_size=4))
def test_bytes_of_words_are_put_together(words: list[str]) -> None:
    assert in_bytes(*spell(" ".join(words))) == [word for word in words if word.isprintable()]


def test_bytes_that_are_no_character_are_nothing() -> None:
    cat = spell("\u732b")
    assert in_bytes(*cat[:-1]) == []  # a word without text is none
    assert in_bytes(4, *cat[1:-1], 4) == ["a", "a"]
    assert in_bytes(4, *cat[2:], 2, *cat) == ["a", "\u732b"]
    assert in_bytes(*spell("x\ny z\u00a0\u2028<(/@"), 1) == ["xy", "z"]


@given(st.lists(st.integers(1, len(BYTES) - 1), max_size=12))
def test_any_tokens_make_words_that_a_ctm_can_hold(tokens: list[int]) -> None:
    for word in in_bytes(*tokens):
        assert word == "".join(word.split())
        assert word.isprintable()
        assert word[0] not in "<["


def test_a_word_reaches_a_margin_past_its_pieces_but_not_past_the_middle_of_a_gap_or_the_ends() -> None:
    words = find_words(spans(("\u2581hi", 1, 2), ("\u2581the", 4, 5), ("re", 7, 8)), 20)
    assert (words[0].begin_s, words[0].end_s) == pytest.approx((0.0, 0.09))
    assert (words[1].begin_s, words[1].end_s) == pytest.approx((0.09, 0.24 + CtcTopology.margin_s))


def test_confidence_is_that_of_the_weakest_piece() -> None:
    pieces = [(5, 0, 1, math.log(0.8)), (6, 1, 2, math.log(0.3))]
    assert find_words(pieces, 5)[0].confidence == pytest.approx(0.3)


@given(st.lists(st.tuples(st.sampled_from(range(1, len(PIECES))), st.integers(0, 3), st.integers(1, 3)), max_size=12))
def test_words_are_in_order_never_overlap_and_lie_in_the_utterance(runs: list[tuple[int, int, int]]) -> None:
    cursor, found = 0, list[Span]()
    for token, gap, length in runs:
        found.append((token, cursor + gap, cursor + gap + length, -0.5))
        cursor += gap + length
    words = find_words(found, cursor)
    edges = [edge for word in words for edge in (word.begin_s, word.end_s)]
    assert edges == sorted(edges)
    assert all(word.end_s > word.begin_s for word in words)
    assert not edges or (edges[0] >= 0 and edges[-1] <= cursor * 0.03 + 1e-9)


def words(*times: tuple[str, float, float]) -> tuple[Word, ...]:
    return tuple(Word(text, begin, end, 0.5) for text, begin, end in times)


def test_lines_are_sorted_by_recording_channel_and_start_and_empty_segments_leave_none() -> None:
    segments = [
        Segment("sw_2", "A", 0.0, 2.0, words(("late", 0.5, 0.75))),
        Segment("sw_1", "B", 0.0, 2.0, words(("b", 0.0, 0.2))),
        Segment("sw_1", "A", 9.0, 1.0, ()),
        Segment("sw_1", "A", 5.125, 1.0, words(("two", 0.0, 0.3), ("three", 0.3, 1.0))),
        Segment("sw_1", "A", 1.0, 1.0, words(("one", 0.25, 0.5))),
    ]
    assert format_ctm(segments) == (
        "sw_1 A 1.25 0.25 one 0.500\n"
        "sw_1 A 5.12 0.30 two 0.500\n"
        "sw_1 A 5.42 0.70 three 0.500\n"
        "sw_1 B 0.00 0.20 b 0.500\n"
        "sw_2 A 0.50 0.25 late 0.500\n"
    )


def test_a_word_shorter_than_the_rounding_still_lasts() -> None:
    assert format_ctm([Segment("r", "A", 1.0, 1.0, words(("a", 0.1, 0.1001)))]) == "r A 1.10 0.01 a 0.500\n"


def test_segments_that_overlap_by_their_padding_keep_their_words_in_the_order_said() -> None:
    first = Segment("r", "A", 0.0, 2.2, words(("said", 1.0, 1.5), ("first", 1.9, 2.2)))
    second = Segment("r", "A", 2.0, 1.0, words(("then", 0.0, 0.3), ("second", 0.3, 0.8)))
    rows = [line.split() for line in format_ctm([second, first]).splitlines()]
    assert [row[4] for row in rows] == ["said", "first", "then", "second"]
    assert [(row[2], row[3]) for row in rows[1:3]] == [("1.90", "0.20"), ("2.10", "0.20")]


def test_a_segment_inside_another_leaves_the_times_of_both_as_they_are() -> None:
    long = Segment("r", "A", 0.0, 10.0, words(("begin", 0.0, 1.0), ("end", 9.0, 10.0)))
    short = Segment("r", "A", 4.0, 1.0, words(("aside", 0.2, 0.6)))
    assert [line.split()[2:5] for line in format_ctm([long, short]).splitlines()] == [
        ["0.00", "1.00", "begin"],
        ["4.20", "0.40", "aside"],
        ["9.00", "1.00", "end"],
    ]


@given(
    st.lists(
        st.tuples(st.floats(0, 50), st.lists(st.tuples(st.floats(0, 0.5), st.floats(0.01, 0.5)), max_size=6)),
        max_size=4,
    )
)
def test_words_of_a_segment_keep_their_order_and_do_not_overlap(
    drawn: list[tuple[float, list[tuple[float, float]]]],
) -> None:
    segments = []
    for number, (start_s, runs) in enumerate(drawn):
        cursor, found = 0.0, []
        for k, (gap, length) in enumerate(runs):
            found.append((f"s{number}w{k}", cursor + gap, cursor + gap + length))
            cursor += gap + length
        segments.append(Segment("r", "A", start_s, cursor + 0.1, words(*found)))
    rows = [line.split() for line in format_ctm(segments).splitlines()]
    starts = [float(row[2]) for row in rows]
    assert starts == sorted(starts)
    for number, segment in enumerate(segments):
        own = [row for row in rows if row[4].startswith(f"s{number}w")]
        assert [row[4] for row in own] == [word.text for word in segment.words]
        ends = [round(100 * (float(row[2]) + float(row[3]))) for row in own]
        assert all(end <= round(100 * float(row[2])) for end, row in zip(ends, own[1:], strict=False))
        assert all(float(row[3]) > 0 for row in own)


@pytest.mark.parametrize(("name", "written"), [(";;a", "=3b=3ba"), ("a <1>", "a=20=3c1=3e"), ("a;;B", "a;;B")])
def test_a_name_that_a_ctm_cannot_hold_is_escaped_so_that_no_word_is_lost(
    name: str, written: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.ctm"
    path.write_text(format_ctm([Segment(name, "A", 0.0, 1.0, (Word("hello", 0.0, 0.5, 1.0),))]))
    assert [(side.file, len(words)) for side, words in read_ctm(path).sides.items()] == [(written, 1)]


# Words of tokens without word marks, against brute force and against what the graph writes

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
        # Of two equally probable sentences, either is right.
        assert found == expected or lm.log_prob(found) == pytest.approx(lm.log_prob(expected), abs=1e-4)
        num_words += len(expected)
    assert num_words > 300
