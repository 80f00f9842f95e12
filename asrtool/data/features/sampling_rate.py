"""Choose the sampling rate of features, and report resampled recordings."""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from asrtool.data.manifests.manifest import RECORDINGS, read_lines, read_report
from asrtool.data.manifests.validator import Entry
from asrtool.settings.data import Features


def with_rate(features: Features, manifests: Path) -> Features:
    """Set the rate of most hours in `manifests` (of two the lower) if it is 0.

    Raises AsrtoolError for a missing or half-written manifest.
    """
    if features.sampling_rate_hz:
        return features
    read_report(manifests)
    seconds: defaultdict[int, float] = defaultdict(float)
    for entry in read_lines(manifests / RECORDINGS, Entry):
        seconds[int(entry["sampling_rate"])] += entry["duration"]
    rate_hz = min(seconds, key=lambda rate: (-seconds[rate], rate))
    percent = 100 * seconds[rate_hz] / sum(seconds.values())
    logging.info(
        "features.sampling_rate_hz is 0: %d Hz, as %.3g %% of the hours of recordings to train on have",
        rate_hz,
        percent,
    )
    return dataclasses.replace(features, sampling_rate_hz=rate_hz)


def say_resampled(where: Path, num_by_rate: Mapping[int, int], rate_hz: int) -> None:
    """Log how many recordings are resampled; `num_by_rate` counts them by rate.

    Upsampling is a warning, since the upper band is missing.
    """
    total = sum(num_by_rate.values())
    for rate, num in sorted(num_by_rate.items()):
        if rate < rate_hz:
            alike = f"; features.sampling_rate_hz={rate} would make all alike" if rate == min(num_by_rate) else ""
            logging.warning(
                "%s: %d of %d recordings have %d Hz, resampled to %d: NOTHING ABOVE %d Hz IS IN THEM%s",
                where, num, total, rate, rate_hz, rate // 2, alike,
            )  # fmt: skip
        elif rate > rate_hz:
            logging.info("%s: %d of %d recordings have %d Hz, resampled to %d", where, num, total, rate, rate_hz)
