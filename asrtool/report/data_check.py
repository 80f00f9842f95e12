"""Check of data as a page: findings, counts and distributions."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asrtool.data.audio.quality import COLUMNS, Measures, Unreadable, measure_manifests
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
from asrtool.report.figures.figure import BLUE, ORANGE, save_figure
from asrtool.report.markdown import format_table
from asrtool.settings.data import Features

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SILENT_DB = -60.0  # level of the loud part of an utterance without audible speech
QUIET_DB = -45.0
SNR_DB = 10.0  # between loud and quiet windows, below which noise is as loud as many sounds of speech
CLIPPED = 0.001  # fraction of the samples that are heard as crackle
NARROW = 0.65  # fraction of half the sampling rate: 8 kHz speech in a 16 kHz file has 0.5, slightly more after a filter
MIN_S = 1.0  # shortest utterance with a meaningful rate of characters
MIN_UTTERANCES = 20  # utterances needed for a usual rate
DEVIATION, MIN_DEVIATION = 4.0, np.log(1.6)  # from the usual rate: standard deviations, and a minimum
SHORT_S = 0.2


@dataclass(frozen=True)
class Finding:
    """Finding in `count` of `total` utterances, recordings or characters."""

    what: str
    count: int
    total: int
    example: str
    advice: str


def find(
    measured: Sequence[Measures],
    unreadable: Sequence[Unreadable],
    drops: Sequence[Drop],
    num_recordings: int,
    features: Features,
) -> list[Finding]:
    """Return findings, worst first; `drops` were set aside by asrtool prepare.

    Advice leaves out settings that `features` has.
    """
    return [
        *_drop_findings(drops, num_recordings + len(drops)),
        *_unreadable_findings(unreadable, num_recordings),
        *_sound_findings(measured),
        *_rate_findings(measured, features),
    ]


def _drop_findings(drops: Sequence[Drop], total: int) -> Iterator[Finding]:
    first: dict[str, Drop] = {}
    for drop in drops:
        first.setdefault(drop.reason, drop)
    for reason, count in Counter(drop.reason for drop in drops).most_common():
        example = f"{first[reason].id}: {first[reason].detail}"
        yield Finding(f"set aside: {reason}", count, total, example, "correct them, or leave them out")


def _unreadable_findings(unreadable: Sequence[Unreadable], total: int) -> Iterator[Finding]:
    if unreadable:
        example = f"{unreadable[0].recording}: {unreadable[0].reason}"
        yield Finding("audio that cannot be read to its end", len(unreadable), total, example, "copy these files again")


def _sound_findings(measured: Sequence[Measures]) -> Iterator[Finding]:
    dense, sparse = _unusual_rates(measured)
    for what, advice, describe, is_so in (
        (
            "silence instead of speech",
            "leave them out",
            lambda each: f"{each.speech_db:.0f} dB",
            lambda each: not _is_audible(each),
        ),
        (
            "more text than fits the audio",
            "listen: is the audio cut off, or the text that of others?",
            lambda each: f"{each.characters_a_s:.0f} characters a second",
            lambda each: each.id in dense,
        ),
        (
            "more audio than fits the text",
            "listen: are words missing in the text, or is there a long pause?",
            lambda each: f"{each.characters_a_s:.1f} characters a second",
            lambda each: each.id in sparse,
        ),
        (
            "clipped",
            "record at a lower level, or leave them out where they are many",
            lambda each: f"{100 * each.clipped:.1f} % of its samples",
            lambda each: each.clipped > CLIPPED,
        ),
        (
            "noise near the level of speech",
            "expect more errors there; with augment.noise_dir a model gets used to it",
            lambda each: f"{each.speech_db - each.noise_db:.0f} dB above it",
            lambda each: _is_audible(each) and each.speech_db - each.noise_db < SNR_DB,
        ),
        (
            "very quiet",
            "features are normalised, so this is only bad where noise is as loud",
            lambda each: f"{each.speech_db:.0f} dB",
            lambda each: _is_audible(each) and each.speech_db < QUIET_DB,
        ),
        (
            f"shorter than {SHORT_S:g} s",
            "too short for most words: are the times of segments right?",
            lambda each: f"{each.duration_s:.2f} s",
            lambda each: each.duration_s < SHORT_S,
        ),
    ):
        found = [each for each in measured if is_so(each)]
        if found:
            yield Finding(what, len(found), len(measured), f"{found[0].id}: {describe(found[0])}", advice)


def _is_audible(each: Measures) -> bool:
    return each.speech_db > SILENT_DB


def _unusual_rates(measured: Sequence[Measures]) -> tuple[set[str], set[str]]:
    """Return ids of utterances with far more, and far fewer, characters a second.

    Logarithms of rates are compared with their median; their spread is taken from the middle half, which a few wrong
    texts do not change.
    """
    long_enough = [each for each in measured if each.duration_s >= MIN_S and each.characters]
    if len(long_enough) < MIN_UTTERANCES:
        return set(), set()
    rates_N = np.log([each.characters_a_s for each in long_enough])
    middle = np.median(rates_N)
    spread = 1.4826 * np.median(np.abs(rates_N - middle))  # the standard deviation of a normal distribution
    limit = max(DEVIATION * spread, MIN_DEVIATION)
    return (
        {each.id for each, rate in zip(long_enough, rates_N, strict=True) if rate > middle + limit},
        {each.id for each, rate in zip(long_enough, rates_N, strict=True) if rate < middle - limit},
    )


def _rate_findings(measured: Sequence[Measures], features: Features) -> Iterator[Finding]:
    rates = Counter(each.sampling_rate_hz for each in measured)
    if len(rates) > 1:
        usual, _ = rates.most_common(1)[0]
        others = [each for each in measured if each.sampling_rate_hz != usual]
        what = f"another sampling rate than the usual {usual} Hz"
        example = f"{others[0].id}: {others[0].sampling_rate_hz} Hz"
        advice = "features.resample = true, as recipes/own has it, brings all to one rate"
        advice = "all are brought to one rate" if features.resample else advice
        yield Finding(what, len(others), len(measured), example, advice)
    for rate_hz in sorted(rates):
        same_rate = [each for each in measured if each.sampling_rate_hz == rate_hz and _is_audible(each)]
        if not same_rate:
            continue
        band_hz = float(np.median([each.bandwidth_hz for each in same_rate]))
        if band_hz < NARROW * rate_hz / 2:
            narrow = [each for each in same_rate if each.bandwidth_hz < NARROW * rate_hz / 2]
            what = f"nothing above {band_hz:.0f} Hz in audio of {rate_hz} Hz"
            settings = [] if features.resample else ["features.resample = true"]
            if settings or features.sampling_rate_hz != _rate_for(band_hz):
                settings.append(f"features.sampling_rate_hz = {_rate_for(band_hz)}")
            advice = f"it was recorded at a lower rate{': set ' if settings else ''}{', '.join(settings)}"
            yield Finding(what, len(narrow), len(same_rate), f"{narrow[0].id}: {narrow[0].bandwidth_hz:.0f} Hz", advice)


def _rate_for(band_hz: float) -> int:
    return next((rate for rate in (8000, 11025, 16000, 22050, 24000, 32000, 44100) if rate >= 1.65 * band_hz), 48000)


PAGE = "check.md"
UTTERANCES = "utterances.tsv"
BINS = 40
LISTED = 20  # examples of a fault


def check_manifests(manifests: Path, out: Path | None, features: Features) -> tuple[str, int]:
    """Check a manifest folder; return the page and the number of readable utterances.

    Audio is read by features.num_jobs processes. Page, tables and pictures are written to `out` if given.
    """
    found = list(measure_manifests(manifests, features.num_jobs))
    measured = [each for each in found if isinstance(each, Measures)]
    unreadable = [each for each in found if isinstance(each, Unreadable)]
    unreadable = [Unreadable(each.recording, _below(manifests, each.reason)) for each in unreadable]
    drops = _read_drops(manifests / DROPPED, manifests)
    findings = find(measured, unreadable, drops, read_report(manifests)["num_recordings"], features)
    # The features stage will set these aside.
    drops += [Drop(each.recording, "unusable audio", each.reason) for each in unreadable]
    return _write(findings, measured, drops, out)


def check_rejected(manifests: Path, out: Path | None) -> tuple[str, int]:
    """Run `check_manifests` on data without usable utterances.

    The list of drops is beside `manifests`.
    """
    drops = _read_drops(rejected(manifests), manifests)
    return _write(find([], [], drops, 0, Features()), [], drops, out)


def _read_drops(path: Path, manifests: Path) -> list[Drop]:
    return [replace(drop, detail=_below(manifests, drop.detail)) for drop in read_drops(path)]


def _below(manifests: Path, text: str) -> str:
    """Make paths below `manifests` in `text` relative: the folder may be temporary."""
    return text.replace(f"{manifests}{os.sep}", "")


def _write(
    findings: Sequence[Finding], measured: Sequence[Measures], drops: Sequence[Drop], out: Path | None
) -> tuple[str, int]:
    text = format_page(findings, measured, drops)
    if out:
        with write_folder(out, PAGE) as folder:
            further = ""
            if measured:
                (folder / UTTERANCES).write_text(format_measures(measured), encoding="utf-8")
                for name, (title, draw) in PICTURES.items():
                    save_figure(functools.partial(draw, measured=measured), folder / name)
                    further += f"\n{title}:\n\n![{title}]({name})\n"
                further += f"\nEach utterance with what was measured: [{UTTERANCES}]({UTTERANCES}).\n"
            if drops:
                (folder / DROPPED).write_text(format_drops(drops), encoding="utf-8")
                further += f"\nAll that is set aside: [{DROPPED}]({DROPPED}).\n"
            (folder / PAGE).write_text(f"# Audio and text\n\n{text}{further}", encoding="utf-8")
    return text, len(measured)


def format_page(findings: Sequence[Finding], measured: Sequence[Measures], drops: Sequence[Drop] = ()) -> str:
    """Return the tables in Markdown."""
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
    """Escape `text`, such as a command of a wav.scp, for one cell of a table."""
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
    """Return a header and a line an utterance, separated by tabs."""
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


PICTURES = {
    "lengths.svg": ("Seconds of utterances, and characters a second", _draw_lengths),
    "levels.svg": ("Level of speech against that of the pauses, and the highest frequency with sound", _draw_levels),
}
