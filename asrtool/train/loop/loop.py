"""Training loop: steps, metrics, checkpoints and dev losses in a fixed order.

All learners run it on their part of the batches. Synchronous learners synchronise at every checkpoint, and evaluate
together at the end of an epoch. Asynchronous ones take their part of a checkpoint between two steps
(checkpoints/snapshots.py).
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from asrtool.data.batches import load_ahead
from asrtool.distributed.strategies.strategy import Strategy
from asrtool.distributed.transport.device import GpuClock, HostClock, begin_copy, clock_of
from asrtool.distributed.transport.event_log import EventLog, Note, no_note
from asrtool.distributed.work.lost_batches import LostBatches
from asrtool.distributed.work.work_queue import Assignment, AssignmentRule, WorkQueue
from asrtool.distributed.world import World
from asrtool.log import bar
from asrtool.models.acoustic import AcousticModel
from asrtool.models.precision import Precision
from asrtool.settings.distributed import Distributed
from asrtool.settings.train import Optimisation
from asrtool.train.batches.batch import Augment, TrainingBatch, prepare_batch, save_bad_batch
from asrtool.train.batches.plan import Plan
from asrtool.train.batches.source import BatchSource, DevSet
from asrtool.train.checkpoints.checkpoint import State
from asrtool.train.checkpoints.checkpoint_schedule import Pace
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.checkpoints.coordinator import Cuts, Reached
from asrtool.train.checkpoints.snapshots import Snapshots
from asrtool.train.job import Components, Job
from asrtool.train.ledger.learner_records import find_missing
from asrtool.train.ledger.ledger import Ledger
from asrtool.train.loop.build import (
    begin_of,
    fix_arithmetic,
    join,
    make_event_log,
    make_strategy,
    make_task,
    publish_rendezvous,
    resume,
)
from asrtool.train.loop.evaluation import DevLosses, Evaluation
from asrtool.train.loop.gradient_accumulation import Pieces
from asrtool.train.loop.loss import EmulatedCompute, Task
from asrtool.train.loop.metrics import Reports
from asrtool.train.loop.step_records import Records, Step
from asrtool.train.loop.stop import EndsEarly, Stop, Stopped
from asrtool.train.loop.straggler import StragglerInjection
from asrtool.train.optimisation.learning_rate import LearningRates
from asrtool.train.optimisation.optimizer import set_learning_rate


class Training:
    """Training of a model through its epochs.

    A checkpoint holds `state`, which says how far all learners had come, the consensus weights of all, and
    `strategy.snapshot()` of each learner.
    """

    # settings
    settings: Optimisation
    distributed: Distributed
    code: str
    profiles: bool
    out: Path
    total_samples: int  # of the whole training, an estimate where the source cannot count
    # components
    world: World
    info: dict[str, Any]
    precision: Precision
    clock: HostClock | GpuClock
    model: AcousticModel
    train_set: BatchSource
    dev_set: DevSet
    augment: Augment | None
    task: Task | EmulatedCompute
    pieces: Pieces
    strategy: Strategy
    rates: LearningRates
    rule: AssignmentRule  # of the strategy
    steps_together: bool  # all learners at each step, by that rule
    queue: WorkQueue
    straggler: StragglerInjection
    stop: Stop
    records: Records
    event_log: EventLog | None
    note: Note  # of it
    reports: Reports
    checkpointer: Checkpointer
    snapshots: Snapshots | None  # where learners wait for nobody
    evaluation: Evaluation
    cuts: Cuts
    # run state
    state: State
    num_samples: int  # of all learners after the last step, for the bar
    dev_losses: DevLosses
    plan: Plan

    def __init__(self, job: Job, components: Components, world: World, rate_factor: float | None = None) -> None:
        """Resume from the newest whole checkpoint in `job.out`, if there is one.

        `rate_factor` is the batch of all learners as a multiple of the one that the schedule is for; None leaves
        rates.

        Raises AsrtoolError if there are checkpoints but none can be read, and if these learners cannot train by the
        strategy.
        """
        self.settings = job.optimisation
        self.distributed = job.distributed
        self.code = job.code
        self.profiles = job.profiles
        self.out = job.out
        self.world = world
        self.info = components.info
        self.train_set, self.dev_set = components.train_set, components.dev_set
        self.augment = components.augment
        self.total_samples = self.settings.num_epochs * self.train_set.size().num_samples
        self.rates = LearningRates(self.settings, self.total_samples, self.distributed.lr_scale, rate_factor)
        self.checkpointer = Checkpointer(self.out / "checkpoints", self.info, world)
        loaded = None if world.joins else self.checkpointer.load()
        found, self.state = loaded or (None, begin_of(self.checkpointer) if world.joins else State())
        self.precision = fix_arithmetic(self.settings, self.state, world)
        self.model = components.model.to(self.precision.device)
        if found:
            self.model.load_state_dict(found["weights"])
        self.clock = clock_of(next(self.model.parameters()))
        self.task = make_task(job, self.model, self.precision, world)
        may_run_out = self.precision.device.type == "cuda"
        self.pieces = Pieces(self.task, components.max_frames, components.frame_ms, probes=may_run_out)
        self.event_log = make_event_log(job, self.state, self.precision, world)
        self.note = self.event_log.note if self.event_log else no_note
        self.strategy = make_strategy(job, self.task, self.model, self.precision, world, self.note)
        if found:
            resume(self.strategy, self.state, world, found)
        self.rule = self.strategy.assignment_rule
        self.state.learners, self.state.group_size = list(range(world.size)), self.rule.group_size
        self.steps_together = self.rule.round_size(world.size) == world.size
        self.plan = Plan(self.train_set, self.settings.num_epochs, self.rule.round_size(world.size), self.state)
        self.num_samples = self.state.samples
        self.straggler = StragglerInjection(job.injection.slow.get(world.rank, 1.0))
        self.stop = Stop()
        self.dev_losses = DevLosses(world, self.state.dev_losses, self.settings.early_stop)
        self.evaluation = Evaluation(
            self.dev_set, self.precision, world, self.state.num_threads, self.stop, self.checkpointer.closing
        )
        self.records = Records(self.out, world, self.state.record_bytes)
        self.reports = Reports(self.settings, self.total_samples, self.out, self.state, is_first=world.rank == 0)
        self.snapshots = self._make_snapshots()
        self.cuts = self._make_cuts()

    def _make_snapshots(self) -> Snapshots | None:
        """Return the snapshots of asynchronous learners, or None."""
        if self.steps_together:
            return None
        return Snapshots(
            self.strategy,
            self.model,
            self.checkpointer,
            self.state,
            self.settings,
            self.reports,
            self.evaluation.alone,
            self.dev_losses,
        )

    def _make_cuts(self) -> Cuts:
        together, rounds = self.steps_together, self.state.rounds
        pace = Pace(self.settings, rounds, together, self.stop, self._is_saving, self._ends_early)
        self.queue = WorkQueue(self.world, self.rule, self.plan, pace, self._make_lost_batches(pace))
        return Cuts(
            settings=self.settings,
            code=self.code,
            world=self.world,
            model=self.model,
            strategy=self.strategy,
            plan=self.plan,
            queue=self.queue,
            pace=pace,
            stop=self.stop,
            records=self.records,
            reports=self.reports,
            checkpointer=self.checkpointer,
            snapshots=self.snapshots,
            evaluation=self.evaluation,
            dev_losses=self.dev_losses,
            state=self.state,
            ledger=Ledger(self.state),
            reached=Reached(self.state.epoch),
        )

    def _make_lost_batches(self, pace: Pace) -> LostBatches | None:
        """Return the lost batches if others train them, or None."""
        if not self.world.members:
            return None
        find = functools.partial(find_missing, self.out, self.state, self.plan, self.world.members)
        return LostBatches(self.world, self.world.members, lambda: pace.stop(), self.records.is_idle, find)

    def _ends_early(self) -> bool:
        """Return whether training ends early; the evaluating learner ends it for all."""
        return self.snapshots is not None and self.dev_losses.end is not None and self.world.is_first

    def _is_saving(self) -> bool:
        return self.snapshots.busy if self.snapshots else self.checkpointer.busy

    def train(self) -> None:
        """Train to the end; on a stop, save a checkpoint first.

        Raises AsrtoolError if a loss or gradient is NaN or infinite, and if the disk is full. Raises Stopped if
        another learner was asked to stop, and TrainingEnded if this one was to join others that have ended.
        """
        with contextlib.ExitStack() as stack:
            for opened in (self.stop, self.records, self.reports, self.event_log):
                # One that joined leaves alone: by its supervisor.
                if opened and not (self.world.joins and opened is self.stop):
                    stack.enter_context(opened)
            for closed in (self.train_set, self.strategy, self.checkpointer, self.snapshots):
                if closed:
                    stack.enter_context(contextlib.closing(closed))
            self.strategy.start()
            try:
                self._enter()
                self._train_steps()
                self.cuts.end()
            except EndsEarly:
                self.cuts.end_early()
            except Stopped:
                self.cuts.save_unless_there()
                self.checkpointer.drain()
                self.world.barrier()
                raise

    def _enter(self) -> None:
        """Enter the training before the first step, with the others or as one that joins.

        Raises TrainingEnded, and EndsEarly.
        """
        if self.world.joins:
            join(self.checkpointer, self.strategy, self.model, self.cuts)
            return
        self.strategy.synchronise()  # the mean that updates are added to
        self.cuts.evaluate_what_is_left()
        self.cuts.look_for_the_end()
        if self.distributed.joinable and self.world.members and self.world.is_first:
            publish_rendezvous(self.checkpointer, self.state)

    def _train_steps(self) -> None:
        """Train to the last batch.

        If learners step together, their evaluation raises Stopped after a stop, and EndsEarly.
        """
        with self._profiling() as after_step, contextlib.closing(self._load()) as loaded:
            shown = bar(loaded, "training", self.total_samples, "utterance", lambda _: self.num_samples)
            for assignment, batch in shown:
                if assignment.num_cuts is not None:
                    self.cuts.reach(assignment.round.epoch, assignment.round.slots.start, assignment.num_cuts)
                self._begin_epoch(assignment)
                step = self._step(assignment, batch)
                self.num_samples = step.num_samples
                self.cuts.reached.num_rounds = max(self.cuts.reached.num_rounds, assignment.number + 1)
                if batch is not None:
                    self._record(assignment, batch, step)
                after_step()

    def _begin_epoch(self, assignment: Assignment) -> None:
        epoch, slots = assignment.round.epoch, assignment.round.slots
        self.reports.begin_epoch(epoch, self.plan.place(epoch, slots.start).step, self.train_set.portions)

    def _profiling(self) -> AbstractContextManager[Callable[[], None]]:
        if not self.profiles:
            return contextlib.nullcontext(lambda: None)
        from asrtool.train.loop.profile import profiling

        return profiling(self.out / "profile", self.world.rank)

    def _load(self) -> Generator[tuple[Assignment, TrainingBatch | None], None, None]:
        """Yield assignments with batches, one read ahead; None while waiting at the end."""
        assignments = self.records.follow(self.queue.assign())
        with contextlib.closing(load_ahead(self._read, assignments, prefetch=1)) as loaded:
            while True:
                begin = time.perf_counter()
                try:
                    assignment, batch = next(loaded)
                except StopIteration:
                    break
                if batch is not None:
                    batch.wait_s = time.perf_counter() - begin
                yield assignment, batch
        lost_batches = self.records.follow(self.queue.assign_lost_batches())
        yield from map(self._read, lost_batches)

    def _read(self, assignment: Assignment) -> tuple[Assignment, TrainingBatch | None]:
        if assignment.batch is None:
            return assignment, None
        planned = self.plan.planned(assignment.round.epoch, assignment.batch)
        if planned.window is not None:
            num_more = 1 if self.steps_together else self.world.size  # batches of the other learners, and then its own
            self.train_set.expect(assignment.batch.epoch, planned.window, num_more, self.settings.num_epochs)
        return assignment, self.train_set.read(planned)

    def _step(self, assignment: Assignment, batch: TrainingBatch | None) -> Step:
        """Train on `batch`; without one, take part in the averages of the others."""
        after = self.plan.place(assignment.round.epoch, assignment.round.slots.stop)
        self.note("begin", assignment.number, *(assignment.batch or (assignment.round.epoch, None)))
        began, begin, marked = time.time(), time.perf_counter(), self.clock.mark()
        if batch is not None and assignment.batch:
            prepare_batch(batch, self.settings.seed, self.plan.number(assignment.batch), self.augment)
        dev_losses = self.dev_losses.known(assignment.round.epoch) if self.rates.needs_dev else ()
        set_learning_rate(self.strategy.optimizer, self.rates.after(after.samples, dev_losses))

        computed = self.pieces.backward(
            self.strategy,
            batch,
            self._divisor(assignment),
            lambda: self.straggler.stretch(time.perf_counter() - begin),
        )
        nats = begin_copy(computed.nats)
        grad_norm, cost = self.strategy.step()  # waits for the GPU
        if self.strategy.ema:
            self.strategy.ema.update()

        compute_s = self.clock.seconds((marked, self.clock.mark()))[0] - cost.comm_s - cost.wait_s
        self.straggler.note(compute_s)
        return Step(after.step, after.samples, float(nats), computed.figures, grad_norm, began, compute_s, cost)

    def _record(self, assignment: Assignment, batch: TrainingBatch, step: Step) -> None:
        assert assignment.batch is not None
        scale = self.strategy.update.loss_scale
        skipped = scale is not None and scale.has_skipped
        if not (skipped or (math.isfinite(step.loss) and math.isfinite(step.grad_norm))):
            number = self.plan.number(assignment.batch) + 1
            raise save_bad_batch(batch, number, self._what_is_bad(step), self.out, self.settings.section)
        num_samples = self.plan.planned(assignment.round.epoch, assignment.batch).num_samples
        self.records.write(assignment.batch, step, batch, num_samples)
        self.cuts.reached.add(assignment.batch, num_samples, batch)
        self.reports.add(batch, step, scale)
        if self.reports.is_due(step.number):
            self.cuts.report(assignment.round.epoch, step.number, step.num_samples)

    def _divisor(self, assignment: Assignment) -> float:
        """Return the divisor of the loss: learners that average divide by their share."""
        of_group = sum(self.plan.planned(assignment.round.epoch, batch).normaliser for batch in assignment.group)
        return max(of_group / self.rule.group_size, 1)

    def _what_is_bad(self, step: Step) -> str:
        what = f"loss {step.loss:g}, gradient norm {step.grad_norm:g}"
        num_others = self.rule.group_size - 1
        return f"{what} with the gradients of {num_others} others" if num_others and math.isfinite(step.loss) else what
