"""Fisher English parts 1 and 2: audio and transcripts.

Calls are read and written one by one: lhotse's prepare_fisher_english holds all two million utterances, three times
over. Ids, times and trimming are as it has them, and a test compares.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from asrtool.data.manifests.manifest import Drop, format_line, write_sorted
from asrtool.data.manifests.validator import Entry
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import ROLES, TEXT, UNCERTAIN, Release
from asrtool.local.corpus import Corpus as Base
from asrtool.local.releases.releases import by_stem, find_files
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
TURNS = "data/trans/*/fe_03_*.txt"
AUDIO = (
    Release("LDC2004S13", "Fisher part 1 audio", ("fe_03_*.sph",)),
    Release("LDC2005S13", "Fisher part 2 audio", ("fe_03_*.sph",)),
)
TRANSCRIPTS = (
    Release("LDC2004T19", "Fisher part 1 transcripts", (TURNS,), (*ROLES, TEXT)),
    Release("LDC2005T19", "Fisher part 2 transcripts", (TURNS,), (*ROLES, TEXT)),
)
TABLE = "*_calldata.tbl"
ADVICE = f"the folders {TRANSCRIPTS[0].name} and {TRANSCRIPTS[1].name} lack a {TABLE} of their doc folder: add it"
TURN = re.compile(r"(\d+(?:\.\d*)?)\s+(\d+(?:\.\d*)?)\s+([AB])\d*:\s*(.*)")
Turn = tuple[float, float, str, str]  # start, end, side, words
# A slip of the release: call, start and end as transcribed -> start as it must be.
FIXED_STARTS = {("fe_03_11487", 31.09, 234.06): 231.09}

# Fisher, transcribed by LDC and by BBN/WordWave.
RULES = Rules(
    refuse=(
        (r"\[\[skip\]\]", "skipped"),
        (r"<", "foreign"),
        (r"\(\(\s*\)\)\s*\S|\S\s*\(\(\s*\)\)", "unintelligible"),
    ),
    line=(
        (r"\(\(|\)\)", " "),
        (r"\[pause\]", " "),
    ),
    word=(DOCTORATE, DATE),
    says=say,
    words={
        "[laugh]": "[laughter]",
        **dict.fromkeys(("[mn]", "[sigh]", "[lipsmack]", "[breath]", "[cough]", "[sneeze]"), "[vocalized-noise]"),
        "o._k.": "okay",
        "ok": "okay",
    },
)

RULE = functools.partial(normalise, rules=RULES)


class Corpus(Base):
    """Fisher English, to train on."""

    name = "fisher"
    title = "Fisher English"
    releases = (*AUDIO, *TRANSCRIPTS)
    roles = ("train",)
    in_mini = True
    train_hours = 1700.0  # with Switchboard the 2,000 hours of the papers
    shortened_samples = 11_699 * 600 * SAMPLING_RATE_HZ * NUM_CHANNELS  # calls of ten minutes

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/train."""
        _prepare(corpus, out / "train", data)

    def texts(self, corpus: Path) -> tuple[Iterable[str], Callable[[str], str]]:
        """Return the turns of the transcripts and the rule that normalises one."""
        return _said(_by_call(corpus, TRANSCRIPTS, "trans/*/fe_03_*.txt")), RULE


def _prepare(corpus: Path, out: Path, data: Data) -> None:
    """Write the manifest folder `out` from the four releases in `corpus`.

    Raises AsrtoolError if a release is missing or too much of it cannot be used.
    """
    drops: list[Drop] = []
    files = _by_call(corpus, AUDIO, "fe_03_*.sph")
    turns = _by_call(corpus, TRANSCRIPTS, "trans/*/fe_03_*.txt")
    good = usable_audio(_matched(files, turns, drops), SAMPLING_RATE_HZ, NUM_CHANNELS, out, drops)
    speakers = read_speakers(corpus)
    warn_of_unknown((f"{id_}-{side}" for id_ in good for side in "AB"), speakers, "fisher", ADVICE)
    lines = map(format_line, _utterances(good, turns, speakers, drops))
    recordings = [recording_entry(id_, sound, NUM_CHANNELS) for id_, sound in good.items()]
    write_sorted(out, recordings, lines, drops, data.bad_fraction, {})


