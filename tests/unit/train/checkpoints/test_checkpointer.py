"""A checkpoint is there when all its parts are; work beside the training yields to it."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import HashStore

from asrtool.distributed.world import World
from asrtool.train.checkpoints.checkpoint import Saved, State, load_checkpoint
from asrtool.train.checkpoints.checkpointer import NICE, Background, Checkpointer

PART: dict[str, Any] = {"mark": "run-5", "keeper": 0, "learner": {}, "shared": {}}


@pytest.mark.parametrize("ends_before", [False, True])
def test_the_file_that_makes_a_checkpoint_whole_is_there_once_the_parts_of_all_are(
    tmp_path: Path, ends_before: bool
) -> None:
    store, path = HashStore(), tmp_path / "step-00000005.pt"
    checkpointer = Checkpointer(tmp_path, {}, World(0, 3, 3, store))
    state = State(step=5, mark=PART["mark"])
    writes = threading.Thread(
        target=checkpointer._write, args=({"w": torch.ones(3)}, PART, state, [Saved(5, None)], [], None)
    )
    store.add(f"parts/{state.mark}", 1)  # one of the two others
    writes.start()
    while writes.is_alive() and not list(tmp_path.iterdir()):
        time.sleep(0.001)
    writes.join(0.3)
    assert not path.exists()
    if ends_before:
        checkpointer.closing.set()
    else:
        store.add(f"parts/{state.mark}", 1)
    writes.join(60)
    assert not writes.is_alive()
    assert list(tmp_path.iterdir()) == ([] if ends_before else [path])
    if not ends_before:
        assert load_checkpoint(path)[1] == state
    checkpointer.close()


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
