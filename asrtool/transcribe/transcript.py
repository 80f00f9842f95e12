"""Transcript of a recording, and its output forms, a function for each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from asrtool.decode.ctm import MIN_CS, ctm_name
from asrtool.decode.words import Word

LINE_S, LINE_WORDS = 6.0, 14  # maximum of a subtitle


@dataclass(frozen=True)
class Line:
    """Stretch of one channel without a long pause; word times are from the start."""

    channel: int  # from 1 on
    begin_s: float
    end_s: float
    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """Words of the line."""
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True)
class Transcript:
    """Transcript of a recording; lines are in order of their starts."""

    name: str
    duration_s: float
    channels: tuple[int, ...]  # transcribed channels, from 1 on
    lines: tuple[Line, ...]
    path: str = ""  # path of its file

    @property
    def text(self) -> str:
        """All words, a line for each turn."""
        return "".join(f"{line.text}\n" for line in self.lines if line.words)

    @property
    def words(self) -> list[Word]:
        """All words, line by line."""
        return [word for line in self.lines for word in line.words]


def to_text(transcript: Transcript) -> str:
    """Format one line a turn, with the channel number if there are several."""
    if len(transcript.channels) == 1:
        return transcript.text
    return "".join(f"{line.channel}: {line.text}\n" for line in transcript.lines if line.words)


def named_text(transcript: Transcript) -> str:
    """Format as `to_text` with the name before each line, or alone without words."""
    lines = to_text(transcript).splitlines() or [""]
    return "".join(f"{_name(transcript)} {line}".rstrip() + "\n" for line in lines)


def to_ctm(transcript: Transcript) -> str:
    """Format as ctm; no word begins before another ends."""
    lines = []
    name = _name(transcript)
    for channel in sorted(set(transcript.channels)):
        last_cs = 0
        for word in (word for line in transcript.lines if line.channel == channel for word in line.words):
            begin_cs = max(last_cs, round(100 * word.begin_s))
            last_cs = max(begin_cs + MIN_CS, round(100 * word.end_s))
            times = f"{begin_cs / 100:.2f} {(last_cs - begin_cs) / 100:.2f}"
            lines.append(f"{name} {channel_name(channel)} {times} {word.text} {word.confidence:.3f}\n")
    return "".join(lines)


def to_srt(transcript: Transcript) -> str:
    """Format SubRip subtitles."""
    return "\n".join(
        f"{number}\n{_time(begin_s, ',')} --> {_time(end_s, ',')}\n{text}\n"
        for number, (begin_s, end_s, text) in enumerate(_subtitles(transcript), 1)
    )


def to_vtt(transcript: Transcript) -> str:
    """Format WebVTT subtitles."""
    cues = [
        f"{_time(begin_s, '.')} --> {_time(end_s, '.')}\n{text}\n" for begin_s, end_s, text in _subtitles(transcript)
    ]
    return "\n".join(["WEBVTT\n", *cues])


def to_json(transcript: Transcript) -> str:
    """Format lines and words with times in seconds and confidences from 0 to 1."""
    lines = [
        {
            "channel": line.channel,
            "begin_s": round(line.begin_s, 3),
            "end_s": round(line.end_s, 3),
            "text": line.text,
            "words": [_word(word) for word in line.words],
        }
        for line in transcript.lines
    ]
    content = {"recording": transcript.name, "duration_s": round(transcript.duration_s, 3), "lines": lines}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def to_textgrid(transcript: Transcript) -> str:
    """Format as a TextGrid of Praat, one tier a channel, with empty intervals."""
    channels = sorted(set(transcript.channels))
    times = f"xmin = 0\nxmax = {transcript.duration_s:.3f}\n"
    text = f'File type = "ooTextFile"\nObject class = "TextGrid"\n\n{times}'
    text += f"tiers? <exists>\nsize = {len(channels)}\nitem []:\n"
    for tier, channel in enumerate(channels, 1):
        words = [word for line in transcript.lines if line.channel == channel for word in line.words]
        intervals, last_s = [], 0.0
        for begin_s, end_s, shown in [(w.begin_s, w.end_s, w.text) for w in words] + [(transcript.duration_s, 0.0, "")]:
            begin_s = max(begin_s, last_s)
            if round(begin_s, 3) > round(last_s, 3):
                intervals.append((last_s, begin_s, ""))
            if shown and end_s > begin_s:
                intervals.append((begin_s, end_s, shown))
            last_s = max(begin_s, end_s)
        text += f'item [{tier}]:\nclass = "IntervalTier"\nname = "{channel_name(channel)}"\n{times}'
        text += f"intervals: size = {len(intervals)}\n"
        for number, (begin_s, end_s, shown) in enumerate(intervals, 1):
            quoted = shown.replace('"', '""')
            text += f'intervals [{number}]:\nxmin = {begin_s:.3f}\nxmax = {end_s:.3f}\ntext = "{quoted}"\n'
    return text


def supervisions(transcript: Transcript) -> list[dict[str, Any]]:
    """Return a supervision of lhotse for each line, as lhotse stores it."""
    return [
        {
            "id": f"{transcript.name}-{number}",
            "recording_id": transcript.name,
            "start": round(line.begin_s, 3),
            "duration": round(line.end_s - line.begin_s, 3),
            "channel": line.channel - 1,
            "text": line.text,
            "alignment": {"word": [_aligned(word) for word in line.words]},
        }
        for number, line in enumerate(transcript.lines)
        if line.words
    ]


def to_lhotse(transcript: Transcript) -> str:
    """Format as supervisions of lhotse with alignments of words."""
    return "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in supervisions(transcript))


def to_nemo(transcript: Transcript) -> str:
    """Format as one line of a NeMo manifest, with the words as ``pred_text``."""
    text = " ".join(line.text for line in transcript.lines if line.words)
    name, duration_s = transcript.path or transcript.name, round(transcript.duration_s, 3)
    return json.dumps({"audio_filepath": name, "duration": duration_s, "pred_text": text}, ensure_ascii=False) + "\n"


def channel_name(channel: int) -> str:
    """Return A for the first channel, as in a ctm."""
    return chr(ord("A") + channel - 1) if channel <= 26 else str(channel)


FORMATS: dict[str, tuple[str, Callable[[Transcript], str]]] = {  # name -> suffix of the file, and its writer
    "text": (".txt", to_text),
    "ctm": (".ctm", to_ctm),
    "srt": (".srt", to_srt),
    "vtt": (".vtt", to_vtt),
    "textgrid": (".TextGrid", to_textgrid),
    "json": (".json", to_json),
    "lhotse": (".jsonl", to_lhotse),
    "nemo": (".nemo.json", to_nemo),
}


def _name(transcript: Transcript) -> str:
    """Return the name as one field of a line."""
    return ctm_name("_".join(transcript.name.split())) or "recording"


def _word(word: Word) -> dict[str, Any]:
    times = {"begin_s": round(word.begin_s, 3), "end_s": round(word.end_s, 3)}
    return {"word": word.text, **times, "confidence": round(word.confidence, 4)}


def _aligned(word: Word) -> list[str | float]:
    return [word.text, round(word.begin_s, 3), round(word.end_s - word.begin_s, 3), round(word.confidence, 4)]


def _subtitles(transcript: Transcript) -> list[tuple[float, float, str]]:
    """Return begin, end and text of subtitles; long lines are split."""
    return sorted(_subtitle(transcript, line, part) for line in transcript.lines for part in _balanced(line.words))


def _balanced(words: Sequence[Word]) -> list[Sequence[Word]]:
    """Split words into the fewest subtitles, of lengths as equal as possible."""
    fewest = len(_split(words, LINE_WORDS))
    return next(parts for most in range(1, LINE_WORDS + 1) if len(parts := _split(words, most)) == fewest)


def _split(words: Sequence[Word], most: int) -> list[Sequence[Word]]:
    parts: list[list[Word]] = []
    for word in words:
        if not parts or word.end_s - parts[-1][0].begin_s > LINE_S or len(parts[-1]) == most:
            parts.append([])
        parts[-1].append(word)
    return [*parts]


def _subtitle(transcript: Transcript, line: Line, words: Sequence[Word]) -> tuple[float, float, str]:
    speaker = f"{channel_name(line.channel)}: " if len(transcript.channels) > 1 else ""
    text = speaker + " ".join(word.text for word in words)
    return words[0].begin_s, max(words[-1].end_s, words[0].begin_s + 0.001), text


def _time(seconds: float, point: str) -> str:
    ms = round(1000 * seconds)
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}{point}{ms % 1000:03d}"
