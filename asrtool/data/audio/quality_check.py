"""The audio of manifests, measured utterance by utterance, in processes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lhotse import Recording, SupervisionSegment
from lhotse.audio import audio_backend

from asrtool.data.audio.quality import Measures, bandwidth_hz, clipped_fraction, levels_of
from asrtool.data.audio.remote import fetched
from asrtool.data.features.extract import UNREADABLE, why_unreadable
from asrtool.data.manifests.manifest import read_sorted
from asrtool.data.manifests.validator import Entry
from asrtool.data.workers.processes import num_cores, process_map
from asrtool.log import progress

PIECE = 16  # recordings at a time


@dataclass(frozen=True)
class Unreadable:
    """A recording, and why its audio cannot be read."""

    recording: str
    reason: str


Spoken = tuple[Entry, list[Entry]]  # a recording, and its utterances


def measure_manifests(manifests: Path, num_jobs: int = 0) -> Iterator[Measures | Unreadable]:
    """Yield measures of all utterances in order; Unreadable for broken audio.

    Raises AsrtoolError for a missing or half-written manifest.
    """
    recordings, lines = read_sorted(manifests)
    by_id = {entry["id"]: entry for entry in recordings}
    of_recordings = itertools.groupby((entry for entry, _ in lines), lambda entry: str(entry["recording_id"]))
    spoken = [(by_id[id_], list(segments)) for id_, segments in of_recordings]
    pieces = [spoken[first : first + PIECE] for first in range(0, len(spoken), PIECE)]
    with process_map(__name__, min(len(pieces), num_jobs or num_cores())) as map_pieces:
        for found in progress(map_pieces(measure_piece, pieces), "listen to", len(pieces), "piece"):
            yield from found


def measure_piece(piece: list[Spoken]) -> list[Measures | Unreadable]:
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
    for each in segments:
        segment = SupervisionSegment.from_dict(each)
        begin, end = (round(at * recording.sampling_rate) for at in (segment.start, segment.end))
        samples_S = audio[recording.channel_ids.index(segment.channel), begin:end]
        if len(samples_S):
            yield _of(segment, samples_S, recording.sampling_rate)


def _of(segment: SupervisionSegment, samples_S: np.ndarray, rate_hz: int) -> Measures:
    peak_db, speech_db, noise_db = levels_of(samples_S, rate_hz)
    return Measures(
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
