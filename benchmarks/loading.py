"""How fast batches are read, by a thread and by processes, and how long training waits for them.

Features are noise, rounded and stored as real ones, in shards that do not fit the cache. A step is a pause, as of a GPU
that has its work, or so much time of Python, as of a thread that launches kernels.

    python benchmarks/loading.py --processes 0 1 2
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from asrtool.data.features.cmvn import Moments, write_cmvn
from asrtool.data.storage.index import Utterance, write_index
from asrtool.data.storage.shard import write_shard
from asrtool.models.acoustic import build_model
from asrtool.settings.data import Features
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.train import Shards as ShardsSettings
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import SourceContext

FEATURES = Features()
BATCH_S = 120
NUM_TOKENS = 40
NUM_FRAMES = 300  # of an utterance, on average


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--shards", type=int, default=32)
    parser.add_argument("--step-ms", type=float, nargs="+", default=[20, 100], help="a training step")
    options = parser.parse_args()
    print("| step | ms | processes | frames/s | waiting | CPU s |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        write_features(Path(folder), options.shards)
        for step_ms, step in itertools.product(options.step_ms, (pause, launch)):
            for num in options.processes:
                row = measure(Path(folder), num, step, step_ms / 1000)
                print(f"| {step.__name__} | {step_ms:g} | {num} | {row} |", flush=True)


def write_features(directory: Path, num_shards: int) -> None:
    """Shards of as many utterances as real ones have; each utterance is a part of the same noise."""
    random = np.random.default_rng(1)
    noise_TF = random.standard_normal((4 * NUM_FRAMES, FEATURES.num_features)).astype(np.float32).cumsum(axis=0) / 16
    utterances: list[Utterance] = []
    for shard in range(num_shards):
        items = []
        for i, num_frames in enumerate(random.integers(50, 2 * NUM_FRAMES - 50, FEATURES.shard_cuts).tolist()):
            name = f"{shard}-{i}"
            utterance = Utterance(name, name, "A", 0.0, num_frames / 100, name, "a", shard, num_frames)
            items.append((utterance, noise_TF[:num_frames]))
        utterances += write_shard(directory, shard, items, FEATURES)
    write_index(directory, utterances)
    write_cmvn(directory, {}, Moments.of(noise_TF))


def pause(step_s: float) -> None:
    time.sleep(step_s)


def launch(step_s: float) -> None:
    begin = time.thread_time()
    while time.thread_time() - begin < step_s:
        sum(range(100))


def measure(directory: Path, num: int, step: Callable[[float], None], step_s: float) -> str:
    """An epoch: frames a second, fraction of the time that a step waits for its batch, CPU time of all processes."""
    model = build_model(
        Model(encoder=Choice.of("encoder", "lstm", num_layers=1, hidden_size=2)), FEATURES.num_features, NUM_TOKENS
    )
    source = Shards(
        SourceContext(
            ShardsSettings(cache_gib=0), directory, FEATURES, lambda text: [2], model, 100 * BATCH_S, 1, None, num
        )
    )
    with closing(source), closing(source.load(source.plan(0, 0, {}), prefetch=1)) as batches:
        next(batches)  # processes have started then
        begin, cpu_s, waited_s, num_frames = time.monotonic(), cpu_seconds(source), 0.0, 0
        while True:
            asked = time.monotonic()
            batch = next(batches, None)
            if batch is None:
                break
            waited_s += time.monotonic() - asked
            num_frames += batch.frames
            step(step_s)
        seconds, cpu_s = time.monotonic() - begin, cpu_seconds(source) - cpu_s
    return f"{num_frames / seconds:,.0f} | {waited_s / seconds:.0%} | {cpu_s:.1f}"


def cpu_seconds(source: Shards) -> float:
    """Of this process and those that read for it."""
    decoders = source.decoders._decoders if source.decoders else []
    stats = [Path(f"/proc/{one.process.pid}/stat").read_text(encoding="ascii") for one in decoders]
    ticks = [sum(map(int, stat.rpartition(")")[2].split()[11:13])) for stat in stats]
    return time.process_time() + sum(ticks) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
