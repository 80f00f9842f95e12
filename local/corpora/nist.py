"""NIST's test sets of telephone calls: audio, a reference (stm), and rules (glm).

Segments are the scored ones of the stm, widened a little, as words at their edges are cut otherwise; the original
times are in the custom fields scored_start_s and scored_duration_s.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from asrtool.data.manifests.manifest import Drop, check_fraction, write_manifests
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import Corpus, Release
from asrtool.local.releases.releases import by_stem, find_file, find_files
from asrtool.local.text.text_rules import Rules, Unusable, normalise
from asrtool.local.utterances import Sound, check_times, make_recording, usable_audio
from asrtool.settings.data import Data

if TYPE_CHECKING:
    from lhotse import SupervisionSegment

SAMPLING_RATE_HZ = 8000
NUM_CHANNELS = 2
IGNORE = "IGNORE_TIME_SEGMENT_IN_SCORING"
GAP = "inter_segment_gap"  # the speaker of stretches between segments
CHANNELS = {"1": "A", "2": "B"}
_LINE = re.compile(r"(\S+)\s+([AB12])\S*\s+(\S+)\s+([\d.]+)\s+([\d.]+)\s*(<[^>]*>)?\s*(.*)")
_LABEL = re.compile(r';;\s*LABEL\s+"([^"]*)"')

# To the texts of manifests, which are for reading: scoring reads the stm.
RULES = Rules(
    line=(
        (r"\(\(|\)\)", " "),
        (r"<[^>]*>", " "),
        (r"\{\s*@\s*/\s*([^/}]*)[^}]*\}", r" \1 "),  # the first alternative that has words
        (r"\{([^/}]*)/[^}]*\}", r" \1 "),
        (r"%?hesitation", "uh"),
        (r"[()@%]", " "),
        (r"(^|\s)o\. k\.", r"\1okay"),
    ),
)


HUB5_GLM = "*_hub5.glm"
HUB5_AUDIO = Release("LDC2002S09", "Hub5'00 audio", ("english/*.sph",))
HUB5_REFERENCES = Release("LDC2002T43", "Hub5'00 references", ("hub5e00.english.000405.stm", HUB5_GLM))
HUB5_01_RELEASE = Release(
    "LDC2002S13", "Hub5'01 audio and reference", ("english/*.sph", "hub5e01.english.*.stm", "hub5e_01.pem")
)
RT03_RELEASE = Release(
    "LDC2007S10",
    "RT-03 audio and references",
    (
        "audio/eval03/english/cts/*.sph",
        "references/eval03/english/cts/*.stm",
        "trans_rules/en20030506.glm",
    ),
)


class Evaluation(Corpus):
    """Test set: audio, a reference (stm), rules (glm), and maybe a partition (pem)."""

    roles = ("test",)
    in_mini = True
    audio: ClassVar[tuple[Release, str]]
    stm: ClassVar[tuple[Release, str]]
    glm: ClassVar[tuple[Release, str]]
    pem: ClassVar[tuple[Release, str] | None] = None

    def prepare(self, corpus: Path, out: Path, data: Data) -> None:
        """Write `out`/test. Raises AsrtoolError if pem and stm differ in much."""
        first, (release, pattern) = find_file(corpus, *self.stm), self.stm
        # The reference of RT-03 has a file a call.
        stm = read_stm([first] if self.pem else sorted(find_files(corpus / release.name, pattern)))
        lines = parse_stm(stm)
        if self.pem:
            compare_pem(lines, find_file(corpus, *self.pem), self.title, data.bad_fraction)
        glm = find_file(corpus, *self.glm).read_text(encoding="latin-1")
        files = by_stem(corpus / self.audio[0].name, self.audio[1])
        drops: list[Drop] = []
        in_stm = dict.fromkeys(line.recording for line in lines)
        drops += [Drop(id_, "no transcript", f"{files[id_]}: not in the stm") for id_ in files if id_ not in in_stm]
        drops += [Drop(id_, "no audio", f"in the stm, but {id_}.sph is nowhere") for id_ in in_stm if id_ not in files]
        referenced = {id_: path for id_, path in files.items() if id_ in in_stm}
        sounds = usable_audio(referenced, SAMPLING_RATE_HZ, NUM_CHANNELS, out / "test", drops)
        scored = [
            line
            for line in lines
            if line.recording in sounds
            and line.is_scored
            and check_times(f"{line.recording}-{line.channel}", line.start_s, line.end_s, sounds[line.recording], drops)
        ]
        if not scored:
            check_fraction(out / "test", drops, 0, 0, data.bad_fraction)
        kept = (line for line in stm.splitlines() if not line.strip() or line[:2] == ";;" or line.split()[0] in sounds)
        write_manifests(
            out / "test",
            [make_recording(id_, sound, NUM_CHANNELS) for id_, sound in sounds.items()],
            _segments(scored, sounds, data.segment_padding_s),
            drops,
            data.bad_fraction,
            {"ref.stm": "\n".join(kept) + "\n", "ref.glm": glm},
        )


class Hub5(Evaluation):
    """Hub5'00: calls of Switchboard and CallHome, to test on."""

    name = "hub5"
    title = "Hub5'00"
    releases = (HUB5_AUDIO, HUB5_REFERENCES)
    labels = (("SW", "Switchboard"), ("EN", "CallHome"))
    audio = (HUB5_AUDIO, "english/*.sph")
    stm = (HUB5_REFERENCES, "hub5e00.english.000405.stm")
    glm = (HUB5_REFERENCES, HUB5_GLM)
    pem = (HUB5_AUDIO, "hub5e_00.pem")


