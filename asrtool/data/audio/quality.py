"""Measure level, clipping and bandwidth of utterances, in processes.

Letters in names: S samples, W windows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from lhotse import Recording, SupervisionSegment
from lhotse.audio import audio_backend

from asrtool.data.audio.remote import fetched
from asrtool.data.features.extract import UNREADABLE, why_unreadable
from asrtool.data.manifests.manifest import read_sorted
from asrtool.data.manifests.validator import Entry
from asrtool.data.workers.processes import num_cores, process_map
from asrtool.log import progress

WINDOW_S = 0.02
FLOOR_DB = -120.0  # level of digital silence
QUIET, LOUD = 10, 95  # percentiles of the levels of windows: pauses, and speech
CLIP_RUN = 3  # equal samples in a row at the peak; unclipped sounds have one or two
CLIP_LEVEL = 0.1  # fraction of full scale; clipping at a lower peak is not detected
BANDS = 64  # from 0 Hz to half the sampling rate
BAND_DB = 50.0  # below the strongest band: empty


@dataclass(frozen=True)
class Measures:
    """Measures of an utterance; levels in dB of full scale, so 0 or less."""

    id: str
    recording: str
    speaker: str
    duration_s: float
    sampling_rate_hz: int
    characters: int  # characters of the text without spaces
    peak_db: float
    speech_db: float  # level of its loud parts
    noise_db: float  # level of its quiet parts
    clipped: float  # fraction of the samples
    bandwidth_hz: float  # above it the spectrum is empty

    @property
    def characters_a_s(self) -> float:
        return self.characters / self.duration_s if self.duration_s else 0.0


COLUMNS = (*(field.name for field in fields(Measures)), "characters_a_s")


def levels_of(samples_S: np.ndarray, rate_hz: int) -> tuple[float, float, float]:
    """Return the peak and the levels of loud and quiet windows, in dB of full scale."""
    size = max(1, round(WINDOW_S * rate_hz))
    whole_S = samples_S[: len(samples_S) // size * size] if len(samples_S) >= size else samples_S
    power_W = np.square(whole_S, dtype=np.float64).reshape(-1, min(size, len(whole_S))).mean(axis=1)
    quiet, loud = np.percentile(power_W, (QUIET, LOUD))
    return _db(float(np.abs(samples_S).max()) ** 2), _db(loud), _db(quiet)


def clipped_fraction(samples_S: np.ndarray) -> float:
    """Return the fraction of samples in runs of CLIP_RUN at the extreme values.

    The peak of unclipped audio is one sample. Quiet audio repeats few values anyway.
    """
    clipped = 0
    for extreme in {float(samples_S.max()), float(samples_S.min())}:
        if abs(extreme) < CLIP_LEVEL:
            continue
        edges = np.flatnonzero(np.diff(np.concatenate([[False], samples_S == extreme, [False]])))
        runs = edges[1::2] - edges[::2]
        clipped += int(runs[runs >= CLIP_RUN].sum())
    return clipped / len(samples_S)


def bandwidth_hz(samples_S: np.ndarray, rate_hz: int) -> float:
    """Return the frequency above which every band is BAND_DB below the strongest."""
    size = 4 * BANDS
    if len(samples_S) < size:
        return rate_hz / 2
    windows = samples_S[: len(samples_S) // size * size].reshape(-1, size) * np.hanning(size)
    power = np.square(np.abs(np.fft.rfft(windows)), dtype=np.float64).mean(axis=0)[1:].reshape(BANDS, -1).mean(axis=1)
    used = np.flatnonzero(power > power.max() * 10 ** (-BAND_DB / 10))
    return (int(used[-1]) + 1) * rate_hz / 2 / BANDS if len(used) else 0.0


def _db(power: float) -> float:
    return max(FLOOR_DB, 10 * float(np.log10(power))) if power > 0 else FLOOR_DB


PIECE = 16  # recordings at a time


@dataclass(frozen=True)
class Unreadable:
    """A recording, and the reason for which its audio cannot be read."""

    recording: str
    reason: str


Transcribed = tuple[Entry, list[Entry]]  # a recording, and its utterances


def measure_manifests(manifests: Path, num_jobs: int = 0) -> Iterator[Measures | Unreadable]:
    """Yield measures of all utterances in order; Unreadable for broken audio.

    Raises AsrtoolError for a missing or half-written manifest.
    """
    recordings, lines = read_sorted(manifests)
    by_id = {entry["id"]: entry for entry in recordings}
    by_recording = itertools.groupby((entry for entry, _ in lines), lambda entry: str(entry["recording_id"]))
    transcribed = [(by_id[id_], list(segments)) for id_, segments in by_recording]
    pieces = [transcribed[first : first + PIECE] for first in range(0, len(transcribed), PIECE)]
    with process_map(__name__, min(len(pieces), num_jobs or num_cores())) as map_pieces:
        for found in progress(map_pieces(measure_piece, pieces), "listen to", len(pieces), "piece"):
            yield from found


def measure_piece(piece: list[Transcribed]) -> list[Measures | Unreadable]:
    return [found for recording, segments in piece for found in _measure(recording, segments)]


def _measure(entry: Entry, segments: list[Entry]) -> Iterator[Measures | Unreadable]:
    recording = Recording.from_dict(entry)
    try:
        with audio_backend("LibsndfileBackend"):
            audio = fetched(recording).load_audio()
    except UNREADABLE as error:
        yield Unreadable(recording.id, why_unreadable(error))
        return
    if audio.shape[1] < recording.num_samples:
        what = f"{audio.shape[1]} samples, its header declares {recording.num_samples}"
        yield Unreadable(recording.id, what)
        return
    rate_hz = recording.sampling_rate
    for each in segments:
        segment = SupervisionSegment.from_dict(each)
        begin, end = (round(at * rate_hz) for at in (segment.start, segment.end))
        samples_S = audio[recording.channel_ids.index(segment.channel), begin:end]
        if not len(samples_S):
            continue
        peak_db, speech_db, noise_db = levels_of(samples_S, rate_hz)
        yield Measures(
            id=segment.id,
            recording=segment.recording_id,
            speaker=segment.speaker or "",
            duration_s=len(samples_S) / rate_hz,
            sampling_rate_hz=rate_hz,
            characters=len("".join((segment.text or "").split())),
            peak_db=peak_db,
            speech_db=speech_db,
            noise_db=noise_db,
            clipped=clipped_fraction(samples_S),
            bandwidth_hz=bandwidth_hz(samples_S, rate_hz),
        )
