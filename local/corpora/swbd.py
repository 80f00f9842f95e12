"""Switchboard-1: LDC97S62 audio and MS-State transcripts, read by lhotse's prepare_switchboard.

lhotse reads a staged copy of the release that holds only what it can read: recordings with the transcripts of both
sides, and no broken line. Speakers are kept apart here: by the release's table of calls, or else one a side.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.corpus.manifest import Drop, check_fraction, write_manifests
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from local.corpus import Corpus as Base
from local.corpus import Release
from local.releases import find_files
from local.speakers import warn_of_unknown
from local.spoken import say
from local.text_rules import DOCTORATE, Rules, normalise
from local.utterances import Sound, link, normalise_all, read_lines, staging, times_run, usable_audio, with_paths

if TYPE_CHECKING:
    from lhotse import SupervisionSegment

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

# How the dictionary of the release pronounces the names of letters.
LETTERS = {
    "a": "ey", "b": "b iy", "c": "s iy", "d": "d iy", "e": "iy", "f": "eh f", "g": "jh iy", "h": "ey ch", "i": "ay",
    "j": "jh ey", "k": "k ey", "l": "eh l", "m": "eh m", "n": "eh n", "o": "ow", "p": "p iy", "q": "k y uw",
    "r": "aa r", "s": "eh s", "t": "t iy", "u": "y uw", "v": "v iy", "w": "d ah b ax l y uw", "x": "eh k s",
    "y": "w ay", "z": "z iy",
}  # fmt: skip

# MS-State transcripts of Switchboard-1. Order matters: what is inside brackets may hold brackets again.
RULES = Rules(
    line=(
        (r"\[silence\]", " "),
        (r"<[be]_aside>", " "),
    ),
    word=(
        (r"^(-?)\[laughter-(.+)\](-?)$", r"\1\2\3"),  # said while laughing
        (r"^\[(.+-)/(.+)\]-?$", r"\1"),  # broken off: as said
        (r"^\[(.+)/(.+)\](-?)$", r"\2\3"),  # mispronounced: as meant
        (r"^([^\[\]]+)\[[^\[\]]*\]-/.*\]$", r"\1-"),  # the same without its first bracket, a slip of the release
        (r"^-?\[[^\[\]]+\]([^\[\]]+)\[[^\[\]]+\]-?$", r"-\1-"),  # -[a]b[out]-
        (r"^-?\[[^\[\]]+\]([^\[\]]+)$", r"-\1"),  # -[an]y; the first - is missing at times
        (r"^([^\[\]]+)\[[^\[\]]+\]-?$", r"\1-"),  # th[is]-; the last - is missing at times
        (r"([a-z])\[[^\[\]]+\]([a-z])", r"\1-\2"),  # ammu[n]it-
        (r"^\{(.+)\}$", r"\1"),  # coined
        (r"_\d+", ""),  # variant of pronunciation
        DOCTORATE,
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
    """Write the manifest folder `out` from the release folders `audio` and `transcripts`, and `callers` by side.

    Raises AsrtoolError when a folder holds nothing of the kind, or too much of it cannot be used.
    """
    from lhotse.recipes import prepare_switchboard

    drops: list[Drop] = []
    files = {f"sw0{path.stem[-4:]}": path for path in find_files(audio, "sw[0-9]*.sph")}
    sides = {path.name[2:7].upper(): path for path in find_files(transcripts, "sw[0-9]*-ms98-a-trans.text")}
    if not files or not sides:
        found, where = ("sw*.sph", audio) if not files else ("sw*-ms98-a-trans.text", transcripts)
        raise AsrtoolError(f"{where}: no {found} in it", f"check paths.{AUDIO.key} and paths.{TRANSCRIPTS.key}")
    good = usable_audio(files, SAMPLING_RATE_HZ, NUM_CHANNELS, out, drops)
    lines = _transcribed(good, files, sides, drops)
    if not lines:
        check_fraction(out, drops, 0, 0, data.bad_fraction)
    with staging() as stage:
        for id_, of_sides in lines.items():
            link(good[id_].path, stage / "LDC97S62" / "swb1_d1" / "data" / f"{id_}.sph")
            for side, text in of_sides.items():
                _stage_transcript(stage / "ms98", id_, side, text)
        manifests = prepare_switchboard(stage / "LDC97S62", stage / "ms98", omit_silence=False, absolute_paths=True)
    warn_of_unknown((f"{id_}-{side}" for id_ in lines for side in "AB"), callers, "swbd", ADVICE)
    dictionary = next(find_files(transcripts, DICTIONARY), transcripts / DICTIONARY)
    rule = functools.partial(normalise, rules=RULES, acronyms=read_acronyms(dictionary))
    segments = map(_with_speaker(callers), manifests["supervisions"])
    write_manifests(
        out,
        with_paths(manifests["recordings"], good),
        normalise_all(segments, rule, drops),
        drops,
        data.bad_fraction,
        {},
    )


def read_callers(release: Path) -> dict[str, str]:
    """Conversation side (sw02001-A) -> caller, from the release's tables of calls; empty where it has none."""
    for path in find_files(release, CALLERS):
        rows = _read_table(path)
        return {f"sw0{row[0]}-{row[1]}": f"swbd-{row[2]}" for row in rows if len(row) > 2 and row[1] in ("A", "B")}
    for path in (path for name in CONVERSATIONS for path in find_files(release, name)):
        rows = [row for row in _read_table(path) if len(row) > 3 and row[2].isdigit()]
        return {f"sw0{row[0]}-{side}": f"swbd-{pin}" for row in rows for side, pin in zip("AB", row[2:4], strict=True)}
    return {}


