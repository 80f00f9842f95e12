"""Switchboard-1: LDC97S62 audio and MS-State transcripts.

Speakers are of the release's table of calls, or else one a side.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from asrtool.data.manifests.manifest import Drop
from asrtool.errors import AsrtoolError
from asrtool.local.corpora.calls import LICENCE, NUM_CHANNELS, SAMPLING_RATE_HZ, Calls, Line
from asrtool.local.corpus import Corpus as Base
from asrtool.local.corpus import Release
from asrtool.local.releases.releases import find_files
from asrtool.local.text.numbers import verbalise
from asrtool.local.text.text_rules import DATE, DOCTORATE, Rules, normalise
from asrtool.local.utterances import Sound, check_times, read_lines, usable_audio
from asrtool.settings.data import Data

AUDIO = Release("LDC97S62", "Switchboard-1 Release 2 audio", ("sw[0-9]*.sph",))
TRANSCRIPTS = Release("swb_ms98_transcriptions", "MS-State transcripts of Switchboard-1", ("sw*-ms98-a-trans.text",))
DOCUMENTATION = Release(
    "LDC97S62_docs", "tables of Switchboard-1, with call_con_tab.csv", roles=("train",), is_optional=True
)
DICTIONARY = "sw-ms98-dict.text"
CALLERS = "call_con_tab.csv"  # conversation, side, caller
CONVERSATIONS = ("conv_tab.csv", "conv.tab")  # conversation, whether it is active, caller of A, caller of B
ADVICE = f"set paths.{DOCUMENTATION.key} to the folder of the documentation that has {CALLERS} or conv_tab.csv"

LINE = re.compile(r"(\S+)\s+(\d+(?:\.\d*)?)\s+(\d+(?:\.\d*)?)\s+(\S.*)")

# Pronunciations of the names of letters in the dictionary of the release.
LETTERS = {
    "a": "ey", "b": "b iy", "c": "s iy", "d": "d iy", "e": "iy", "f": "eh f", "g": "jh iy", "h": "ey ch", "i": "ay",
    "j": "jh ey", "k": "k ey", "l": "eh l", "m": "eh m", "n": "eh n", "o": "ow", "p": "p iy", "q": "k y uw",
    "r": "aa r", "s": "eh s", "t": "t iy", "u": "y uw", "v": "v iy", "w": "d ah b ax l y uw", "x": "eh k s",
    "y": "w ay", "z": "z iy",
}  # fmt: skip

UNSAID = r"\[[^\[\]]+\]"

# MS-State transcripts of Switchboard-1. Order matters: brackets may be nested.
RULES = Rules(
    line=(
        (r"\[silence\]", " "),
        (r"<[be]_aside>", " "),
    ),
    word=(
        (r"_\d+", ""),  # variant of pronunciation
        (r"^(-?)\[laughter-(.+)\](-?)$", r"\1\2\3"),  # said while laughing
        (r"\{([^{}]*)\}", r"\1"),  # coined
        (r"^\[(.+-|-.+)/.+\]-?$", r"\1"),  # broken off: as said
        (r"^(-?)\[.+/(.+)\]((?:'[a-z]+)?-?)$", r"\1\2\3"),  # mispronounced: as meant
        (r"^([^\[\]]+)\[[^\[\]]*\]-/.*\]$", r"\1-"),  # the same without its first bracket, a slip of the release
        # The spoken part of a number: 40[1k]- is four oh, 19[80s]- nineteen, 5[2]- fifty.
        (r"(?<!\d)([2-9])\[\d(?!\d)", r"\g<1>0[x"),
        (r"(?<!\d)(\d)(\d)(?=\[\d(?!\d(?!\d)))", r"\1-\2"),
        (r"(?<=\d\])(?<!\[\d\d\])(\d)(?!0'?s)(\d)(?!\d)", r"\1-\2"),
        (r"(?<=\d)\[[\dx]+\](?=\d)", "-"),  # 2[00]1: two one
        (r"(?<=\d)\[[\dx]+\](?:'?s|st|nd|rd|th)-?$", "-"),  # 19[80]s: nineteen
        (r"^([a-z])\[&[^\[\]]*\]-?$", r"\1."),  # r[&d]-: letters are spoken by name
        (r"^([a-z])([a-z])\[&[^\[\]]*\]-?$", r"\1._\2."),
        # A hyphenated part can be a word: -[wall-]to-wall, twenty-[five]-, wall-[to]-wall, s[eventy]-five.
        (r"^-?\[[^\[\]]+-\](?=\w)", ""),
        (rf"(?<=\w)(?:-{UNSAID}|\[-[^\[\]]+\])-?$", ""),
        (rf"(?<=\w)-{UNSAID}(?=-\w)", ""),
        (rf"(?<=\w){UNSAID}-(?=\w)", "- "),
        (rf"^-?'?{UNSAID}(?=[^\[\]]*\w)", "-"),  # -[an]y, '[ca]use; the first - is missing at times
        (rf"(?<=\w){UNSAID}-?('[a-z]+)$", r"\1-"),  # th[at]-'s
        (rf"(?<=[\w'&.]){UNSAID}-?$", "-"),  # th[is]-; the last - is missing at times
        (rf"(?<=[a-z]){UNSAID}(?=[a-z])", "-"),  # ammu[n]it-
        DOCTORATE,
        DATE,
    ),
    verbalise=verbalise,
)


class Corpus(Base):
    """Switchboard-1, to train on."""

    name = "swbd"
    title = "Switchboard-1"
    licence = LICENCE
    releases = (AUDIO, TRANSCRIPTS, DOCUMENTATION)
    roles = ("train",)
    in_mini = True
    train_hours = 286.0  # with at most 300 utterances of a text, Kaldi's egs/swbd/s5c

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/train.

        Raises AsrtoolError if a release has no such files, or too much cannot be used.
        """
        audio, transcripts, documentation = (corpus / release.name for release in self.releases)
        drops: list[Drop] = []
        files = {f"sw0{path.stem[-4:]}": path for path in find_files(audio, "sw[0-9]*.sph")}
        sides = {path.name[2:7].upper(): path for path in find_files(transcripts, "sw[0-9]*-ms98-a-trans.text")}
        if not files or not sides:
            found, where = ("sw*.sph", audio) if not files else ("sw*-ms98-a-trans.text", transcripts)
            raise AsrtoolError(f"{where}: no {found} in it", f"check paths.{AUDIO.key} and paths.{TRANSCRIPTS.key}")
        sounds = usable_audio(files, SAMPLING_RATE_HZ, NUM_CHANNELS, out / "train", drops)
        for name in sorted({f"sw0{side[:4]}" for side in sides} - files.keys()):
            drops.append(Drop(name, "no audio", f"transcribed, but {name}.sph is nowhere"))
        dictionary = next(find_files(transcripts, DICTIONARY), transcripts / DICTIONARY)
        rule = functools.partial(normalise, rules=replace(RULES, acronyms=read_acronyms(dictionary)))
        read = functools.partial(_read_call, sides)
        callers = read_callers(documentation) or read_callers(audio)
        Calls(self.name, sounds, read, rule, callers, ADVICE).write(out / "train", drops, data)


