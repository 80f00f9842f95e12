"""Train, being killed at every change to the files; run as a program: FEATURES TOKENIZER CONFIG OUT.

The N-th training, in OUT/N, dies before it renames or removes a file for the N-th time, and is then resumed to its
end. The last one, for which N is more than there are changes, is not disturbed.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
import sys
from pathlib import Path

from train_killed import attempt

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


def main() -> None:
    *train, outs = map(Path, sys.argv[1:])
    for number in itertools.count(1):
        out = outs / str(number)
        finished, _ = attempt(train, out, functools.partial(die_before_change, number))
        if finished:
            return
        finished, _ = attempt(train, out, lambda: None)
        assert finished


if __name__ == "__main__":
    main()
