"""Findings on the audio and text of a set, from measures of its utterances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from asrtool.data.audio.quality import Measures
from asrtool.data.audio.quality_check import Unreadable
from asrtool.data.manifests.manifest import Drop

SILENT_DB = -60.0  # level of the loud part of an utterance in which nobody can be heard
QUIET_DB = -45.0
SNR_DB = 10.0  # between loud and quiet windows, below which noise is as loud as many sounds of speech
CLIPPED = 0.001  # fraction of the samples that can be heard as a crackle
NARROW = 0.65  # of half the sampling rate: speech at 8 kHz in a file of 16 kHz has 0.5, and what a filter lets through
LEAST_S = 1.0  # of an utterance whose characters a second say something
FEWEST = 20  # utterances of which a usual rate is known
DEVIATION, LEAST_DEVIATION = 4.0, np.log(1.6)  # from the usual rate: standard deviations, and at least so much
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
    measured: Sequence[Measures], unreadable: Sequence[Unreadable], drops: Sequence[Drop], num_recordings: int
) -> list[Finding]:
    """The worst first. `drops` are what was set aside when the manifests were made."""
    return [
        *_of_drops(drops, num_recordings + len(drops)),
        *_of_unreadable(unreadable, num_recordings),
        *_of_sounds(measured),
        *_of_rates(measured),
    ]


def _of_drops(drops: Sequence[Drop], total: int) -> Iterator[Finding]:
    first: dict[str, Drop] = {}
    for drop in drops:
        first.setdefault(drop.reason, drop)
    for reason, count in Counter(drop.reason for drop in drops).most_common():
        example = f"{first[reason].id}: {first[reason].detail}"
        yield Finding(f"set aside: {reason}", count, total, example, "correct them, or leave them out")


def _of_unreadable(unreadable: Sequence[Unreadable], total: int) -> Iterator[Finding]:
    if unreadable:
        example = f"{unreadable[0].recording}: {unreadable[0].reason}"
        yield Finding("audio that cannot be read to its end", len(unreadable), total, example, "copy these files again")


def _of_sounds(measured: Sequence[Measures]) -> Iterator[Finding]:
    dense, sparse = _unusual_rates(measured)
    for what, advice, says, is_so in (
        (
            "silence instead of speech",
            "leave them out",
            lambda each: f"{each.speech_db:.0f} dB",
            lambda each: not _is_heard(each),
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
            lambda each: _is_heard(each) and each.speech_db - each.noise_db < SNR_DB,
        ),
        (
            "very quiet",
            "features are normalised, so this is only bad where noise is as loud",
            lambda each: f"{each.speech_db:.0f} dB",
            lambda each: _is_heard(each) and each.speech_db < QUIET_DB,
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
            yield Finding(what, len(found), len(measured), f"{found[0].id}: {says(found[0])}", advice)


def _is_heard(each: Measures) -> bool:
    return each.speech_db > SILENT_DB


def _unusual_rates(measured: Sequence[Measures]) -> tuple[set[str], set[str]]:
    """Return ids of utterances with far more, and far fewer, characters a second.

    Logarithms of rates are compared with their median; their spread is taken from the middle half, which a few wrong
    texts do not change.
    """
    long_enough = [each for each in measured if each.duration_s >= LEAST_S and each.characters]
    if len(long_enough) < FEWEST:
        return set(), set()
    rates_N = np.log([each.characters_a_s for each in long_enough])
    middle = np.median(rates_N)
    spread = 1.4826 * np.median(np.abs(rates_N - middle))  # the standard deviation of a normal distribution
    limit = max(DEVIATION * spread, LEAST_DEVIATION)
    return (
        {each.id for each, rate in zip(long_enough, rates_N, strict=True) if rate > middle + limit},
        {each.id for each, rate in zip(long_enough, rates_N, strict=True) if rate < middle - limit},
    )


def _of_rates(measured: Sequence[Measures]) -> Iterator[Finding]:
    rates = Counter(each.sampling_rate_hz for each in measured)
    if len(rates) > 1:
        usual, _ = rates.most_common(1)[0]
        others = [each for each in measured if each.sampling_rate_hz != usual]
        what = f"another sampling rate than the usual {usual} Hz"
        example = f"{others[0].id}: {others[0].sampling_rate_hz} Hz"
        advice = "features.resample = true, as recipes/own has it, brings all to one rate"
        yield Finding(what, len(others), len(measured), example, advice)
    for rate_hz in sorted(rates):
        of_rate = [each for each in measured if each.sampling_rate_hz == rate_hz and _is_heard(each)]
        if not of_rate:
            continue
        band_hz = float(np.median([each.bandwidth_hz for each in of_rate]))
        if band_hz < NARROW * rate_hz / 2:
            narrow = [each for each in of_rate if each.bandwidth_hz < NARROW * rate_hz / 2]
            what = f"nothing above {band_hz:.0f} Hz in audio of {rate_hz} Hz"
            settings = f"features.resample = true, features.sampling_rate_hz = {_rate_for(band_hz)}"
            advice = f"it was recorded at a lower rate: set {settings}"
            yield Finding(what, len(narrow), len(of_rate), f"{narrow[0].id}: {narrow[0].bandwidth_hz:.0f} Hz", advice)


def _rate_for(band_hz: float) -> int:
    return next((rate for rate in (8000, 11025, 16000, 22050, 24000, 32000, 44100) if rate >= 1.65 * band_hz), 48000)
