"""From the start of `asrtool train` to its first step, for benchmarks/index.py and scale.py.

The command is that of the recipe, on a set of benchmarks/large_set.py. Seconds are wall clock from the start of the
process to the first line of OUT/learners/0.jsonl; CPU seconds are those of all its processes up to there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from large_set import BATCH_S, SEED

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SETTINGS = (
    f"train.batch_s={BATCH_S}", f"train.seed={SEED}", "train.num_threads=1", "train.num_epochs=2",
    "model.lstm.num_layers=1", "model.lstm.hidden_size=16",
)  # fmt: skip


@dataclass(frozen=True)
class Start:
    """Up to the first step, of all processes of the command."""

    wall_s: float
    cpu_s: float
    peak_gib: float  # of the largest process, mapped pages included


def print_starts(work: Path) -> None:
    """The first and the second start, as a table."""
    print("| start | CPU s | s | peak GiB |\n|---|---|---|---|")
    out = work / "train-command"
    shutil.rmtree(out, ignore_errors=True)
    for which in ("first", "second"):
        start = measure_start(work, out)
        print(f"| {which} | {start.cpu_s:.1f} | {start.wall_s:.1f} | {start.peak_gib:.2f} |", flush=True)


def measure_start(work: Path, out: Path) -> Start:
    """Run the command in the folder of a set up to its first step, and end it."""
    command = [
        str(Path(sys.executable).with_name("asrtool")),
        "train",
        str(work / "features"),
        str(work / "tokenizer"),
        str(out),
    ]
    for setting in SETTINGS:
        command += ["--set", setting]
    return until_first_step(command, out)


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
    """Of it and of its children that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_S


def peak_gib(process: int) -> float:
    rows = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmHWM")) / 2**20
