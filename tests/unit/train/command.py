"""Trainings that the command starts, with learners to look for and to kill."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from learners import learners_of, processes_of
from rendezvous import ENDED_S, wait_until

from asrtool.files import LOCK
from asrtool.train.ledger import read_assigned

NUM_LEARNERS = 3
NUM_EPOCHS = 8  # seconds of training: enough to see it run before it has ended
LOOKS_FOR_LEARNERS = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for learners in /proc")
Start = Callable[..., subprocess.Popen[str]]
ASRTOOL = Path(sys.executable).with_name("asrtool")


def command_words(toy: Path, config: Path, folder: Path, *options: str) -> list[str]:
    """Return the command of a training in `folder`/train, slowed by emulated computation."""
    paths = [toy / "features", toy / "tokenizer", folder / "train", "--config", config]
    patient = ("--set", "distributed.timeout_s=100")  # a learner that a busy machine keeps waiting is not lost
    num = () if "--join" in options else ("--num-learners", NUM_LEARNERS)
    words = ["train", *paths, *num, "--compute-ms", 80, *patient, *options]
    return [str(word) for word in words]


def steps(out: Path) -> dict[str, set[str]]:
    """Return the whole lines of each learner's records by file name; no two are equal."""
    files = (out / "learners").glob("*.jsonl")
    return {path.name: {line for line in path.read_text().splitlines(True) if line.endswith("\n")} for path in files}


def wait_for_steps(
    out: Path, num: int, before: dict[str, set[str]] | None = None, num_learners: int = NUM_LEARNERS
) -> None:
    """Until each learner has done so many that were not there `before`."""

    def are_done() -> bool:
        new = [found - (before or {}).get(name, set()) for name, found in steps(out).items()]
        return len(new) == num_learners and min(map(len, new)) >= num

    wait_until(are_done)


def wait_for_the_end(out: Path) -> None:
    """Until no learner is left, and no supervisor; AssertionError where that takes too long."""
    wait_until(lambda: not processes_of(out))


def kill_all(process: subprocess.Popen[str], out: Path) -> None:
    """Kill a training with all its processes at once, and wait until another may begin there.

    One that has lost its memory is not found any more, while a thread of it may still hold the lock.
    """
    for number in (*processes_of(out), process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.wait(ENDED_S)
    wait_for_the_end(out)

    def is_free() -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    with open(out / LOCK) as file:
        wait_until(is_free)


def stop_with_a_batch(out: Path, rank: int) -> int:
    """Stop learner `rank` where it has drawn a batch and not trained it; its process number."""
    process = learners_of(out)[rank]

    def is_stopped() -> bool:
        os.kill(process, signal.SIGSTOP)
        while Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "T":
            time.sleep(0.001)
        if (drawn := read_assigned(out, rank)) and drawn["batches"]:
            return True
        os.kill(process, signal.SIGCONT)
        return False

    wait_until(is_stopped)
    return process
