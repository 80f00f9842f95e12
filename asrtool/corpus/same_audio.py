"""Utterances that are one sound, in two sets or within one, whatever their text says.

Candidates come of fingerprints, and are then compared. Three passes, each of which is shared among processes: triplets
of all utterances, which become one index; a search of it by each; a comparison of what was found.
"""

from __future__ import annotations

import functools
import itertools
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from lhotse import Recording, SupervisionSegment
from lhotse.audio import audio_backend
from scipy.signal import resample_poly

from asrtool.corpus.executor import open_executor
from asrtool.corpus.extract import UNREADABLE
from asrtool.corpus.fingerprint import (
    RATE_HZ,
    Triplets,
    find_peaks,
    find_queries,
    find_triplets,
    joined,
    log_spectrogram,
)
from asrtool.corpus.fingerprint_index import Alignment, FingerprintIndex
from asrtool.corpus.likeness import likeness, shared_peaks
from asrtool.corpus.manifest import read_manifests
from asrtool.corpus.remote_audio import fetched
from asrtool.corpus.settings import Features
from asrtool.log import progress

LEAST_S = 1.0  # what is shorter has too few peaks to be known again
SAME = 0.75  # correlation from which on two utterances are one sound
WHOLE_INDEX_HOURS = 100.0  # of training speech, beyond which it is thinned: some 6 MB an hour
SEARCHED = 128  # utterances at once
PAIRS = 200  # compared at once by a process
SHARED_PEAKS = 0.4  # fraction from which on a candidate is read again and compared
PEAKS, PEAK_BEGINS = "peaks.float32", "peak_begins.npy"  # files beside the index

Item = TypeVar("Item")


@dataclass(frozen=True)
class Spoken:
    """An utterance of a set."""

    of_set: str
    recording: Recording
    segment: SupervisionSegment


@dataclass(frozen=True)
class SameAudio:
    """Two utterances that are one sound."""

    one: Spoken
    other: Spoken
    likeness: float  # correlation of their spectrograms
    speed: float  # of `one`, where that of `other` is 1


def find_same_audio(manifests: Path, sets: Sequence[str], features: Features) -> list[SameAudio]:
    """All pairs in the folders `manifests`/SET; `one` is of the later set, or the later utterance of one set.

    Of the last set, to train on, fewer fingerprints are kept the larger it is, so that memory is bounded: of more than
    WHOLE_INDEX_HOURS, altered copies within it may be missed. Utterances of less than LEAST_S are not looked at, nor
    are those whose audio cannot be read. Raises AsrtoolError for a missing or corrupt manifest.
    """
    utterances = [spoken for name in sets for spoken in _utterances(manifests / name, name)]
    train_hours = sum(s.segment.duration for s in utterances if s.of_set == sets[-1]) / 3600
    one_in = {sets[-1]: math.ceil(train_hours / WHOLE_INDEX_HOURS) or 1}
    recordings = [list(group) for _, group in itertools.groupby(utterances, lambda s: (s.of_set, s.recording.id))]
    spans = [(i, min(i + SEARCHED, len(utterances))) for i in range(0, len(utterances), SEARCHED)]
    shared = None if features.executor == "local" else manifests  # a folder that all workers see
    with (
        tempfile.TemporaryDirectory(prefix=".same-audio-", dir=shared) as folder,
        open_executor(features, __name__) as map_pieces,
    ):
        fingerprint = functools.partial(_fingerprint, one_in=one_in)
        found = _logged(map_pieces(fingerprint, recordings), "fingerprints", len(recordings))
        _write_index(found, Path(folder))
        search = functools.partial(_search, folder=Path(folder))
        aligned = _logged(map_pieces(search, spans), "search", len(spans))
        pairs = [(utterances[i], utterances[to.other], to) for i, to in itertools.chain.from_iterable(aligned)]
        chunks = [pairs[i : i + PAIRS] for i in range(0, len(pairs), PAIRS)]
        return list(itertools.chain.from_iterable(_logged(map_pieces(_compare, chunks), "comparison", len(chunks))))


