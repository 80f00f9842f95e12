"""Merge the parts of all learners into the checkpoint of each cut, in a thread.

Learner 0 does this. Of lost learners the records count, not the weights: the mean is over the others.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from asrtool.distributed.strategies.strategy import ConsensusMetrics, Strategy
from asrtool.distributed.weights.ema import Ema
from asrtool.distributed.weights.flat import FlatWeights, average_statistics, counters
from asrtool.distributed.world import World
from asrtool.models.acoustic import AcousticModel
from asrtool.models.files.torch_file import map_torch
from asrtool.settings.train import Optimisation
from asrtool.train.checkpoints.checkpoint import (
    Saved,
    Span,
    State,
    checkpoint_path,
    final_weights,
    learner_path,
    load_checkpoint,
    to_keep,
)
from asrtool.train.checkpoints.checkpointer import POLL_S, Checkpointer
from asrtool.train.ledger import Ledger, TrainedBatches, add_lost
from asrtool.train.loop.evaluation import UNLIMITED, DevLosses, EpochLoss
from asrtool.train.loop.loss import Sums
from asrtool.train.loop.metrics import Reports
from asrtool.train.loop.stop import Stopped

CHUNK = 2**20  # values of each learner in memory at a time


@dataclass
class Cut:
    """Cut as learner 0 reaches it; `state` is complete but for the parts."""

    number: int
    state: State
    ends_epoch: bool
    counts: bool  # among the last ones, which are averaged; others are for resuming alone


@dataclass
class Result:
    """Results of all merged checkpoints at the end."""

    saved: list[Saved]  # the checkpoints that are kept
    unevaluated: list[int]  # steps of checkpoints without a dev loss
    dev_losses: list[EpochLoss]
    ledger: Ledger  # ledger of the last one
    lost: list[TrainedBatches]  # batches of lost learners
    lengths: dict[int, int] | None  # learner -> length of its records in the last checkpoint, if later cuts have none


@dataclass
class CheckpointMerger:
    """Thread of the first learner that merges the parts, from the resumed `state` on."""

    strategy: Strategy
    model: AcousticModel
    checkpointer: Checkpointer
    state: State
    settings: Optimisation
    reports: Reports
    evaluate: Callable[[AcousticModel], Sums]  # returns dev losses or raises Stopped
    dev_losses: DevLosses

    def __post_init__(self) -> None:
        self.world = self.checkpointer.world
        self.ledger = Ledger(self.state)
        self.saved, self.unevaluated = list(self.state.saved), list(self.state.unevaluated)
        self.out = self.checkpointer.directory.parent
        self.mean = MeanOfParts(self.strategy, self.model, self.world.size)
        self.before_S: Tensor | None = None  # a sample of the mean at the cut before
        self.before: tuple[Sequence[int], int] = (self.world.live, 0)  # learners of that cut, and how many were lost
        self.skipped = False  # True after a cut without a checkpoint
        lengths = self.state.record_bytes  # by rank
        self.trained = {rank: TrainedBatches(length) for rank, length in enumerate(lengths)}

    def take_over(self, newest: State) -> None:
        """Continue from the checkpoint of the state `newest`, made by another learner."""
        self.saved, self.unevaluated = list(newest.saved), list(newest.unevaluated)
        self.ledger = Ledger(newest)
        self.dev_losses.known(UNLIMITED)
        for rank, length in enumerate(newest.record_bytes):
            begin = self.trained.get(rank, TrainedBatches(0))
            self.trained[rank] = begin.extended(self.out, rank, length, math.inf)
            self.trained[rank].trained = []
        self.before = ((), 0)
        self.skip()

    def skip(self) -> None:
        """Skip a cut without a checkpoint: its parts are in the records."""
        self.skipped = True

    def evaluate_remaining(self) -> None:
        """Evaluate the checkpoints that a lost leader had not."""
        for step in list(self.unevaluated):
            content, state = load_checkpoint(checkpoint_path(self.checkpointer.directory, step))
            self.mean.model.load_state_dict(final_weights(content))
            self._evaluate(state, self.mean.model)

    def merge(self, cut: Cut, part: dict[str, Any]) -> None:
        """Write the checkpoint of `cut` once all parts exist; evaluate at an epoch's end.

        `part` is learner 0's. No checkpoint is written after the epoch that triggers early stopping.
        """
        if self.dev_losses.end:
            self.skip()
            return
        step = cut.state.step
        ranks = wait_for_parts(self.world, cut.number, self.checkpointer.closing)
        if not ranks:
            return
        path, mark = checkpoint_path(self.checkpointer.directory, step), mark_of(self.checkpointer, cut.number)
        others = [map_torch(learner_path(path, rank)) for rank in ranks[1:]]
        parts = [part, *others]
        consensus = ConsensusMetrics(self.mean.find(parts), self._drift(self.mean.sample(), parts, ranks))
        if cut.ends_epoch:
            self.unevaluated.append(step)
        new = Saved(step, None)
        if cut.counts:
            self._keep(new)
        state = self._state(cut, dict(zip(ranks, parts, strict=True)), mark)
        ema = self.mean.ema
        content = self.mean.model.state_dict(), {**part, "mark": mark}
        self.checkpointer.write_whole(*content, state, [*self.saved, new], ema=ema.saved() if ema else None)
        self.reports.report_learners(step, consensus)
        if cut.ends_epoch:
            self._evaluate(state, ema.model if ema else self.mean.model)

    def _keep(self, new: Saved) -> None:
        saved = [*(entry for entry in self.saved if entry.step != new.step), new]
        saved.sort(key=lambda entry: entry.step)
        self.saved = to_keep(saved, self.settings.keep_last, self.settings.keep_best, self.unevaluated)

    def _drift(self, mean_S: Tensor, parts: Sequence[dict[str, Any]], ranks: Sequence[int]) -> float | None:
        """Return the drift of the mean, or None if unknown.

        It is unknown after joins and losses, which move the mean as well.
        """
        updates = [part["updates_S"] for part in parts if part["updates_S"] is not None]
        if not updates:
            return None
        updates_S = torch.stack(updates).mean(0)
        before_S = self.strategy.mean_S if self.before_S is None else self.before_S
        now = (ranks, len(members.losses) if (members := self.world.members) else 0)
        if now != self.before:
            before_S = None
        self.before_S, self.before = mean_S, now
        return None if before_S is None else float((mean_S - before_S.cpu() - updates_S).norm() / mean_S.norm())

    def _state(self, cut: Cut, parts: Mapping[int, dict[str, Any]], mark: str) -> State:
        for rank, part in parts.items():
            spans = self._recorded(rank, part["record_bytes"]) if self.skipped else part["trained"]
            self.trained[rank] = TrainedBatches(
                part["record_bytes"], part["samples"], part["frames"], part["padded_frames"], spans
            )
        self.skipped = False
        add_lost(self.trained, self.world.members, self.out, cut.state.step, cut.number)
        all_trained = self.trained.values()
        spans = itertools.chain(*(one.trained for one in all_trained))
        lengths = [self.trained.get(rank, TrainedBatches(0)).record_bytes for rank in range(max(self.trained) + 1)]
        state = dataclasses.replace(
            self.ledger.reach(cut.state, spans),
            samples=self.state.samples + sum(one.samples for one in all_trained),
            frames=self.state.frames + sum(one.frames for one in all_trained),
            padded_frames=self.state.padded_frames + sum(one.padded_frames for one in all_trained),
            record_bytes=lengths,
            learners=list(parts),
            mark=mark,
            saved=list(self.saved),
            unevaluated=list(self.unevaluated),
            dev_losses=list(self.dev_losses.found),
        )
        for one in all_trained:
            one.trained = []
        return state

    def _recorded(self, rank: int, end: int) -> list[Span]:
        """Return the batches of a learner since the last checkpoint."""
        before = self.trained.get(rank, TrainedBatches(0))
        return before.extended(self.out, rank, end, math.inf).trained

    def result(self) -> Result:
        """Return the results of all checkpoints at the end."""
        add_lost(self.trained, self.world.members, self.out, math.inf, math.inf)
        lost = [self.trained[rank] for rank in self.world.members.losses] if self.world.members else []
        lengths = {rank: one.record_bytes for rank, one in self.trained.items()} if self.skipped else None
        return Result(self.saved, self.unevaluated, list(self.dev_losses.found), self.ledger, lost, lengths)

    def _evaluate(self, state: State, model: AcousticModel) -> None:
        try:
            losses = self.evaluate(model)
        except Stopped:  # it is evaluated when training resumes
            return
        self.unevaluated.remove(state.step)
        loss = self.reports.report_dev(losses, state)
        self._keep(Saved(state.step, loss))
        self.dev_losses.publish(state.epoch, loss)


class MeanOfParts:
    """Mean of the weights in learners' parts of a checkpoint, in a copy of the model."""

    def __init__(self, strategy: Strategy, model: AcousticModel, size: int) -> None:
        """Take the `size` of the training as it began, for which parts are weighted."""
        self.size = size
        self.model = copy.deepcopy(model)
        self.flat = FlatWeights(self.model, strategy.flat.slices)
        self.mean_P = self.flat.weights_P.cpu()  # on the host the very same
        self.ema = Ema(strategy.ema.model, strategy.ema.decay) if strategy.ema else None

    def find(self, parts: Sequence[dict[str, Any]]) -> float:
        """Compute the mean; return the learners' distance from it.

        Statistics that learners keep for themselves are averaged; counters are the largest of any.
        """
        mean_P, num_weights = self.mean_P.zero_(), self.flat.num_weights
        scale = self.size / len(parts)  # weights of a mean over all initial learners
        square = norm_square = 0.0
        for begin in range(0, len(mean_P), CHUNK):
            pieces = list(_pieces(parts, scale, begin, min(begin + CHUNK, len(mean_P))))
            for here, values, weight in pieces:
                mean_P[here] += weight * values
            for here, values, weight in pieces:
                here = slice(here.start, min(here.stop, num_weights))
                if here.start < here.stop:
                    square += weight * float((values[: here.stop - here.start] - mean_P[here]).double().square().sum())
            end = min(begin + CHUNK, num_weights)
            norm_square += float(mean_P[begin : max(begin, end)].double().square().sum())
        all_trained = list(zip(*(part["counters"] for part in parts), strict=True))
        for model in (self.model, self.ema.model) if self.ema else (self.model,):
            for counter, numbers in zip(counters(model), all_trained, strict=True):
                counter.tensor.copy_(torch.tensor(numbers).amax(0))
        self.flat.weights_P.copy_(mean_P)
        average_statistics(self.model, [part["learner"] for part in parts])
        if self.ema:
            self.ema.average(parts)
        return math.sqrt(square / norm_square)

    def sample(self) -> Tensor:
        """Return a sample of the mean, for the drift."""
        return self.flat.sample(self.mean_P)


