"""Estimate the disk space of features, and check it before computing them."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
from pathlib import Path

from asrtool.data.manifests.manifest import read_report
from asrtool.data.manifests.sets import Sets
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Features

GB = 1e9
# Bytes with all files beside the features: lilcom has 1.17 on the mini corpus, 1.25 of Fisher and Switchboard; a tar
# adds two headings of 512 bytes, a manifest and padding to each utterance.
BYTES_A_VALUE = {"lilcom": 1.25, "shar": 1.4}
BYTES_A_SAMPLE = 1.2  # FLAC
BYTES_A_FRAME = 1.5  # index, list and record of utterances, of all speeds


def stored_bytes(features: Features, hours: float, copies_hours: float) -> float:
    """Return the bytes of features for `hours` and `copies_hours` of speed copies.

    Kept samples are not included.
    """
    frames = (hours + copies_hours) * 3600 * 1000 / features.frame_shift_ms
    if features.storage == "flac":
        return hours * 3600 * features.sampling_rate_hz * BYTES_A_SAMPLE + frames * BYTES_A_FRAME
    return frames * features.num_features * BYTES_A_VALUE[features.storage]


def check_disk_space(out: Path, manifests: Path, sets: Sets, features: Features) -> None:
    """Log the disk space that features of `manifests` need, and the free space.

    Raises AsrtoolError if the free space and the files in `out` are too small, and for a missing or half-written
    manifest.
    """
    hours = {name: float(read_report(manifests / name)["speech_hours"]) for name in sets.names}
    copies_hours = hours[sets.train] * sum(1 / speed for speed in features.speeds if speed != 1)
    needed = stored_bytes(features, sum(hours.values()), copies_hours)
    hours[sets.train] += copies_hours
    if features.keep_audio:
        needed += hours[sets.train] * 3600 * features.sampling_rate_hz * 2
    existing = _size(out)
    folder_above = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(folder_above).free
    logging.info(
        "%s: features of %.4g h at all speeds, %s: about %.3g GB of disk; %.3g GB are there, %.3g GB free",
        out, sum(hours.values()), features.storage, needed / GB, existing / GB, free / GB,
    )  # fmt: skip
    missing = needed - existing - free
    if missing > 0:
        advice = _smaller(features, sum(hours.values()) - copies_hours, copies_hours)
        raise AsrtoolError(
            f"{out}: features of {sum(hours.values()):.4g} h need about {needed / GB:.3g} GB of disk,"
            f" {existing / GB:.3g} GB are there and {free / GB:.3g} GB free: {missing / GB:.3g} GB are missing",
            f"free some space, choose another place, or {advice}",
        )


def _smaller(features: Features, hours: float, copies_hours: float) -> str:
    """Return the advice on settings for smaller features."""
    if features.keep_audio:
        return "set features.keep_audio=false"
    if len(features.speeds) > 1 and features.storage != "flac":
        return "set features.speeds=[1.0] for no copies at other speeds"
    stored = {
        name: stored_bytes(dataclasses.replace(features, storage=name), hours, copies_hours)
        for name in (features.storage, *BYTES_A_VALUE, "flac")
    }
    least = min(stored, key=lambda name: stored[name])
    return "set data.train to less" if least == features.storage else f"set features.storage={least}"


def _size(folder: Path) -> int:
    """Return the bytes of the files of `folder`; 0 if it does not exist."""
    files = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(file).st_size for file in files)
