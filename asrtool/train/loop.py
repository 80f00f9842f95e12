"""The training loop: epochs of batches, with metrics, checkpoints and the loss on dev in fixed places.

Several learners run the same loop, each on its part of the batches. They synchronise at every checkpoint and at the
end of an epoch; between two synchronisations each counts for itself.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asrtool.config import Config
from asrtool.corpus.batches import Batch
from asrtool.distributed.strategy import ConsensusMetrics, Strategy, StrategyContext
from asrtool.distributed.work_queue import Assignment, WorkQueue
from asrtool.distributed.world import World
from asrtool.log import bar
from asrtool.models.acoustic import AcousticModel
from asrtool.train.bad_batch import bad_batch
from asrtool.train.checkpoint import Saved, State, to_keep
from asrtool.train.checkpointer import Checkpointer
from asrtool.train.emulation import Emulation
from asrtool.train.epoch import Epoch
from asrtool.train.examples import ExampleBatch, Examples
from asrtool.train.loss import EmulatedCompute, Task, sum_loss
from asrtool.train.metrics import Interval, Metrics
from asrtool.train.optimizer import build_optimizer, set_learning_rate
from asrtool.train.precision import choose_precision
from asrtool.train.records import Records
from asrtool.train.schedule import learning_rate
from asrtool.train.specaugment import mask_features
from asrtool.train.stop import Stop, Stopped


class Training:
    """A model on its way through the epochs; `state` tells how far all learners had come when they last met."""

    def __init__(
        self,
        config: Config,
        info: dict[str, Any],
        model: AcousticModel,
        sets: tuple[Examples, Examples],
        out: Path,
        world: World,
        emulation: Emulation,
    ) -> None:
        """Go on from the newest whole checkpoint of `out`, if there is one.

        `info` is that of a model file and `sets` are those to train on and to evaluate with. Raises AsrtoolError when
        there are checkpoints but none can be read, and when these learners cannot train by `train.strategy`.
        """
        self.settings = config.train
        self.strategy_name = config.distributed.strategy.name
        self.lr_scale = config.distributed.lr_scale
        self.specaugment = config.specaugment
        self.max_frames = int(config.train.batch_s * 1000 / info["features"]["frame_shift_ms"])
        self.info = info
        self.train_set, self.dev_set = sets
        self.total_samples = self.settings.num_epochs * len(self.train_set.targets)
        self.out = out
        self.world = world
        self.checkpointer = Checkpointer(out / "checkpoints", info, world)
        self.slowness = emulation.slow.get(world.rank, 1.0)

        found, self.state = self.checkpointer.load() or (None, State())
        self._fix_arithmetic()
        self.model = model.to(self.precision.device)
        if found:
            self.model.load_state_dict(found["weights"])
        task = Task(self.model, self.precision)
        make_optimizer = functools.partial(build_optimizer, settings=config.train)
        strategy = config.distributed.strategy
        self.strategy: Strategy = strategy.load()(
            StrategyContext(
                task=task if emulation.compute_ms is None else EmulatedCompute(self.model, emulation.compute_ms),
                model=self.model,
                make_optimizer=make_optimizer,
                clip_norm=config.train.clip_norm,
                settings=strategy.settings,
                seed=config.train.seed,
                world=world,
            )
        )
        if found:
            self._resume(found["learner"])

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

    def _fix_arithmetic(self) -> None:
        """Threads and precision decide the last bits, so what is left open stays as it was when training began."""
        share = max(1, (os.cpu_count() or 1) // self.world.local_size)
        free = torch.get_num_threads() if self.world.size == 1 else share
        self.state.num_threads = self.settings.num_threads or self.state.num_threads or free
        torch.set_num_threads(self.state.num_threads)
        wanted = self.settings.precision
        self.precision = choose_precision(self.state.precision if wanted == "auto" else wanted)
        self.state.precision = self.precision.name
        logging.info("%d threads, %s on %s", self.state.num_threads, self.precision.name, self.precision.device)

    def run(self) -> None:
        """Train to the end. When told to stop, a checkpoint is saved first.

        Raises AsrtoolError when a loss or gradient is not a number, and when the disk is full; Stopped where another
        learner was told to stop.
        """
        self.state.num_learners, self.state.group_size = self.world.size, self.strategy.assignment_rule.group_size
        self.clock = time.perf_counter()
        self.interval = Interval()
        self.reported_step = self.state.step
        self.compute_s = 0.0  # of the last step
        with contextlib.ExitStack() as stack:
            self.stop = stack.enter_context(Stop())
            self.records = stack.enter_context(Records(self.out, self.world, self.state.record_bytes))
            self.metrics = None
            if self.world.rank == 0:
                metrics = Metrics(self.out, self.state.metrics_bytes, self.state.step)
                self.metrics = stack.enter_context(metrics)
            stack.callback(self.strategy.close)
            self.queue = WorkQueue(self.world, self.strategy.assignment_rule, lambda: self.stop.requested)
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
        self.epoch = Epoch.plan(self.train_set, self.max_frames, self.settings.seed, state.epoch)
        num_batches = len(self.epoch.batches)
        while state.batch < num_batches:
            to_save = state.batch + every - state.step % every
            stopped = self._train_until(min(to_save, num_batches))
            if stopped:
                raise Stopped
            if to_save <= state.batch < num_batches:
                self._keep(Saved(state.step, None))

    def _train_until(self, end: int) -> bool:
        """Train the batches up to `end` with all learners, and synchronise; whether one was asked to stop."""
        state = self.state
        num_batches = num_frames = num_padded = 0
        assignments = self.queue.assign(state.batch, end, len(self.epoch.batches))
        for assignment, batch in bar(self._load_assigned(assignments), f"epoch {state.epoch + 1}", None, "batch"):
            loss, grad_norm, record = self._step(assignment, batch)
            if batch is None:
                continue
            self.records.write({"epoch": state.epoch + 1, "batch": assignment.position, **record})
            self.interval.add(batch, loss, grad_norm, self._lap_s())
            num_batches += 1
            num_frames += batch.frames
            num_padded += batch.padded_frames
            every = self.settings.log_every_steps
            if record["step"] // every > self.reported_step // every or assignment.end == len(self.epoch.batches):
                self._report(record["step"], record["samples"])
        done = self.world.sum(num_batches, num_frames, num_padded, self.stop.requested)
        state.step += int(done[0])
        state.batch += int(done[0])
        state.samples = self._num_samples(state.batch)
        state.frames += int(done[1])
        state.padded_frames += int(done[2])
        self._log_consensus(self.strategy.synchronise())
        return done[3] > 0

    def _load_assigned(self, assignments: Iterator[Assignment]) -> Iterator[tuple[Assignment, ExampleBatch | None]]:
        """The assignments with their batches, one read ahead; the one without a batch comes last."""
        loaded: deque[Assignment] = deque()
        without: list[Assignment] = []

        def batches() -> Iterator[Batch]:
            for assignment in assignments:
                if assignment.position is None:
                    without.append(assignment)
                    return
                loaded.append(assignment)
                yield self.epoch.batches[assignment.position]

        def note() -> None:
            self.records.write_assigned(
                self.state.epoch + 1, [assignment.position for assignment in loaded if assignment.position is not None]
            )

        for batch in self.train_set.load(batches(), prefetch=1):
            note()
            yield loaded[0], batch
            loaded.popleft()
        note()
        for assignment in without:
            yield assignment, None

    def _step(self, assignment: Assignment, batch: ExampleBatch | None) -> tuple[float, float, dict[str, Any]]:
        """Train on `batch`: its loss in nats and the gradient norm, both before the update, and a record of the step.

        Dropout and masks are drawn from the seed and the place of the batch, so they are the same after a restart.
        """
        step = self.state.step - self.state.batch + assignment.end
        began, begin = time.time(), time.perf_counter()
        if batch is not None:
            assert assignment.position is not None
            place = self.state.step - self.state.batch + assignment.position
            random = np.random.default_rng((self.settings.seed, place))
            torch.manual_seed(int(random.integers(2**63)))
            mask_features(batch.loaded.feats_NTF, batch.loaded.feat_lens_N, self.specaugment, random)
        num_samples = self._num_samples(assignment.end)
        rate = self.lr_scale * learning_rate(self.settings, num_samples, self.total_samples)
        set_learning_rate(self.strategy.optimizer, rate)
        loss = self.strategy.task(batch)
        self._stretch(time.perf_counter() - begin)
        # Learners that share their gradients take the mean of them: so each divides by its part of all tokens.
        (loss / max(self.epoch.normaliser(assignment.group) / self.strategy.assignment_rule.group_size, 1)).backward()
        nats = loss.item()
        grad_norm, spent = self.strategy.step()
        seconds = time.perf_counter() - begin
        if batch is not None and not (math.isfinite(nats) and math.isfinite(grad_norm)):
            raise bad_batch(batch, place + 1, self._what_is_bad(nats, grad_norm), self.out)
        self.compute_s = seconds - spent.comm_s - spent.wait_s
        record = {
            "step": step,
            "samples": num_samples,
            "loss": nats / max(batch.normaliser, 1) if batch else 0.0,
            "begin": round(began, 6),
            "compute_s": round(self.compute_s, 6),
            "comm_s": round(spent.comm_s, 6),
            "wait_s": round(spent.wait_s, 6),
            "data_s": round(batch.wait_s, 6) if batch else 0.0,
            "staleness": spent.staleness,
            "bytes": spent.num_bytes,
        }
        return nats, grad_norm, record

    def _what_is_bad(self, nats: float, grad_norm: float) -> str:
        what = f"loss {nats:g}, gradient norm {grad_norm:g}"
        num_others = self.strategy.assignment_rule.group_size - 1
        return f"{what} with the gradients of {num_others} others" if num_others and math.isfinite(nats) else what

    def _stretch(self, forward_s: float) -> None:
        """Emulate a slower learner, before backward, which is where others wait; that takes as long as the last one."""
        if self.slowness > 1:
            own_s = max(forward_s, self.compute_s / self.slowness)
            time.sleep((self.slowness - 1) * own_s)

    def _num_samples(self, position: int) -> int:
        """Utterances of the training before this `position` of the epoch."""
        return self.state.epoch * len(self.train_set.targets) + int(self.epoch.samples[position])

    def _log_consensus(self, consensus: ConsensusMetrics) -> None:
        if self.world.size > 1:
            values = {"consensus_distance": consensus.distance, "drift": consensus.drift}
            self._tell("learners", self.state.step, {key: value for key, value in values.items() if value is not None})

    def _end_epoch(self) -> None:
        state = self.state
        if self.interval.num_steps:
            self._report(state.step, state.samples)
        with self.strategy.consensus():
            loss = self._evaluate()
            state.epoch += 1
            state.batch = 0
            self._lap_s()
            self._tell("dev", state.step, {"epoch": state.epoch, "samples": state.samples, "loss": loss})
            logging.info("epoch %d/%d: loss on dev %.4f", state.epoch, self.settings.num_epochs, loss)
        self._keep(Saved(state.step, loss))

    def _evaluate(self) -> float:
        """The loss on dev in nats a token; each learner computes its part. Raises Stopped for all learners alike."""
        batches = self.dev_set.plan_eval(self.max_frames)[self.world.rank :: self.world.size]
        nats, normaliser, stopped = 0.0, 0, False
        try:
            nats, normaliser = sum_loss(self.model, self.dev_set, batches, self.precision, self.stop.check)
        except Stopped:
            self.model.train()
            stopped = True
        total, num_all, num_stopped = self.world.sum(nats, normaliser, stopped)
        if num_stopped:
            raise Stopped
        return total / max(num_all, 1)

    def _report(self, step: int, num_samples: int) -> None:
        state, interval = self.state, self.interval
        self.interval = Interval()
        self.reported_step = step
        rate = self.strategy.optimizer.param_groups[0]["lr"]
        values = {"epoch": state.epoch + 1, "samples": num_samples, "lr": rate, **interval.rates()}
        self._tell("train", step, {**values, "seconds": state.seconds})
        left_s = state.seconds / num_samples * (self.total_samples - num_samples)
        logging.info(
            "epoch %d/%d, step %d: loss %.4f, lr %.3g, %.0f frames/s, %.0f s left",
            values["epoch"], self.settings.num_epochs, step, values["loss"], rate, values["frames_per_s"], left_s,
        )  # fmt: skip

    def _tell(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if self.metrics:
            self.metrics.write(kind, step, values)

    def _keep(self, new: Saved) -> None:
        """Save a checkpoint that counts among the last and the best."""
        self.state.saved = to_keep([*self.state.saved, new], self.settings.keep_last, self.settings.keep_best)
        self._save(new)

    def _save(self, new: Saved) -> None:
        """Save a checkpoint to go on from; the next one removes it unless it was kept."""
        lengths = self.world.gather(self.records.num_bytes)
        self.state.record_bytes[: len(lengths)] = lengths  # what more learners told before stays
        if self.metrics:
            self.state.metrics_bytes = self.metrics.num_bytes
        self.checkpointer.save(self.model, self.strategy, self.state, new)

    def _lap_s(self) -> float:
        """Seconds since the last call, which are added to those of the training."""
        before, self.clock = self.clock, time.perf_counter()
        self.state.seconds += self.clock - before
        return self.clock - before
