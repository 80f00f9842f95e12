"""Where long utterances are cut: by brute force over all ways to cut them, and what holds of any."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from asrtool.decode.align.cut import KEPT_S, Piece, cut_at_pauses
from asrtool.decode.words import Word, is_spoken

LARGEST_S = 4.0


@st.composite
def utterances(draw: st.DrawFn) -> tuple[list[Word], float]:
    """Words and tags in hundredths of a second, and how long the utterance is."""
    parts = draw(
        st.lists(
            st.tuples(st.sampled_from(["a", "b", "c", "[noise]"]), st.integers(1, 150), st.integers(0, 60)),
            min_size=1,
            max_size=9,
        )
    )
    words, at = [], draw(st.integers(0, 30))
    for text, length, gap in parts:
        words.append(Word(text, at / 100, (at + length) / 100, 1.0))
        at += length + gap
    return words, at / 100


def ways_to_cut(words: list[Word], duration_s: float) -> list[list[int]]:
    """All places of cuts that are allowed, of each way."""
    between = range(1, len(words))
    gaps = {i: words[i].begin_s - words[i - 1].end_s for i in between}
    places = [i for i in between if gaps[i] >= 0.2 and is_spoken(words[i].text) and is_spoken(words[i - 1].text)]
    found = []
    for size in range(len(places) + 1):
        for cuts in itertools.combinations(places, size):
            begins = [0.0, *(words[i].begin_s - min(gaps[i] / 2, KEPT_S) for i in cuts)]
            ends = [*(words[i - 1].end_s + min(gaps[i] / 2, KEPT_S) for i in cuts), duration_s]
            if all(1.0 <= end - begin <= 4.0 for begin, end in zip(begins, ends, strict=True)):
                found.append(list(cuts))
    return found


@given(utterances())
def test_pieces_have_all_words_and_are_the_fewest_with_the_longest_pauses(item: tuple[list[Word], float]) -> None:
    words, duration_s = item
    pieces = cut_at_pauses(words, duration_s, LARGEST_S)
    ways = ways_to_cut(words, duration_s)
    assert bool(pieces) == bool(ways)
    if ways:
        assert len(pieces) == 1 + min(map(len, ways))
        cuts = list(itertools.accumulate(len(piece.text.split()) for piece in pieces))[:-1]
        assert cuts in ways
        pauses = [sum(words[i].begin_s - words[i - 1].end_s for i in way) for way in ways if len(way) == len(cuts)]
        chosen = sum(words[i].begin_s - words[i - 1].end_s for i in cuts)
        assert abs(chosen - max(pauses)) < 1e-9
        assert " ".join(piece.text for piece in pieces) == " ".join(word.text for word in words)
        assert (pieces[0].begin_s, pieces[-1].end_s) == (0.0, duration_s)
        assert all(one.end_s <= other.begin_s + 1e-9 for one, other in itertools.pairwise(pieces))
        begin = 0
        for piece in pieces:
            assert 1.0 <= piece.end_s - piece.begin_s <= LARGEST_S
            own = words[begin : begin + len(piece.text.split())]
            assert piece.begin_s <= own[0].begin_s
            assert own[-1].end_s <= piece.end_s
            begin += len(own)


def test_half_a_pause_is_kept_and_no_more_than_a_little() -> None:
    words = [Word("a", 0.0, 2.0, 1.0), Word("b", 2.25, 4.0, 1.0), Word("c", 6.0, 8.0, 1.0)]
    assert cut_at_pauses(words, 8.5, 2.75) == [
        Piece(0.0, 2.125, "a"),
        Piece(2.125, 4.2, "b"),
        Piece(5.8, 8.5, "c"),
    ]


def test_without_words_there_are_no_pieces() -> None:
    assert not cut_at_pauses([], 5.0, LARGEST_S)
