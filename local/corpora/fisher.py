"""Fisher English parts 1 and 2: audio and transcripts, read by lhotse's prepare_fisher_english.

lhotse reads a staged copy in the layout it knows, with the calls that have both sound and transcript.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.corpus.manifest import Drop, check_fraction, write_manifests
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from local.corpus import ROLES, TEXT, UNCERTAIN, Release
from local.corpus import Corpus as Base
from local.releases import by_stem, find_files
from local.speakers import warn_of_unknown
from local.spoken import say
from local.text_rules import DOCTORATE, Rules, normalise
from local.utterances import Sound, link, normalise_all, read_lines, staging, times_run, usable_audio, with_paths

if TYPE_CHECKING:
    from lhotse import SupervisionSegment

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
    word=(DOCTORATE,),
    says=say,
    words={
        "[laugh]": "[laughter]",
        **dict.fromkeys(("[mn]", "[sigh]", "[lipsmack]", "[breath]", "[cough]", "[sneeze]"), "[vocalized-noise]"),
        "o._k.": "okay",
        "ok": "okay",
    },
)


class Corpus(Base):
    """Fisher English, to train on."""

    name = "fisher"
    title = "Fisher English"
    releases = (*AUDIO, *TRANSCRIPTS)
    roles = ("train",)
    in_mini = True
    train_hours = 1700.0  # with Switchboard the 2,000 hours of the papers

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/train."""
        _prepare(corpus, out / "train", data)

    def texts(self, corpus: Path) -> tuple[Iterable[str], Callable[[str], str]]:
        """Turns."""
        files = _by_call(corpus, TRANSCRIPTS, "trans/*/fe_03_*.txt").items()
        matches = (TURN.fullmatch(line.strip()) for id_, path in files for line in read_lines(path, id_, []))
        return (match[4] for match in matches if match), functools.partial(normalise, rules=RULES)


def _prepare(corpus: Path, out: Path, data: Data) -> None:
    """Write the manifest folder `out` from the folder `corpus` that holds the four releases.

    Raises AsrtoolError when a release is missing or too much of it cannot be used.
    """
    from lhotse.recipes import prepare_fisher_english

    drops: list[Drop] = []
    files = _by_call(corpus, AUDIO, "fe_03_*.sph")
    turns = _by_call(corpus, TRANSCRIPTS, "trans/*/fe_03_*.txt")
    good = usable_audio(_matched(files, turns, drops), SAMPLING_RATE_HZ, NUM_CHANNELS, out, drops)
    lines = {id_: _well_formed(read_lines(turns[id_], id_, drops), id_, good[id_], drops) for id_ in good}
    good = {id_: good[id_] for id_, kept in lines.items() if kept}
    if not good:
        check_fraction(out, drops, 0, 0, data.bad_fraction)
    # lhotse draws its progress bars on standard error, be that a terminal or a log; the log itself is not redirected.
    with staging() as stage, contextlib.redirect_stderr(io.StringIO()):
        speakers = read_speakers(corpus)
        warn_of_unknown((f"{id_}-{side}" for id_ in good for side in "AB"), speakers, "fisher", ADVICE)
        _stage(stage, good, lines, speakers)
        manifests = prepare_fisher_english(
            stage, stage / "out", ["audio"], ["transcripts"], absolute_paths=True, num_jobs=1
        )
        segments = [_with_doubt(segment) for segment in manifests["supervisions"]]
        recordings = with_paths(manifests["recordings"], good)
    rule = functools.partial(normalise, rules=RULES)
    write_manifests(out, recordings, normalise_all(segments, rule, drops), drops, data.bad_fraction, {})


def read_speakers(corpus: Path) -> dict[str, str]:
    """Call side (fe_03_00001-A) -> speaker PIN, from the tables of calls of both parts."""
    speakers = {}
    for release in TRANSCRIPTS:
        for path in find_files(corpus / release.name, TABLE):
            rows = [line.split(",") for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]]
            for row in rows:
                if len(row) > 10:
                    speakers[f"fe_03_{row[0].strip()}-A"] = f"fisher-{row[5].strip()}"
                    speakers[f"fe_03_{row[0].strip()}-B"] = f"fisher-{row[10].strip()}"
    return speakers


def _by_call(corpus: Path, releases: Iterable[Release], pattern: str) -> dict[str, Path]:
    """Call id -> file, over the releases, whatever the nesting of their folders."""
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


def _well_formed(lines: list[str], id_: str, sound: Sound, drops: list[Drop]) -> list[str]:
    """Turns of start, end, side and words; the header (lines that begin with #) is left out."""
    kept = []
    for number, line in enumerate(lines, start=1):
        match = TURN.fullmatch(line.strip())
        if match:
            if times_run(f"{id_}:{number}", match[1], match[2], sound, drops):
                kept.append(f"{match[1]} {match[2]} {match[3]}: {match[4]}")
        elif line.strip() and not line.startswith("#"):
            drops.append(Drop(f"{id_}:{number}", "broken line", line))
    return kept


def _with_doubt(segment: SupervisionSegment) -> SupervisionSegment:
    """`segment` with the custom field UNCERTAIN where its transcriber doubts some words."""
    return segment.with_custom(UNCERTAIN, True) if "((" in (segment.text or "") else segment


def _stage(stage: Path, audio: dict[str, Sound], lines: dict[str, list[str]], speakers: dict[str, str]) -> None:
    table = ["CALL_ID,DATE_TIME,TOPICID,SIG_GRADE,CNV_GRADE,APIN,ASX.DL,APHNUM,APHSET,APHTYP,BPIN"]
    for id_, sound in audio.items():
        number = id_[-5:]
        link(sound.path, stage / "audio" / "part" / "audio" / number[:3] / f"{id_}.sph")
        transcript = stage / "transcripts" / "data" / "trans" / number[:3] / f"{id_}.txt"
        transcript.parent.mkdir(parents=True, exist_ok=True)
        transcript.write_text("\n".join(("#", "#", "", *lines[id_])) + "\n", encoding="utf-8")
        pins = [speakers.get(f"{id_}-{side}", f"{id_}-{side}") for side in "AB"]
        table.append(f"{number},,,,,{pins[0]},,,,,{pins[1]}")
    doc = stage / "transcripts" / "doc" / "all_calldata.tbl"
    doc.parent.mkdir(parents=True)
    doc.write_text("\n".join(table) + "\n", encoding="utf-8")
