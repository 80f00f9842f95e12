"""The ctm form."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrtool.decode.ctm import Segment, format_ctm
from asrtool.decode.words import Word
from asrtool.score.stm_ctm import read_ctm


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