class Hub5Of2001(Evaluation):
    """Hub5'01: calls of Switchboard-1, Switchboard-2 and cellular ones, to test on.

    It is scored by the rules of Hub5'00. Times have up to six decimals; partition and reference agree in hundredths.
    """

    name = "hub5_01"
    title = "Hub5'01"
    releases = (HUB5_01_RELEASE, HUB5_REFERENCES)
    in_mini = False
    audio = (HUB5_01_RELEASE, "english/*.sph")
    stm = (HUB5_01_RELEASE, "hub5e01.english.*.stm")
    glm = (HUB5_REFERENCES, HUB5_GLM)
    pem = (HUB5_01_RELEASE, "hub5e_01.pem")


class Rt03(Evaluation):
    """RT-03: calls of Switchboard cellular and Fisher, to test on."""

    name = "rt03"
    title = "RT-03"
    releases = (RT03_RELEASE,)
    labels = (("SW", "Switchboard"), ("FI", "Fisher"))
    audio, stm, glm = ((RT03_RELEASE, pattern) for pattern in RT03_RELEASE.holds)


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
        """Side and times in hundredths, in which partitions agree."""
        return self.recording, self.channel, f"{float(self.start_s):.2f}", f"{float(self.end_s):.2f}"

    @property
    def is_scored(self) -> bool:
        return IGNORE not in self.text.upper()


def read_stm(paths: Iterable[Path]) -> str:
    """Merge references, fixing known faults, gaps, sides and headers.

    The known faults are a stray second bracket, tags of asides, and labels that the header lacks, which would stop
    scorers. Sides are letters, as in hypotheses.
    """
    text = "\n".join(line for path in paths for line in path.read_text(encoding="latin-1").splitlines())
    lines = re.sub(r"<[BE]_ASIDE>", "", text.replace("((", "(").replace("))", ")")).split("\n")
    header = dict.fromkeys(line for line in lines if line.startswith(";;"))
    segments = [line for line in lines if not line.startswith(";;") and GAP not in line]
    segments = [re.sub(r"^(\S+\s+)([12])(?=\s)", lambda m: m[1] + CHANNELS[m[2]], line) for line in segments]
    declared = {match[1].lower() for line in header if (match := _LABEL.match(line))}
    labelled = (match[6] for line in segments if (match := _LINE.fullmatch(line.rstrip())) and match[6])
    used = dict.fromkeys(name for labels in labelled for name in labels[1:-1].split(",") if name)
    missing = [f';; LABEL "{name}" "{name}" ""' for name in used if name.lower() not in declared]
    return "\n".join([*header, *missing, *segments]) + "\n"