def _read_table(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return [[cell.strip(' "') for cell in row] for row in csv.reader(file, skipinitialspace=True)]


def read_acronyms(dictionary: Path) -> dict[str, str]:
    """Words that the release's dictionary spells out, always -> their letters (ibm -> i b m, pcs -> p c's)."""
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
    """The letters of an acronym without the ending of its plural or genitive."""
    return re.sub(r"('s|s)$", "", word) if len(word) > 2 else word


def _transcribed(
    good: dict[str, Sound], files: dict[str, Path], sides: dict[str, Path], drops: list[Drop]
) -> dict[str, dict[str, list[str]]]:
    """Recordings with lines for both sides: id -> side -> lines; the others, and broken lines, go to `drops`."""
    for name in sorted({f"sw0{side[:4]}" for side in sides} - files.keys()):
        drops.append(Drop(name, "no audio", f"transcribed, but {name}.sph is nowhere"))
    complete = {}
    for id_, sound in good.items():
        missing = [side for side in "AB" if f"{id_[3:]}{side}" not in sides]
        if missing:
            drops.append(Drop(id_, "no transcript", f"no sw{id_[3:]}{missing[0]}-ms98-a-trans.text"))
            continue
        lines = {side: read_lines(sides[f"{id_[3:]}{side}"], id_, drops) for side in "AB"}
        if all(lines.values()):
            complete[id_] = {side: _well_formed(text, sound, drops) for side, text in lines.items()}
    return {id_: of_sides for id_, of_sides in complete.items() if any(of_sides.values())}


def _well_formed(lines: list[str], sound: Sound, drops: list[Drop]) -> list[str]:
    """Lines of id, start, end and words, with times that run forward."""
    kept = []
    for line in lines:
        match = re.match(r"(\S+)\s+(\d+(?:\.\d*)?)\s+(\d+(?:\.\d*)?)\s+\S", line)
        if match:
            if times_run(match[1], match[2], match[3], sound, drops):
                kept.append(line)
        elif line.strip():
            drops.append(Drop(line.split()[0], "broken line", line))
    return kept


def _stage_transcript(folder: Path, id_: str, side: str, lines: list[str]) -> None:
    number = id_[3:]
    path = folder / number[:2] / number / f"sw{number}{side}-ms98-a-trans.text"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _with_speaker(callers: dict[str, str]) -> Callable[[SupervisionSegment], SupervisionSegment]:
    def change(segment: SupervisionSegment) -> SupervisionSegment:
        side = f"{segment.recording_id}-{'AB'[segment.channel]}"
        return dataclasses.replace(segment, speaker=callers.get(side, side))

    return change
