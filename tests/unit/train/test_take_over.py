"""Once the first learner is lost the next one makes the checkpoints, and ends what the first one has left."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.distributed import HashStore

from asrtool.distributed.world import World
from asrtool.train.assembly import Assembly
from asrtool.train.checkpoint import Saved, State, save_checkpoint
from asrtool.train.settings import Optimisation
from asrtool.train.snapshots import NONE, Snapshots


def assembly_of(directory: Path, losses: list[tuple[int, float]]) -> Any:
    """One that evaluates by the first weight, and notes of which step that was in `losses`."""
    assembly: Any = object.__new__(Assembly)
    assembly.out, assembly.trained, assembly.settings = directory.parent, {}, Optimisation(keep_last=9)
    assembly.checkpointer, assembly.twin = SimpleNamespace(directory=directory), nn.Linear(1, 1, bias=False)
    assembly.evaluate = lambda model: model.weight.item()

    def report_dev(loss: float, state: State) -> float:
        losses.append((state.step, loss))
        return loss

    assembly.reports = SimpleNamespace(report_dev=report_dev)
    return assembly


def test_what_the_one_before_has_not_evaluated_is_evaluated_and_its_cuts_are_closed(tmp_path: Path) -> None:
    directory, losses = tmp_path / "checkpoints", list[tuple[int, float]]()
    for step in (3, 6):
        saved, left = [Saved(one, None) for one in (3, 6) if one <= step], [3, 6][: step // 3]
        state = State(step=step, saved=saved, unevaluated=left)
        save_checkpoint(directory, {}, {"weight": torch.full((1, 1), step / 2)}, {}, state)
    snapshots: Any = object.__new__(Snapshots)
    snapshots.checkpointer, snapshots._begin = SimpleNamespace(directory=directory), State()
    snapshots.world = World(1, 3, store=HashStore())
    snapshots.assembler = SimpleNamespace(submit=lambda work: work())
    snapshots._assemble = lambda: assembly_of(directory, losses)
    snapshots.world.store.set("cut/2", "6")
    assert snapshots.lead(3).step == 6
    assert losses == [(3, 1.5), (6, 3.0)]
    assert snapshots.assembly.unevaluated == []
    assert snapshots.assembly.saved == [Saved(3, 1.5), Saved(6, 3.0)]
    keys = [f"cut/{number}" for number in (1, 2, 3)]
    assert snapshots.world.store.check(keys)  # whose part is of one that was not made waits for it no more
    assert [int(snapshots.world.store.get(key)) for key in keys] == [NONE, 6, NONE]


def test_without_a_checkpoint_the_next_one_begins_where_all_began(tmp_path: Path) -> None:
    snapshots: Any = object.__new__(Snapshots)
    snapshots.checkpointer = SimpleNamespace(directory=tmp_path / "checkpoints")
    snapshots.world = World(1, 3, store=HashStore())
    snapshots.assembler = SimpleNamespace(submit=lambda work: work())
    snapshots._begin = State(step=4, saved=[Saved(4, 0.5)], record_bytes=[0, 0, 0])
    snapshots._assemble = lambda: assembly_of(tmp_path / "checkpoints", [])
    assert snapshots.lead(0).step == 4
    assert snapshots.assembly.saved == [Saved(4, 0.5)]
    assert snapshots.assembly.skipped
