"""Checkpoints of learners that wait for nobody: each takes its part at a cut, between two of its own steps.

A thread of each learner writes its part once no exchange can change it any more. A thread of learner 0 waits for the
parts of all, computes their mean, which stands for all learners, writes that with its own part, and, at the end of an
epoch, evaluates it. The cut is consistent (asrtool.distributed.view), so this is the very mean of the weights with all
batches before the cut and none behind it, though no two learners were there at the same time.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from asrtool.distributed.buffers import average_statistics, counters
from asrtool.distributed.flat import FlatWeights
from asrtool.distributed.strategy import ConsensusMetrics, Snapshot, Strategy
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel
from asrtool.models.torch_file import map_torch
from asrtool.train.background import Background
from asrtool.train.checkpoint import Saved, State, checkpoint_path, learner_path, to_keep
from asrtool.train.checkpointer import POLL_S, Checkpointer, Memory
from asrtool.train.ledger import Ledger
from asrtool.train.loss import Sums
from asrtool.train.metrics import Reports
from asrtool.train.settings import Optimisation
from asrtool.train.stop import Stopped

NONE = -1  # in place of a step: the checkpoint is that of the cut before
CHUNK = 2**20  # values of each learner in memory at a time


@dataclass
class Cut:
    """A cut as learner 0 comes to it: `state` is that of the checkpoint, but for what the parts add."""

    number: int
    state: State
    ends_epoch: bool
    counts: bool  # among the last ones, which are averaged; others are for resuming alone


class Snapshots:
    """The parts of a learner; with those of all, and the evaluations, where `world.rank` is 0."""

    def __init__(
        self,
        strategy: Strategy,
        model: AcousticModel,
        checkpointer: Checkpointer,
        state: State,
        settings: Optimisation,
        reports: Reports,
        evaluate: Callable[[AcousticModel], Sums],
    ) -> None:
        """`state` is that from which training resumes; `evaluate` computes the losses on dev, or raises Stopped.

        AsrtoolError where the learners of a strategy neither step together nor take snapshots.
        """
        if not strategy.asynchronous:
            raise AsrtoolError(
                f"strategy {type(strategy).__name__}: its learners do not step together, and it is not `asynchronous`",
                "give it AssignmentRule(lockstep=True), or snapshots that wait for nobody",
            )
        self.strategy = strategy
        self.checkpointer = checkpointer
        self.world = checkpointer.world
        self.model = model
        self.assembler = Background("assemble")
        self.assembly = Assembly(self, state, settings, reports, evaluate) if self.world.rank == 0 else None

    def take(self, numbers: Sequence[int], cuts: Sequence[Cut], more: dict[str, Any]) -> None:
        """Take this learner's parts of the checkpoints of the cuts `numbers`, between which it had no step.

        `cuts` are the same cuts, for learner 0; `more` goes into them beside the snapshot: what this learner did.
        """
        more = {**more, "counters": [counter.tensor.tolist() for counter in counters(self.model)]}
        known = {cut.number: cut for cut in cuts}
        for number in numbers:  # where others share weights with this learner, they may have changed them in between
            self._take(number, known.get(number), more)
            more["trained"] = []  # is in the part before

    def _take(self, number: int, cut: Cut | None, more: dict[str, Any]) -> None:
        snapshot = self.strategy.snapshot(number)
        more = {**more, "weight": snapshot.weight, "updates_S": snapshot.updates_S}
        part, memory = self.checkpointer.stage(snapshot, "", more)
        if self.assembly:
            self.world.store.set(f"cut/{number}", str(cut.state.step if cut else NONE))
        self.checkpointer.background.submit(self._write, number, part, snapshot.settled)
        if self.assembly and cut:
            self.assembler.submit(self.assembly.assemble, cut, part)
        last = self.assembler if self.assembly else self.checkpointer.background
        last.submit(self._release, memory, snapshot)

    def check(self) -> None:
        """Raises AsrtoolError where one could not be written."""
        self.checkpointer.check()
        self.assembler.check()

    def finish(self) -> None:
        """After the last step, when all learners have come to the same cuts: wait until all are written."""
        self.checkpointer.drain()
        self.assembler.drain()

    def close(self) -> None:
        """End the threads; what is not whole by then will not be."""
        self.checkpointer.closing.set()
        self.assembler.close()

    @property
    def saved(self) -> tuple[list[Saved], list[int]]:
        """The checkpoints that are kept, and those of them that were not evaluated; for learner 0, at the end."""
        return (self.assembly.saved, self.assembly.unevaluated) if self.assembly else ([], [])

    @property
    def ledger(self) -> Ledger | None:
        """That of the last checkpoint; for learner 0, at the end."""
        return self.assembly.ledger if self.assembly else None

    @property
    def busy(self) -> bool:
        """Whether any is being written."""
        return self.checkpointer.busy or self.assembler.busy

    def mark(self, number: int) -> str:
        """That of the files of a cut."""
        return f"{self.checkpointer.run}-{number}"

    def _write(self, number: int, part: dict[str, Any], settled: Callable[[], bool] | None) -> None:
        key = f"cut/{number}"
        while not (self.world.store.check([key]) and (settled is None or settled())):
            if self.checkpointer.closing.is_set():
                return
            time.sleep(POLL_S)
        step = int(self.world.store.get(key))
        if self.world.rank == 0:
            self.world.store.add(f"parts/{number}", 1)
        elif step != NONE:
            self.checkpointer.write_part(step, {**part, "mark": self.mark(number)}, f"parts/{number}")

    def _release(self, memory: Memory, snapshot: Snapshot) -> None:
        """The memory of a part that is written serves the next one."""
        self.checkpointer.staging.give_back(memory)
        self.strategy.give_back(snapshot)


class Assembly:
    """What learner 0 makes of the parts, in a thread."""

    def __init__(
        self,
        snapshots: Snapshots,
        state: State,
        settings: Optimisation,
        reports: Reports,
        evaluate: Callable[[AcousticModel], Sums],
    ) -> None:
        self.snapshots = snapshots
        self.checkpointer = snapshots.checkpointer
        self.resumed = state
        self.ledger = Ledger(state)
        self.saved, self.unevaluated = list(state.saved), list(state.unevaluated)
        self.last_step = -1
        self.settings = settings
        self.reports = reports
        self.evaluate = evaluate
        self.twin = copy.deepcopy(snapshots.model)
        self.flat = FlatWeights(self.twin, snapshots.strategy.flat.slices)
        self.mean_P = self.flat.weights_P.cpu()  # on the host the very same
        self.before_S: Tensor | None = None  # a sample of the mean at the cut before

    def assemble(self, cut: Cut, part: dict[str, Any]) -> None:
        """Write the checkpoint of `cut` once all parts are there, and evaluate it where an epoch ends.

        `part` is that of learner 0.
        """
        step = cut.state.step
        if not self.checkpointer.wait_for_parts(f"parts/{cut.number}", self.snapshots.world.size):
            return
        path, mark = checkpoint_path(self.checkpointer.directory, step), self.snapshots.mark(cut.number)
        others = [map_torch(learner_path(path, rank)) for rank in range(1, self.snapshots.world.size)]
        parts = [part, *others]
        consensus = self._average(parts)
        if cut.ends_epoch:
            self.unevaluated.append(step)
        new = Saved(step, None)
        if cut.counts:
            self._keep(new)
        state = self._state(cut, parts, mark)
        self.checkpointer.write_whole(self.twin.state_dict(), {**part, "mark": mark}, state, [*self.saved, new])
        self.reports.report_learners(step, consensus)
        if cut.ends_epoch:
            self._evaluate(state)

    def _keep(self, new: Saved) -> None:
        saved = [*(entry for entry in self.saved if entry.step != new.step), new]
        saved.sort(key=lambda entry: entry.step)
        self.saved = to_keep(saved, self.settings.keep_last, self.settings.keep_best, self.unevaluated)

    def _average(self, parts: Sequence[dict[str, Any]]) -> ConsensusMetrics:
        """Make the twin the mean of all learners; how far these are from it, and it from where it should be."""
        mean_P, num_weights = self.mean_P.zero_(), self.flat.num_weights
        square = norm_square = 0.0
        for begin in range(0, len(mean_P), CHUNK):
            pieces = list(_pieces(parts, begin, min(begin + CHUNK, len(mean_P))))
            for here, values, weight in pieces:
                mean_P[here] += weight * values
            for here, values, weight in pieces:
                here = slice(here.start, min(here.stop, num_weights))
                if here.start < here.stop:
                    square += weight * float((values[: here.stop - here.start] - mean_P[here]).double().square().sum())
            end = min(begin + CHUNK, num_weights)
            norm_square += float(mean_P[begin : max(begin, end)].double().square().sum())
        self._count(parts)
        self.flat.weights_P.copy_(mean_P)
        average_statistics(self.twin, [part["learner"] for part in parts])
        mean_S = self.flat.sample(mean_P)
        return ConsensusMetrics(math.sqrt(square / norm_square), self._drift(mean_S, parts))

    def _drift(self, mean_S: Tensor, parts: Sequence[dict[str, Any]]) -> float | None:
        updates = [part["updates_S"] for part in parts if part["updates_S"] is not None]
        if not updates:
            return None
        updates_S = torch.stack(updates).mean(0)
        before_S = self.snapshots.strategy.mean_S if self.before_S is None else self.before_S
        self.before_S = mean_S
        return None if before_S is None else float((mean_S - before_S.cpu() - updates_S).norm() / mean_S.norm())

    def _count(self, parts: Sequence[dict[str, Any]]) -> None:
        """Counters become the largest of any learner."""
        of_all = zip(*(part["counters"] for part in parts), strict=True)
        for counter, values in zip(counters(self.twin), of_all, strict=True):
            counter.tensor.copy_(torch.tensor(values).amax(0))

    def _state(self, cut: Cut, parts: Sequence[dict[str, Any]], mark: str) -> State:
        lengths = [part["record_bytes"] for part in parts]
        trained = itertools.chain(*(part["trained"] for part in parts))
        return dataclasses.replace(
            self.ledger.reach(cut.state, trained),
            samples=self.resumed.samples + sum(part["samples"] for part in parts),
            frames=self.resumed.frames + sum(part["frames"] for part in parts),
            padded_frames=self.resumed.padded_frames + sum(part["padded_frames"] for part in parts),
            record_bytes=[*lengths, *cut.state.record_bytes[len(lengths) :]],
            mark=mark,
            saved=list(self.saved),
            unevaluated=list(self.unevaluated),
        )

    def _evaluate(self, state: State) -> None:
        try:
            losses = self.evaluate(self.twin)
        except Stopped:  # it is evaluated when training resumes
            return
        self.unevaluated.remove(state.step)
        self._keep(Saved(state.step, self.reports.report_dev(losses, state)))


def _pieces(parts: Sequence[dict[str, Any]], begin: int, end: int) -> Iterator[tuple[slice, Tensor, float]]:
    """What each part has of the flat weights from `begin` to `end`: where, the values, and their weight in the mean."""
    for part in parts:
        if "values_P" not in part["learner"]:
            continue
        offset, values_P = part["learner"]["offset"], part["learner"]["values_P"]
        first, last = max(begin, offset), min(end, offset + len(values_P))
        if first < last:
            yield slice(first, last), values_P[first - offset : last - offset], part["weight"]
