"""Train, being killed over and over; run as a program: FEATURES TOKENIZER CONFIG UNDISTURBED KILLED SEED.

One process imports what is needed and forks a child for every attempt. The first one trains in UNDISTURBED to its end
and says how long that takes; those that follow train in KILLED. Each dies at a random moment of its CPU time,
or, every other one, in the middle of writing a checkpoint. Prints the step each died at.
"""

from __future__ import annotations

import functools
import io
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch._dynamo  # noqa: F401  the optimizers import it when they are first used

from asrtool.config_file import load_config
from asrtool.models import torch_file
from asrtool.train import loop  # noqa: F401  imported once for all children
from asrtool.train.run import train as train_job
from asrtool.train.train import acoustic_job

MAX_ATTEMPTS = 60
MANY_BYTES = 500  # of a tensor


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


def attempt(train: list[Path], out: Path, die: Callable[[], None]) -> tuple[bool, float]:
    """Train in a child that calls `die` first: whether it came to the end, and its CPU seconds."""
    child = os.fork()
    if child == 0:
        die()
        features, tokenizer, config = train
        train_job(acoustic_job(features, tokenizer, out, load_config([config])))
        os._exit(0)
    _, status, usage = os.wait4(child, 0)
    return status == 0, usage.ru_utime + usage.ru_stime


def main() -> None:
    *paths, seed = sys.argv[1:]
    *train, undisturbed, killed = [Path(path) for path in paths]
    random_ = random.Random(int(seed))
    finished, whole_s = attempt(train, undisturbed, lambda: None)
    assert finished
    for number in range(MAX_ATTEMPTS):
        if number % 2 == 0:
            die = functools.partial(die_in_the_middle_of_writing, random_.randint(1, 2))
        else:
            die = functools.partial(die_after, whole_s * random_.uniform(0.1, 0.45))
        finished, _ = attempt(train, killed, die)
        if finished:
            return
        newest = max((killed / "checkpoints").glob("step-*.pt"), default=None)
        print(newest.stem if newest else "before the first checkpoint", flush=True)
    raise AssertionError(f"not finished after {MAX_ATTEMPTS} attempts")


if __name__ == "__main__":
    main()
