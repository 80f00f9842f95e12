"""Pieces to words with times."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrtool.decode.words import Word, WordPieces, place_words
from asrtool.models.objectives.topology import CtcTopology, Span

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
