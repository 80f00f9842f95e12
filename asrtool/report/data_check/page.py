"""Page of `asrtool check`: findings, counts and distributions of data."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asrtool.data.audio.quality import COLUMNS, Measures
from asrtool.data.audio.quality_check import Unreadable, measure_manifests
from asrtool.data.manifests.manifest import (
    BAD_RECORDING,
    BAD_UTTERANCE,
    DROPPED,
    Drop,
    format_drops,
    read_drops,
    read_report,
    rejected,
)
from asrtool.files import write_folder
from asrtool.report.data_check.findings import Finding, find
from asrtool.report.figures.figure import BLUE, ORANGE, save_figure
from asrtool.report.markdown import format_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "check.md"
UTTERANCES = "utterances.tsv"
PICTURES = {
    "lengths.svg": "Seconds of utterances, and characters a second",
    "levels.svg": "Level of speech against that of the pauses, and the highest frequency with sound",
}
BINS = 40
LISTED = 20  # of what is set aside for a fault


@dataclass(frozen=True)
class Page:
    """Findings as Markdown, and the number of readable utterances."""

    text: str
    num_utterances: int


def check_manifests(manifests: Path, out: Path | None, num_jobs: int = 0) -> Page:
    """Check a manifest folder; write page, tables and pictures to `out` if given."""
    found = list(measure_manifests(manifests, num_jobs))
    measured = [each for each in found if isinstance(each, Measures)]
    unreadable = [each for each in found if isinstance(each, Unreadable)]
    unreadable = [Unreadable(each.recording, _below(manifests, each.reason)) for each in unreadable]
    drops = _read_drops(manifests / DROPPED, manifests)
    findings = find(measured, unreadable, drops, read_report(manifests)["num_recordings"])
    # The features stage will set these aside.
    drops += [Drop(each.recording, "unusable audio", each.reason) for each in unreadable]
    return _write(findings, measured, drops, out)


def check_rejected(manifests: Path, out: Path | None) -> Page:
    """Return the page on data without usable utterances.

    The list of drops is beside `manifests`.
    """
    drops = _read_drops(rejected(manifests), manifests)
    return _write(find([], [], drops, 0), [], drops, out)


def _read_drops(path: Path, manifests: Path) -> list[Drop]:
    return [replace(drop, detail=_below(manifests, drop.detail)) for drop in read_drops(path)]


def _below(manifests: Path, text: str) -> str:
    """Make paths below `manifests` in `text` relative: the folder may be temporary."""
    return text.replace(f"{manifests}{os.sep}", "")


def _write(findings: Sequence[Finding], measured: Sequence[Measures], drops: Sequence[Drop], out: Path | None) -> Page:
    text = format_page(findings, measured, drops)
    if out:
        with write_folder(out, PAGE) as folder:
            further = ""
            if measured:
                (folder / UTTERANCES).write_text(format_measures(measured), encoding="utf-8")
                save_figure(functools.partial(_draw_lengths, measured=measured), folder / "lengths.svg")
                save_figure(functools.partial(_draw_levels, measured=measured), folder / "levels.svg")
                further += "".join(f"\n{title}:\n\n![{title}]({name})\n" for name, title in PICTURES.items())
                further += f"\nEach utterance with what was measured: [{UTTERANCES}]({UTTERANCES}).\n"
            if drops:
                (folder / DROPPED).write_text(format_drops(drops), encoding="utf-8")
                further += f"\nAll that is set aside: [{DROPPED}]({DROPPED}).\n"
            (folder / PAGE).write_text(f"# Audio and text\n\n{text}{further}", encoding="utf-8")
    return Page(text, len(measured))


def format_page(findings: Sequence[Finding], measured: Sequence[Measures], drops: Sequence[Drop] = ()) -> str:
    """The tables, in Markdown."""
    lines = ["Nothing was found that looks wrong.\n"]
    if findings:
        rows = [(f.what, f"{f.count:,} of {f.total:,}", _cell(f.example), f.advice) for f in findings]
        lines = [format_table(("found", "in", "for example", "what to do"), rows), ""]
    if faults := [drop for drop in drops if drop.reason in BAD_RECORDING | BAD_UTTERANCE]:
        listed = [(_cell(drop.id), drop.reason, _cell(drop.detail)) for drop in faults[:LISTED]]
        lines += [format_table(("set aside for a fault", "reason", "detail"), listed), ""]
        if len(faults) > LISTED:
            lines += [f"So are {len(faults) - LISTED:,} more; {DROPPED} in OUT has all.\n"]
    if measured:
        lines += [format_table(("what there is", ""), _statistics(measured)), ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """`text`, such as a command of a wav.scp, in one cell of a table."""
    return text.replace("|", "\\|")


def _statistics(measured: Sequence[Measures]) -> Iterable[tuple[str, str]]:
    duration_N = np.array([each.duration_s for each in measured])
    rates = Counter(each.sampling_rate_hz for each in measured)
    yield "utterances", f"{len(measured):,}"
    yield "recordings", f"{len({each.recording for each in measured}):,}"
    yield "speakers", f"{len({each.speaker for each in measured}):,}"
    yield "hours", f"{duration_N.sum() / 3600:.3g}"
    yield "sampling rates", ", ".join(f"{rate} Hz: {count:,}" for rate, count in rates.most_common())
    for name, values, unit in (
        ("length", duration_N, "s"),
        ("characters a second", np.array([each.characters_a_s for each in measured]), ""),
        ("level of speech", np.array([each.speech_db for each in measured]), "dB"),
        ("speech above noise", np.array([each.speech_db - each.noise_db for each in measured]), "dB"),
    ):
        least, middle, most = np.percentile(values, (5, 50, 95))
        yield f"{name}: 5 %, median, 95 %", f"{least:.1f}, {middle:.1f}, {most:.1f} {unit}".rstrip()


def format_measures(measured: Iterable[Measures]) -> str:
    """A line an utterance, tabs between, with a heading."""
    lines = ["\t".join(COLUMNS)]
    for each in measured:
        values = (getattr(each, name) for name in COLUMNS)
        lines.append("\t".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values))
    return "\n".join(lines) + "\n"


def _draw_lengths(figure: Figure, measured: Sequence[Measures]) -> None:
    lengths, rates = figure.subplots(1, 2)
    lengths.hist([each.duration_s for each in measured], BINS, color=BLUE)
    lengths.set(xlabel="seconds of an utterance", ylabel="utterances")
    rates.hist([each.characters_a_s for each in measured], BINS, color=BLUE)
    rates.set(xlabel="characters a second", ylabel="utterances")


def _draw_levels(figure: Figure, measured: Sequence[Measures]) -> None:
    levels, bands = figure.subplots(1, 2)
    noise, speech = ([getattr(each, name) for each in measured] for name in ("noise_db", "speech_db"))
    clipped = [each.clipped > 0 for each in measured]
    for is_so, colour, label in ((False, BLUE, "not clipped"), (True, ORANGE, "clipped")):
        chosen = [i for i, each in enumerate(clipped) if each == is_so]
        levels.scatter([noise[i] for i in chosen], [speech[i] for i in chosen], 6, colour, label=label, linewidths=0)
    levels.set(xlabel="level of pauses, dB of full scale", ylabel="level of speech, dB")
    levels.legend()
    bands.hist([each.bandwidth_hz / 1000 for each in measured], BINS, color=BLUE)
    bands.set(xlabel="highest frequency with sound, kHz", ylabel="utterances")
