"""Work beside the training yields to it."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from asrtool.train.checkpoints.checkpointer import NICE, Background


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_a_thread_beside_the_training_yields_to_it_and_that_alone() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    found: list[int] = []
    before = priority()
    background = Background("test")
    background.submit(lambda: found.append(priority()))
    background.drain()
    background.close()
    assert found == [min(before + NICE, 19)]
    assert priority() == before


def test_what_a_function_raises_is_raised_by_the_next_look() -> None:
    background = Background("test")
    background.submit([].pop)
    with pytest.raises(IndexError):
        background.drain()
    background.close()
