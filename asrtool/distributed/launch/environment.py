"""The environment variables that torchrun, or the launcher here, sets for a learner. Needs no torch."""

from __future__ import annotations

import os

from asrtool.errors import AsrtoolError

JOINED = "ASRTOOL_JOINED_GENERATION"  # of a training that runs and that this process joins: the token of its generation
LOST = 75  # exit code of a learner that exits because it lost another; EX_TEMPFAIL of sysexits.h


def is_learner() -> bool:
    """Whether this process was started as one of several learners."""
    return "RANK" in os.environ and "MASTER_ADDR" in os.environ


def joined_generation() -> str:
    """The token of the generation that this process joins as a learner; empty where it began with the others."""
    return os.environ.get(JOINED, "")


def is_met() -> bool:
    """Whether the agents of torchrun have met on all hosts before they started learners, at their first generation."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"


def check_environment(num_learners: int) -> None:
    """AsrtoolError if a variable of a learner is missing or out of range, or if `num_learners` is another number."""
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
    """The value of the variable `name`, which is at least `first` and below `end`."""
    text = os.environ.get(name, "")
    if text.isdecimal() and first <= int(text) < end:
        return int(text)
    raise AsrtoolError(
        f"{name} is {text!r} in the environment of a learner, expected {first} to {end - 1}",
        "start learners with torchrun, or unset RANK and MASTER_ADDR to start them here",
    )