def _logged(results: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    return progress(results, f"same audio: {what}", total=total, unit="part")


def _utterances(folder: Path, name: str) -> Iterator[Spoken]:
    recordings, segments = read_manifests(folder)
    by_id = {recording.id: recording for recording in recordings}
    yield from (Spoken(name, by_id[segment.recording_id], segment) for segment in segments)


@dataclass(frozen=True)
class Fingerprints:
    """Of the utterances of one recording, one behind the other."""

    peaks_P3: np.ndarray  # float32: seconds, log2 of frequencies, log of powers
    num_peaks: list[int]  # of each utterance
    triplets: Triplets


def _fingerprint(utterances: Sequence[Spoken], one_in: dict[str, int]) -> Fingerprints:
    """Of all peaks, for the search, and of the triplets that are kept."""
    peaks = [find_peaks(samples_S, rate_hz) for samples_S, rate_hz in _samples(utterances)]
    kept = find_triplets(peaks).thinned(one_in.get(utterances[0].of_set, 1))
    return Fingerprints(np.concatenate(peaks, axis=1).T, [of_one.shape[1] for of_one in peaks], kept)


def _write_index(found: Iterable[Fingerprints], folder: Path) -> None:
    """Write what `_open` reads: peaks as they come, which are not held in memory, and the index."""
    kept, num_peaks = [], [0]
    with open(folder / PEAKS, "wb") as file:
        for of_recording in found:
            file.write(of_recording.peaks_P3.tobytes())
            kept.append(of_recording.triplets.renumbered(len(num_peaks) - 1))
            num_peaks += of_recording.num_peaks
    np.save(folder / PEAK_BEGINS, np.cumsum(num_peaks))
    triplets = joined(kept)
    kept.clear()  # what is in memory twice is a third of what the index of a large set takes
    FingerprintIndex.of(triplets).save(folder)


def _search(span: tuple[int, int], folder: Path) -> list[tuple[int, Alignment]]:
    """Numbers of the utterances from the first to before the last of `span`, with how they lie in earlier ones."""
    index, peaks = _open(folder)
    queries = find_queries([peaks(i) for i in range(*span)])
    return [
        (i, alignment)
        for i, alignment in index.alignments(queries, span[0])
        if shared_peaks(peaks(i), peaks(alignment.other), alignment) >= SHARED_PEAKS
    ]


def _compare(pairs: Sequence[tuple[Spoken, Spoken, Alignment]]) -> list[SameAudio]:
    """Those that are one sound."""
    found = []
    for one, other, alignment in pairs:
        spectrograms = [log_spectrogram(*next(iter(_samples([spoken])))) for spoken in (one, other)]
        alike = likeness(spectrograms[0], spectrograms[1], alignment)
        if alike >= SAME:
            found.append(SameAudio(one, other, alike, 2**alignment.time_scale))
    return found


@functools.lru_cache(1)
def _open(folder: Path) -> tuple[FingerprintIndex, Callable[[int], np.ndarray]]:
    """The index, and a function from the number of an utterance to its peaks, float32 (3, P)."""
    begins = np.load(folder / PEAK_BEGINS)
    peaks_P3 = np.zeros((0, 3), np.float32)
    if begins[-1]:
        peaks_P3 = np.memmap(folder / PEAKS, np.float32, "r").view(np.ndarray).reshape(-1, 3)
    return FingerprintIndex.load(folder), lambda i: peaks_P3[begins[i] : begins[i + 1]].T


def _samples(utterances: Sequence[Spoken]) -> Iterator[tuple[np.ndarray, int]]:
    """Float32 samples of utterances of one recording and their rate, a multiple of RATE_HZ.

    None of what cannot be read or is too short.
    """
    recording = utterances[0].recording
    begin_s = min(spoken.segment.start for spoken in utterances)
    end_s = max(spoken.segment.end for spoken in utterances)
    try:
        with audio_backend("LibsndfileBackend"):
            audio = fetched(recording).load_audio(offset=begin_s, duration=end_s - begin_s)
    except UNREADABLE:  # computing the features will report it
        yield from ((np.zeros(0, dtype=np.float32), RATE_HZ) for _ in utterances)
        return
    for spoken in utterances:
        segment = spoken.segment
        row_S = audio[recording.channel_ids.index(segment.channel)]
        begin, end = (round((s - begin_s) * recording.sampling_rate) for s in (segment.start, segment.end))
        long_enough = segment.duration >= LEAST_S
        yield _resampled(row_S[begin : end if long_enough else begin], recording.sampling_rate)


def _resampled(samples_S: np.ndarray, rate_hz: int) -> tuple[np.ndarray, int]:
    if rate_hz % RATE_HZ == 0:
        return samples_S, rate_hz
    common = math.gcd(rate_hz, RATE_HZ)
    return np.asarray(resample_poly(samples_S, RATE_HZ // common, rate_hz // common), dtype=np.float32), RATE_HZ
