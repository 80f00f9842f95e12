"""What torchrun, or the launcher here, tells a learner in its environment. Needs no torch."""

from __future__ import annotations

import os

LOST = 75  # exit code of a learner that ends because it has lost another; EX_TEMPFAIL of sysexits.h


def is_learner() -> bool:
    """Whether this process was started as one of several learners."""
    return "RANK" in os.environ and "MASTER_ADDR" in os.environ
