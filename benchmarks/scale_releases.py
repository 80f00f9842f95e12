"""Generate releases of the layout and size of Fisher and Switchboard.

    scale_releases.py OUT SCALE

Audio files are a header and a hole, so they use no disk space. Words have Zipf's frequencies; whole utterances of one
word are as frequent as in the real transcripts. Hub5'00 is taken from the mini corpus.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.files import write_folder
from asrtool.local.mini.corpus import make_corpus
from asrtool.settings.data import Mini
from asrtool.utils.sphere import HEADER_BYTES, format_header

RATE_HZ = 8000
FISHER_CALLS, FISHER_PART_1, FISHER_SPEAKERS = 11_699, 5_850, 11_900
SWBD_CALLS, SWBD_SPEAKERS = 2_438, 543
FISHER_CALL_S, SWBD_CALL_S = 600.0, 390.0
TURNS_A_CALL, SEGMENTS_A_SIDE = 180, 53
NUM_WORDS = 45_000  # of the language
NUM_FOLLOWERS = 60  # words that often follow a word
WORDS_A_SECOND = 3.3
MAX_WORDS = 75
SYLLABLES = tuple(consonant + vowel for consonant in "bdfghklmnprstvwz" for vowel in "aeiou")
# Whole utterances and how many of a hundred they are; the first three were counted in Fisher's text.
BACKCHANNELS = {
    "yeah": 6.3, "uh-huh": 4.7, "mhm": 3.5, "right": 2.0, "okay": 1.2, "[laughter]": 2.0, "oh": 0.8, "oh yeah": 0.8,
    "no": 0.6, "um": 0.4, "you know": 0.3, "i see": 0.3,
}  # fmt: skip
# Changes of one utterance in a hundred, by the mark-up of each corpus; W is a word of it.
FISHER_MARKS = {
    "[laughter] W": 5, "(( W ))": 6, "W wor-": 3, "t._v. W": 1.5, "[mn] W": 2, "(( ))": 1,
    "<german W>": 0.2, "[[skip]]": 0.1,
}  # fmt: skip
SWBD_MARKS = {
    "[laughter-W]": 4, "W[x]-": 3, "[noise] W": 3, "W_1": 1, "[W/when]": 0.5, "{W}": 0.3, "<b_aside> W <e_aside>": 0.3,
}  # fmt: skip
HUB5 = ("LDC2002S09", "LDC2002T43")
TABLE_HEAD = (
    "CALL_ID,DATE_TIME,TOPICID,SIG_GRADE,CNV_GRADE,APIN,ASX.DL,APHNUM,APHSET,APHTYP,BPIN,BSX.DL,BPHNUM,BPHSET,BPHTYP\n"
)


@dataclass(frozen=True)
class Said:
    """An utterance as transcribed, and how long it takes."""

    text: str
    duration_s: float


class Language:
    """Words of Zipf's frequencies; three in four are such as the one before likes."""

    def __init__(self, random: np.random.Generator, num_kinds: int) -> None:
        self._random = random
        frequency = 1 / (np.arange(num_kinds) + 3.7)
        self._frequency = frequency / frequency.sum()
        self._followers = random.choice(num_kinds, (num_kinds, NUM_FOLLOWERS), p=self._frequency)

    def draw(self, num: int, size: int) -> np.ndarray:
        """Words with Zipf's frequencies; three in four are a follower of the last."""
        random = self._random
        words = random.choice(len(self._frequency), (num, size), p=self._frequency)
        for i in range(1, size):
            liked = self._followers[words[:, i - 1], (NUM_FOLLOWERS * random.random(num) ** 2.5).astype(int)]
            words[:, i] = np.where(random.random(num) < 0.75, liked, words[:, i])
        return words