def _utterances(
    good: Mapping[str, Sound], turns: Mapping[str, Path], speakers: Mapping[str, str], drops: list[Drop]
) -> Iterator[Entry]:
    """Yield the utterances of all calls; drops go to `drops`, broken lines first."""
    without_text: list[Drop] = []
    for id_, sound in good.items():
        lines = _well_formed(read_lines(turns[id_], id_, drops), id_, sound, drops)
        yield from _of_call(id_, lines, sound.duration_s, speakers, without_text)
    drops += without_text


def _of_call(
    id_: str, lines: Sequence[Turn], duration_s: float, speakers: Mapping[str, str], drops: list[Drop]
) -> list[Entry]:
    """Return the utterances of a call by start and side, numbered as transcribed."""
    width, kept = len(str(len(lines))), []
    for number, (start_s, end_s, side, said) in enumerate(lines):
        name = f"{id_}-{number:0{width}d}"
        text = normalised(name, " ".join(said.split()), RULE, drops)
        if not text:
            continue
        start_s = FIXED_STARTS.get((id_, start_s, end_s), start_s)
        entry: Entry = {
            "id": name,
            "recording_id": id_,
            "start": round(start_s, 3),
            "duration": within(round(start_s, 3), round(end_s - start_s, 3), duration_s),
            "channel": "AB".index(side),
            "text": text,
            "language": "English",
            "speaker": speakers.get(f"{id_}-{side}", f"{id_}-{side}"),
        }
        if "((" in said:  # its transcriber doubts some words
            entry["custom"] = {UNCERTAIN: True}
        kept.append(entry)
    return sorted(kept, key=lambda entry: (entry["start"], entry["channel"], entry["id"]))


def read_speakers(corpus: Path) -> dict[str, str]:
    """Return call side (fe_03_00001-A) -> speaker PIN, from the tables of calls."""
    speakers = {}
    for release in TRANSCRIPTS:
        for path in find_files(corpus / release.name, TABLE):
            rows = [line.split(",") for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]]
            for row in (row for row in rows if len(row) > 10):
                for side, pin in (("A", row[5].strip()), ("B", row[10].strip())):
                    if pin:
                        speakers[f"fe_03_{row[0].strip()}-{side}"] = f"fisher-{pin}"
    return speakers


def _said(turns: Mapping[str, Path]) -> Iterator[str]:
    """Yield the words of all turns; unreadable lines are logged as warnings."""
    faults: list[Drop] = []
    for id_, path in turns.items():
        for number, line in enumerate(read_lines(path, id_, faults), start=1):
            if match := TURN.fullmatch(line.strip()):
                yield match[4]
            elif line.strip() and not line.startswith("#"):
                faults.append(Drop(f"{id_}:{number}", "broken line", line))
    if faults:
        logging.warning(
            "fisher: %d transcripts or lines cannot be read and are left out of the text, the first is %s: %s: %s",
            len(faults), faults[0].id, faults[0].reason, faults[0].detail,
        )  # fmt: skip


def _by_call(corpus: Path, releases: Iterable[Release], pattern: str) -> dict[str, Path]:
    """Return call id -> file over the releases, whatever the nesting of their folders."""
    found = {}
    for release in releases:
        paths = by_stem(corpus / release.name, pattern)
        if not paths:
            raise AsrtoolError(f"{corpus / release.name}: no {pattern} in it", f"check paths.{release.key}")
        found.update(paths)
    return dict(sorted(found.items()))


def _matched(files: dict[str, Path], turns: dict[str, Path], drops: list[Drop]) -> dict[str, Path]:
    drops += [Drop(id_, "no transcript", str(files[id_])) for id_ in files if id_ not in turns]
    drops += [Drop(id_, "no audio", str(turns[id_])) for id_ in turns if id_ not in files]
    return {id_: path for id_, path in files.items() if id_ in turns}


def _well_formed(lines: list[str], id_: str, sound: Sound, drops: list[Drop]) -> list[Turn]:
    """Parse turns of start, end, side and words; comment lines are skipped."""
    kept = []
    for number, line in enumerate(lines, start=1):
        match = TURN.fullmatch(line.strip())
        if match:
            if times_run(f"{id_}:{number}", match[1], match[2], sound, drops):
                kept.append((float(match[1]), float(match[2]), match[3], match[4]))
        elif line.strip() and not line.startswith("#"):
            drops.append(Drop(f"{id_}:{number}", "broken line", line))
    return kept
