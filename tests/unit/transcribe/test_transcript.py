"""The forms a transcript is written in."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from lhotse import SupervisionSet, validate
from lhotse.supervision import AlignmentItem

from asrtool.decode.words import Word
from asrtool.transcribe.transcript import FORMATS, Line, Transcript, named_text


def words(*texts: str, at_s: float = 0.0, each_s: float = 0.5) -> tuple[Word, ...]:
    return tuple(Word(text, at_s + i * each_s, at_s + (i + 1) * each_s, 0.5) for i, text in enumerate(texts))


BOTH = Transcript(
    "a call",
    3700.0,
    (1, 2),
    (
        Line(1, 0.0, 2.0, words("hi", "there", at_s=0.25)),
        Line(2, 1.0, 3.0, words("hello", at_s=1.5)),
        Line(1, 3000.0, 3001.0, ()),
        Line(2, 3661.0, 3663.0, words("bye", at_s=3661.5)),
    ),
)
ONE = Transcript("x", 9.0, (1,), (Line(1, 0.0, 9.0, words(*"abcdefghijklmnop")),))


def written(form: str, transcript: Transcript) -> str:
    return FORMATS[form][1](transcript)


def test_text_has_a_line_each_time_somebody_speaks() -> None:
    assert written("text", BOTH) == "1: hi there\n2: hello\n2: bye\n"
    assert written("text", ONE) == "a b c d e f g h i j k l m n o p\n"
    assert BOTH.text == "hi there\nhello\nbye\n"


def test_a_ctm_is_one_that_the_scorer_reads() -> None:
    assert written("ctm", BOTH) == (
        "a_call A 0.25 0.50 hi 0.500\na_call A 0.75 0.50 there 0.500\n"
        "a_call B 1.50 0.50 hello 0.500\na_call B 3661.50 0.50 bye 0.500\n"
    )


def test_a_textgrid_has_a_tier_a_channel_that_is_filled_without_overlap() -> None:
    text = written("textgrid", BOTH)
    assert text.startswith('File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = 3700.000\n')
    tiers = re.split(r"item \[\d+\]:\n", text)[1:]
    found = [re.findall(r'\]:\nxmin = (\S+)\nxmax = (\S+)\ntext = "(.*)"', tier) for tier in tiers]
    assert [[word for _, _, word in tier if word] for tier in found] == [["hi", "there"], ["hello", "bye"]]
    for tier, intervals in zip(tiers, found, strict=True):
        assert f"intervals: size = {len(intervals)}\n" in tier
        assert [begin for begin, _, _ in intervals] == ["0.000", *(end for _, end, _ in intervals[:-1])]
        assert intervals[-1][1] == "3700.000"


def test_a_chosen_channel_keeps_its_words_and_its_letter() -> None:
    second = dataclasses.replace(BOTH, channels=(2,), lines=(BOTH.lines[1],))
    assert written("ctm", second) == "a_call B 1.50 0.50 hello 0.500\n"
    assert 'item [1]:\nclass = "IntervalTier"\nname = "B"' in written("textgrid", second)
    assert 'text = "hello"' in written("textgrid", second)


def test_words_of_a_ctm_have_a_duration_and_do_not_overlap() -> None:
    crowded = (Word("a", 0.0, 0.0, 1), Word("b", 0.0, 0.5, 1), Word("c", 0.4, 0.4, 1))
    lines = written("ctm", Transcript("x", 1.0, (1,), (Line(1, 0, 1, crowded),))).splitlines()
    times = [tuple(map(float, line.split()[2:4])) for line in lines]
    assert times == [(0.0, 0.01), (0.01, 0.49), (0.5, 0.01)]


def test_subtitles_have_times_in_order_and_all_words() -> None:
    assert written("srt", BOTH) == (
        "1\n00:00:00,250 --> 00:00:01,250\nA: hi there\n\n"
        "2\n00:00:01,500 --> 00:00:02,000\nB: hello\n\n"
        "3\n01:01:01,500 --> 01:01:02,000\nB: bye\n"
    )
    vtt = written("vtt", ONE)
    assert vtt.startswith("WEBVTT\n\n00:00:00.000 --> ")
    assert re.findall(r"^[a-p ]+$", vtt, re.M) == ["a b c d e f g h", "i j k l m n o p"]  # 6 s a subtitle


@pytest.mark.parametrize(("each_s", "num", "expected"), [(0.1, 15, [8, 7]), (0.1, 14, [14]), (0.1, 29, [10, 10, 9])])
def test_a_long_line_is_split_evenly(each_s: float, num: int, expected: list[int]) -> None:
    line = Line(1, 0.0, 9.0, words(*["so"] * num, each_s=each_s))
    assert [text.count("so") for text in written("srt", Transcript("x", 9.0, (1,), (line,))).split("\n\n")] == expected


def test_texts_of_several_files_have_their_names() -> None:
    assert named_text(BOTH) == "a_call 1: hi there\na_call 2: hello\na_call 2: bye\n"
    assert named_text(dataclasses.replace(ONE, lines=())) == "x\n"


@pytest.mark.parametrize("transcript", [BOTH, ONE])
def test_json_has_all(transcript: Transcript) -> None:
    found = json.loads(written("json", transcript))
    assert (found["recording"], found["duration_s"]) == (transcript.name, transcript.duration_s)
    assert [line["text"] for line in found["lines"]] == [line.text for line in transcript.lines]
    first = found["lines"][0]["words"][0]
    assert first == {
        "word": transcript.words[0].text,
        "begin_s": first["begin_s"],
        "end_s": first["end_s"],
        "confidence": 0.5,
    }


def test_lhotse_reads_its_supervisions_and_their_alignments(tmp_path: Path) -> None:
    (tmp_path / "call.jsonl").write_text(written("lhotse", BOTH), encoding="utf-8")
    found = SupervisionSet.from_jsonl(tmp_path / "call.jsonl")
    validate(found)
    assert [(each.channel, each.start, each.end, each.text) for each in found] == [
        (0, 0.0, 2.0, "hi there"),
        (1, 1.0, 3.0, "hello"),
        (1, 3661.0, 3663.0, "bye"),
    ]
    assert found[0].alignment["word"] == [AlignmentItem("hi", 0.25, 0.5, 0.5), AlignmentItem("there", 0.75, 0.5, 0.5)]


def test_a_nemo_manifest_has_a_line_a_recording() -> None:
    expected = {"audio_filepath": "calls/x.wav", "duration": 9.0, "pred_text": "a b c d e f g h i j k l m n o p"}
    assert written("nemo", dataclasses.replace(ONE, path="calls/x.wav")) == json.dumps(expected) + "\n"
    assert json.loads(written("nemo", BOTH))["pred_text"] == "hi there hello bye"


@pytest.mark.parametrize("form", FORMATS)
def test_a_recording_without_words_can_be_written(form: str) -> None:
    written(form, Transcript("x", 1.0, (1,), ()))
