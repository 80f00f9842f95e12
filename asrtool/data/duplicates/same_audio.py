"""Find utterances with the same audio in two sets or one, whatever their text.

Three passes over processes: triplets of all utterances, which become one index; a search of it by each; a comparison
of candidates. This process keeps columns of the utterances alone; peaks and triplets are in files.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
from lhotse import Recording
from lhotse.audio import audio_backend
from scipy.signal import resample_poly

from asrtool.data.audio.remote import fetched
from asrtool.data.duplicates.fingerprint import (
    RATE_HZ,
    Triplets,
    find_peaks,
    find_queries,
    find_triplets,
    log_spectrogram,
)
from asrtool.data.duplicates.fingerprint_index import Alignment, FingerprintIndex, write_index
from asrtool.data.duplicates.segments import Runs, Said, Sounds, Utterances
from asrtool.data.duplicates.similarity import likeness, shared_peaks
from asrtool.data.features.extract import UNREADABLE
from asrtool.data.workers.executor import open_executor
from asrtool.files import FULL, disk_full, remove_leftovers
from asrtool.log import progress
from asrtool.settings.data import Features

LEAST_S = 1.0  # what is shorter has too few peaks to be known again
SAME = 0.75  # correlation from which on two utterances are one sound
WHOLE_INDEX_HOURS = 100.0  # of training speech, beyond which it is thinned: some 5 MB an hour
SEARCHED, SEARCHED_S = 64, 192.0  # utterances, and seconds of them, at once: memory is that of what they find
PAIRS = 200  # compared at once by a process
SHARED_PEAKS = 0.4  # fraction from which on a candidate is read again and compared
PEAKS, PEAK_BEGINS = "peaks.float32", "peak_begins.npy"  # files beside the index

Item = TypeVar("Item")


@dataclass(frozen=True)
class SameAudio:
    """Two utterances that are one sound."""

    one: Said
    other: Said
    likeness: float  # correlation of their spectrograms
    speed: float  # of `one`, where that of `other` is 1


def find_same_audio(
    manifests: Path, scored: Sequence[str], trained: Sequence[str], features: Features
) -> list[SameAudio]:
    """Return all pairs in the folders `manifests`/SET.

    `one` is of the later set, or the later utterance of one set. From the sets `trained` on, which come last, fewer
    fingerprints are kept the larger they are, to bound memory: above WHOLE_INDEX_HOURS copies within them may be
    missed. Utterances below LEAST_S or with unreadable audio are skipped. Raises AsrtoolError for a missing or
    corrupt manifest, and if the disk is full.
    """
    utterances = Utterances.read(manifests, [*scored, *trained])
    one_in = math.ceil(utterances.hours(trained) / WHOLE_INDEX_HOURS) or 1
    recordings, spans = utterances.by_recording(), _searched_together(utterances.duration_s)
    with _scratch(manifests) as folder, open_executor(features, __name__) as map_pieces:
        fingerprint = functools.partial(_fingerprint, one_in=dict.fromkeys(trained, one_in))
        fingerprints = map_pieces(fingerprint, map(utterances.sounds, recordings))
        _write(_logged(fingerprints, "fingerprints", len(recordings)), folder)
        search = functools.partial(_search, folder=folder)
        found = list(itertools.chain.from_iterable(_logged(map_pieces(search, spans), "search", len(spans))))
        _open.cache_clear()  # of this process
        likenesses = map_pieces(_compare, _compared_together(found, utterances))
        compared = _logged(likenesses, "comparison", math.ceil(len(found) / PAIRS))
        alike = [(*pair, value) for pair, value in zip(found, itertools.chain(*compared), strict=True) if value >= SAME]
    said = utterances.said({number for i, to, _ in alike for number in (i, to.other)})
    return [SameAudio(said[i], said[to.other], value, 2**to.time_scale) for i, to, value in alike]


@contextmanager
def _scratch(manifests: Path) -> Iterator[Path]:
    """Yield a temporary folder that all workers see; leftovers are removed.

    Its name is never used again: a worker may still hold data of an old one.
    """
    remove_leftovers(manifests)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{os.getpid()}.tmp.same-audio-", dir=manifests) as folder:
            yield Path(folder)
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(manifests, error) from error
        raise


def _logged(results: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    return progress(results, f"same audio: {what}", total=total, unit="part")


def _searched_together(duration_s: np.ndarray) -> Runs:
    """Return runs of utterances of about SEARCHED or SEARCHED_S."""
    return Runs.of(np.cumsum(np.maximum(duration_s, SEARCHED_S / SEARCHED)) // SEARCHED_S)


def _compared_together(
    found: Sequence[tuple[int, Alignment]], utterances: Utterances
) -> Iterator[list[tuple[Sounds, Sounds, Alignment]]]:
    """PAIRS at a time."""
    for begin in range(0, len(found), PAIRS):
        yield [
            (utterances.sounds(range(i, i + 1)), utterances.sounds(range(to.other, to.other + 1)), to)
            for i, to in found[begin : begin + PAIRS]
        ]


@dataclass(frozen=True)
class Fingerprints:
    """Fingerprints of the utterances of one recording."""

    peaks_P3: np.ndarray  # float32: seconds, log2 of frequencies, log of powers
    num_peaks: list[int]  # of each utterance
    triplets: Triplets


def _fingerprint(sounds: Sounds, one_in: dict[str, int]) -> Fingerprints:
    """Return all peaks for the search, and the kept triplets."""
    peaks = [find_peaks(samples_S, rate_hz) for samples_S, rate_hz in _samples(sounds)]
    kept = find_triplets(peaks).thinned(one_in.get(sounds.of_set, 1))
    return Fingerprints(np.concatenate(peaks, axis=1).T, [of_one.shape[1] for of_one in peaks], kept)


def _write(found: Iterable[Fingerprints], folder: Path) -> None:
    """Write what `_open` reads: all peaks, and the index."""
    num_peaks = array("q", [0])

    def triplets(file: BinaryIO) -> Iterator[Triplets]:
        for of_recording in found:
            file.write(of_recording.peaks_P3.tobytes())
            yield of_recording.triplets.renumbered(len(num_peaks) - 1)
            num_peaks.extend(of_recording.num_peaks)

    with open(folder / PEAKS, "wb") as file:
        write_index(triplets(file), folder)
    np.save(folder / PEAK_BEGINS, np.cumsum(num_peaks))


@dataclass(frozen=True)
class Fingerprinted:
    """Files that `_write` wrote; peaks are read on demand, the index is mapped."""

    path: Path
    begins: np.ndarray  # of the peaks of each utterance, and behind the last one
    index: FingerprintIndex

    def peaks(self, first: int, last: int) -> list[np.ndarray]:
        """Return the peaks of utterances `first` to `last`, each float32 (3, P)."""
        begins = self.begins[first : last + 1]
        values = np.fromfile(self.path, np.float32, 3 * int(begins[-1] - begins[0]), offset=12 * int(begins[0]))
        return [of_one_P3.T for of_one_P3 in np.split(values.reshape(-1, 3), begins[1:-1] - begins[0])]


@functools.lru_cache(1)
def _open(folder: Path) -> Fingerprinted:
    return Fingerprinted(folder / PEAKS, np.load(folder / PEAK_BEGINS), FingerprintIndex.load(folder))


def _search(span: range, folder: Path) -> list[tuple[int, Alignment]]:
    """Numbers of the utterances of `span`, with how they lie in earlier ones."""
    found = _open(folder)
    peaks = found.peaks(span.start, span.stop)
    near = []
    for i, to in found.index.alignments(find_queries(peaks), span.start):
        [of_other] = found.peaks(to.other, to.other + 1)
        if shared_peaks(peaks[i - span.start], of_other, to) >= SHARED_PEAKS:
            near.append((i, to))
    return near


def _compare(pairs: Sequence[tuple[Sounds, Sounds, Alignment]]) -> list[float]:
    """Return the similarity of each pair."""
    return [likeness(_spectrogram(one), _spectrogram(other), alignment) for one, other, alignment in pairs]


def _spectrogram(sounds: Sounds) -> np.ndarray:
    """Return the spectrogram of one utterance."""
    [(samples_S, rate_hz)] = _samples(sounds)
    return log_spectrogram(samples_S, rate_hz)


def _samples(sounds: Sounds) -> Iterator[tuple[np.ndarray, int]]:
    """Yield float32 samples of a recording's utterances, and their rate.

    The rate is a multiple of RATE_HZ. Unreadable or too short ones are empty.
    """
    recording, spans = Recording.from_dict({**sounds.recording}), sounds.spans  # it takes the entry apart
    begin_s, end_s = min(span.start_s for span in spans), max(span.end_s for span in spans)
    try:
        with audio_backend("LibsndfileBackend"):
            audio = fetched(recording).load_audio(offset=begin_s, duration=end_s - begin_s)
    except UNREADABLE:  # computing the features will report it
        yield from ((np.zeros(0, dtype=np.float32), RATE_HZ) for _ in spans)
        return
    for span in spans:
        row_S = audio[recording.channel_ids.index(span.channel)]
        begin, end = (round((s - begin_s) * recording.sampling_rate) for s in (span.start_s, span.end_s))
        long_enough = span.duration_s >= LEAST_S
        yield _resampled(row_S[begin : end if long_enough else begin], recording.sampling_rate)


def _resampled(samples_S: np.ndarray, rate_hz: int) -> tuple[np.ndarray, int]:
    if rate_hz % RATE_HZ == 0:
        return samples_S, rate_hz
    common = math.gcd(rate_hz, RATE_HZ)
    return np.asarray(resample_poly(samples_S, RATE_HZ // common, rate_hz // common), dtype=np.float32), RATE_HZ
