"""The sampling rate of features for which none is given."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from pathlib import Path

from asrtool.corpus.manifest import RECORDINGS, read_lines, read_report
from asrtool.corpus.settings import Features
from asrtool.corpus.tally import Entry


def with_rate(features: Features, manifests: Path) -> Features:
    """`features` at the rate of most recordings of the folder `manifests`, of two the lower one, where theirs is 0.

    Raises AsrtoolError for a missing or half-written manifest.
    """
    if features.sampling_rate_hz:
        return features
    read_report(manifests)
    rates = Counter(int(entry["sampling_rate"]) for entry in read_lines(manifests / RECORDINGS, Entry))
    rate_hz = min(rates, key=lambda rate: (-rates[rate], rate))
    found = f"{rates[rate_hz]} of {sum(rates.values())} recordings to train on"
    logging.info("features.sampling_rate_hz is 0: %d Hz, as %s have", rate_hz, found)
    return dataclasses.replace(features, sampling_rate_hz=rate_hz)
