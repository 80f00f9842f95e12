"""Start-up, threads, sockets and memory of many learners, and how they stop: a part of `benchmarks/dist.py`.

`asrtool train` with a tiny model and emulated compute, on utterances of noise. It is stopped by SIGTERM in
the middle, and then runs to its end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.data.features.cmvn import Moments, write_cmvn
from asrtool.data.storage.index import Utterance, write_feature_settings, write_index
from asrtool.data.storage.shard import write_shard
from asrtool.lang.tokenizer import train_tokenizer
from asrtool.settings.data import Features
from asrtool.settings.schema import Choice

FEATURES = Features(type=Choice.of("features", "fbank", num_mel_bins=8), cmvn="none", speeds=(1.0,))
NUM_FRAMES = 100  # of an utterance, which is a batch
TEXT = "one two three"
ASRTOOL = (sys.executable, "-c", "from asrtool.cli.main import main; main()")
COMPUTE_MS = 2000
SETTINGS = (
    "model.lstm.num_layers=1", "model.lstm.hidden_size=8", "train.num_epochs=1", "train.batch_s=1",
    "train.save_every_steps=1000000", "train.log_every_steps=1000000", "train.precision=fp32",
)  # fmt: skip
NUM_STEPS = 12  # of each learner, on average
MIDDLE_STEPS = 4  # of each, before what it holds is counted
LIMIT_S = 600


@dataclass(frozen=True)
class Held:
    """What a process holds."""

    threads: int
    sockets: int
    own_bytes: int  # of memory, with its part of what processes share (Pss)


def measure_scale(numbers: list[int]) -> None:
    """Print a table with a row for each number of learners."""
    print("\n| learners | s to start | threads | sockets | MiB | GiB of all | s to stop | s to end |")
    print("|---|---|---|---|---|---|---|---|")
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            write_task(Path(folder), NUM_STEPS * number)
            print(measure(Path(folder), number), flush=True)


def write_task(work: Path, num_batches: int) -> None:
    """Features and a tokenizer, as small as they can be."""
    write_set(work / "features" / "train", num_batches)
    write_set(work / "features" / "dev", 64)
    write_feature_settings(work / "features", FEATURES)
    sentences = work / "sentences.txt"
    sentences.write_text(TEXT + "\n")
    train_tokenizer(sentences, work / "tokenizer", 40)


def write_set(directory: Path, number: int) -> None:
    directory.mkdir(parents=True)
    feats_TF = np.random.default_rng(1).standard_normal((NUM_FRAMES, FEATURES.num_features)).astype(np.float32)
    names = [f"{directory.name}-{i}" for i in range(number)]
    utterances = [Utterance(name, name, "A", 0.0, 1.0, name, TEXT, 0, NUM_FRAMES) for name in names]
    write_index(directory, write_shard(directory, 0, [(utterance, feats_TF) for utterance in utterances], FEATURES))
    write_cmvn(directory, {}, Moments.of(feats_TF))


def measure(work: Path, number: int) -> str:
    """A row: of what a learner holds, the most that one does. RuntimeError when a training does not end well."""
    out = work / "train"
    words = ["train", str(work / "features"), str(work / "tokenizer"), str(out), "--strategy", "adpsgd-random"]
    options = [f"--num-learners={number}", f"--compute-ms={COMPUTE_MS}", *(f"--set={setting}" for setting in SETTINGS)]
    command = [*ASRTOOL, *words, *options]
    began = time.time()
    training = subprocess.Popen(command)
    try:
        wait_for_steps(training, out, number)
        start_s = max(begins(out, rank)[0] for rank in range(number)) - began
        learners = children(training.pid)
        assert len(learners) == number, (len(learners), number)
        held = [count_held(learner) for learner in learners]
        stop_s = stop(training, learners)
    finally:
        training.kill()
    subprocess.run(command, check=True, timeout=LIMIT_S)
    end_s = time.time() - max(begins(out, rank)[-1] for rank in range(number)) - COMPUTE_MS / 1000
    threads, sockets = max(one.threads for one in held), max(one.sockets for one in held)
    own_bytes = [one.own_bytes for one in held]
    return (
        f"| {number} | {start_s:.1f} | {threads} | {sockets} | {max(own_bytes) / 2**20:.0f} "
        f"| {sum(own_bytes) / 2**30:.1f} | {stop_s:.1f} | {end_s:.1f} |"
    )


def wait_for_steps(training: subprocess.Popen[bytes], out: Path, number: int) -> None:
    """Until each learner has made MIDDLE_STEPS steps."""
    limit = time.monotonic() + LIMIT_S
    while any(len(begins(out, rank)) < MIDDLE_STEPS for rank in range(number)):
        if training.poll() is not None or time.monotonic() > limit:
            raise RuntimeError(f"{number} learners: no {MIDDLE_STEPS} steps of each; exit code {training.returncode}")
        time.sleep(0.5)


def stop(training: subprocess.Popen[bytes], learners: list[int]) -> float:
    """Seconds from SIGTERM until all processes are gone."""
    begin = time.monotonic()
    training.send_signal(signal.SIGTERM)
    code = training.wait(LIMIT_S)
    seconds = time.monotonic() - begin
    left = [learner for learner in learners if Path(f"/proc/{learner}").exists()]
    if code != -signal.SIGTERM or left:
        raise RuntimeError(f"stopped with exit code {code}; still running: {left}")
    return seconds


def count_held(process: int) -> Held:
    folder = Path(f"/proc/{process}")
    links = [os.readlink(link) for link in (folder / "fd").iterdir()]
    shared_out = (folder / "smaps_rollup").read_text().split("Pss:")[1]
    return Held(
        threads=len(list((folder / "task").iterdir())),
        sockets=sum(link.startswith("socket:") for link in links),
        own_bytes=int(shared_out.split()[0]) * 1024,
    )


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def begins(out: Path, rank: int) -> list[float]:
    """When each step of learner `rank` began, in seconds since 1970; empty before the first."""
    path = out / "learners" / f"{rank}.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["begin"] for line in lines if line.endswith("\n")]