def parse_stm(text: str) -> list[StmLine]:
    """Parse a reference with ignored segments; AsrtoolError naming a broken line."""
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(";;") or not line.strip():
            continue
        match = _LINE.fullmatch(line.rstrip())
        if not match:
            raise AsrtoolError(
                f"reference stm, line {number}: {line[:60]!r}, expected recording, channel, speaker, start, end, text",
                "compare the file with the release",
            )
        recording, channel, _, start_s, end_s, label, words = match.groups()
        lines.append(StmLine(recording, CHANNELS.get(channel, channel), start_s, end_s, label or "", words))
    return lines


def compare_pem(lines: Sequence[StmLine], pem: Path, title: str, bad_fraction: float) -> None:
    """Raise AsrtoolError if partition and stm differ in too many scored segments.

    Decoding and scoring use the stm, so a few that differ are a warning.
    """
    rows = [row.split() for row in pem.read_text(encoding="latin-1").splitlines() if not row.startswith(";;")]
    listed = {(row[0], row[1][0], f"{float(row[3]):.2f}", f"{float(row[4]):.2f}") for row in rows if row}
    scored = {line.times for line in lines if line.is_scored}
    only_stm, only_pem = scored - listed, listed - {line.times for line in lines}
    if not only_stm and not only_pem:
        return
    num, first = max(len(only_stm), len(only_pem)), min(only_stm | only_pem)
    what = f"stm and pem of {title} differ in {num} of {len(scored)} segments, the first is {' '.join(first)}"
    if num > bad_fraction * len(scored) and bad_fraction < 1:
        way = "to go by the stm: --set data.bad_fraction=1, which holds for all faults"
        raise AsrtoolError(what, f"compare both files with the releases; {way}")
    logging.warning("%s: the stm is used", what)


def _segments(scored: Iterable[StmLine], sounds: Mapping[str, Sound], padding_s: float) -> Iterator[SupervisionSegment]:
    """Yield the scored lines, numbered by recording and widened; a side is a speaker.

    They are longer by up to `padding_s` at both ends within the recording. Neighbours share the gap between them, so no
    word is decoded twice.
    """
    from lhotse import SupervisionSegment

    numbers = Counter[str]()
    sides: dict[tuple[str, str], list[SupervisionSegment]] = {}
    for line in scored:
        start_s, end_s = float(line.start_s), min(float(line.end_s), sounds[line.recording].duration_s)
        length_s = round(end_s - start_s, 8)
        segment = SupervisionSegment(
            id=f"{line.recording}-{numbers[line.recording]}",
            recording_id=line.recording,
            start=start_s,
            duration=length_s,
            channel="AB".index(line.channel),
            text=_text(line.text),
            language="English",
            speaker=f"{line.recording}-{line.channel}",
            custom={"scored_start_s": start_s, "scored_duration_s": length_s},
        )
        sides.setdefault((line.recording, line.channel), []).append(segment)
        numbers[line.recording] += 1
    for (recording, _), side in sides.items():
        side.sort(key=lambda s: (s.start, s.end))
        ends = [0.0] + [s.end for s in side]
        starts = [s.start for s in side] + [sounds[recording].duration_s]
        # Before segment i is the gap i; the first and the last gap belong to one segment alone.
        gaps = [max(0.0, start - end) for end, start in zip(ends, starts, strict=True)]
        paddings_s = [min(padding_s, gap if i in (0, len(side)) else gap / 2) for i, gap in enumerate(gaps)]
        for segment, before_s, after_s in zip(side, paddings_s, paddings_s[1:], strict=False):
            segment.start = round(segment.start - before_s, 4)
            segment.duration = round(segment.duration + before_s + after_s, 4)
            yield segment


def _text(reference: str) -> str:
    """Return normalised text, or '': a scored segment must not be left out."""
    try:
        return normalise(reference, RULES)
    except Unusable:
        return ""
