"""Folder of sounds for augmentation: noises, or room impulse responses.

Listing the files imports neither lhotse nor torch.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from asrtool.data.audio.joined import describe_faults, parts_of
from asrtool.errors import AsrtoolError

SUFFIXES = (".wav", ".flac", ".sph", ".ogg", ".aiff")
BLOCK = 2**16  # samples read at a time to find a sample that is not zero


@dataclass(frozen=True)
class Sound:
    """Readable file that is not silent."""

    path: Path
    num_samples: int

    def read(self, begin: int, num_samples: int) -> np.ndarray:
        """Return samples of the first channel from `begin` on, wrapping at the end.

        Raises AsrtoolError if the file is gone or has changed.
        """
        samples = _read(self.path, begin, min(num_samples, self.num_samples - begin))
        missing = num_samples - len(samples)
        if not missing:
            return samples
        first = _read(self.path, 0, min(missing, self.num_samples))
        return np.concatenate([samples, np.resize(first, missing)])  # repeats them


def list_sounds(directory: Path, key: str) -> list[Path]:
    """List the sound files in and below `directory` of the setting `key`, sorted.

    Raises AsrtoolError if there is no such folder or no file in it.
    """
    if not directory.is_dir():
        what = f"{key}: {directory} is no folder"
        raise AsrtoolError(what, "name a folder of recordings, or leave it empty")
    walked = os.walk(directory, followlinks=True)
    found = sorted(
        Path(folder, name) for folder, _, names in walked for name in names if name.lower().endswith(SUFFIXES)
    )
    if not found:
        what = f"{key}: {directory} has no sound file, expected some of {', '.join('*' + s for s in SUFFIXES)}"
        raise AsrtoolError(what, "name a folder of recordings, or leave it empty")
    return found


def digest_of_sounds(directory: Path, key: str) -> str:
    """Return SHA-256 of file names and sizes; AsrtoolError as list_sounds."""
    lines = [f"{path.relative_to(directory)}\t{path.stat().st_size}\n" for path in list_sounds(directory, key)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def open_sounds(directory: Path, key: str, rate_hz: int) -> list[Sound]:
    """Open the sounds of a folder by their headers and first samples.

    Raises AsrtoolError as list_sounds, and naming a file that cannot be read, has another rate than `rate_hz`, or is
    silent.
    """
    return [_open(path, key, rate_hz) for path in list_sounds(directory, key)]


def _open(path: Path, key: str, rate_hz: int) -> Sound:
    try:
        if fault := describe_faults(parts_of(path)):
            raise AsrtoolError(f"{key}: {path}: {fault}", "remove or repair it")
        with soundfile.SoundFile(path) as file:
            if file.samplerate != rate_hz:
                raise AsrtoolError(
                    f"{key}: {path} has {file.samplerate} samples a second, expected {rate_hz}",
                    "convert the folder to features.sampling_rate_hz",
                )
            num_samples = file.frames
            while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
                if not np.isfinite(block).all():
                    raise AsrtoolError(f"{key}: {path} has samples that are NaN or infinite", "remove or repair it")
                if block[:, 0].any():
                    return Sound(path, num_samples)
    except soundfile.SoundFileError as error:
        raise AsrtoolError(f"{key}: {path} cannot be read: {error}", "remove or repair it") from error
    raise AsrtoolError(f"{key}: {path} is silent", "remove it")


def _read(path: Path, begin: int, num_samples: int) -> np.ndarray:
    try:
        samples, _ = soundfile.read(path, num_samples, begin, dtype="float32", always_2d=True)
    except soundfile.SoundFileError as error:
        raise AsrtoolError(f"{path} cannot be read: {error}", "restore the file and run the same command") from error
    if len(samples) < num_samples:
        raise AsrtoolError(f"{path} has changed or is cut off", "restore the file and run the same command")
    if not np.isfinite(samples).all():
        raise AsrtoolError(f"{path} has samples that are NaN or infinite", "remove or repair it")
    first: np.ndarray = samples[:, 0]
    return first
