"""Environment variables of a learner, set by torchrun or the launcher here.

Needs no torch.
"""

from __future__ import annotations

import os

from asrtool.errors import AsrtoolError

JOINED = "ASRTOOL_JOINED_GENERATION"  # token of the running generation that this process joins
LOST = 75  # exit code of a learner that exits because it lost another; EX_TEMPFAIL of sysexits.h


def is_learner() -> bool:
    """Return whether this process was started as one of several learners."""
    return "RANK" in os.environ and "MASTER_ADDR" in os.environ


def joined_generation() -> str:
    """Return the token of the generation that this process joins; empty if none."""
    return os.environ.get(JOINED, "")


def is_met() -> bool:
    """Return whether torchrun's agents met on all hosts before the first start."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"


def check_environment(num_learners: int) -> None:
    """Raise AsrtoolError if a variable is missing, out of range, or contradicts."""
    rank, *sizes = (os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if num_learners and rank and sizes[0] and str(num_learners) not in sizes:
        raise AsrtoolError(
            f"distributed.num_learners (--num-learners) is {num_learners}, but RANK={rank} and WORLD_SIZE={sizes[0]} "
            f"in the environment make this process learner {rank} of {sizes[0]}",
            "unset RANK and WORLD_SIZE, which torchrun and some containers set, to start learners here, or set "
            "distributed.num_learners=0 to train as that learner",
        )
    if not is_learner():
        return
    size = _number("WORLD_SIZE", 1, 2**31)
    _number("RANK", 0, size)
    _number("MASTER_PORT", 1, 2**16)


def _number(name: str, first: int, end: int) -> int:
    """Return the value of the variable `name`, from `first` to `end` - 1."""
    text = os.environ.get(name, "")
    if text.isdecimal() and first <= int(text) < end:
        return int(text)
    raise AsrtoolError(
        f"{name} is {text!r} in the environment of a learner, expected {first} to {end - 1}",
        "start learners with torchrun, or unset RANK and MASTER_ADDR to start them here",
    )
