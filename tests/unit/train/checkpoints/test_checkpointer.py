"""A checkpoint is there when all its parts are; work beside the training yields to it."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed import HashStore

from asrtool.distributed.strategies.strategy import Snapshot
from asrtool.distributed.world import World
from asrtool.train.checkpoints.checkpoint import Saved, State, load_checkpoint
from asrtool.train.checkpoints.checkpointer import NICE, Background, Checkpointer


@pytest.mark.parametrize("ends_before", [False, True])
def test_the_file_that_makes_a_checkpoint_whole_is_there_once_the_parts_of_all_are(
    tmp_path: Path, ends_before: bool
) -> None:
    store, path, model = HashStore(), tmp_path / "step-00000005.pt", torch.nn.Linear(2, 1)
    strategy: Any = SimpleNamespace(take_snapshot=lambda _: Snapshot({}), consensus=nullcontext, ema=None)
    first, second, third = (Checkpointer(tmp_path, {}, World(rank, 3, 3, store)) for rank in range(3))
    for learner in (second, first):
        learner.save(model, strategy, State(step=5), Saved(5, None))
    while not list(tmp_path.glob(".*.step-00000005.pt")):
        time.sleep(0.001)
    time.sleep(0.3)
    assert not path.exists()
    if ends_before:
        first.closing.set()
    else:
        third.save(model, strategy, State(step=5), Saved(5, None))
    first.drain()
    assert path.exists() != ends_before
    assert not list(tmp_path.glob(".*.step-00000005.pt"))
    if not ends_before:
        assert load_checkpoint(path)[1] == State(step=5, mark="-5")
    for learner in (first, second, third):
        learner.close()


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