def wait_for_parts(world: World, number: int, closing: threading.Event) -> Sequence[int]:
    """Wait for the parts of a cut; return their learners, none if training ends.

    A learner that joins meanwhile and has a part counts: others may have exchanged with it before the cut.
    """

    def with_part() -> Sequence[int]:
        if not world.members:
            return world.live
        world.members.refresh(world.store)
        return world.members.at(number)

    while not closing.is_set():
        ranks = with_part()
        there = world.store.check([announced(number, rank) for rank in ranks])
        if there and ranks == with_part():
            return ranks
        time.sleep(POLL_S)
    return ()


def mark_of(checkpointer: Checkpointer, number: int) -> str:
    """Return the mark of the files of a cut."""
    return f"{checkpointer.run}-{number}"


def announced(number: int, rank: int) -> str:
    """Return the store key that announces learner `rank`'s part of a cut."""
    return f"parts/{number}/{rank}"


def _pieces(
    parts: Sequence[dict[str, Any]], scale: float, begin: int, end: int
) -> Iterator[tuple[slice, Tensor, float]]:
    """Yield position, values and weight of each part's flat weights in a range."""
    for part in parts:
        if "values_P" not in part["learner"]:
            continue
        offset, values_P = part["learner"]["offset"], part["learner"]["values_P"]
        first, last = max(begin, offset), min(end, offset + len(values_P))
        if first < last:
            yield slice(first, last), values_P[first - offset : last - offset], scale * part["weight"]
