"""Train, being killed at every change to the files; run in a process of its own, which forks a child for each."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import sys
from pathlib import Path

from train_killed import Train, attempt

CHANGES = ("os.rename", "os.remove")


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
