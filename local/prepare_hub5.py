"""Hub5'00: LDC2002S09 audio and LDC2002T43 references to manifests, through lhotse's prepare_eval2000.

The segments are the scored ones of the stm, which are those of the pem, and not the turns of the transcripts; they are
staged for lhotse in the form of the transcripts. Scored times stay in the custom fields, the segments are widened.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lhotse import SupervisionSegment
from lhotse.recipes import prepare_eval2000

from asrtool.corpus.manifest import Drop, check_fraction, write_manifests
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from local.ldc import find_files
from local.text_rules import HUB5, Unusable, normalise
from local.utterances import Sound, link, staging, times_run, usable_audio, with_paths

SAMPLING_RATE_HZ = 8000
NUM_CHANNELS = 2
AUDIO = "LDC2002S09"
REFERENCES = "LDC2002T43"
IGNORE = "IGNORE_TIME_SEGMENT_IN_SCORING"


@dataclass(frozen=True)
class StmLine:
    """One segment of a reference; times in seconds as written."""

    recording: str
    channel: str  # A or B
    start_s: str
    end_s: str
    label: str
    text: str

    @property
    def times(self) -> tuple[str, str, str, str]:
        return self.recording, self.channel, f"{float(self.start_s):.2f}", f"{float(self.end_s):.2f}"


def prepare_hub5(corpus: Path, out: Path, data: Data) -> None:
    """Write the manifest folder `out` with ref.stm and ref.glm from `corpus`, which holds both releases.

    Raises AsrtoolError when a file is missing, pem and stm differ, or too much cannot be used (data.bad_fraction).
    """
    drops: list[Drop] = []
    stm = mend_stm(_the_file(corpus / REFERENCES, "hub5e00.english.000405.stm").read_text(encoding="latin-1"))
    segments = parse_stm(stm)
    _compare(segments, _read_pem(_the_file(corpus / AUDIO, "hub5e_00.pem")))
    glm = _the_file(corpus / REFERENCES, "*_hub5.glm").read_text(encoding="latin-1")
    files = {path.stem: path for path in find_files(corpus / AUDIO, "english/*.sph")}
    sounds = usable_audio(_matched(files, segments, drops), SAMPLING_RATE_HZ, NUM_CHANNELS, out, drops)
    scored = [
        line
        for line in segments
        if line.recording in sounds
        and IGNORE not in line.text
        and times_run(f"{line.recording}-{line.channel}", line.start_s, line.end_s, sounds[line.recording], drops)
    ]
    if not scored:
        check_fraction(out, drops, 0, 0, data.bad_fraction)
    with staging() as stage:
        _stage(stage, sounds, scored)
        manifests = prepare_eval2000(stage, stage / "out", absolute_paths=True)
    texts = [dataclasses.replace(s, text=_text(s.text or "")) for s in manifests["supervisions"]]
    durations_s = {id_: sound.duration_s for id_, sound in sounds.items()}
    write_manifests(
        out,
        with_paths(manifests["recordings"], sounds),
        widen(texts, durations_s, data.segment_padding_s),
        drops,
        data.bad_fraction,
        {"ref.stm": keep_recordings(stm, sounds.keys()), "ref.glm": glm},
    )


def mend_stm(text: str) -> str:
    """The reference without its known faults: a stray second bracket, and tags of asides."""
    return re.sub(r"<[BE]_ASIDE>", "", text.replace("((", "(").replace("))", ")"))


def parse_stm(text: str) -> list[StmLine]:
    """The segments of a reference, those to be ignored included. Raises AsrtoolError naming a broken line."""
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(";;") or not line.strip():
            continue
        match = re.fullmatch(r"(\S+)\s+([AB12])\S*\s+\S+\s+([\d.]+)\s+([\d.]+)\s*(<[^>]*>)?\s*(.*)", line.rstrip())
        if not match:
            raise AsrtoolError(
                f"reference stm, line {number}: {line[:60]!r}, expected recording, channel, speaker, start, end, text",
                "compare the file with the release",
            )
        channel = {"1": "A", "2": "B"}.get(match[2], match[2])
        lines.append(StmLine(match[1], channel, match[3], match[4], match[5] or "", match[6]))
    return lines


def keep_recordings(stm: str, ids: Iterable[str]) -> str:
    """The reference without the lines of other recordings; comments stay."""
    ids = set(ids)
    lines = (line for line in stm.splitlines() if line.startswith(";;") or not line.split() or line.split()[0] in ids)
    return "\n".join(lines) + "\n"


def widen(
    segments: Iterable[SupervisionSegment], durations_s: Mapping[str, float], padding_s: float
) -> list[SupervisionSegment]:
    """`segments` longer by up to `padding_s` at both ends, within the recording (`durations_s` by id).

    Neighbours on a channel share the gap between them, so that no word is decoded twice. The times before are kept in
    the custom fields scored_start_s and scored_duration_s.
    """
    sides: dict[tuple[str, int], list[SupervisionSegment]] = {}
    for segment in sorted(segments, key=lambda s: (s.start, s.end)):
        sides.setdefault((segment.recording_id, segment.channel), []).append(segment)
    widened = []
    for (recording, _), side in sides.items():
        ends = [0.0] + [s.end for s in side]
        starts = [s.start for s in side] + [durations_s[recording]]
        # The room before segment i is the gap i; the first and the last gap belong to one segment alone.
        gaps = [max(0.0, start - end) for end, start in zip(ends, starts, strict=True)]
        room = [min(padding_s, gap if i in (0, len(side)) else gap / 2) for i, gap in enumerate(gaps)]
        widened += [_widened(s, room[i], room[i + 1]) for i, s in enumerate(side)]
    return widened


def _widened(segment: SupervisionSegment, before_s: float, after_s: float) -> SupervisionSegment:
    return dataclasses.replace(
        segment,
        start=round(segment.start - before_s, 4),
        duration=round(segment.duration + before_s + after_s, 4),
        custom={"scored_start_s": segment.start, "scored_duration_s": segment.duration},
    )


def _text(reference: str) -> str:
    """Normalised text, or none: scoring reads ref.stm, and leaving out a scored segment would change the result."""
    try:
        return normalise(reference, HUB5)
    except Unusable:
        return ""


def _the_file(release: Path, name: str) -> Path:
    path = next(find_files(release, name), None)
    if path is None:
        raise AsrtoolError(f"{release}: no {name} in it", f"unpack the release whole, see paths.{release.name.lower()}")
    return path


def _read_pem(path: Path) -> set[tuple[str, ...]]:
    """Recording, channel, start and end of each segment of the partition file."""
    rows = [line.split() for line in path.read_text(encoding="latin-1").splitlines() if not line.startswith(";;")]
    return {(row[0], row[1][0], f"{float(row[3]):.2f}", f"{float(row[4]):.2f}") for row in rows if row}


def _compare(segments: Sequence[StmLine], pem: set[tuple[str, ...]]) -> None:
    """Both list the scored segments; the pem may or may not list those to be ignored."""
    every = {line.times for line in segments}
    scored = {line.times for line in segments if IGNORE not in line.text}
    differing = sorted((scored - pem) | (pem - every))
    if differing:
        raise AsrtoolError(
            f"stm and pem of Hub5'00 differ in {len(differing)} segments, the first is {' '.join(differing[0])}",
            "compare both files with the releases",
        )


def _matched(files: dict[str, Path], segments: Sequence[StmLine], drops: list[Drop]) -> dict[str, Path]:
    referenced = dict.fromkeys(line.recording for line in segments)
    drops += [
        Drop(id_, "no transcript", f"{path}: not in the stm") for id_, path in files.items() if id_ not in referenced
    ]
    drops += [Drop(id_, "no audio", f"in the stm, but {id_}.sph is nowhere") for id_ in referenced if id_ not in files]
    return {id_: path for id_, path in files.items() if id_ in referenced}


def _stage(stage: Path, sounds: Mapping[str, Sound], scored: Sequence[StmLine]) -> None:
    audio = stage / AUDIO / "hub5e_00" / "english"
    transcripts = stage / REFERENCES / "reference" / "english"
    transcripts.mkdir(parents=True)
    for id_, sound in sounds.items():
        lines = [f"{s.start_s} {s.end_s} {s.channel}: {s.text}" for s in scored if s.recording == id_]
        if lines:
            link(sound.path, audio / f"{id_}.sph")
            (transcripts / f"{id_}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
