"""Switchboard-1: LDC97S62 audio and MS-State transcripts.

Calls are read and written one by one, those with the transcripts of both sides. Ids, times and trimming are as lhotse's
prepare_switchboard has them, and a test compares. Speakers are of the release's table of calls, or else one a side.
"""

from __future__ import annotations

import csv
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from asrtool.data.manifests.manifest import Drop, format_line, write_sorted
from asrtool.data.manifests.validator import Entry
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import Corpus as Base
from asrtool.local.corpus import Release
from asrtool.local.releases.releases import find_files
from asrtool.local.text.numbers import say
from asrtool.local.text.text_rules import DATE, DOCTORATE, Rules, normalise
from asrtool.local.utterances import (
    Sound,
    normalised,
    read_lines,
    recording_entry,
    times_run,
    usable_audio,
    warn_of_unknown,
    within,
)
from asrtool.settings.data import Data

SAMPLING_RATE_HZ = 8000
NUM_CHANNELS = 2
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
Line = tuple[str, float, float, str, str]  # id, start, end, side, words

# How the dictionary of the release pronounces the names of letters.
LETTERS = {
    "a": "ey", "b": "b iy", "c": "s iy", "d": "d iy", "e": "iy", "f": "eh f", "g": "jh iy", "h": "ey ch", "i": "ay",
    "j": "jh ey", "k": "k ey", "l": "eh l", "m": "eh m", "n": "eh n", "o": "ow", "p": "p iy", "q": "k y uw",
    "r": "aa r", "s": "eh s", "t": "t iy", "u": "y uw", "v": "v iy", "w": "d ah b ax l y uw", "x": "eh k s",
    "y": "w ay", "z": "z iy",
}  # fmt: skip

UNSAID = r"\[[^\[\]]+\]"

# MS-State transcripts of Switchboard-1. Order matters: what is inside brackets may hold brackets again.
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
        # Of a number what is said of all of it: 40[1k]- is four oh, 19[80s]- nineteen, 5[2]- fifty.
        (r"(?<!\d)([2-9])\[\d(?!\d)", r"\g<1>0[x"),
        (r"(?<!\d)(\d)(\d)(?=\[\d(?!\d(?!\d)))", r"\1-\2"),
        (r"(?<=\d\])(?<!\[\d\d\])(\d)(?!0'?s)(\d)(?!\d)", r"\1-\2"),
        (r"(?<=\d)\[[\dx]+\](?=\d)", "-"),  # 2[00]1: two one
        (r"(?<=\d)\[[\dx]+\](?:'?s|st|nd|rd|th)-?$", "-"),  # 19[80]s: nineteen
        (r"^([a-z])\[&[^\[\]]*\]-?$", r"\1."),  # r[&d]-: letters are said by their names
        (r"^([a-z])([a-z])\[&[^\[\]]*\]-?$", r"\1._\2."),
        # A part of what hyphens join is a word: -[wall-]to-wall, twenty-[five]-, wall-[to]-wall, s[eventy]-five.
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
    says=say,
)


