"""What each features.storage takes: bytes, CPU time to write, and to read by one learner and by eight.

    python benchmarks/storage.py WORK/manifests --config FILE

A learner reads its share of an epoch of batches, as training does, of files that the system has in memory; where
features are computed on reading, one process does at least.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from asrtool.data.batches import Lengths, load_batches, plan_epoch
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.storage.index import read_index
from asrtool.data.storage.reader import FeatureReader, reads_audio
from asrtool.data.workers.loader import PRELOADED, Decoders
from asrtool.data.workers.processes import process_context
from asrtool.settings.data import Features
from asrtool.settings.toml_files import load_config

BATCH_FRAMES = 12_000
STORAGES = ("lilcom", "shar", "flac")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifests", type=Path)
    parser.add_argument("--config", type=Path, required=True, help="the settings of features")
    parser.add_argument("--learners", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--processes", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--times", type=int, default=2)
    options = parser.parse_args()
    settings = dataclasses.replace(load_config([options.config]).features, num_jobs=1)
    with tempfile.TemporaryDirectory() as folder:
        compute_features(options.manifests, Path(folder) / "warm", settings)  # what is loaded once
        print("| storage | MB an hour of speech | files | CPU s to write an hour at all speeds |")
        print("|---|---|---|---|")
        for storage in STORAGES:
            row = write(options.manifests, Path(folder) / storage, dataclasses.replace(settings, storage=storage))
            print(row, flush=True)
        print("\n| storage | learners | processes each | frames/s | CPU s an hour at one speed |")
        print("|---|---|---|---|---|")
        for learners in options.learners:
            for processes in options.processes:
                for storage in STORAGES * options.times:
                    row = read(Path(folder) / storage / "train", settings.cmvn, learners, processes)
                    print(f"| {storage} | {learners} | {processes} | {row} |", flush=True)


def write(manifests: Path, out: Path, settings: Features) -> str:
    before = time.process_time()
    compute_features(manifests, out, settings)
    cpu_s = time.process_time() - before
    sets = [path for path in out.iterdir() if path.is_dir()]
    hours = sum(one.duration_s for path in sets for one in read_index(path) if not one.id.startswith("sp")) / 3600
    files = [path for path in (out / "train").iterdir() if path.is_file()]
    index = read_index(out / "train")
    plain_hours = sum(one.duration_s for one in index if not one.id.startswith("sp")) / 3600
    size = sum(path.stat().st_size for path in files)
    return f"| {settings.storage} | {size / 1e6 / plain_hours:.1f} | {len(files)} | {cpu_s / hours:.2f} |"


def read(directory: Path, cmvn: str, learners: int, processes: int) -> str:
    """By so many learners side by side: frames a second, CPU s an hour."""
    context = process_context(PRELOADED)
    barrier, results = context.Barrier(learners), context.SimpleQueue()
    share = [
        context.Process(target=learn, args=(directory, cmvn, k, learners, processes, barrier, results))
        for k in range(learners)
    ]
    for process in share:
        process.start()
    found = [results.get() for _ in share]
    for process in share:
        process.join()
    frames, begins, ends, cpu_s = zip(*found, strict=True)
    seconds, hours = max(ends) - min(begins), sum(frames) / 360_000
    return f"{sum(frames) / seconds:,.0f} | {sum(cpu_s) / hours:.2f}"


def learn(directory: Path, cmvn: str, k: int, learners: int, processes: int, barrier: Barrier, results: Any) -> None:
    index = read_index(directory)
    num = processes or int(reads_audio(directory))
    decoders = Decoders(num, functools.partial(FeatureReader, directory, cmvn, 0, index)) if num else None
    reader = FeatureReader(directory, cmvn, 0, index, decoders)
    plan = list(plan_epoch(Lengths.of(index), BATCH_FRAMES, 0, 0))[k::learners]
    reader.read_several([0] * max(1, num))  # processes have started then
    barrier.wait()
    begin, cpu_s, frames = time.monotonic(), cpu_seconds(decoders), 0
    for batch in load_batches(reader, plan, prefetch=1):
        frames += int(batch.feat_lens_N.sum())
    results.put((frames, begin, time.monotonic(), cpu_seconds(decoders) - cpu_s))
    if decoders:
        decoders.close()


def cpu_seconds(decoders: Decoders | None) -> float:
    """Of this process and those that read for it."""
    stats = [f"/proc/{one.process.pid}/stat" for one in (decoders._decoders if decoders else [])]
    ticks = [sum(map(int, Path(stat).read_text(encoding="ascii").rpartition(")")[2].split()[11:13])) for stat in stats]
    return time.process_time() + sum(ticks) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