class Talk:
    """Utterances without end, always the same for a seed."""

    def __init__(self, seed: int, marks: dict[str, float]) -> None:
        self._random = np.random.default_rng(seed)
        self._words = _vocabulary()
        self._language = Language(np.random.default_rng(1), NUM_WORDS)
        self._marks = [*marks, "W"]
        self._mark_p = np.array([*marks.values(), 100 - sum(marks.values())]) / 100
        self._short = [*BACKCHANNELS, ""]
        self._short_p = np.array([*BACKCHANNELS.values(), 100 - sum(BACKCHANNELS.values())]) / 100

    def __iter__(self) -> Iterator[Said]:
        while True:
            yield from self._some(20_000)

    def _some(self, num: int) -> Iterator[Said]:
        shorts = self._random.choice(len(self._short), num, p=self._short_p).tolist()
        sizes = self._random.lognormal(2.1, 0.85, num).astype(int).clip(1, MAX_WORDS)
        marks = self._random.choice(len(self._marks), num, p=self._mark_p).tolist()
        speech = self._words[self._language.draw(1000, int(sizes.sum()) // 1000 + 1).ravel()].tolist()
        begin = 0
        for short, size, mark in zip(shorts, sizes.tolist(), marks, strict=True):
            words = self._short[short].split() or speech[begin : begin + size]
            begin += size
            text = " ".join([self._marks[mark].replace("W", words[0]), *words[1:]]) if words else ""
            yield Said(text, round(0.3 + len(words) / WORDS_A_SECOND, 2))


def make_releases(out: Path, scale: float) -> None:
    """Write all releases below `out`; `scale` is the fraction of the calls."""
    _make_hub5(out)
    random = np.random.default_rng(2)
    talk = iter(Talk(3, FISHER_MARKS))
    for year, first, last in ((2004, 1, FISHER_PART_1), (2005, FISHER_PART_1 + 1, FISHER_CALLS)):
        numbers = range(first, first + _part(last - first + 1, scale))
        pins = random.integers(0, _part(FISHER_SPEAKERS, scale), (len(numbers), 2)) + 20001
        _write_fisher(out, year, numbers, pins.tolist(), talk)
    numbers = range(2001, 2001 + _part(SWBD_CALLS, scale))
    callers = random.integers(0, _part(SWBD_SPEAKERS, scale), (len(numbers), 2)) + 1000
    _write_swbd(out, numbers, callers.tolist(), iter(Talk(4, SWBD_MARKS)))


def _part(num: int, scale: float) -> int:
    return max(2, round(scale * num))


def _vocabulary() -> np.ndarray:
    """NUM_WORDS different words, short ones first."""
    random = np.random.default_rng(5)
    words: dict[str, None] = {}
    while len(words) < NUM_WORDS:
        size = 1 if len(words) < 50 else int(random.integers(2, 5))
        words["".join(random.choice(SYLLABLES, size))] = None
    return np.array(list(words), dtype=object)


def _make_hub5(out: Path) -> None:
    make_corpus(out / "mini", Mini(train_hours=0.005, test_minutes=0.4), num_jobs=1)
    for name in HUB5:
        shutil.move(out / "mini" / name, out / name)
    shutil.rmtree(out / "mini")


def _write_fisher(out: Path, year: int, numbers: range, pins: list[list[int]], talk: Iterator[Said]) -> None:
    part = year - 2003
    transcripts = out / f"LDC{year}T19" / f"fe_03_p{part}_tran"
    table = [TABLE_HEAD]
    for number, (a, b) in zip(numbers, pins, strict=True):
        name = f"fe_03_{number:05d}"
        audio = out / f"LDC{year}S13" / f"fe_03_p{part}_sph1" / "audio" / name[6:9] / f"{name}.sph"
        _write_silence(audio, FISHER_CALL_S)
        _write(transcripts / "data" / "trans" / name[6:9] / f"{name}.txt", _fisher_call(name, talk))
        table.append(f"{name[6:]},20021211_14:02:00,ENG01,,,{a},F.A,,1,1,{b},M.A,,1,1\n")
    _write(transcripts / "doc" / f"fe_03_p{part}_calldata.tbl", "".join(table))


def _fisher_call(name: str, talk: Iterator[Said]) -> str:
    """Turns of both sides in turn, which fill the call."""
    turns = [next(talk) for _ in range(TURNS_A_CALL)]
    rate = (FISHER_CALL_S - 1) / sum(turn.duration_s for turn in turns)
    lines, at_s = [f"# {name}.sph\n# Transcribed by BBN/WordWave\n"], 0.0
    for i, turn in enumerate(turns):
        lines.append(f"{at_s:.2f} {at_s + turn.duration_s:.2f} {'AB'[i % 2]}: {turn.text} \n")
        at_s += turn.duration_s * rate  # above 1 there are pauses, below it both speak at once
    return "\n".join(lines)


def _write_swbd(out: Path, numbers: range, callers: list[list[int]], talk: Iterator[Said]) -> None:
    audio, transcripts = out / "LDC97S62", out / "swb_ms98_transcriptions"
    table = []
    for number, pair in zip(numbers, callers, strict=True):
        _write_silence(audio / f"swb1_d{1 + number % 23}" / "data" / f"sw0{number}.sph", SWBD_CALL_S)
        for side, caller in zip("AB", pair, strict=True):
            name = f"sw{number}{side}-ms98-a"
            folder = transcripts / str(number)[:2] / str(number)
            _write(folder / f"{name}-trans.text", _swbd_side(name, talk))
            table.append(f'{number}, "{side}", {caller}, "555-{caller}", 6, 301, "", "Y"\n')
    _write(audio / "call_con_tab.csv", "".join(table))


def _swbd_side(name: str, talk: Iterator[Said]) -> str:
    """Segments with silence between, which tile the side."""
    said = [next(talk) for _ in range(SEGMENTS_A_SIDE)]
    pause_s = max(0.5, (SWBD_CALL_S - 1 - sum(item.duration_s for item in said)) / SEGMENTS_A_SIDE)
    lines: list[str] = []
    at_s = 0.0
    for item in said:
        for text, duration_s in ((item.text, item.duration_s), ("[silence]", pause_s)):
            end_s = min(at_s + duration_s, SWBD_CALL_S)
            if end_s > at_s:
                lines.append(f"{name}-{len(lines) + 1:04d} {at_s:.6f} {end_s:.6f} {text}\n")
            at_s = end_s
    return "".join(lines)


def _write_silence(path: Path, duration_s: float) -> None:
    """A telephone call of two sides as SPHERE; the samples are a hole in the file."""
    num_samples = int(duration_s * RATE_HZ)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(format_header(num_samples, 2, RATE_HZ))
        file.truncate(HEADER_BYTES + 2 * num_samples)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    with write_folder(Path(sys.argv[1])) as temporary:
        make_releases(temporary, float(sys.argv[2]))
