"""Train, being killed over and over, or at every change to the files; run in a process that forks every attempt."""

from __future__ import annotations

import functools
import io
import itertools
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from trainings import run_training

from asrtool.models.files import torch_file

MAX_ATTEMPTS = 60
MANY_BYTES = 500  # of a tensor
CHANGES = ("os.rename", "os.remove")
Train = tuple[Path, Path]  # the toy task, configuration


def die_in_the_middle_of_writing(number: int) -> None:
    """Kill this process half-way through the `number`-th checkpoint it writes."""
    num_files = 0

    class Dying(io.FileIO):
        def __init__(self, path: Path, mode: str) -> None:
            nonlocal num_files
            super().__init__(path, mode)
            num_files += 1
            self.dies = num_files == number

        def write(self, data: bytes) -> int:
            if not self.dies or len(data) < MANY_BYTES:
                return super().write(data)
            super().write(memoryview(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

    torch_file.open = Dying


def die_after(seconds: float) -> None:
    """End this process at a moment of its CPU time, without handlers or clean-up, as SIGKILL does."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def attempt(train: Train, out: Path, die: Callable[[], None]) -> tuple[bool, float]:
    """Train in a child that calls `die` first: whether it came to the end, and its CPU seconds."""
    child = os.fork()
    if child == 0:
        try:
            die()
            run_training(*train, out)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    _, status, usage = os.wait4(child, 0)
    return status == 0, usage.ru_utime + usage.ru_stime


def train_killed(train: Train, undisturbed: Path, killed: Path, seed: int) -> list[str]:
    """Where each attempt died: after which checkpoint.

    The first one trains in `undisturbed` to its end, which shows how long that takes; those that follow train in
    `killed`. Each dies at a random moment of its CPU time, or, every other one, in the middle of writing a checkpoint.
    """
    random_ = random.Random(seed)
    finished, whole_s = attempt(train, undisturbed, lambda: None)
    assert finished
    died = []
    for number in range(MAX_ATTEMPTS):
        if number % 2 == 0:
            die = functools.partial(die_in_the_middle_of_writing, random_.randint(1, 2))
        else:
            die = functools.partial(die_after, whole_s * random_.uniform(0.1, 0.45))
        finished, _ = attempt(train, killed, die)
        if finished:
            return died
        newest = max((killed / "checkpoints").glob("step-*.pt"), default=None)
        died.append(newest.stem if newest else "before the first checkpoint")
    raise AssertionError(f"not finished after {MAX_ATTEMPTS} attempts")


def die_before_change(number: int) -> None:
    """Kill this process before the `number`-th file that it renames or removes."""
    left = number

    def count(event: str, _: object) -> None:
        nonlocal left
        if event in CHANGES:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def train_killed_at_changes(train: Train, outs: Path) -> None:
    """The N-th training, in `outs`/N, dies before it renames or removes a file for the N-th time.

    It is then resumed to its end. The last one, for which N is more than there are changes, is not disturbed.
    """
    for number in itertools.count(1):
        out = outs / str(number)
        finished, _ = attempt(train, out, functools.partial(die_before_change, number))
        if finished:
            return
        finished, _ = attempt(train, out, lambda: None)
        assert finished
