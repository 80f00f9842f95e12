"""Whether data is fit to train on, as a page: what was found, what there is, and how it is distributed."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asrtool.corpus.manifest import DROPPED, read_drops, read_report
from asrtool.corpus.sound_check import Unreadable, measure_manifests
from asrtool.corpus.sound_measures import COLUMNS, Measures
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.report.data_findings import Finding, find
from asrtool.report.figure import BLUE, ORANGE, save_figure
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


def check_manifests(manifests: Path, out: Path | None, num_jobs: int = 0) -> str:
    """Listen to all of a manifest folder; the page as text, which with tables and pictures is written to `out`.

    Raises AsrtoolError where nothing in it can be read.
    """
    found = list(measure_manifests(manifests, num_jobs))
    measured = [each for each in found if isinstance(each, Measures)]
    unreadable = [each for each in found if isinstance(each, Unreadable)]
    if not measured:
        what = f"{manifests}: none of {len(unreadable)} recordings can be read, {unreadable[0].recording}: "
        raise AsrtoolError(what + unreadable[0].reason, "replace the files")
    drops = read_drops(manifests / DROPPED)
    text = format_page(find(measured, unreadable, drops, read_report(manifests)["num_recordings"]), measured)
    if out:
        with write_folder(out, PAGE) as folder:
            (folder / UTTERANCES).write_text(format_measures(measured), encoding="utf-8")
            save_figure(functools.partial(_draw_lengths, measured=measured), folder / "lengths.svg")
            save_figure(functools.partial(_draw_levels, measured=measured), folder / "levels.svg")
            pictures = "\n".join(f"\n{title}:\n\n![{title}]({name})" for name, title in PICTURES.items())
            rows = f"\nEach utterance with what was measured: [{UTTERANCES}]({UTTERANCES}).\n"
            (folder / PAGE).write_text(f"# Audio and text\n\n{text}{pictures}\n{rows}", encoding="utf-8")
    return text


def format_page(findings: Sequence[Finding], measured: Sequence[Measures]) -> str:
    """Both tables, in Markdown."""
    lines = ["Nothing was found that looks wrong.\n"]
    if findings:
        rows = [(f.what, f"{f.count:,} of {f.total:,}", f.example, f.advice) for f in findings]
        lines = [format_table(("found", "in", "for example", "what to do"), rows), ""]
    return "\n".join([*lines, format_table(("what there is", ""), _statistics(measured)), ""])


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
