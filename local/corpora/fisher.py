"""Fisher English parts 1 and 2, and with Switchboard-1 as one corpus."""

from __future__ import annotations

import functools
import heapq
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from asrtool.data.manifests.manifest import Drop, read_sorted, write_sorted
from asrtool.data.manifests.validator import Entry
from asrtool.errors import AsrtoolError
from asrtool.local.corpora.calls import LICENCE, NUM_CHANNELS, SAMPLING_RATE_HZ, Calls, Line
from asrtool.local.corpora.swbd import Corpus as Swbd
from asrtool.local.corpus import ROLES, TEXT, Release
from asrtool.local.corpus import Corpus as Base
from asrtool.local.releases.releases import by_stem, find_files
from asrtool.local.text.numbers import verbalise
from asrtool.local.text.text_rules import DATE, DOCTORATE, Rules, normalise
from asrtool.local.utterances import Sound, check_times, read_lines, usable_audio
from asrtool.settings.data import Data

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
    verbalise=verbalise,
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
    licence = LICENCE
    releases = (*AUDIO, *TRANSCRIPTS)
    roles = ("train",)
    in_mini = True
    train_hours = 1700.0  # with Switchboard the 2,000 hours of the papers
    shortened_samples = 11_699 * 600 * SAMPLING_RATE_HZ * NUM_CHANNELS  # calls of ten minutes

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/train.

        Raises AsrtoolError if a release is missing or too much of it cannot be used.
        """
        drops: list[Drop] = []
        files, turns = _by_call(corpus, AUDIO, "fe_03_*.sph"), _by_call(corpus, TRANSCRIPTS, "trans/*/fe_03_*.txt")
        drops += [Drop(id_, "no transcript", str(files[id_])) for id_ in files if id_ not in turns]
        drops += [Drop(id_, "no audio", str(turns[id_])) for id_ in turns if id_ not in files]
        both = {id_: path for id_, path in files.items() if id_ in turns}
        sounds = usable_audio(both, SAMPLING_RATE_HZ, NUM_CHANNELS, out / "train", drops)
        read = functools.partial(_read_call, turns)
        Calls(self.name, sounds, read, RULE, read_speakers(corpus), ADVICE).write(out / "train", drops, data)

    def texts(self, corpus: Path) -> tuple[Iterable[str], Callable[[str], str]]:
        """Return the turns of the transcripts and the rule that normalises one."""
        return _said(_by_call(corpus, TRANSCRIPTS, "trans/*/fe_03_*.txt")), RULE


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
        yield from (match[4] for _, match in _turns(id_, path, faults))
    if faults:
        logging.warning(
            "fisher: %d transcripts or lines cannot be read and are left out of the text, the first is %s: %s: %s",
            len(faults), faults[0].id, faults[0].reason, faults[0].detail,
        )  # fmt: skip


def _by_call(corpus: Path, releases: Iterable[Release], pattern: str) -> dict[str, Path]:
    """Return call id -> file over the releases, in folders of any depth."""
    found = {}
    for release in releases:
        paths = by_stem(corpus / release.name, pattern)
        if not paths:
            raise AsrtoolError(f"{corpus / release.name}: no {pattern} in it", f"check paths.{release.key}")
        found.update(paths)
    return dict(sorted(found.items()))


def _turns(id_: str, path: Path, drops: list[Drop]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield CALL:LINE and the parts of each turn; comment lines are skipped."""
    for number, line in enumerate(read_lines(path, id_, drops), start=1):
        if match := TURN.fullmatch(line.strip()):
            yield f"{id_}:{number}", match
        elif line.strip() and not line.startswith("#"):
            drops.append(Drop(f"{id_}:{number}", "broken line", line))


def _read_call(turns: Mapping[str, Path], id_: str, sound: Sound, drops: list[Drop]) -> list[Line]:
    """Return the turns of a call, numbered as transcribed."""
    found = _turns(id_, turns[id_], drops)
    matches = [match for name, match in found if check_times(name, match[1], match[2], sound, drops)]
    width, lines = len(str(len(matches))), []
    for number, match in enumerate(matches):
        start_s, end_s, side, text = float(match[1]), float(match[2]), match[3], " ".join(match[4].split())
        start_s = FIXED_STARTS.get((id_, start_s, end_s), start_s)
        name = f"{id_}-{number:0{width}d}"
        lines.append(Line(name, round(start_s, 3), round(end_s - start_s, 3), side, text, "((" in text))
    return lines


class FisherSwbd(Base):
    """Fisher and Switchboard, 2,000 hours, as one corpus with one text.

    Kaldi's recipe of that name has them so. data.train = ["swbd", "fisher"] has a text each, which lm.mix can weigh.
    """

    name = "fisher_swbd"
    title = "Fisher and Switchboard-1"
    licence = LICENCE
    releases = (*Corpus.releases, *Swbd.releases)
    roles = ("train",)
    in_mini = True
    train_hours = Corpus.train_hours + Swbd.train_hours
    shortened_samples = Corpus.shortened_samples

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/train, and the manifests of both below `out`/parts."""
        folders = [out / "parts" / name for name in (Corpus.name, Swbd.name)]
        for part, folder in zip((Corpus(), Swbd()), folders, strict=True):
            part.prepare(corpus, folder, data)
        recordings, lines = zip(*(read_sorted(folder / "train") for folder in folders), strict=True)
        write_sorted(
            out / "train", itertools.chain(*recordings), heapq.merge(*lines, key=_place), [], data.bad_fraction, {}
        )


def _place(item: tuple[Entry, str]) -> tuple[str, float, int, str]:
    entry, _ = item
    return entry["recording_id"], entry["start"], entry["channel"], entry["id"]
