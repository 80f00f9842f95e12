"""The training loop: epochs of batches, with metrics, checkpoints and the loss on dev in fixed places.

Several learners run the same loop, each on its part of the batches. They synchronise at every checkpoint and at the
end of an epoch; between two synchronisations each counts for itself.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from asrtool.distributed.settings import Distributed
from asrtool.distributed.strategy import Strategy, StrategyContext
from asrtool.distributed.work_queue import Assignment, WorkQueue
from asrtool.distributed.world import World
from asrtool.log import bar
from asrtool.models.acoustic import AcousticModel
from asrtool.train.batch import Augment, TrainingBatch, prepare_batch, save_bad_batch
from asrtool.train.checkpoint import Saved, State, to_keep
from asrtool.train.checkpointer import Checkpointer
from asrtool.train.job import Components, Job
from asrtool.train.loss import EmulatedCompute, Sums, Task, sum_loss
from asrtool.train.metrics import Reports
from asrtool.train.optimizer import build_optimizer, set_learning_rate
from asrtool.train.precision import Precision, choose_precision
from asrtool.train.records import Records, Step
from asrtool.train.schedule import learning_rate
from asrtool.train.settings import Optimisation
from asrtool.train.source import BatchSource, DevSet, Epoch
from asrtool.train.stop import Stop, Stopped
from asrtool.train.straggler import InjectionOptions, StragglerInjection


class Training:
    """A model on its way through the epochs.

    A checkpoint holds `state`, which says how far all learners had come when they last synchronised, the weights that
    stand for all, and `strategy.state()` of each learner.
    """

    # settings
    settings: Optimisation
    distributed: Distributed
    code: str
    out: Path
    total_samples: int  # of the whole training, an estimate where the source cannot count
    # components
    world: World
    info: dict[str, Any]
    precision: Precision
    model: AcousticModel
    train_set: BatchSource
    dev_set: DevSet
    augment: Augment | None
    task: Task | EmulatedCompute
    strategy: Strategy
    queue: WorkQueue
    straggler: StragglerInjection
    stop: Stop
    records: Records
    reports: Reports
    checkpointer: Checkpointer
    # run state
    state: State
    epoch: Epoch

    def __init__(self, job: Job, components: Components, world: World) -> None:
        """Resume from the newest whole checkpoint in `job.out`, if there is one.

        Raises AsrtoolError when there are checkpoints but none can be read, and when these learners cannot train by
        the strategy.
        """
        self.settings = job.optimisation
        self.distributed = job.distributed
        self.code = job.code
        self.out = job.out
        self.world = world
        self.info = components.info
        self.train_set, self.dev_set = components.train_set, components.dev_set
        self.augment = components.augment
        self.total_samples = self.settings.num_epochs * self.train_set.size().num_samples
        self.checkpointer = Checkpointer(self.out / "checkpoints", self.info, world)
        found, self.state = self.checkpointer.load() or (None, State())
        self.precision = self._fix_arithmetic()
        self.model = components.model.to(self.precision.device)
        if found:
            self.model.load_state_dict(found["weights"])
        self.task = self._make_task(job.injection)
        self.strategy = self._make_strategy()
        if found:
            self._resume(found["learner"])
        self.state.num_learners, self.state.group_size = world.size, self.strategy.assignment_rule.group_size
        self.epoch = Epoch(self.train_set, self.state.epoch, self.state.batch, self.state.source)
        self.straggler = StragglerInjection(job.injection.slow.get(world.rank, 1.0))
        self.stop = Stop()
        self.queue = WorkQueue(world, self.strategy.assignment_rule, lambda: self.stop.requested)
        self.records = Records(self.out, world, self.state.record_bytes)
        self.reports = Reports(self.settings, self.total_samples, self.out, self.state, is_first=world.rank == 0)

    def _fix_arithmetic(self) -> Precision:
        """Threads and precision decide the last bits, so what is left open stays as it was when training began."""
        part = max(1, (os.cpu_count() or 1) // self.world.local_size)
        free = torch.get_num_threads() if self.world.size == 1 else part
        self.state.num_threads = self.settings.num_threads or self.state.num_threads or free
        torch.set_num_threads(self.state.num_threads)
        wanted = self.settings.precision
        precision = choose_precision(self.state.precision if wanted == "auto" else wanted)
        self.state.precision = precision.name
        logging.info("%d threads, %s on %s", self.state.num_threads, precision.name, precision.device)
        return precision

    def _make_task(self, injection: InjectionOptions) -> Task | EmulatedCompute:
        if injection.compute_ms is None:
            return Task(self.model, self.precision)
        return EmulatedCompute(self.model, injection.compute_ms)

    def _make_strategy(self) -> Strategy:
        chosen = self.distributed.strategy
        context = StrategyContext(
            task=self.task,
            model=self.model,
            make_optimizer=functools.partial(build_optimizer, settings=self.settings),
            clip_norm=self.settings.clip_norm,
            settings=chosen.settings,
            seed=self.settings.seed,
            world=self.world,
        )
        strategy: Strategy = chosen.load()(context)
        return strategy

    def _resume(self, learner: dict[str, Any] | None) -> None:
        where = f"resuming after step {self.state.step}, in epoch {self.state.epoch + 1}"
        group_size = self.strategy.assignment_rule.group_size
        if self.state.num_learners != self.world.size:
            change = f"with {self.world.size} learners instead of {self.state.num_learners}"
        elif self.state.group_size not in (0, group_size):
            change = f"with {group_size} learners that share gradients instead of {self.state.group_size}"
        elif learner is None:
            change = "without what each learner had of its own"
        else:
            self.strategy.load_state(learner)
            logging.info("%s", where)
            return
        logging.info("%s, %s: from the mean of their weights, with new optimizers", where, change)

    def train(self) -> None:
        """Train to the end. When asked to stop, a checkpoint is saved first.

        Raises AsrtoolError when a loss or gradient is not a number, and when the disk is full; Stopped where another
        learner was asked to stop.
        """
        with self.stop, self.records, self.reports, contextlib.closing(self.strategy):
            self.strategy.start()
            self.strategy.synchronise()  # the mean that updates are added to
            try:
                while self.state.epoch < self.settings.num_epochs:
                    self._train_epoch()
                    self._end_epoch()
            except Stopped:
                self._save(Saved(self.state.step, None))
                raise

    def _train_epoch(self) -> None:
        state, every = self.state, self.settings.save_every_steps
        while state.batch < self.epoch.extend(state.batch + 1):
            to_save = state.batch + every - state.step % every
            self._train_until(to_save)
            if to_save <= state.batch < self.epoch.extend(state.batch + 1):
                self._keep(Saved(state.step, None))

    def _train_until(self, end: int) -> None:
        """Train the batches up to `end` with all learners, a few more to fill a round, and synchronise.

        Raises Stopped where one was asked to stop.
        """
        num_batches = num_frames = num_padded = 0
        known = self.epoch.extend(end + self.world.size)
        assignments = self.queue.assign(self.state.batch, min(end, known), known)
        for assignment, batch in bar(self._load(assignments), f"epoch {self.state.epoch + 1}", None, "batch"):
            step = self._step(assignment, batch)
            if batch is None:
                continue
            self._record(assignment, batch, step, ends_epoch=assignment.end == known)
            num_batches += 1
            num_frames += batch.frames
            num_padded += batch.padded_frames
        self._synchronise(num_batches, num_frames, num_padded)

    def _load(self, assignments: Iterator[Assignment]) -> Iterator[tuple[Assignment, TrainingBatch | None]]:
        """The assignments with their batches, one read ahead; the one without a batch comes last."""
        current, ahead = itertools.tee(self.records.follow(self.state.epoch + 1, assignments))
        positions = itertools.takewhile(lambda position: position is not None, (a.position for a in ahead))
        planned = (self.epoch.batch(position) for position in positions if position is not None)
        with contextlib.closing(self.train_set.load(planned, prefetch=1)) as loaded:
            for assignment in current:
                begin = time.perf_counter()
                batch = next(loaded, None)
                if batch is not None:
                    batch.wait_s = time.perf_counter() - begin
                yield assignment, batch

    def _step(self, assignment: Assignment, batch: TrainingBatch | None) -> Step:
        """Train on `batch`; without one, take part in what the others train."""
        number, num_samples = self._num_steps(assignment.end), self._num_samples(assignment.end)
        began, begin = time.time(), time.perf_counter()
        if batch is not None:
            assert assignment.position is not None
            prepare_batch(batch, self.settings.seed, self._num_steps(assignment.position), self.augment)
        set_learning_rate(self.strategy.optimizer, self._learning_rate(num_samples))

        loss = self.strategy.task(batch)
        self.straggler.stretch(time.perf_counter() - begin)
        self.strategy.update.backward(loss / self._divisor(assignment))
        nats = loss.item()
        grad_norm, cost = self.strategy.step()

        compute_s = time.perf_counter() - begin - cost.comm_s - cost.wait_s
        self.straggler.note(compute_s)
        figures = self.task.figures if batch is not None else {}
        return Step(number, num_samples, nats, figures, grad_norm, began, compute_s, cost)

    def _record(self, assignment: Assignment, batch: TrainingBatch, step: Step, ends_epoch: bool) -> None:
        assert assignment.position is not None
        if not (math.isfinite(step.loss) and math.isfinite(step.grad_norm)):
            number = self._num_steps(assignment.position) + 1
            raise save_bad_batch(batch, number, self._what_is_bad(step), self.out, self.settings.section)
        self.records.write(self.state.epoch + 1, assignment.position, step, batch.normaliser, batch.wait_s)
        self.reports.add(batch, step)
        if ends_epoch or self.reports.is_due(step.number):
            self._report(step.number, step.num_samples)

    def _synchronise(self, num_batches: int, num_frames: int, num_padded: int) -> None:
        """All learners have ended the same steps. Raises Stopped where one was asked to stop."""
        state = self.state
        done = self.world.sum(num_batches, num_frames, num_padded, self.stop.requested)
        state.samples = self._num_samples(state.batch + int(done[0]))
        state.step += int(done[0])
        state.batch += int(done[0])
        state.frames += int(done[1])
        state.padded_frames += int(done[2])
        state.source = self.epoch.state(state.batch)
        if done[0] and self.code and state.code[-1:] != [self.code]:
            state.code.append(self.code)
        consensus = self.strategy.synchronise()
        if self.world.size > 1:
            self.reports.report_learners(consensus)
        if done[3]:
            raise Stopped

    def _end_epoch(self) -> None:
        state = self.state
        self._report(state.step, state.samples)
        with self.strategy.consensus():
            losses = self._evaluate()
            state.epoch += 1
            state.batch = 0
            self.epoch = Epoch(self.train_set, state.epoch, 0, state.source)
            dev_loss = self.reports.report_dev(losses)
        self._keep(Saved(state.step, dev_loss))

    def _evaluate(self) -> Sums:
        """The losses on dev, of which each learner computes its part. Raises Stopped for all learners alike."""
        batches = self.dev_set.plan_eval()[self.world.rank :: self.world.size]
        own, stopped = Sums(), False
        try:
            own = sum_loss(self.model, self.dev_set, batches, self.precision, self.stop.check)
        except Stopped:
            stopped = True
        of_all = self.world.gather((own, stopped))
        if any(stopped for _, stopped in of_all):
            raise Stopped
        total = Sums()
        for sums, _ in of_all:
            total.add(sums.total, sums.normaliser, sums.figures)
        return total

    def _keep(self, new: Saved) -> None:
        """Save a checkpoint that counts among the last and the best."""
        self.state.saved = to_keep([*self.state.saved, new], self.settings.keep_last, self.settings.keep_best)
        self._save(new)

    def _save(self, new: Saved) -> None:
        """Save a checkpoint to resume from; the next one removes it unless it was kept."""
        lengths = self.world.gather(self.records.num_bytes)
        self.state.record_bytes[: len(lengths)] = lengths  # what more learners recorded before stays
        self.reports.note_length()
        self.checkpointer.save(self.model, self.strategy, self.state, new)

    def _report(self, step: int, num_samples: int) -> None:
        self.reports.report(step, num_samples, self.strategy.optimizer.param_groups[0]["lr"])

    def _num_steps(self, position: int) -> int:
        """Batches of the training before this `position` of the epoch."""
        return self.state.step - self.state.batch + position

    def _num_samples(self, position: int) -> int:
        """Utterances of the training before this `position` of the epoch, which is behind the last synchronisation."""
        return self.state.samples + self.epoch.num_samples(range(self.state.batch, position))

    def _learning_rate(self, num_samples: int) -> float:
        """For the step that brings the count of utterances to `num_samples`; there may be more than were estimated."""
        rate = learning_rate(self.settings, min(num_samples, self.total_samples), self.total_samples)
        return self.distributed.lr_scale * rate

    def _divisor(self, assignment: Assignment) -> float:
        """Of the loss: learners that share their gradients take the mean, so each divides by its part of the sum."""
        return max(self.epoch.normaliser(assignment.group) / self.strategy.assignment_rule.group_size, 1)

    def _what_is_bad(self, step: Step) -> str:
        what = f"loss {step.loss:g}, gradient norm {step.grad_norm:g}"
        num_others = self.strategy.assignment_rule.group_size - 1
        return f"{what} with the gradients of {num_others} others" if num_others and math.isfinite(step.loss) else what