class Corpus(Base):
    """Switchboard-1, to train on."""

    name = "swbd"
    title = "Switchboard-1"
    releases = (AUDIO, TRANSCRIPTS, DOCUMENTATION)
    roles = ("train",)
    in_mini = True
    train_hours = 286.0  # with at most 300 utterances of a text, Kaldi's egs/swbd/s5c

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/train."""
        audio, transcripts, documentation = (corpus / release.name for release in self.releases)
        _prepare(audio, transcripts, read_callers(documentation) or read_callers(audio), out / "train", data)


def _prepare(audio: Path, transcripts: Path, callers: dict[str, str], out: Path, data: Data) -> None:
    """Write the manifest folder `out` from two release folders, and `callers` by side.

    Raises AsrtoolError if a folder has no such files, or too much cannot be used.
    """
    drops: list[Drop] = []
    files = {f"sw0{path.stem[-4:]}": path for path in find_files(audio, "sw[0-9]*.sph")}
    sides = {path.name[2:7].upper(): path for path in find_files(transcripts, "sw[0-9]*-ms98-a-trans.text")}
    if not files or not sides:
        found, where = ("sw*.sph", audio) if not files else ("sw*-ms98-a-trans.text", transcripts)
        raise AsrtoolError(f"{where}: no {found} in it", f"check paths.{AUDIO.key} and paths.{TRANSCRIPTS.key}")
    good = usable_audio(files, SAMPLING_RATE_HZ, NUM_CHANNELS, out, drops)
    for name in sorted({f"sw0{side[:4]}" for side in sides} - files.keys()):
        drops.append(Drop(name, "no audio", f"transcribed, but {name}.sph is nowhere"))
    dictionary = next(find_files(transcripts, DICTIONARY), transcripts / DICTIONARY)
    rule = functools.partial(normalise, rules=RULES.spelling(read_acronyms(dictionary)))
    lines = map(format_line, _utterances(good, sides, callers, rule, drops))
    recordings = [recording_entry(id_, sound, NUM_CHANNELS) for id_, sound in good.items()]
    write_sorted(out, recordings, lines, drops, data.bad_fraction, {})


def _utterances(
    good: Mapping[str, Sound],
    sides: Mapping[str, Path],
    callers: Mapping[str, str],
    rule: Callable[[str], str],
    drops: list[Drop],
) -> Iterator[Entry]:
    """Yield the utterances of all calls; drops go to `drops`, broken lines first."""
    faults: dict[str, list[Drop]] = {id_: [] for id_ in good}  # in the order of the files
    without_text: list[Drop] = []
    transcribed = []
    for id_, sound in sorted(good.items()):
        lines = _transcribed(id_, sound, sides, faults[id_])
        if lines:
            transcribed.append(id_)
        yield from _of_call(id_, lines, sound.duration_s, callers, rule, without_text)
    drops += itertools.chain(*faults.values(), without_text)
    warn_of_unknown((f"{id_}-{side}" for id_ in transcribed for side in "AB"), callers, "swbd", ADVICE)


def _of_call(
    id_: str,
    lines: Sequence[Line],
    duration_s: float,
    callers: Mapping[str, str],
    rule: Callable[[str], str],
    drops: list[Drop],
) -> list[Entry]:
    """Return the utterances of a call by start and side."""
    kept = []
    for name, start_s, end_s, side, said in lines:
        if text := normalised(name, said, rule, drops):
            entry: Entry = {
                "id": name,
                "recording_id": id_,
                "start": start_s,
                "duration": within(start_s, round(end_s - start_s, 8), duration_s),
                "channel": "AB".index(side),
                "text": text,
                "language": "English",
                "speaker": callers.get(f"{id_}-{side}", f"{id_}-{side}"),
            }
            kept.append(entry)
    return sorted(kept, key=lambda entry: (entry["start"], entry["channel"], entry["id"]))


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
            spelled[word] = spelled.get(word, True) and _is_spelled(word, " ".join(phones.split()))
    return {word: _letters(word) for word, always in spelled.items() if always}


def _is_spelled(word: str, phones: str) -> bool:
    names = " ".join(LETTERS[letter] for letter in _stem(word))
    return phones in ((f"{names} s", f"{names} z") if _stem(word) != word else (names,))


def _letters(word: str) -> str:
    return " ".join(_stem(word)) + ("'s" if _stem(word) != word else "")


def _stem(word: str) -> str:
    """Return the letters of an acronym without a plural or genitive ending."""
    return re.sub(r"('s|s)$", "", word) if len(word) > 2 else word


def _transcribed(id_: str, sound: Sound, sides: Mapping[str, Path], drops: list[Drop]) -> list[Line]:
    """Return the lines of both sides of a call; faults go to `drops`."""
    missing = [side for side in "AB" if f"{id_[3:]}{side}" not in sides]
    if missing:
        drops.append(Drop(id_, "no transcript", f"no sw{id_[3:]}{missing[0]}-ms98-a-trans.text"))
        return []
    lines = {side: read_lines(sides[f"{id_[3:]}{side}"], id_, drops) for side in "AB"}
    if not all(lines.values()):
        return []
    return [line for side in "AB" for line in _well_formed(lines[side], side, sound, drops)]


def _well_formed(lines: list[str], side: str, sound: Sound, drops: list[Drop]) -> list[Line]:
    """Return lines of id, start, end and words whose times run forward."""
    kept = []
    for line in lines:
        match = LINE.match(line)
        if match:
            if times_run(match[1], match[2], match[3], sound, drops):
                kept.append((match[1], float(match[2]), float(match[3]), side, " ".join(match[4].split())))
        elif line.strip():
            drops.append(Drop(line.split()[0], "broken line", line))
    return kept
