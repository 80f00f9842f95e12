"""How the search of data.same_audio grows with the index: a set, and more hours that are drawn from its peaks.

    python benchmarks/same_audio_growth.py WORK/manifests/train --hours 1 5 20 50 100 200

Utterances of a third of the speakers are searched for. Of the peaks of the others, seconds are drawn, each at a speed
of its own, and joined to utterances: they have the spectra of speech, and what is searched for is not in them. Whether
they are found by chance as often as speech is what the first two lines say: of as many hours, as they are and drawn.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from asrtool.data.duplicates.fingerprint import find_peaks, find_queries, find_triplets
from asrtool.data.duplicates.same_audio import SEARCHED, Fingerprints, _open, _samples, _search, _write
from asrtool.data.duplicates.segments import Utterances
from asrtool.data.manifests.manifest import read_manifests

PIECE_S = 4.0
TOGETHER = 100  # utterances
HEADING = """| index of | hours | MB | s to build | s to search an hour | million matches an hour | candidates an hour |
|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifests", type=Path)
    parser.add_argument("--hours", type=float, nargs="+", default=[1, 5, 20, 50, 100, 200])
    options = parser.parse_args()
    utterances = Utterances.read(options.manifests.parent, [options.manifests.name])
    began = time.process_time()
    peaks = [find_peaks(*audio) for run in utterances.by_recording() for audio in _samples(utterances.sounds(run))]
    peaks_s = time.process_time() - began
    speaker_of = [str(segment.speaker) for segment in read_manifests(options.manifests)[1]]
    speakers = sorted(set(speaker_of))
    searched_for = set(speakers[: len(speakers) // 3])
    parts: dict[bool, list[np.ndarray]] = {True: [], False: []}
    lengths_s: dict[bool, list[float]] = {True: [], False: []}
    for speaker, duration_s, of_one in zip(speaker_of, utterances.duration_s.tolist(), peaks, strict=True):
        parts[speaker in searched_for].append(of_one)
        lengths_s[speaker in searched_for].append(duration_s)
    asked_hours, other_hours = (sum(lengths_s[is_asked]) / 3600 for is_asked in (True, False))
    print(f"to read audio and find peaks: {peaks_s / (asked_hours + other_hours):.2f} s of CPU an hour\n")
    print(HEADING)
    for kind, hours in [("speech", other_hours), *(("drawn", h) for h in (other_hours, *options.hours))]:
        more = [parts[False]] if kind == "speech" else drawn(parts[False], lengths_s[False], hours)
        with tempfile.TemporaryDirectory() as folder:
            megabytes, built_s, *of_search = measure(more, parts[True], Path(folder))
        rest = " | ".join(f"{value / asked_hours:,.3g}" for value in of_search)
        print(f"| {kind} | {hours:.3g} | {megabytes:.0f} | {built_s:.1f} | {rest} |", flush=True)


def drawn(others: Sequence[np.ndarray], lengths_s: Sequence[float], hours: float) -> Iterator[list[np.ndarray]]:
    """Peaks of utterances of so many hours in all, as long as `others`, some at once."""
    random = np.random.default_rng(0)
    begins_s = itertools.accumulate(lengths_s, initial=0.0)
    line_3P = np.concatenate([p + np.array([[s], [0], [0]]) for p, s in zip(others, begins_s, strict=False)], axis=1)
    for _ in range(round(hours * 3600 / np.mean(lengths_s) / TOGETHER)):
        yield [_utterance(line_3P, length_s, random) for length_s in random.choice(lengths_s, TOGETHER)]


def _utterance(line_3P: np.ndarray, length_s: float, random: np.random.Generator) -> np.ndarray:
    """Peaks of as many seconds, each from another place of the line at another speed."""
    pieces = []
    for begin_s in np.arange(0, length_s, PIECE_S):
        octaves, from_s = random.uniform(-0.05, 0.05), random.uniform(0, line_3P[0, -1] - 2 * PIECE_S)
        to_s = from_s + min(PIECE_S, length_s - begin_s) * 2**octaves
        seconds_P, octaves_P, levels_P = line_3P[:, slice(*np.searchsorted(line_3P[0], [from_s, to_s]))]
        pieces.append(np.stack([begin_s + (seconds_P - from_s) / 2**octaves, octaves_P + octaves, levels_P]))
    return np.concatenate(pieces, axis=1).astype(np.float32)


def measure(
    more: Iterable[list[np.ndarray]], asked: list[np.ndarray], folder: Path
) -> tuple[float, float, float, float, float]:
    """Megabytes, CPU seconds to build the index and to search it, millions of matches and candidates in `more`."""
    found = [fingerprints(peaks) for peaks in [*more, asked]]
    num = sum(len(of_some.num_peaks) for of_some in found)
    first = num - len(asked)
    began = time.process_time()
    _write(found, folder)
    built_s = time.process_time() - began
    spans = [range(i, min(i + SEARCHED, num)) for i in range(first, num, SEARCHED)]
    began = time.process_time()
    for span in spans:
        _search(span, folder)
    searched_s = time.process_time() - began
    written = _open(folder)
    index = written.index
    matches = candidates = 0
    for span in spans:
        queries = find_queries(written.peaks(span.start, span.stop))
        matches += int((index.triplets.owners_H[index.matches(queries.keys_H)[1]] < first).sum())
        candidates += sum(alignment.other < first for _, alignment in index.alignments(queries, span.start))
    megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    _open.cache_clear()
    return megabytes, built_s, searched_s, matches / 1e6, candidates


def fingerprints(peaks: list[np.ndarray]) -> Fingerprints:
    return Fingerprints(np.concatenate(peaks, axis=1).T, [of_one.shape[1] for of_one in peaks], find_triplets(peaks))


if __name__ == "__main__":
    main()
