"""Checkpoints of asynchronous learners: each takes its part between two steps.

A thread of each learner writes its part once no exchange can change it. A thread of learner 0 waits for all parts,
computes their mean, writes that with its own part, and evaluates it at the end of an epoch. The cut is consistent
(distributed/transport/view.py): the mean has exactly the batches before the cut, though the learners passed it at
different times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from asrtool.distributed.strategies.strategy import Snapshot, Strategy
from asrtool.distributed.weights.flat import counters
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel
from asrtool.train.checkpoints.checkpoint import State, load_newest, save_part
from asrtool.train.checkpoints.checkpointer import POLL_S, Background, Checkpointer, Memory
from asrtool.train.checkpoints.merge import CheckpointMerger, Cut, announced, mark_of

NONE = -1  # in place of a step: the checkpoint is that of the cut before


@dataclass(eq=False)
class Snapshots:
    """Parts of a learner; learner 0 also merges all parts and evaluates."""

    strategy: Strategy
    model: AcousticModel
    checkpointer: Checkpointer
    begin: State  # when training began or resumed
    make_merger: Callable[[], CheckpointMerger]  # called by the first learner

    def __post_init__(self) -> None:
        """Raise AsrtoolError if the learners neither step together nor take snapshots."""
        if not self.strategy.asynchronous:
            name = type(self.strategy).__name__
            raise AsrtoolError(
                f"strategy {name}: its learners do not step together, and it is not `asynchronous`",
                "give it AssignmentRule(lockstep=True), or snapshots that wait for nobody",
            )
        self.world = self.checkpointer.world
        self.merging = Background("merge")
        self.merger = self.make_merger() if self.world.is_first else None

    def lead(self, num_cuts: int) -> State:
        """Make the checkpoints from here on; return the state of the newest one.

        `num_cuts` have passed. Those that the lost leader has not made are skipped.
        """
        newest = load_newest(self.checkpointer.directory)
        state = newest[1] if newest else self.begin
        self.merger = self.make_merger()
        self.merger.take_over(state)
        for number in range(1, num_cuts + 1):
            self.world.store.compare_set(f"cut/{number}", "", str(NONE))
        self.merging.submit(self.merger.evaluate_remaining)
        return state

    def keep(self, state: State) -> None:
        """Keep the checkpoints that `state` names, with their dev losses."""
        if self.merger:
            self.merger.saved, self.merger.unevaluated = list(state.saved), list(state.unevaluated)

    def take(self, numbers: Sequence[int], cuts: Sequence[Cut], more: dict[str, Any]) -> None:
        """Take this learner's parts of the cuts `numbers`, between two of its steps.

        `cuts` are the same cuts, for learner 0; `more` is stored beside the snapshot.
        """
        more = {**more, "counters": [counter.tensor.tolist() for counter in counters(self.model)]}
        known = {cut.number: cut for cut in cuts}
        if self.merger and not cuts:
            self.merging.submit(self.merger.skip)
        for number in numbers:  # others may share weights with this learner, and have changed them in between
            self._take(number, known.get(number), more)
            more["trained"] = []  # is in the part before

    def _take(self, number: int, cut: Cut | None, more: dict[str, Any]) -> None:
        snapshot = self.strategy.take_snapshot(number)
        more = {**more, "weight": snapshot.weight, "updates_S": snapshot.updates_S}
        part, memory = self.checkpointer.stage(snapshot, "", more)
        if self.merger:
            self.world.store.set(f"cut/{number}", str(cut.state.step if cut else NONE))
        self.checkpointer.background.submit(self._write, number, part, snapshot.settled, not self.merger)
        if self.merger and cut:
            self.merging.submit(self.merger.merge, cut, part)
        last = self.merging if self.merger else self.checkpointer.background
        last.submit(self._release, memory, snapshot)

    def check(self) -> None:
        """Raise AsrtoolError if a checkpoint could not be written."""
        self.checkpointer.check()
        self.merging.check()

    def finish(self) -> None:
        """Wait until all are written, after the last step of all learners."""
        self.checkpointer.drain()
        self.merging.drain()

    def close(self) -> None:
        """End the threads; an unfinished checkpoint stays unfinished."""
        self.checkpointer.closing.set()
        self.merging.close()

    @property
    def busy(self) -> bool:
        """True while any is being written."""
        return self.checkpointer.busy or self.merging.busy

    def _write(self, number: int, part: dict[str, Any], settled: Callable[[], bool] | None, is_file: bool) -> None:
        key = f"cut/{number}"
        while not (self.world.store.check([key]) and (settled is None or settled())):
            if self.checkpointer.closing.is_set():
                return
            time.sleep(POLL_S)
        step = int(self.world.store.get(key))
        if is_file and step != NONE:
            part["mark"] = mark_of(self.checkpointer, number)
            save_part(self.checkpointer.directory, step, self.world.rank, part)
        self.world.store.set(announced(number, self.world.rank), "")

    def _release(self, memory: Memory, snapshot: Snapshot) -> None:
        """Use the memory of a written part for the next one."""
        self.checkpointer.staging.give_back(memory)
        self.strategy.give_back(snapshot)
