"""Words of overlapping pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asrtool.decode.words import Word
from asrtool.transcribe.stitch import Heard, stitch


def word(text: str, begin_s: float, end_s: float) -> Word:
    return Word(text, begin_s, end_s, 1.0)


def texts(pieces: list[Heard]) -> list[str]:
    return [each.text for piece in pieces for each in piece.words]


def test_a_word_that_both_have_is_written_once() -> None:
    first = Heard(0, 5, (word("one", 3.0, 3.4), word("two", 4.1, 4.4), word("thr", 4.8, 5.0)))
    second = Heard(4, 8, (word("wo", 4.0, 4.05), word("two", 4.2, 4.5), word("three", 4.8, 5.2)), 1.0)
    assert texts(stitch([first, second])) == ["one", "two", "three"]


def test_without_a_word_alike_the_middle_is_the_seam() -> None:
    first = Heard(0, 5, (word("a", 4.0, 4.3), word("x", 4.6, 4.9)))
    second = Heard(4, 8, (word("y", 4.0, 4.4), word("b", 4.6, 4.9)), 1.0)
    assert texts(stitch([first, second])) == ["a", "b"]


def test_of_a_word_said_again_and_again_each_is_the_one_of_its_time() -> None:
    """Of the first and the last words alone, two pairs 0.25 s apart lie as near to the middle as the true one."""
    said = [word("no", at, at + 0.25) for at in (1.2, 1.45, 2.08, 2.7, 2.95)]
    first = Heard(0, 3.875, (*said, word("no", 3.2, 3.95)))
    second = Heard(2.075, 5.95, (*said[2:], word("no", 3.2, 3.95)), 1.8)
    assert texts(stitch([first, second])) == ["no"] * 6


def test_words_alike_are_paired_by_their_time_even_if_fewer_then_have_a_pair() -> None:
    said = [word("no", at, at + 0.25) for at in (4.1, 4.35, 4.6, 4.85)]
    first, second = Heard(0, 5, tuple(said[:3])), Heard(4, 8, (word("oh", 4.1, 4.35), *said[1:]), 1.0)
    assert texts(stitch([first, second])) == ["no"] * 4


def test_one_word_heard_differently_across_the_middle_is_written_once() -> None:
    first = Heard(0, 5, (word("seat", 4.2, 4.75),))
    second = Heard(4, 8, (word("sea", 4.3, 4.8), word("is", 4.9, 5.3)), 1.0)
    assert texts(stitch([first, second])) == ["seat", "is"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.15, 0.8), st.floats(0.0, 0.4)), min_size=1, max_size=40),
    st.lists(st.floats(-0.02, 0.02), min_size=80, max_size=80),  # more, and one word's place could be another's
    st.floats(3.0, 6.0),
)
def test_words_cut_anywhere_come_out_once_and_in_order(
    said: list[tuple[str, float, float]], shifts: list[float], length_s: float
) -> None:
    """Each piece hears what lies wholly in it, a little earlier or later than it is."""
    words, at = [], 0.0
    for text, duration_s, pause_s in said:
        words.append(word(text, at, at + duration_s))
        at += duration_s + pause_s
    shift = iter(shifts * 20)
    pieces, begin_s, overlap_s = [], 0.0, 0.0
    while begin_s + overlap_s < at:
        end_s = begin_s + length_s
        heard = [each for each in words if each.begin_s >= begin_s - 1e-9 and each.end_s <= end_s + 1e-9]
        moved = [word(each.text, each.begin_s + by, each.end_s + by) for each in heard for by in [next(shift)]]
        pieces.append(Heard(begin_s, end_s, tuple(moved), overlap_s))
        overlap_s = 1.8  # more than twice the longest word: each lies wholly in a piece
        begin_s = end_s - overlap_s
    assert texts(stitch(pieces)) == [each.text for each in words]
