"""Measure the start of `asrtool train` on a set of the size of Fisher.

    benchmarks/bench.py index [--num 7000000] [--folder DIR]

Seconds are from the command to the end of its first step. The first start builds the columns that learners map, the
second reads them. CPU seconds include all processes. The set is generated once in DIR: lengths, words, speakers and
copies at three speeds as in Fisher, and the features that the first batches need.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from scale_releases import Talk
from trainings import options_of

from asrtool.data.batches import Lengths, plan_epoch
from asrtool.data.features.cmvn import Moments, write_cmvn
from asrtool.data.manifests.manifest import DROPPED, format_drops
from asrtool.data.storage.index import INDEX, SETTINGS, Utterance, format_line, write_feature_settings, write_index
from asrtool.data.storage.index_columns import writing_columns
from asrtool.data.storage.shard import write_shard
from asrtool.data.storage.transcripts import write_transcripts
from asrtool.lang.tokenizer import train_tokenizer
from asrtool.settings.data import Features

FEATURES = Features()
SPEEDS = (1.0, 0.9, 1.1)
A_CALL = 200  # utterances, of two speakers
CORPORA = {"fisher": 0.8, "librispeech": 0.1, "swbd": 0.1}  # of the utterances, in storage order
VOCAB_SIZE = 2000
NUM_DEV = 200
BATCH_S = 120  # of the training that the features are for
SEED = 1  # of that training
NUM_WINDOWS = 2  # of shards whose features are there
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
TRAINING = (
    f"train.batch_s={BATCH_S}", f"train.seed={SEED}", "train.num_threads=1", "train.num_epochs=2",
    "model.lstm.num_layers=1", "model.lstm.hidden_size=16",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=7_000_000, help="utterances, all speeds together")
    parser.add_argument("--folder", type=Path, help="where the set is made once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = options.folder or Path(folder)
        if not (work / "features" / SETTINGS).exists():
            write_set(work, options.num)
        print("| start | CPU s | s | peak GiB |\n|---|---|---|---|")
        out = work / "train"
        shutil.rmtree(out, ignore_errors=True)
        asrtool = str(Path(sys.executable).with_name("asrtool"))
        command = [asrtool, "train", str(work / "features"), str(work / "tokenizer"), str(out), *options_of(TRAINING)]
        for which in ("first", "second"):
            start = until_first_step(command, out)
            print(f"| {which} | {start.cpu_s:.1f} | {start.wall_s:.1f} | {start.peak_gib:.2f} |", flush=True)


def write_set(work: Path, num: int) -> None:
    """Write features of `num` utterances at all speeds, a dev set and a tokenizer."""
    said = [(one.duration_s, one.text) for one in islice(Talk(1, {}), num // len(SPEEDS))]
    sentences = work / "sentences.txt"
    sentences.write_text("\n".join(text for _, text in said[:20_000]) + "\n", encoding="utf-8")
    train_tokenizer(sentences, work / "tokenizer", VOCAB_SIZE)
    train, dev = work / "features" / "train", work / "features" / "dev"
    train.mkdir(parents=True)
    dev.mkdir()
    one = Moments.of(np.random.default_rng(0).standard_normal((1000, FEATURES.num_features)).astype(np.float32))
    num_frames = write_train(train, said)
    (train / DROPPED).write_text(format_drops([]), encoding="utf-8")
    write_cmvn(train, dict.fromkeys(speakers(len(said)), one), one)
    write_read_shards(train, said, num_frames)
    of_dev = list(islice(utterances(said, 1.0, 0), NUM_DEV))
    write_index(dev, write_shard(dev, 0, ((one, noise(one)) for one in of_dev), FEATURES))
    write_transcripts(dev, ((one.id, text) for one, (_, text) in zip(of_dev, said, strict=False)))
    write_cmvn(dev, {}, one)
    write_feature_settings(work / "features", FEATURES)


def utterances(said: Sequence[tuple[float, str]], speed: float, first_shard: int) -> Iterator[Utterance]:
    """Copies of all at one speed."""
    prefix = "" if speed == 1 else f"sp{speed:g}-"
    names, ends = list(CORPORA), np.cumsum([*CORPORA.values()]) * len(said)
    corpora = np.searchsorted(ends[:-1], np.arange(len(said)), side="right").tolist()
    for i, (duration_s, _) in enumerate(said):
        call, side, place = f"fe_03_{i // A_CALL:05d}", "AB"[i % 2], i % A_CALL
        yield Utterance(
            f"{prefix}{call}-{side}-{place:03d}", call, side, 3.0 * place / speed, round(duration_s / speed, 3),
            f"{prefix}{call}-{side}", None, first_shard + i // FEATURES.shard_cuts,
            int(100 * duration_s / speed), names[corpora[i]],
        )  # fmt: skip


def all_utterances(said: Sequence[tuple[float, str]]) -> Iterator[Utterance]:
    """All at one speed, then all at the next, in storage order."""
    for copy, speed in enumerate(SPEEDS):
        yield from utterances(said, speed, copy * -(-len(said) // FEATURES.shard_cuts))


def speakers(num: int) -> list[str]:
    """Return the names of the speakers of all copies."""
    names = [f"fe_03_{call:05d}-{side}" for call in range(-(-num // A_CALL)) for side in "AB"]
    return [f"{'' if speed == 1 else f'sp{speed:g}-'}{name}" for speed in SPEEDS for name in names]


def write_train(directory: Path, said: Sequence[tuple[float, str]]) -> np.ndarray:
    """Write index, texts and their columns; return the frames of each utterance."""
    num_frames = []
    with writing_columns(directory) as columns, open(directory / INDEX, "wb") as index:
        for number, of_shard in itertools.groupby(all_utterances(said), lambda one: one.shard):
            shard = list(of_shard)
            lines = "".join(map(format_line, shard)).encode()
            index.write(lines)
            columns.add(number, shard, lines)
            num_frames += [utterance.num_frames for utterance in shard]
    listed = zip(utterances(said, 1.0, 0), said, strict=True)
    write_transcripts(directory, ((utterance.id, text) for utterance, (_, text) in listed))
    return np.array(num_frames)


def write_read_shards(directory: Path, said: Sequence[tuple[float, str]], num_frames: np.ndarray) -> None:
    """The shards that the first batches of an epoch are from."""
    per_copy, cuts = -(-len(said) // FEATURES.shard_cuts), FEATURES.shard_cuts
    first = np.concatenate([copy * len(said) + np.arange(0, len(said), cuts) for copy in range(len(SPEEDS))])
    max_frames = int(BATCH_S * 1000 / FEATURES.frame_shift_ms)
    plan = plan_epoch(Lengths(num_frames, first), max_frames, SEED, 0)
    batches = itertools.takewhile(lambda batch: batch.window < NUM_WINDOWS, plan)
    rows = np.unique(np.concatenate([batch.indices for batch in batches]))
    for number in np.unique(np.searchsorted(first, rows, side="right") - 1).tolist():
        copy, place = divmod(number, per_copy)
        begin = place * cuts
        of_copy = islice(utterances(said, SPEEDS[copy], copy * per_copy), begin, min(begin + cuts, len(said)))
        write_shard(directory, number, ((one, noise(one)) for one in of_copy), FEATURES)


def noise(utterance: Utterance) -> np.ndarray:
    """Features (T, F)."""
    random = np.random.default_rng(utterance.num_frames)
    return random.standard_normal((utterance.num_frames, FEATURES.num_features)).astype(np.float32)


@dataclass(frozen=True)
class Start:
    """Up to the first step, of all processes of the command."""

    wall_s: float
    cpu_s: float
    peak_gib: float  # of the largest process, mapped pages included


def until_first_step(command: list[str], out: Path) -> Start:
    """Run a command that trains in the folder `out` up to its first step, and end it."""
    shutil.rmtree(out / "learners", ignore_errors=True)  # of a start before
    with (out.parent / f"{out.name}.log").open("a") as log:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        first = out / "learners" / "0.jsonl"
        while not (first.exists() and first.stat().st_size):
            assert process.poll() is None, f"{command} ended before its first step, see {log.name}"
            time.sleep(0.02)
        wall_s = time.monotonic() - begin
        members = of_session(process.pid)
        return Start(wall_s, sum(map(cpu_s, members)), max(map(peak_gib, members)))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def of_session(leader: int) -> list[int]:
    """The processes of a session, its leader among them."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if session_of(path) == leader]


def session_of(path: Path) -> int:
    try:
        return os.getsid(int(path.name))
    except ProcessLookupError:
        return -1


def cpu_s(process: int) -> float:
    """Return the CPU seconds of a process and of its ended child processes."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_S


def peak_gib(process: int) -> float:
    rows = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmHWM")) / 2**20


if __name__ == "__main__":
    main()
