"""Coordinate checkpoints, evaluations and the end of a training.

Synchronous learners reach a cut together: they synchronise, evaluate and save. Asynchronous ones take their snapshot
and train on (snapshots.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from asrtool.distributed.members.members import LEFT, LostLearner, TrainingEnded
from asrtool.distributed.members.supervisor import report_lost
from asrtool.distributed.strategies.strategy import Strategy
from asrtool.distributed.work.work_queue import WorkQueue
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.files import locked
from asrtool.models.acoustic import AcousticModel
from asrtool.settings.train import Optimisation
from asrtool.train.batches.plan import Place, Plan
from asrtool.train.checkpoints.checkpoint import (
    Saved,
    Span,
    State,
    checkpoint_path,
    final_weights,
    load_checkpoint,
    to_keep,
)
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.checkpoints.merge import Cut
from asrtool.train.checkpoints.snapshots import Snapshots
from asrtool.train.inputs import TRAINING
from asrtool.train.ledger import Ledger, TrainedBatches, examine_lost
from asrtool.train.loop.evaluation import DevLosses, Evaluation
from asrtool.train.loop.loss import Sums, with_weights
from asrtool.train.loop.metrics import Reports
from asrtool.train.loop.step_records import Records
from asrtool.train.loop.stop import EndsEarly, Left, Stop, Stopped

END_MARGIN = 10  # no checkpoint in the last 1/END_MARGIN of the usual steps between two, before an epoch's end


@dataclass(eq=False)
class LearnerRequests:
    """Requests of a learner to the others, for the work queue."""

    _settings: Optimisation
    first: int  # steps of the learner before this run
    _lockstep: bool
    _stop: Stop
    _is_saving: Callable[[], bool]
    _ends_early: Callable[[], bool] = lambda: False
    # For each checkpoint requested by `save`: True by steps, False by time alone.
    by_steps: list[bool] = dataclasses.field(default_factory=list, init=False)
    _last_s: float = dataclasses.field(default_factory=time.monotonic, init=False)
    _last_number: int = dataclasses.field(default=0, init=False)

    def stop(self) -> bool:
        """Return whether a signal to stop all has arrived, or training ends early."""
        return (self._stop.requested and not self._stop.leaves) or self._ends_early()

    @property
    def may_leave(self) -> bool:
        """True if a learner that is asked to stop leaves alone."""
        return self._stop.leaves

    def leave(self) -> bool:
        """Return whether a signal to leave has arrived."""
        return self._stop.leaves and self._stop.requested

    def every(self, number: int) -> bool:
        """Return whether a step of synchronous learners makes a checkpoint."""
        every = self._settings.save_every_steps if self._lockstep else 0
        return every > 0 and number > 0 and (self.first + number) % every == 0

    def save(self, number: int, ends_within: Callable[[int], bool]) -> bool:
        """Return whether a checkpoint is due by time or steps, and none is being written.

        The one at the end of an epoch replaces one requested shortly before.
        """
        every_steps, every_s = self._settings.save_every_steps, self._settings.save_every_minutes * 60
        steps_due = not self._lockstep and 0 < every_steps <= number - self._last_number
        time_due = 0 < every_s <= time.monotonic() - self._last_s
        if not (steps_due or time_due) or self._is_saving():
            return False
        if steps_due:
            self._last_number = number
            if ends_within(every_steps // END_MARGIN):
                return False
        self.by_steps.append(steps_due)
        self.reset()
        return True

    def reset(self) -> None:
        """Count from the checkpoint that has just been taken."""
        self._last_s = time.monotonic()


@dataclass
class LearnerProgress:
    """Progress of this learner."""

    first_epoch: int  # epoch in which it began
    epoch: int = 0  # epoch of its last step
    num_rounds: int = 0  # before its next step, since training began or resumed
    num_cuts: int = 0  # requested cuts before its last step
    cut: int = 0  # all of them, with those at the ends of epochs
    # Since learners last synchronised; its batches since its last cut.
    own: TrainedBatches = dataclasses.field(default_factory=lambda: TrainedBatches(0))

    def __post_init__(self) -> None:
        self.epoch = self.first_epoch


@dataclass
class CheckpointCoordinator:
    """Coordinator of the cuts between a learner's steps; keeps `state` and `progress`."""

    settings: Optimisation
    code: str  # digest of the code that trains
    world: World
    model: AcousticModel
    strategy: Strategy
    plan: Plan
    queue: WorkQueue
    requests: LearnerRequests
    stop: Stop
    records: Records
    reports: Reports
    checkpointer: Checkpointer
    snapshots: Snapshots | None  # None if learners wait for each other
    evaluation: Evaluation
    dev_losses: DevLosses
    state: State
    ledger: Ledger  # batches that learners had trained when they last synchronised
    progress: LearnerProgress
    lock: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack)  # lock of the folder
    lost: list[TrainedBatches] = dataclasses.field(default_factory=list)  # lost learners' batches since then

    def join(self) -> int:
        """Join the running learners; return the last cut without a part of this one.

        Raises TrainingEnded.
        """
        place = self.queue.next_round()
        found = self.plan.round(place[0]) if place else None
        if not (place and found):
            raise TrainingEnded
        self._reached(found.epoch, place[1])
        return self.progress.cut

    def reach(self, epoch: int, slot: int, num_cuts: int) -> None:
        """Make the checkpoints due before the round from `slot` of `epoch` on.

        `num_cuts` is the number that was requested.
        """
        (self.snapshots or self.checkpointer).check()
        self._lead()
        cut = epoch - self.progress.first_epoch + num_cuts
        if cut == self.progress.cut:
            return
        if self.snapshots:
            cuts = self._cuts(self.progress.cut, epoch, num_cuts) if self.snapshots.merger else []
            self._pass(epoch)
            part = vars(dataclasses.replace(self.progress.own, record_bytes=self.records.num_bytes))
            self.snapshots.take(range(self.progress.cut + 1, cut + 1), cuts, part)
            self.progress.own.trained = []
            self._reached(epoch, num_cuts)
        else:
            self._checkpoint(self.plan.place(epoch, slot), num_cuts)

    def _lead(self) -> None:
        """Take over checkpoints and reports if all learners before this one are lost."""
        if self.snapshots and self.world.is_first and not self.snapshots.merger:
            logging.getLogger().setLevel(logging.INFO)
            logging.info("learner %d makes the checkpoints from here on", self.world.rank)
            with contextlib.suppress(AsrtoolError):  # the lock of a lost machine may stay for a while
                self.lock.enter_context(locked(self.checkpointer.directory.parent, *TRAINING))
            self.reports.lead(self.snapshots.lead(self.progress.cut))

    def _pass(self, epoch: int) -> None:
        """Pass a cut; report the steps since the last report at the end of epochs."""
        self.requests.reset()
        if epoch > self.progress.epoch:
            border = self.plan.place(epoch, 0)
            self.report(self.progress.epoch, border.step, border.samples)

    def _cuts(self, before: int, epoch: int, num_cuts: int) -> list[Cut]:
        """Return the cuts since learner 0's last step, one a place."""
        requested = self.queue.cuts_between(self.progress.num_cuts, num_cuts)
        if requested is None:
            return []
        marked = zip(requested, map(self._by_steps, range(self.progress.num_cuts, num_cuts)), strict=True)
        places = [(place, False, counts) for round, counts in marked if (place := self.plan.place_of_round(round))]
        places += [(place, True, True) for place in self.plan.borders(self.progress.epoch + 1, epoch)]
        places.sort(key=lambda item: (item[0].step, item[1]))
        cuts: list[Cut] = []
        for number, (place, ends_epoch, counts) in enumerate(places, before + 1):
            if cuts and cuts[-1].state.step == place.step:
                cuts[-1].ends_epoch |= ends_epoch  # the first one has the updates since the cut before
                cuts[-1].counts |= counts
            else:
                cuts.append(Cut(number, self._state_at(place), ends_epoch, counts))
        return cuts

    def _by_steps(self, number: int) -> bool:
        """Return whether a cut was requested by steps, as assumed for a lost learner's."""
        place = number - self.queue.first_cut
        return place < 0 or self.requests.by_steps[place]

    def _state_at(self, place: Place) -> State:
        self.reports.lap_s()
        state = dataclasses.replace(
            self.state,
            epoch=place.epoch,
            batch=place.batch,
            step=place.step,
            samples=place.samples,
            source=place.source,
            origins=self.plan.origins,
            code=list(self.state.code),
        )
        if place.step > self.state.step and self.code and state.code[-1:] != [self.code]:
            state.code.append(self.code)
        return state

    def _checkpoint(self, place: Place, num_cuts: int) -> None:
        """Synchronise all learners at `place`, evaluate at an epoch's end, and save.

        Raises EndsEarly.
        """
        epoch = place.epoch
        self._pass(epoch)
        if epoch > self.progress.epoch:
            self._synchronise(self.plan.end_of(self.progress.epoch))
            self._end_epoch(place)
            self.check_early_stop()
        else:
            self._synchronise(place)
            by_steps = any(map(self.requests.every, self.queue.cuts[self.progress.num_cuts : num_cuts]))
            keep = self._keep if by_steps else self.save
            keep(Saved(self.state.step, None))
        self._reached(epoch, num_cuts)

    def _reached(self, epoch: int, num_cuts: int) -> None:
        self.progress.cut = epoch - self.progress.first_epoch + num_cuts
        self.progress.epoch, self.progress.num_cuts = epoch, num_cuts
        self.plan.forget(epoch)

    def end(self) -> None:
        """Finish after the last step; raises Stopped or EndsEarly."""
        self._lead()
        progress, losses = self.progress, self._regroup()
        gathered = self.world.gather((progress.num_rounds, progress.cut, progress.epoch, progress.num_cuts))
        num_rounds = max(*(number for number, *_ in gathered), *(loss.num_rounds for loss in losses), 0)
        last = self.plan.round(num_rounds - 1) if num_rounds else None
        if self.snapshots:
            _, _, epoch, num_cuts = max(gathered, key=lambda one: one[1])
            self.reach(epoch, 0, num_cuts)  # cuts after the last step of this learner
            self.snapshots.finish()
            merger = self.snapshots.merger
            result = self.world.gather(merger.result() if merger else None)[0]
            assert result
            self.state.saved, self.state.unevaluated = result.saved, result.unevaluated
            self.state.dev_losses = self.dev_losses.found = result.dev_losses
            self.ledger, self.lost = result.ledger, result.lost
            if result.lengths is not None:  # the leader is lost, and the last cuts have no checkpoint
                since = TrainedBatches(result.lengths.get(self.world.rank, 0))
                out = self.checkpointer.directory.parent
                progress.own.trained = since.extended(out, self.world.rank, self.records.num_bytes, math.inf).trained
        place = self.plan.place(last.epoch, last.slots.stop) if last else self.plan.begin
        self._synchronise(place)
        self.check_early_stop()
        is_whole = not self.state.untrained and self.state.batch == place.batch
        # The learner that was asked to stop may be lost by now, and batches of others with it.
        if self.plan.round(num_rounds) is not None or not is_whole:
            raise Stopped
        if last or self.state.epoch < self.settings.num_epochs:
            self.report(self.state.epoch, self.state.step, self.state.samples)
            self._end_epoch(self.plan.end)
        self.checkpointer.drain()
        self.world.barrier()  # a learner that has ended would be taken for lost

    def leave(self) -> None:
        """Leave the others after the last step; raises Left."""
        out = self.checkpointer.directory.parent
        assert self.snapshots
        self.snapshots.close()  # from here on the next learner may make checkpoints and reports
        self.queue.leave(lambda rank: examine_lost(out, rank, LEFT))
        report_lost(out, self.world.rank, LEFT)
        raise Left

    def check_early_stop(self) -> None:
        """Raise EndsEarly, at all learners alike, if the dev losses call for it."""
        if self.dev_losses.end and self.state.epoch < self.settings.num_epochs:
            raise EndsEarly

    def end_early(self) -> None:
        """Finish after EndsEarly: the existing checkpoints are the last ones."""
        best = self.dev_losses.best
        assert best
        what = "training ends early, after %d of %d epochs: the loss on dev was lowest, %.4f, after %d"
        logging.info(what, self.dev_losses.found[-1][0], self.settings.num_epochs, best[1], best[0])
        if num_dropped := self.state.step - max(entry.step for entry in self.state.saved):
            logging.info("%d batches trained after the last checkpoint are dropped", num_dropped)
        self.records.forget_assigned()
        self.checkpointer.drain()
        self.world.barrier()  # a learner that has ended would be taken for lost

    def _regroup(self) -> Collection[LostLearner]:
        """Make collectives of the current members; return the lost ones."""
        members = self.world.members
        if not members:
            return ()
        if members.losses:
            self.strategy.end_steps()
        self.world.regroup()
        self.state.learners = list(members.live)
        self.records.end_lost(members.losses)
        self._note_lengths((rank, loss.record_bytes) for rank, loss in members.losses.items())
        return members.losses.values()

    def _synchronise(self, place: Place) -> None:
        """Synchronise learners at `place`; raises Stopped if one was asked to stop."""
        own = dataclasses.replace(self.progress.own, record_bytes=self.records.num_bytes)
        gathered, stops = zip(*self.world.gather((own, self.stop.requested)), strict=True)
        everyone, self.lost = [*gathered, *self.lost], []
        spans = itertools.chain(*(one.trained for one in everyone))
        self._enter(place, sum(one.samples for one in everyone), spans)
        self.state.frames += sum(one.frames for one in everyone)
        self.state.padded_frames += sum(one.padded_frames for one in everyone)
        self.state.rounds = self.requests.first + self.progress.num_rounds
        self._note_lengths(zip(self.state.learners, (one.record_bytes for one in gathered), strict=True))
        self.progress.own = TrainedBatches(0)
        consensus = self.strategy.synchronise()
        if self.strategy.ema:
            self.strategy.ema.synchronise(self.world)
        if self.world.size > 1:
            self.reports.report_learners(place.step, consensus)
        if any(stops):
            raise Stopped

    def _note_lengths(self, record_lengths: Iterable[tuple[int, int]]) -> None:
        """Store the lengths of these learners' records; lost learners' stay."""
        lengths = self.state.record_bytes
        for rank, length in record_lengths:
            lengths += [0] * (rank + 1 - len(lengths))
            lengths[rank] = length

    def _enter(self, place: Place, num_samples: int, trained: Iterable[Span]) -> None:
        """Update the state: learners are at `place` and have `trained` these batches."""
        state = dataclasses.replace(self._state_at(place), samples=self.state.samples + num_samples)
        vars(self.state).update(vars(self.ledger.reach(state, trained)))

    def _end_epoch(self, place: Place) -> None:
        """Save the state after an epoch, and evaluate on all learners meanwhile."""
        self._enter(place, 0, ())
        self.state.unevaluated.append(self.state.step)
        self._keep(Saved(self.state.step, None))
        losses = self._evaluate()
        self.reports.lap_s()
        self._evaluated(losses, self.state)

    def _evaluate(self) -> Sums:
        """Return the dev losses of the consensus weights; raises Stopped for all alike."""
        if ema := self.strategy.ema:
            with ema.consensus():
                return self.evaluation.on_all_learners(ema.model)
        with self.strategy.consensus():
            return self.evaluation.on_all_learners(self.model)

    def evaluate_remaining(self) -> None:
        """Evaluate checkpoints of ended epochs that were not when training ended."""
        left = list(self.state.unevaluated)
        for step in left:
            content, then = load_checkpoint(checkpoint_path(self.checkpointer.directory, step))
            with with_weights(self.model, final_weights(content)):
                losses = self.evaluation.on_all_learners(self.model)
            self._evaluated(losses, then)
        if left:
            self.world.barrier()  # before any exchanges with weights of then
            if self.snapshots:
                self.snapshots.keep(self.state)

    def _evaluated(self, losses: Sums, then: State) -> None:
        """Mark the checkpoint of the state `then` as evaluated; the next one stores it."""
        loss = self.reports.report_dev(losses, then)
        evaluated = Saved(then.step, loss)
        self.dev_losses.add(then.epoch, loss)
        self.state.dev_losses = list(self.dev_losses.found)
        self.state.unevaluated.remove(then.step)
        self._keep_among([evaluated if entry.step == then.step else entry for entry in self.state.saved])

    def _keep(self, new: Saved) -> None:
        """Save a checkpoint that counts among the last and the best."""
        self._keep_among([*self.state.saved, new])
        self.save(new)

    def _keep_among(self, saved: list[Saved]) -> None:
        self.state.saved = to_keep(saved, self.settings.keep_last, self.settings.keep_best, self.state.unevaluated)

    def save(self, new: Saved) -> None:
        """Save a checkpoint to resume from; the next one removes it unless it was kept."""
        is_over = self.state.epoch == self.settings.num_epochs
        self.checkpointer.save(self.model, self.strategy, self.state, new, has_parts=not is_over)

    def save_if_missing(self) -> None:
        """Save the current state on a stop, unless a checkpoint of it exists."""
        if self.state.step != self.checkpointer.newest_step:
            self.save(Saved(self.state.step, None))

    def report(self, epoch: int, step: int, num_samples: int) -> None:
        self.reports.report(epoch, step, num_samples, self.strategy.optimizer.param_groups[0]["lr"])
