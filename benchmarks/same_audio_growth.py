"""How the search of data.same_audio grows with the index: fingerprints of a set, made into those of many hours.

    python benchmarks/same_audio_growth.py WORK/manifests/train --hours 1 5 20 50

What is added has the cells, spans and octaves of the set, and drawn times and utterances, so that buckets grow as with
more speech and nothing is found.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import numpy as np

from asrtool.corpus.fingerprint import FingerprintIndex, Triplets, find_peaks, find_queries, find_triplets
from asrtool.corpus.same_audio import _samples, _utterances

SEARCHED = 200  # utterances


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifests", type=Path)
    parser.add_argument("--hours", type=float, nargs="+", default=[1, 5, 20, 50])
    options = parser.parse_args()
    utterances = list(_utterances(options.manifests, "train"))
    groups = itertools.groupby(utterances, lambda spoken: spoken.recording.id)
    peaks = [find_peaks(*audio) for _, group in groups for audio in _samples(list(group))]
    real = [find_triplets(*of_one) for of_one in peaks]
    set_hours = sum(spoken.segment.duration for spoken in utterances) / 3600
    searched_hours = sum(spoken.segment.duration for spoken in utterances[:SEARCHED]) / 3600
    print("| hours | MB of index | s of CPU to build | s of CPU to search an hour |\n|---|---|---|---|")
    for hours in options.hours:
        random = np.random.default_rng(0)
        began = time.process_time()
        more = [drawn(real, random) for _ in range(round(hours / set_hours) - 1)]
        index = FingerprintIndex.of([*real, *itertools.chain.from_iterable(more)])
        built_s = time.process_time() - began
        began = time.process_time()
        for of_one in peaks[:SEARCHED]:
            index.alignments(find_queries(*of_one), before=2**30)
        searched_s = time.process_time() - began
        megabytes = (index.begins.nbytes + 5 * index.utterances_H.nbytes) / 1e6
        print(f"| {hours:g} | {megabytes:.0f} | {built_s:.1f} | {searched_s / searched_hours:.1f} |", flush=True)


def drawn(real: list[Triplets], random: np.random.Generator) -> list[Triplets]:
    """As many utterances as `real`, each with triplets of many of these."""
    columns = [np.concatenate([getattr(t, name) for t in real]) for name in ("cells_H", "spans_H", "octaves_H")]
    order = random.permutation(len(columns[0]))
    borders = np.cumsum([len(t) for t in real])[:-1]
    parts = zip(*(np.split(values[order], borders) for values in columns), strict=True)
    return [
        Triplets(cells, random.uniform(0, 10, len(cells)).astype(np.float32), spans, octaves)
        for cells, spans, octaves in parts
    ]


if __name__ == "__main__":
    main()
