"""Audio of any length, block by block: what libsndfile reads, SPHERE with shorten, a pipe, and the rest by ffmpeg."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from asrtool.corpus.sphere import read_header, read_sphere
from asrtool.errors import AsrtoolError

PIPE = "-"  # standard input
BLOCK_S = 1.0
FFMPEG = ("ffmpeg", "-nostdin", "-v", "error", "-i")
TO_WAV = ("-vn", "-f", "wav", "-c:a", "pcm_s16le", "pipe:1")
SUFFIXES = (
    ".wav",
    ".flac",
    ".sph",
    ".ogg",
    ".opus",
    ".mp3",
    ".m4a",
    ".aac",
    ".aif",
    ".aiff",
    ".au",
    ".wma",
    ".mp4",
    ".webm",
)


@dataclass(frozen=True)
class Sound:
    """An open recording. Blocks are float32 (channels, samples) in [-1, 1]."""

    name: str
    sampling_rate_hz: int
    num_channels: int
    duration_s: float | None  # None where only the end shows it, as of a pipe
    blocks: Iterator[np.ndarray]


@contextlib.contextmanager
def open_sound(path: str | Path, block_s: float = BLOCK_S) -> Iterator[Sound]:
    """Yield the recording of a file, or of standard input where `path` is ``-``; its blocks are `block_s` long.

    Raises AsrtoolError where it cannot be read, also while its blocks are.
    """
    if str(path) == PIPE:
        with _opened(sys.stdin.fileno(), "standard input") as file:
            yield _of_file("stdin", file, block_s, is_pipe=True)
        return
    path = Path(path)
    if not path.is_file():
        what = f"{path}: is a folder" if path.is_dir() else f"{path}: no such file"
        raise AsrtoolError(what, "name an audio file")
    if _is_shortened(path):
        yield _of_samples(path, block_s)
    elif not _is_known(path):
        with _converted(path) as file:
            yield _of_file(path.stem, file, block_s, is_pipe=True)
    else:
        with _opened(str(path), str(path)) as file:
            yield _of_file(path.stem, file, block_s, is_pipe=False)


def _is_known(path: Path) -> bool:
    """Whether libsndfile reads it."""
    try:
        soundfile.info(str(path))
    except soundfile.SoundFileError:
        return False
    return True


@contextlib.contextmanager
def _opened(source: str | int, name: str) -> Iterator[soundfile.SoundFile]:
    try:
        file = soundfile.SoundFile(source, closefd=False) if isinstance(source, int) else soundfile.SoundFile(source)
    except soundfile.SoundFileError as error:
        raise AsrtoolError(
            f"{name}: no readable audio: {_reason(error)}", "give WAV or FLAC, or install ffmpeg"
        ) from error
    with file:
        yield file


def _of_file(name: str, file: soundfile.SoundFile, block_s: float, is_pipe: bool) -> Sound:
    duration_s = None if is_pipe else file.frames / file.samplerate
    return Sound(name, file.samplerate, file.channels, duration_s, _blocks(name, file, block_s))


def _blocks(name: str, file: soundfile.SoundFile, block_s: float) -> Iterator[np.ndarray]:
    size = round(block_s * file.samplerate)
    try:
        while len(block_SC := file.read(size, dtype="float32", always_2d=True)):
            yield np.ascontiguousarray(block_SC.T)
    except soundfile.SoundFileError as error:
        raise AsrtoolError(f"{name}: audio breaks off: {_reason(error)}", "replace the file") from error


def _is_shortened(path: Path) -> bool:
    with open(path, "rb") as file:
        if file.read(7) != b"NIST_1A":
            return False
    return read_header(path).is_shortened


def _of_samples(path: Path, block_s: float) -> Sound:
    samples_SC, rate_hz = read_sphere(path)
    size = round(block_s * rate_hz)
    parts = (samples_SC[begin : begin + size] for begin in range(0, len(samples_SC), size))
    blocks = (part_SC.T.astype(np.float32) / 2**15 for part_SC in parts)
    return Sound(path.stem, rate_hz, samples_SC.shape[1], len(samples_SC) / rate_hz, blocks)


@contextlib.contextmanager
def _converted(path: Path) -> Iterator[soundfile.SoundFile]:
    """What libsndfile does not read, converted by ffmpeg as it is read."""
    if shutil.which(FFMPEG[0]) is None:
        what = f"{path}: no audio that libsndfile reads, and ffmpeg, which reads more, is not installed"
        raise AsrtoolError(what, "install ffmpeg, or convert the file to WAV or FLAC")
    process = subprocess.Popen([*FFMPEG, str(path), *TO_WAV], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        try:
            file = soundfile.SoundFile(process.stdout.fileno(), closefd=False)
        except soundfile.SoundFileError as error:
            process.kill()
            reason = next(iter(process.stderr.read().decode(errors="replace").splitlines()), _reason(error))
            raise AsrtoolError(f"{path}: no readable audio: {reason}", "replace the file") from error
        with file:
            yield file
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def _reason(error: Exception) -> str:
    return getattr(error, "error_string", None) or str(error)
