"""Find utterances with the same audio in one or two sets; texts may differ.

Three passes over processes: triplets of all utterances, which become one index; a search of it by each; a comparison
of candidates. This process keeps columns of the utterances alone; peaks and triplets are in files.

Letters in names: S samples, T frames, F bins, P peaks.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import tempfile
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from lhotse import Recording
from lhotse.audio import audio_backend
from scipy.signal import resample_poly

from asrtool.data.audio.remote import fetched
from asrtool.data.duplicates.fingerprint import (
    RATE_HZ,
    Alignment,
    Triplets,
    find_alignments,
    find_peaks,
    find_queries,
    find_triplets,
    load_index,
    log_spectrogram,
    shared_peaks,
    similarity,
    write_index,
)
from asrtool.data.features.extract import UNREADABLE
from asrtool.data.manifests.manifest import parse_line, read_again, read_batches
from asrtool.data.manifests.validator import Entry
from asrtool.data.workers.executor import open_executor
from asrtool.files import FULL, disk_full, remove_leftovers
from asrtool.log import progress
from asrtool.settings.data import Features

MIN_S = 1.0  # shorter utterances have too few peaks
SAME = 0.75  # correlation from which on two utterances are one sound
WHOLE_INDEX_HOURS = 100.0  # a longer training set is thinned: its index takes some 5 MB an hour
SEARCHED, SEARCHED_S = 64, 192.0  # utterances and seconds in one search; memory grows with their matches
PAIRS = 200  # compared at once by a process
SHARED_PEAKS = 0.4  # fraction from which on a candidate is read again and compared
PEAKS, PEAK_BEGINS = "peaks.float32", "peak_begins.npy"  # files beside the index

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class UtteranceText:
    """Text and origin of an utterance."""

    set_name: str
    id: str
    text: str
    corpus: str


@dataclass(frozen=True)
class SameAudio:
    """Two utterances that are one sound."""

    one: UtteranceText
    other: UtteranceText
    similarity: float  # correlation of their spectrograms
    speed: float  # speed of `one` relative to `other`


def find_same_audio(
    manifests: Path, scored: Sequence[str], trained: Sequence[str], features: Features
) -> list[SameAudio]:
    """Return all pairs in the folders `manifests`/SET.

    `one` is of the later set, or the later utterance of one set. From the sets `trained` on, which come last, fewer
    fingerprints are kept the larger they are, to bound memory: above WHOLE_INDEX_HOURS copies within them may be
    missed. Utterances below MIN_S or with unreadable audio are skipped. Raises AsrtoolError for a missing or
    corrupt manifest, and if the disk is full.
    """
    utterances = Utterances.read(manifests, [*scored, *trained])
    first_trained = utterances.begins[len(scored)]
    one_in = math.ceil(utterances.duration_s[first_trained:].sum() / 3600 / WHOLE_INDEX_HOURS) or 1
    least_s = SEARCHED_S / SEARCHED  # so that a span has about SEARCHED utterances or SEARCHED_S
    recordings = runs(utterances.recording)
    spans = runs(np.cumsum(np.maximum(utterances.duration_s, least_s)) // SEARCHED_S)
    with _scratch(manifests) as folder, open_executor(features, __name__) as map_pieces:
        fingerprint = functools.partial(_fingerprint, first_trained=first_trained, one_in=one_in)
        fingerprints = map_pieces(fingerprint, map(utterances.sounds, recordings))
        _write(_logged(fingerprints, "fingerprints", len(recordings)), folder)
        search = functools.partial(_search, folder=folder)
        found = list(itertools.chain.from_iterable(_logged(map_pieces(search, spans), "search", len(spans))))
        _open.cache_clear()  # of this process
        similarities = _logged(map_pieces(_compare, _pairs(found, utterances)), "comparison", -(-len(found) // PAIRS))
        values = list(itertools.chain.from_iterable(similarities))
    alike = [(i, to, value) for (i, to), value in zip(found, values, strict=True) if value >= SAME]
    texts = utterances.texts({number for i, to, _ in alike for number in (i, to.other)})
    return [SameAudio(texts[i], texts[to.other], value, 2**to.time_scale) for i, to, value in alike]


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


@dataclass(frozen=True, slots=True)
class Sounds:
    """Consecutive utterances of one recording, as sent to processes."""

    first: int  # number of the first one
    recording: Entry
    channels: list[int]
    starts_s: list[float]
    durations_s: list[float]

    def samples(self) -> Iterator[tuple[np.ndarray, int]]:
        """Yield float32 samples of each utterance, and their rate, a multiple of RATE_HZ.

        Unreadable or too short ones are empty.
        """
        recording = Recording.from_dict({**self.recording})  # from_dict changes its argument
        ends_s = [round(start_s + s, 8) for start_s, s in zip(self.starts_s, self.durations_s, strict=True)]
        begin_s = min(self.starts_s)
        try:
            with audio_backend("LibsndfileBackend"):
                audio = fetched(recording).load_audio(offset=begin_s, duration=max(ends_s) - begin_s)
        except UNREADABLE:  # computing the features will report it
            yield from [(np.zeros(0, dtype=np.float32), RATE_HZ)] * len(ends_s)
            return
        rate_hz = recording.sampling_rate
        for channel, start_s, end_s, s in zip(self.channels, self.starts_s, ends_s, self.durations_s, strict=True):
            begin, end = (round((at - begin_s) * rate_hz) for at in (start_s, end_s))
            row_S = audio[recording.channel_ids.index(channel)]
            yield _resampled(row_S[begin : end if s >= MIN_S else begin], rate_hz)


def _resampled(samples_S: np.ndarray, rate_hz: int) -> tuple[np.ndarray, int]:
    if rate_hz % RATE_HZ == 0:
        return samples_S, rate_hz
    common = math.gcd(rate_hz, RATE_HZ)
    return np.asarray(resample_poly(samples_S, RATE_HZ // common, rate_hz // common), dtype=np.float32), RATE_HZ


@dataclass(frozen=True)
class Utterances:
    """Utterances of sets in manifest order, by number; 24 bytes each."""

    manifests: Path
    sets: Sequence[str]
    begins: list[int]  # number of the first utterance of each set, and of all utterances
    recordings: list[Entry]  # recordings of all sets
    recording: np.ndarray  # int32, index in `recordings`
    channel: np.ndarray  # int32
    start_s: np.ndarray  # float64
    duration_s: np.ndarray  # float64

    @classmethod
    def read(cls, manifests: Path, sets: Sequence[str]) -> Utterances:
        """Read `manifests`/SET line by line.

        Raises AsrtoolError for a missing, half-written or corrupt one.
        """
        recordings: list[Entry] = []
        begins = [0]
        recording, channel, start_s, duration_s = array("i"), array("i"), array("d"), array("d")
        for name in sets:
            entries, batches = read_batches(manifests / name)
            places = {entry["id"]: place for place, entry in enumerate(entries, len(recordings))}
            recordings += entries
            for entry in itertools.chain.from_iterable(batches):
                recording.append(places[entry["recording_id"]])
                channel.append(entry["channel"])
                start_s.append(entry["start"])
                duration_s.append(entry["duration"])
            begins.append(len(recording))
        columns = (np.asarray(column) for column in (recording, channel, start_s, duration_s))
        return cls(manifests, sets, begins, recordings, *columns)

    def sounds(self, numbers: range) -> Sounds:
        """Return the audio positions of utterances of one recording."""
        rows = slice(numbers.start, numbers.stop)
        columns = (column[rows].tolist() for column in (self.channel, self.start_s, self.duration_s))
        return Sounds(numbers.start, self.recordings[self.recording[numbers.start]], *columns)

    def texts(self, numbers: Collection[int]) -> dict[int, UtteranceText]:
        """Read texts of utterances by number from the manifests."""
        found: dict[int, UtteranceText] = {}
        for name, (begin, end) in zip(self.sets, itertools.pairwise(self.begins), strict=True):
            wanted = set(numbers).intersection(range(begin, end))
            for number, line in enumerate(read_again(self.manifests / name) if wanted else (), begin):
                if number in wanted:
                    entry = parse_line(line)
                    corpus = (entry.get("custom") or {}).get("corpus", "")
                    found[number] = UtteranceText(name, entry["id"], entry.get("text") or "", corpus)
        return found


def runs(values: np.ndarray) -> list[range]:
    """Return positions of runs of equal values, which are not below 0."""
    edges = np.flatnonzero(np.diff(values, prepend=-1, append=-1)).tolist()
    return list(itertools.starmap(range, itertools.pairwise(edges)))


def _fingerprint(sounds: Sounds, first_trained: int, one_in: int) -> tuple[list[np.ndarray], Triplets]:
    """Return the peaks (3, P) of each utterance, and triplets for the index."""
    peaks = [find_peaks(samples_S, rate_hz) for samples_S, rate_hz in sounds.samples()]
    triplets = find_triplets(peaks, sounds.first)
    return peaks, triplets.thinned(one_in) if sounds.first >= first_trained else triplets


def _write(fingerprints: Iterable[tuple[list[np.ndarray], Triplets]], folder: Path) -> None:
    """Write what `_open` reads: all peaks, and the index."""
    parts, num_peaks = [], array("q", [0])
    with open(folder / PEAKS, "wb") as file:
        for peaks, triplets in fingerprints:
            parts.append(triplets)
            for peaks_3P in peaks:
                file.write(peaks_3P.T.tobytes())
                num_peaks.append(peaks_3P.shape[1])
    write_index(parts, folder)
    np.save(folder / PEAK_BEGINS, np.cumsum(num_peaks))


@dataclass(frozen=True)
class Fingerprinted:
    """Files that `_write` wrote; peaks are read on demand, the index is mapped."""

    path: Path
    begins: np.ndarray  # first peak of each utterance, and the end of the last
    index: Triplets

    def peaks(self, number: int) -> np.ndarray:
        """Return the peaks of an utterance, float32 (3, P)."""
        begin, end = self.begins[number : number + 2].tolist()
        return np.fromfile(self.path, np.float32, 3 * (end - begin), offset=12 * begin).reshape(-1, 3).T


@functools.lru_cache(1)
def _open(folder: Path) -> Fingerprinted:
    return Fingerprinted(folder / PEAKS, np.load(folder / PEAK_BEGINS), load_index(folder))


def _search(span: range, folder: Path) -> list[tuple[int, Alignment]]:
    """Return utterance numbers of `span`, with their alignments to earlier ones."""
    found = _open(folder)
    peaks = {number: found.peaks(number) for number in span}
    return [
        (i, to)
        for i, to in find_alignments(found.index, find_queries(list(peaks.values())), span.start)
        if shared_peaks(peaks[i], found.peaks(to.other), to) >= SHARED_PEAKS
    ]


def _pairs(
    found: Sequence[tuple[int, Alignment]], utterances: Utterances
) -> Iterator[list[tuple[Sounds, Sounds, Alignment]]]:
    """Yield the sounds of candidates, PAIRS at a time."""
    for begin in range(0, len(found), PAIRS):
        yield [
            (utterances.sounds(range(i, i + 1)), utterances.sounds(range(to.other, to.other + 1)), to)
            for i, to in found[begin : begin + PAIRS]
        ]


def _compare(pairs: Sequence[tuple[Sounds, Sounds, Alignment]]) -> list[float]:
    """Return the similarity of each pair."""
    return [
        similarity(log_spectrogram(*next(one.samples())), log_spectrogram(*next(other.samples())), alignment)
        for one, other, alignment in pairs
    ]