def read_callers(release: Path) -> dict[str, str]:
    """Return conversation side (sw02001-A) -> caller; empty without tables."""
    for path in find_files(release, CALLERS):
        rows = _read_table(path)
        known = (row for row in rows if len(row) > 2 and row[1] in ("A", "B") and row[2])
        return {f"sw0{row[0]}-{row[1]}": f"swbd-{row[2]}" for row in known}
    for path in (path for name in CONVERSATIONS for path in find_files(release, name)):
        rows = [row for row in _read_table(path) if len(row) > 3 and row[2].isdigit()]
        sides = ((row[0], side, pin) for row in rows for side, pin in zip("AB", row[2:4], strict=True))
        return {f"sw0{call}-{side}": f"swbd-{pin}" for call, side, pin in sides if pin}
    return {}


def _read_table(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return [[cell.strip(' "') for cell in row] for row in csv.reader(file, skipinitialspace=True)]


def read_acronyms(dictionary: Path) -> dict[str, str]:
    """Return words that the dictionary always spells -> letters (ibm -> i b m)."""
    if not dictionary.is_file():
        return {}
    spelled: dict[str, bool] = {}
    for line in dictionary.read_text(encoding="utf-8", errors="replace").splitlines():
        word, _, phones = line.strip().partition(" ")
        word = word.lower()
        if len(word) > 1 and re.fullmatch(r"[a-z]+('s)?", word):
            names = " ".join(LETTERS[letter] for letter in _stem(word))
            spellings = (names,) if _stem(word) == word else (f"{names} s", f"{names} z")
            spelled[word] = spelled.get(word, True) and " ".join(phones.split()) in spellings
    acronyms = [word for word, always in spelled.items() if always]
    return {word: " ".join(_stem(word)) + ("" if _stem(word) == word else "'s") for word in acronyms}


def _stem(word: str) -> str:
    """Return the letters of an acronym without a plural or genitive ending."""
    return re.sub(r"('s|s)$", "", word) if len(word) > 2 else word


def _read_call(sides: Mapping[str, Path], id_: str, sound: Sound, drops: list[Drop]) -> list[Line]:
    """Return the lines of both sides of a call; faults go to `drops`."""
    missing = [side for side in "AB" if f"{id_[3:]}{side}" not in sides]
    if missing:
        drops.append(Drop(id_, "no transcript", f"no sw{id_[3:]}{missing[0]}-ms98-a-trans.text"))
        return []
    lines = {side: read_lines(sides[f"{id_[3:]}{side}"], id_, drops) for side in "AB"}
    if not all(lines.values()):
        return []
    found = []
    for side, side_lines in lines.items():
        for line in side_lines:
            if match := LINE.match(line):
                if check_times(match[1], match[2], match[3], sound, drops):
                    start_s, length_s = float(match[2]), round(float(match[3]) - float(match[2]), 8)
                    found.append(Line(match[1], start_s, length_s, side, " ".join(match[4].split())))
            elif line.strip():
                drops.append(Drop(line.split()[0], "broken line", line))
    return found
