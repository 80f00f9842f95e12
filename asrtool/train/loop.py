"""The training loop: steps, with metrics, checkpoints and the loss on dev in fixed places.

Several learners run the same loop, each on its part of the batches. Those of a synchronous strategy synchronise at
every checkpoint, and evaluate together at the end of an epoch. Those of an asynchronous one wait for nobody between the
first step and the last: each takes its part of a checkpoint between two of its own steps (asrtool.train.snapshots).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from asrtool.corpus.batches import load_ahead
from asrtool.distributed.settings import Distributed
from asrtool.distributed.strategy import Strategy, StrategyContext
from asrtool.distributed.work_queue import Assignment, WorkQueue
from asrtool.distributed.world import World
from asrtool.log import bar
from asrtool.models.acoustic import AcousticModel
from asrtool.train.batch import Augment, TrainingBatch, prepare_batch, save_bad_batch
from asrtool.train.checkpoint import Saved, State, checkpoint_path, load_checkpoint, to_keep
from asrtool.train.checkpointer import Checkpointer
from asrtool.train.job import Components, Job
from asrtool.train.loss import EmulatedCompute, Sums, Task, sum_loss, with_weights
from asrtool.train.metrics import Reports
from asrtool.train.optimizer import build_optimizer, set_learning_rate
from asrtool.train.pace import Pace
from asrtool.train.plan import Place, Plan
from asrtool.train.precision import Precision, choose_precision
from asrtool.train.records import Records, Step
from asrtool.train.schedule import learning_rate
from asrtool.train.settings import Optimisation
from asrtool.train.snapshots import Cut, Snapshots
from asrtool.train.source import BatchSource, DevSet
from asrtool.train.stop import Stop, Stopped
from asrtool.train.straggler import InjectionOptions, StragglerInjection

END = 2**40  # an epoch behind all others


@dataclass
class Reached:
    """How far this learner has come."""

    first_epoch: int  # where it began
    epoch: int = 0  # of its last step
    num_rounds: int = 0  # before its next step, since training began or resumed
    num_cuts: int = 0  # that were asked for, before its last step
    cut: int = 0  # all of them, with those at the ends of epochs
    num_frames: int = 0  # trained by it, since learners last synchronised
    num_padded: int = 0  # the same with padding

    def __post_init__(self) -> None:
        self.epoch = self.first_epoch


class Training:
    """A model on its way through the epochs.

    A checkpoint holds `state`, which says how far all learners had come, the weights that stand for all, and
    `strategy.snapshot()` of each learner.
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
    snapshots: Snapshots | None  # where learners wait for nobody
    # run state
    state: State
    plan: Plan
    reached: Reached

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
            self._resume(found["learner"], found["shared"])
        self.state.num_learners, self.state.group_size = world.size, self.strategy.assignment_rule.group_size
        self.rule = self.strategy.assignment_rule
        begin = Place(self.state.epoch, self.state.batch, self.state.step, self.state.samples, self.state.source)
        self.plan = Plan(self.train_set, self.settings.num_epochs, self.rule.round_size(world.size), begin)
        self.straggler = StragglerInjection(job.injection.slow.get(world.rank, 1.0))
        self.stop = Stop()
        self.records = Records(self.out, world, self.state.record_bytes)
        self.reports = Reports(self.settings, self.total_samples, self.out, self.state, is_first=world.rank == 0)
        self.snapshots = self._make_snapshots()
        self.pace = Pace(self.settings, self.state.rounds, self._steps_together, self.stop, self._is_saving)
        self.queue = WorkQueue(world, self.rule, self.plan.batches, self.pace)
        self.reached = Reached(begin.epoch)

    @property
    def _steps_together(self) -> bool:
        return self.rule.round_size(self.world.size) == self.world.size

    def _make_snapshots(self) -> Snapshots | None:
        """Where learners wait for nobody."""
        if self._steps_together or not self.strategy.asynchronous:
            return None
        return Snapshots(
            self.strategy, self.model, self.checkpointer, self.state, self.settings, self.reports, self._evaluate_alone
        )

    def _is_saving(self) -> bool:
        return self.snapshots.busy if self.snapshots else self.checkpointer.busy

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

    def _resume(self, learner: dict[str, Any] | None, shared: dict[str, Any] | None) -> None:
        where = f"resuming after step {self.state.step}, in epoch {self.state.epoch + 1}"
        group_size = self.strategy.assignment_rule.group_size
        if self.state.num_learners != self.world.size:
            change = f"with {self.world.size} learners instead of {self.state.num_learners}"
        elif self.state.group_size not in (0, group_size):
            change = f"with {group_size} learners that share gradients instead of {self.state.group_size}"
        elif learner is None:
            change = "without what each learner had of its own"
        else:
            self.strategy.load_state(learner, shared or {})
            logging.info("%s", where)
            return
        optimizers = "their optimizer" if shared and self.strategy.load_shared(shared) else "new optimizers"
        logging.info("%s, %s: from the mean of their weights, with %s", where, change, optimizers)

    def train(self) -> None:
        """Train to the end. When asked to stop, a checkpoint is saved first.

        Raises AsrtoolError when a loss or gradient is not a number, and when the disk is full; Stopped where another
        learner was asked to stop.
        """
        with contextlib.ExitStack() as stack:
            for opened in (self.stop, self.records, self.reports):
                stack.enter_context(opened)
            for closed in (self.strategy, self.checkpointer, self.snapshots):
                if closed:
                    stack.enter_context(contextlib.closing(closed))
            self.strategy.start()
            self.strategy.synchronise()  # the mean that updates are added to
            try:
                self._evaluate_what_is_left()
                self._train_steps()
                self._end()
            except Stopped:
                self._save(Saved(self.state.step, None))
                self.checkpointer.drain()
                self.world.barrier()
                raise

    def _train_steps(self) -> None:
        """Train to the last batch; raises Stopped where learners that step together evaluate, and one is to stop."""
        for assignment, batch in bar(self._load(), "training", None, "batch"):
            self._reach(assignment.epoch, assignment.first, assignment.num_cuts)
            step = self._step(assignment, batch)
            self.reached.num_rounds = assignment.number + 1
            if batch is not None:
                self._record(assignment, batch, step)
                self.reached.num_frames += batch.frames
                self.reached.num_padded += batch.padded_frames

    def _load(self) -> Iterator[tuple[Assignment, TrainingBatch | None]]:
        """The assignments with their batches, one read ahead."""
        assignments = self.records.follow(self.queue.assign())
        with contextlib.closing(load_ahead(self._read, assignments, prefetch=1)) as loaded:
            while True:
                begin = time.perf_counter()
                try:
                    assignment, batch = next(loaded)
                except StopIteration:
                    return
                if batch is not None:
                    batch.wait_s = time.perf_counter() - begin
                yield assignment, batch

    def _read(self, assignment: Assignment) -> tuple[Assignment, TrainingBatch | None]:
        if assignment.position is None:
            return assignment, None
        return assignment, self.train_set.read(self.plan.batch(assignment.epoch, assignment.position))

    def _reach(self, epoch: int, first: int, num_cuts: int) -> None:
        """Before the step of the round whose `first` batch is that of `epoch`: the checkpoints of the cuts before it.

        `num_cuts` are those that were asked for.
        """
        (self.snapshots or self.checkpointer).check()
        cut = epoch - self.reached.first_epoch + num_cuts
        if cut == self.reached.cut:
            return
        if self.snapshots:
            cuts = self._cuts(self.reached.cut, epoch, num_cuts) if self.world.rank == 0 else []
            self._pass(epoch)
            self.snapshots.take(range(self.reached.cut + 1, cut + 1), cuts, self._lengths())
            self.reached.cut, self.reached.epoch, self.reached.num_cuts = cut, epoch, num_cuts
        elif self._steps_together:
            self._checkpoint(epoch, first, num_cuts)
        else:
            self._wait_for_all(epoch, num_cuts)

    def _wait_for_all(self, epoch: int, num_cuts: int) -> None:
        """The checkpoints before a step of `epoch`, of learners that wait for the others there, one after the other.

        Who has no step between two of them takes part in both. Behind its last step a learner is in the epoch END.
        """
        while (epoch, num_cuts) != (self.reached.epoch, self.reached.num_cuts):
            of_all = self.world.gather((epoch + num_cuts, epoch, num_cuts, self.queue.cuts))
            _, next_epoch, next_cuts, _ = min(of_all)
            if next_epoch == END:
                return
            asked = self.plan.place_of_round(of_all[0][3][next_cuts - 1]) if next_cuts > self.reached.num_cuts else None
            first = 0 if next_epoch > self.reached.epoch or asked is None else asked.batch
            self._checkpoint(next_epoch, first, next_cuts)

    def _pass(self, epoch: int) -> None:
        """At a cut; where epochs end before `epoch`, report the steps since the last report."""
        self.pace.reset()
        if epoch > self.reached.epoch:
            border = self.plan.place(epoch, 0)
            self._report(self.reached.epoch, border.step, border.samples)

    def _cuts(self, before: int, epoch: int, num_cuts: int) -> list[Cut]:
        """Those between the last step of learner 0 and the next one; of several at a place one."""
        asked = self.queue.cuts[self.reached.num_cuts : num_cuts]
        places = [(place, False) for place in map(self.plan.place_of_round, asked) if place]
        places += [(place, True) for place in self.plan.borders(self.reached.epoch + 1, epoch)]
        places.sort(key=lambda item: (item[0].step, item[1]))
        cuts: list[Cut] = []
        for number, (place, ends_epoch) in enumerate(places, before + 1):
            if cuts and cuts[-1].state.step == place.step:
                ends_epoch |= cuts.pop().ends_epoch
            cuts.append(Cut(number, self._state_at(place), ends_epoch))
        return cuts

    def _state_at(self, place: Place) -> State:
        self.reports.lap_s()
        state = dataclasses.replace(
            self.state,
            epoch=place.epoch,
            batch=place.batch,
            step=place.step,
            samples=place.samples,
            source=place.source,
            code=list(self.state.code),
        )
        if place.step > self.state.step and self.code and state.code[-1:] != [self.code]:
            state.code.append(self.code)
        return state

    def _lengths(self) -> dict[str, int]:
        """What the parts of learners add to the state of a checkpoint."""
        return {
            "record_bytes": self.records.num_bytes,
            "frames": self.reached.num_frames,
            "padded_frames": self.reached.num_padded,
        }

    def _step(self, assignment: Assignment, batch: TrainingBatch | None) -> Step:
        """Train on `batch`; without one, take part in what the others train."""
        after = self.plan.place(assignment.epoch, assignment.end)
        began, begin = time.time(), time.perf_counter()
        if batch is not None:
            prepare_batch(batch, self.settings.seed, self._number_of(assignment), self.augment)
        set_learning_rate(self.strategy.optimizer, self._learning_rate(after.samples))

        loss = self.strategy.task(batch)
        self.straggler.stretch(time.perf_counter() - begin)
        self.strategy.update.backward(loss / self._divisor(assignment))
        nats = loss.item()
        grad_norm, cost = self.strategy.step()

        compute_s = time.perf_counter() - begin - cost.comm_s - cost.wait_s
        self.straggler.note(compute_s)
        figures = self.task.figures if batch is not None else {}
        return Step(after.step, after.samples, nats, figures, grad_norm, began, compute_s, cost)

    def _record(self, assignment: Assignment, batch: TrainingBatch, step: Step) -> None:
        assert assignment.position is not None
        if not (math.isfinite(step.loss) and math.isfinite(step.grad_norm)):
            number = self._number_of(assignment) + 1
            raise save_bad_batch(batch, number, self._what_is_bad(step), self.out, self.settings.section)
        self.records.write(assignment.epoch + 1, assignment.position, step, batch.normaliser, batch.wait_s)
        self.reports.add(batch, step)
        if self.reports.is_due(step.number):
            self._report(assignment.epoch, step.number, step.num_samples)

    def _checkpoint(self, epoch: int, first: int, num_cuts: int) -> None:
        """All learners are before the batch `first` of `epoch`: synchronise, evaluate where an epoch ends, and save."""
        self._pass(epoch)
        if epoch > self.reached.epoch:
            self._synchronise(self.plan.end_of(self.reached.epoch))
            self._end_epoch(self.plan.place(epoch, 0))
        else:
            self._synchronise(self.plan.place(epoch, first))
            self._keep(Saved(self.state.step, None))
        self.reached.cut = epoch - self.reached.first_epoch + num_cuts
        self.reached.epoch, self.reached.num_cuts = epoch, num_cuts

    def _end(self) -> None:
        """After the last step of this learner. Raises Stopped where one was asked to stop."""
        if not (self.snapshots or self._steps_together):
            self._wait_for_all(END, 0)
        reached = self.reached
        of_all = self.world.gather((reached.num_rounds, reached.cut, reached.epoch, reached.num_cuts))
        num_rounds = max(number for number, *_ in of_all)
        last = self.plan.batches(num_rounds - 1) if num_rounds else None
        if self.snapshots:
            _, _, epoch, num_cuts = max(of_all, key=lambda one: one[1])
            self._reach(epoch, 0, num_cuts)  # those behind the last step of this learner
            self.snapshots.finish()
            self.state.saved, self.state.unevaluated = self.world.gather(self.snapshots.saved)[0]
        epoch, position = (last[0], last[1].stop) if last else (self.state.epoch, self.state.batch)
        self._synchronise(self.plan.place(epoch, position))
        if self.plan.batches(num_rounds) is not None:
            raise Stopped
        if self.state.epoch < self.settings.num_epochs:
            self._report(self.state.epoch, self.state.step, self.state.samples)
            self._end_epoch(self.plan.end)
        self.checkpointer.drain()
        self.world.barrier()  # who has ended would be taken for lost

    def _synchronise(self, place: Place) -> None:
        """All learners have ended the same steps, and are at `place`. Raises Stopped where one was asked to stop."""
        done = self.world.sum(self.reached.num_frames, self.reached.num_padded, self.stop.requested)
        vars(self.state).update(vars(self._state_at(place)))
        self.state.frames += int(done[0])
        self.state.padded_frames += int(done[1])
        self.state.rounds = self.pace.first + self.reached.num_rounds
        self.reached.num_frames = self.reached.num_padded = 0
        consensus = self.strategy.synchronise()
        if self.world.size > 1:
            self.reports.report_learners(place.step, consensus)
        if done[2]:
            raise Stopped

    def _end_epoch(self, behind: Place) -> None:
        """Evaluate together, and save the state of `behind`, where the next epoch begins."""
        with self.strategy.consensus():
            losses = self._evaluate_together()
        self.reports.lap_s()
        self.state.epoch, self.state.batch, self.state.source = behind.epoch, behind.batch, behind.source
        self._keep(Saved(self.state.step, self.reports.report_dev(losses, self.state)))

    def _evaluate_what_is_left(self) -> None:
        """Checkpoints of ended epochs that were not evaluated when training ended."""
        for step in list(self.state.unevaluated):
            content, then = load_checkpoint(checkpoint_path(self.checkpointer.directory, step))
            with with_weights(self.model, content["weights"]):
                losses = self._evaluate_together()
            evaluated = Saved(step, self.reports.report_dev(losses, then))
            self.state.saved = [evaluated if entry.step == step else entry for entry in self.state.saved]
            self.state.unevaluated.remove(step)

    def _evaluate_together(self) -> Sums:
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

    def _evaluate_alone(self, model: AcousticModel) -> Sums:
        """The same of `model`, in a thread beside the training. Raises Stopped."""
        torch.set_num_threads(self.state.num_threads)  # of this thread
        return sum_loss(model, self.dev_set, self.dev_set.plan_eval(), self.precision, self.stop.check)

    def _keep(self, new: Saved) -> None:
        """Save a checkpoint that counts among the last and the best."""
        self.state.saved = to_keep([*self.state.saved, new], self.settings.keep_last, self.settings.keep_best)
        self._save(new)

    def _save(self, new: Saved) -> None:
        """Save a checkpoint to resume from; the next one removes it unless it was kept."""
        lengths = self.world.gather(self.records.num_bytes)
        self.state.record_bytes[: len(lengths)] = lengths  # what more learners recorded before stays
        self.checkpointer.save(self.model, self.strategy, self.state, new)

    def _report(self, epoch: int, step: int, num_samples: int) -> None:
        self.reports.report(epoch, step, num_samples, self.strategy.optimizer.param_groups[0]["lr"])

    def _number_of(self, assignment: Assignment) -> int:
        """Batches of the training before that of `assignment`."""
        assert assignment.position is not None
        return self.plan.place(assignment.epoch, assignment.position).step

    def _learning_rate(self, num_samples: int) -> float:
        """For the step that brings the count of utterances to `num_samples`; there may be more than were estimated."""
        rate = learning_rate(self.settings, min(num_samples, self.total_samples), self.total_samples)
        return self.distributed.lr_scale * rate

    def _divisor(self, assignment: Assignment) -> float:
        """Of the loss: learners that share their gradients take the mean, so each divides by its part of the sum."""
        return max(self.plan.normaliser(assignment.epoch, assignment.group) / self.rule.group_size, 1)

    def _what_is_bad(self, step: Step) -> str:
        what = f"loss {step.loss:g}, gradient norm {step.grad_norm:g}"
        num_others = self.rule.group_size - 1
        return f"{what} with the gradients of {num_others} others" if num_others and math.isfinite(step.loss) else what
