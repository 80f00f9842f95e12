"""Training loop of a learner.

Assign, load, forward, backward, step, mix, record, checkpoint, evaluate.

All learners run it on their part of the batches. Synchronous learners synchronise at every checkpoint, and evaluate
together at the end of an epoch. Asynchronous ones take their part of a checkpoint between two steps
(checkpoints/snapshots.py).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

from asrtool.data.batches import load_ahead, one_ahead
from asrtool.distributed.transport.device import begin_copy, clock_of
from asrtool.distributed.transport.event_log import no_note
from asrtool.distributed.work.lost_batches import LostBatches
from asrtool.distributed.work.work_queue import Assignment, WorkQueue
from asrtool.distributed.world import World
from asrtool.log import bar, plural
from asrtool.models.acoustic import AcousticModel
from asrtool.train.batches.batch import TrainingBatch, prepare_batch, save_bad_batch
from asrtool.train.batches.plan import Plan
from asrtool.train.checkpoints.checkpoint import State
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.checkpoints.coordinator import CheckpointCoordinator, LearnerProgress, LearnerRequests
from asrtool.train.checkpoints.merge import CheckpointMerger
from asrtool.train.checkpoints.snapshots import Snapshots
from asrtool.train.job import Components, Job
from asrtool.train.ledger import Ledger, find_missing
from asrtool.train.loop.build import fix_threads_and_precision, make_event_log, make_strategy, make_task, resume
from asrtool.train.loop.evaluation import DevLosses, Evaluation
from asrtool.train.loop.gradient_accumulation import GradientAccumulation
from asrtool.train.loop.joining import join, publish_rendezvous, read_published_state
from asrtool.train.loop.metrics import Reports
from asrtool.train.loop.step_records import Records, Step
from asrtool.train.loop.stop import EndsEarly, Stop, Stopped
from asrtool.train.loop.straggler import StragglerInjection
from asrtool.train.optimisation.learning_rate import LearningRates
from asrtool.train.optimisation.optimizer import set_learning_rate


class Training:
    """Training of a model through its epochs.

    A checkpoint holds `state`, the progress of all learners; their consensus weights; and `strategy.take_snapshot` of
    each learner.
    """

    def __init__(self, job: Job, components: Components, world: World, rate_factor: float | None = None) -> None:
        """Build it, resumed from the newest whole checkpoint in `job.out`.

        `rate_factor` is the batch of all learners as a multiple of the schedule's reference batch; None leaves
        rates. Raises AsrtoolError if there are checkpoints but none can be read, and if these learners cannot train
        by the strategy.
        """
        settings = job.optimisation
        self.job, self.components, self.world = job, components, world
        # Samples of the whole training; an estimate if the source cannot count.
        self.total_samples = settings.num_epochs * components.train_set.size().num_samples
        self.checkpointer = Checkpointer(job.out / "checkpoints", components.info, world)
        found: dict[str, Any] | None = None
        state = read_published_state(self.checkpointer) if world.joins else State()
        if not world.joins and (loaded := self.checkpointer.load()):
            found, state = loaded
        self.state, self.num_samples = state, state.samples  # samples of all learners after the last step, for the bar

        self.precision = fix_threads_and_precision(settings, state, world)
        model = components.model.to(self.precision.device)
        if found:
            model.load_state_dict(found["weights"])
            if world.rank == 0 and job.code and state.code and state.code[-1] != job.code:
                logging.warning("code changed since the checkpoint: training resumes with the new code")
        task = make_task(job, model, self.precision, world)
        self.event_log = make_event_log(job, state, self.precision, world)
        note = self.event_log.note if self.event_log else no_note
        self.strategy = make_strategy(job, task, model, self.precision, world, note)
        if found:
            resume(self.strategy, state, world, found)
        self.clock = clock_of(next(model.parameters()))
        probes = self.precision.device.type == "cuda"
        self.accumulation = GradientAccumulation(task, components.max_frames, components.frame_ms, probes=probes)
        self.rates = LearningRates(settings, self.total_samples, job.distributed.lr_scale, rate_factor)
        self.straggler = StragglerInjection(job.injection.slow.get(world.rank, 1.0))

        rule = self.strategy.assignment_rule
        state.learners, state.group_size = list(range(world.size)), rule.group_size
        round_size = rule.round_size(world.size)
        lockstep = round_size == world.size  # all learners at each step
        self.plan = Plan(components.train_set, settings.num_epochs, round_size, state)
        if world.rank == 0 and 0 < (num := self.plan.count(world.size)) < world.size:
            what = "%s an epoch for %d learners: some have nothing to do; lower %s.%s or --num-learners"
            size = "batch_words" if settings.section == "nnlm" else "batch_s"
            logging.warning(what, plural(num, "batch"), world.size, settings.section, size)
        has_others = bool(world.members) and not (lockstep or world.joins) and world.local_size < world.size
        self.stop = Stop(leaves=has_others and job.distributed.on_stop == "leave")
        self.records = Records(job.out, world, state.record_bytes)
        is_first = world.rank == 0
        self.reports = Reports(settings, self.total_samples, job.out, state, is_first, num_learners=world.size)
        self.dev_losses = DevLosses(world, state.dev_losses, settings.early_stop)
        closing = self.checkpointer.closing
        evaluation = Evaluation(components.dev_set, self.precision, world, state.num_threads, self.stop, closing)

        self.snapshots: Snapshots | None = None  # None if learners wait for each other
        if not lockstep:
            parts = self.strategy, model, self.checkpointer, state
            merging = settings, self.reports, evaluation.on_this_learner, self.dev_losses
            self.snapshots = Snapshots(*parts, functools.partial(CheckpointMerger, *parts, *merging))
        self._coordinate(model, evaluation, lockstep)

    def _coordinate(self, model: AcousticModel, evaluation: Evaluation, lockstep: bool) -> None:
        """Make the work queue and the coordinator of checkpoints.

        `lockstep`: all learners step at once.
        """
        job, world, state = self.job, self.world, self.state
        settings, saving = job.optimisation, self.snapshots or self.checkpointer

        def ends_early() -> bool:
            """Return whether the evaluating learner ends the training for all."""
            return self.snapshots is not None and self.dev_losses.end is not None and world.is_first

        requests = LearnerRequests(settings, state.rounds, lockstep, self.stop, lambda: saving.busy, ends_early)
        lost_batches = None
        if world.members:
            find = functools.partial(find_missing, job.out, state, self.plan, world.members)
            lost_batches = LostBatches(world, world.members, lambda: requests.stop(), self.records.is_idle, find)
        self.queue = WorkQueue(world, self.strategy.assignment_rule, self.plan, requests, lost_batches)
        self.coordinator = CheckpointCoordinator(
            settings=settings,
            code=job.code,
            world=world,
            model=model,
            strategy=self.strategy,
            plan=self.plan,
            queue=self.queue,
            requests=requests,
            stop=self.stop,
            records=self.records,
            reports=self.reports,
            checkpointer=self.checkpointer,
            snapshots=self.snapshots,
            evaluation=evaluation,
            dev_losses=self.dev_losses,
            state=state,
            ledger=Ledger(state),
            progress=LearnerProgress(state.epoch),
        )

    def train(self) -> None:
        """Train to the end; on a stop, save a checkpoint first.

        Raises AsrtoolError if a loss or gradient is NaN or infinite, and if the disk is full. Raises Stopped if
        another learner was asked to stop, Left if this one has left the others, and TrainingEnded if it was to join
        others that have ended.
        """
        with contextlib.ExitStack() as stack:
            for opened in (self.stop, self.records, self.reports, self.event_log):
                # The supervisor stops a learner that joined.
                if opened and not (self.world.joins and opened is self.stop):
                    stack.enter_context(opened)
            for closed in (self.components.train_set, self.strategy, self.checkpointer, self.snapshots):
                if closed:
                    stack.enter_context(contextlib.closing(closed))
            self.strategy.start()
            try:
                self._enter()
                self.train_steps()
                self.coordinator.leave() if self.queue.leaves else self.coordinator.end()
            except EndsEarly:
                self.coordinator.end_early()
            except Stopped:
                self.coordinator.save_if_missing()
                self.checkpointer.drain()
                self.world.barrier()
                raise

    def _enter(self) -> None:
        """Enter the training before the first step, with the others, or by joining them.

        Raises TrainingEnded, and EndsEarly.
        """
        if self.world.joins:
            join(self.checkpointer, self.strategy, self.components.model, self.coordinator)
            return
        self.strategy.synchronise()  # the mean that updates are added to
        self.coordinator.evaluate_remaining()
        self.coordinator.check_early_stop()
        if self.world.members and self.world.is_first:
            publish_rendezvous(self.checkpointer, self.state)

    def train_steps(self) -> None:
        """Train to the last batch.

        If learners step together, their evaluation raises Stopped after a stop, and EndsEarly.
        """
        with self._profiling() as after_step, contextlib.closing(self.load()) as loaded:
            shown = bar(loaded, "training", self.total_samples, "utterance", lambda _: self.num_samples)
            for assignment, batch in shown:
                epoch, slots = assignment.round.epoch, assignment.round.slots
                if assignment.cuts:  # checkpoints and evaluations that are due before this round
                    self.coordinator.reach(assignment.cuts.epoch, slots.start, assignment.cuts.num_requested)
                first_step = self.plan.place(epoch, slots.start).step
                self.reports.begin_epoch(epoch, first_step, self.components.train_set.portions)
                step = self.step(assignment, batch)
                self.num_samples = step.num_samples
                self.coordinator.progress.num_rounds = max(self.coordinator.progress.num_rounds, assignment.number + 1)
                if batch is not None:
                    self._record(assignment, batch, step)
                after_step()

    def load(self) -> Generator[tuple[Assignment, TrainingBatch | None], None, None]:
        """Yield assignments with batches, one ahead; None while waiting at the end.

        With other learners the next batch is also assigned while this one is trained: the store may be far away.
        """
        todo, alone = self.records.follow(self.queue.assign()), self.world.size == 1
        ahead = load_ahead(self.read, todo, prefetch=1) if alone else one_ahead(map(self.read, todo))
        with contextlib.closing(ahead) as loaded:
            while True:
                begin = time.perf_counter()
                try:
                    assignment, batch = next(loaded)
                except StopIteration:
                    break
                if batch is not None:
                    batch.draw_s = 0.0 if alone else max(0.0, batch.drawn - begin)
                    batch.wait_s = time.perf_counter() - begin - batch.draw_s
                yield assignment, batch
        yield from map(self.read, self.records.follow(self.queue.assign_lost_batches()))

    def read(self, assignment: Assignment) -> tuple[Assignment, TrainingBatch | None]:
        """Read the batch of an assignment; called in a thread."""
        drawn = time.perf_counter()
        if assignment.batch is None:
            return assignment, None
        planned, train_set = self.plan.planned(assignment.round.epoch, assignment.batch), self.components.train_set
        if planned.window is not None:
            # Other learners may read their next batches before this one reads its next.
            num_more = 1 if self.coordinator.snapshots is None else self.world.size
            train_set.expect(assignment.batch.epoch, planned.window, num_more, self.job.optimisation.num_epochs)
        batch = train_set.read(planned)
        batch.drawn = drawn
        return assignment, batch

    def step(self, assignment: Assignment, batch: TrainingBatch | None) -> Step:
        """Train on `batch`; without one, take part in the averages of the others."""
        epoch = assignment.round.epoch
        after = self.plan.place(epoch, assignment.round.slots.stop)
        note = self.event_log.note if self.event_log else no_note
        note("begin", assignment.number, *(assignment.batch or (epoch, None)))
        began, begin, marked = time.time(), time.perf_counter(), self.clock.mark()

        if batch is not None and assignment.batch:
            number = self.plan.number(assignment.batch)
            prepare_batch(batch, self.job.optimisation.seed, number, self.components.augment)
        dev_losses = self.dev_losses.known(epoch) if self.rates.needs_dev else ()
        set_learning_rate(self.strategy.optimizer, self.rates.after(after.samples, dev_losses))

        # Learners that average gradients divide the loss by their share of the batches of all.
        group_size = self.strategy.assignment_rule.group_size
        group_normaliser = sum(self.plan.planned(epoch, number).normaliser for number in assignment.group)
        before_others = lambda: self.straggler.stretch(time.perf_counter() - begin)  # noqa: E731
        normaliser = max(group_normaliser / group_size, 1)
        computed = self.accumulation.backward(self.strategy, batch, normaliser, before_others)
        nats = begin_copy(computed.nats)
        grad_norm, cost = self.strategy.step()  # step of the optimizer, then mixing; waits for the GPU
        if self.strategy.ema:
            self.strategy.ema.update()

        compute_s = self.clock.seconds((marked, self.clock.mark()))[0] - cost.comm_s - cost.wait_s
        self.straggler.note(compute_s)
        return Step(after.step, after.samples, float(nats), computed.figures, grad_norm, began, compute_s, cost)

    def _record(self, assignment: Assignment, batch: TrainingBatch, step: Step) -> None:
        """Record and report a step.

        Raises AsrtoolError, and saves the batch, if loss or gradient is not finite.
        """
        assert assignment.batch is not None
        scale = self.strategy.update.loss_scale
        skipped = scale is not None and scale.has_skipped
        if not (skipped or (math.isfinite(step.loss) and math.isfinite(step.grad_norm))):
            what = f"loss {step.loss:g}, gradient norm {step.grad_norm:g}"
            num_others = self.strategy.assignment_rule.group_size - 1
            if num_others and math.isfinite(step.loss):
                what += f" with the gradients of {num_others} others"
            number = self.plan.number(assignment.batch) + 1
            raise save_bad_batch(batch, number, what, self.job.out, self.job.optimisation.section)
        num_samples = self.plan.planned(assignment.round.epoch, assignment.batch).num_samples
        self.records.write(assignment.batch, step, batch, num_samples)
        self.coordinator.progress.own.add(assignment.batch, num_samples, batch.frames, batch.padded_frames)
        self.reports.add(batch, step, scale)
        if self.reports.is_due(step.number):
            self.coordinator.report(assignment.round.epoch, step.number, step.num_samples)

    def _profiling(self) -> AbstractContextManager[Callable[[], None]]:
        if not self.job.profiles:
            return contextlib.nullcontext(lambda: None)
        from asrtool.train.loop.profile import profiling

        return profiling(self.job.out / "profile", self.world.rank)
