"""Once the first learner is lost the next one makes the checkpoints, and ends what the first one has left."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_assembly import led_by
from test_testimony import line, write
from torch import nn
from torch.distributed import HashStore

from asrtool.distributed.members.members import Loss, Members
from asrtool.distributed.world import Value, World
from asrtool.settings.train import Optimisation
from asrtool.train.batches.plan import Plan
from asrtool.train.batches.source import Planned
from asrtool.train.checkpoints.checkpoint import Saved, Span, State, save_checkpoint
from asrtool.train.checkpoints.coordinator import Cuts, Reached
from asrtool.train.checkpoints.merge import Assembly
from asrtool.train.checkpoints.snapshots import NONE, Snapshots
from asrtool.train.ledger import Ledger, Trained
from asrtool.train.loop.evaluation import DevLosses
from asrtool.train.loop.stop import Stopped

pytestmark = pytest.mark.slow


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
    assembly.dev_losses = DevLosses(World(store=HashStore()), [], 0)
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


class NineBatches:
    """An epoch of nine batches of two utterances."""

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        return (Planned(number, 2, 1) for number in range(batch, 9))


class Survivor(World):
    """One of learners that are threads, which share `values`."""

    all_there: threading.Barrier
    values: dict[int, Any]

    def gather(self, value: Value) -> list[Value]:
        self.values[self.rank] = value
        self.all_there.wait()
        found = copy.deepcopy([self.values[rank] for rank in sorted(self.values)])
        self.all_there.wait()
        return found

    def regroup(self) -> None:
        self.ranks = self.live


def survivor(out: Path, world: Survivor, record_bytes: int, reached: Reached) -> Cuts:
    """The cuts of a learner that has come so far, and has been asked to stop; learner 0 is lost."""
    checkpointer = SimpleNamespace(directory=out / "checkpoints", drain=lambda: None, check=lambda: None)
    snapshots: Any = object.__new__(Snapshots)
    snapshots.world, snapshots.checkpointer, snapshots._begin = world, checkpointer, State()
    snapshots.assembly = None
    snapshots.assembler = SimpleNamespace(submit=lambda work: work(), drain=lambda: None, check=lambda: None)
    snapshots._assemble = lambda: led_by(out, world.members, {rank: Trained(0) for rank in range(3)})
    nothing = dict.fromkeys(("lap_s", "lead", "report_learners"), lambda *_: None)
    learner: Any = object.__new__(Cuts)
    learner.world, learner.snapshots, learner.checkpointer = world, snapshots, checkpointer
    learner.plan = Plan(NineBatches(), 1, 1, State())  # type: ignore[arg-type]
    learner.dev_losses = DevLosses(World(), [], 0)
    learner.state, learner.ledger, learner.code = State(), Ledger(State()), ""
    learner.reached, learner.lost = reached, []
    learner.stop, learner.pace = SimpleNamespace(requested=True), SimpleNamespace(first=0)
    learner.records = SimpleNamespace(num_bytes=record_bytes, end_lost=lambda losses: None)
    learner.reports, learner.lock = SimpleNamespace(**nothing), SimpleNamespace(enter_context=lambda lock: None)
    learner.strategy = SimpleNamespace(end_steps=lambda: None, synchronise=lambda: None, ema=None)
    return learner


def test_stopped_before_the_next_checkpoint_the_others_count_what_they_gave_to_one_that_was_not_made(
    tmp_path: Path,
) -> None:
    """Learner 0 made that of step 3, and is lost before it made that of step 6; then learner 1 trains one batch."""
    steps = {0: [1, 4], 1: [2, 5, 7], 2: [3, 6]}
    ends = [write(tmp_path, rank, [line(step) for step in steps[rank]]) for rank in range(3)]
    firsts = [ends[rank] // len(steps[rank]) for rank in range(3)]
    newest = State(step=3, batch=3, samples=6, record_bytes=firsts, saved=[Saved(3, None)])
    save_checkpoint(tmp_path / "checkpoints", {}, {}, {}, newest)
    since_cut: dict[int, list[Span]] = {1: [(0, 6, 7)], 2: []}
    barrier, values, store, learners = threading.Barrier(2, timeout=60), dict[int, Any](), HashStore(), []
    for rank in (1, 2):
        members = Members(3)
        members.lose(store, Loss(0, "was ended by SIGKILL", ends[0], num_rounds=4))
        world = Survivor(rank, 3, store=store, members=members)
        world.all_there, world.values = barrier, values
        reached = Reached(0, num_rounds=steps[rank][-1], cut=2, num_cuts=2, num_samples=2 * len(steps[rank]))
        reached.trained = since_cut[rank]
        learners.append(survivor(tmp_path, world, ends[rank], reached))

    def end(learner: Cuts) -> State:
        with pytest.raises(Stopped):
            learner.end()
        return learner.state

    with ThreadPoolExecutor(2) as pool:
        for state in pool.map(end, learners):
            assert (state.step, state.batch, state.untrained) == (7, 7, [])
            assert state.samples == 14
            assert state.saved == [Saved(3, None)]
