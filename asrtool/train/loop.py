"""The training loop: epochs of batches, with metrics, checkpoints and the loss on dev in fixed places."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asrtool.config import Config
from asrtool.dist.strategy import Single, Strategy
from asrtool.errors import AsrtoolError
from asrtool.log import bar
from asrtool.models import AcousticModel
from asrtool.models.criterion import choose_criterion
from asrtool.models.torch_file import write_torch
from asrtool.train.checkpoint import Saved, State, load_newest, remove_others, save_checkpoint, to_keep
from asrtool.train.examples import ExampleBatch, Examples
from asrtool.train.loss import batch_loss, mean_loss
from asrtool.train.metrics import Interval, Metrics
from asrtool.train.optimizer import build_optimizer, set_learning_rate
from asrtool.train.precision import choose_precision
from asrtool.train.schedule import learning_rate
from asrtool.train.specaugment import mask_features
from asrtool.train.stop import Stop, Stopped

NUM_NAMED = 5  # utterances named in a message


class Training:
    """A model on its way through the epochs; `state` tells how far it has come."""

    def __init__(
        self, config: Config, info: dict[str, Any], model: AcousticModel, sets: tuple[Examples, Examples], out: Path
    ) -> None:
        """Go on from the newest whole checkpoint of `out`, if there is one.

        `info` is that of a model file and `sets` are those to train on and to evaluate with. Raises AsrtoolError when
        there are checkpoints but none can be read.
        """
        self.settings = config.train
        self.criterion = choose_criterion(config.train.criterion)
        self.specaugment = config.specaugment
        self.max_frames = int(config.train.batch_s * 1000 / info["features"]["frame_shift_ms"])
        self.info = info
        self.train_set, self.dev_set = sets
        self.total_samples = self.settings.num_epochs * len(self.train_set.tokens)
        self.out = out
        self.directory = out / "checkpoints"

        found, self.state = load_newest(self.directory) or (None, State())
        self._fix_arithmetic()
        self.model = model.to(self.precision.device)
        self.optimizer = build_optimizer(self.model, self.settings)
        if found:
            self.model.load_state_dict(found["weights"])
            self.optimizer.load_state_dict(found["optimizer"])
            logging.info("going on after step %d, in epoch %d", self.state.step, self.state.epoch + 1)
        self.strategy: Strategy = Single(self.model, self.optimizer, self.settings.clip_norm)

    def _fix_arithmetic(self) -> None:
        """Threads and precision decide the last bits, so what is left open stays as it was when training began."""
        self.state.num_threads = self.settings.num_threads or self.state.num_threads or torch.get_num_threads()
        torch.set_num_threads(self.state.num_threads)
        wanted = self.settings.precision
        self.precision = choose_precision(self.state.precision if wanted == "auto" else wanted)
        self.state.precision = self.precision.name
        logging.info("%d threads, %s on %s", self.state.num_threads, self.precision.name, self.precision.device)

    def run(self) -> None:
        """Train to the end. When told to stop, a checkpoint is saved first.

        Raises AsrtoolError when a loss or gradient is not a number, and when the disk is full.
        """
        self.clock = time.perf_counter()
        with Stop() as self.stop, Metrics(self.out, self.state.metrics_bytes, self.state.step) as self.metrics:
            try:
                while self.state.epoch < self.settings.num_epochs:
                    self._train_epoch()
                    self._end_epoch()
            except Stopped:
                self._save(Saved(self.state.step, None))
                raise

    def _train_epoch(self) -> None:
        state, settings = self.state, self.settings
        batches = self.train_set.plan_epoch(self.max_frames, settings.seed, state.epoch)
        interval = Interval()
        loaded = self.train_set.load(batches, first=state.batch)
        for batch in bar(loaded, f"epoch {state.epoch + 1}", len(batches) - state.batch, "batch"):
            loss, grad_norm = self._step(batch)
            self._count(batch)
            interval.add(batch, loss, grad_norm, self._lap_s())
            is_last = state.batch == len(batches)
            if state.step % settings.log_every_steps == 0 or is_last:
                self._report(interval)
                interval = Interval()
            if state.step % settings.save_every_steps == 0 and not is_last:
                self._keep(Saved(state.step, None))
            self.stop.check()

    def _step(self, batch: ExampleBatch) -> tuple[float, float]:
        """Train on `batch`: its loss in nats and the gradient norm, both before the update.

        Dropout and masks are drawn from (seed, step) alone, so they are the same after a restart.
        """
        random = np.random.default_rng((self.settings.seed, self.state.step))
        torch.manual_seed(int(random.integers(2**63)))
        mask_features(batch.loaded.feats_NTF, batch.loaded.feat_lens_N, self.specaugment, random)
        num_samples = self.state.samples + len(batch.ids)
        set_learning_rate(self.optimizer, learning_rate(self.settings, num_samples, self.total_samples))
        loss = batch_loss(self.model, self.criterion, batch, self.precision)
        (loss / max(batch.num_tokens, 1)).backward()
        nats, grad_norm = loss.item(), self.strategy.step()
        if not (math.isfinite(nats) and math.isfinite(grad_norm)):
            raise self._bad_batch(batch, f"loss {nats:g}, gradient norm {grad_norm:g}")
        return nats, grad_norm

    def _count(self, batch: ExampleBatch) -> None:
        self.state.step += 1
        self.state.batch += 1
        self.state.samples += len(batch.ids)
        self.state.frames += batch.frames
        self.state.padded_frames += batch.padded_frames

    def _end_epoch(self) -> None:
        state = self.state
        with self.strategy.consensus():
            batches = self.dev_set.plan_eval(self.max_frames)
            loss = mean_loss(self.model, self.criterion, self.dev_set, batches, self.precision, self.stop.check)
            state.epoch += 1
            state.batch = 0
            self._lap_s()
            self.metrics.write("dev", state.step, {"epoch": state.epoch, "samples": state.samples, "loss": loss})
            logging.info("epoch %d/%d: loss on dev %.4f", state.epoch, self.settings.num_epochs, loss)
            self._keep(Saved(state.step, loss))

    def _report(self, interval: Interval) -> None:
        state = self.state
        rate = self.optimizer.param_groups[0]["lr"]
        values = {"epoch": state.epoch + 1, "samples": state.samples, "lr": rate, **interval.rates()}
        self.metrics.write("train", state.step, {**values, "seconds": state.seconds})
        left_s = state.seconds / state.samples * (self.total_samples - state.samples)
        logging.info(
            "epoch %d/%d, step %d: loss %.4f, lr %.3g, %.0f frames/s, %.0f s left",
            values["epoch"], self.settings.num_epochs, state.step, values["loss"], rate, values["frames_per_s"], left_s,
        )  # fmt: skip

    def _keep(self, new: Saved) -> None:
        """Save a checkpoint that counts among the last and the best."""
        self.state.saved = to_keep([*self.state.saved, new], self.settings.keep_last, self.settings.keep_best)
        self._save(new)

    def _save(self, new: Saved) -> None:
        """Save a checkpoint to go on from; the next one removes it unless it was kept."""
        self.state.metrics_bytes = self.metrics.num_bytes
        learner = {"weights": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        save_checkpoint(self.directory, self.info, learner, self.state)
        remove_others(self.directory, [*self.state.saved, new])

    def _lap_s(self) -> float:
        """Seconds since the last call, which are added to those of the training."""
        before, self.clock = self.clock, time.perf_counter()
        self.state.seconds += self.clock - before
        return self.clock - before

    def _bad_batch(self, batch: ExampleBatch, what: str) -> AsrtoolError:
        step = self.state.step + 1
        path = self.out / f"bad-batch-{step:08d}.pt"
        loaded = batch.loaded
        content = {
            "step": step,
            "ids": batch.ids,
            "texts": [utterance.text for utterance in loaded.utterances],
            "feats_NTF": torch.from_numpy(loaded.feats_NTF),
            "feat_lens_N": torch.from_numpy(loaded.feat_lens_N),
        }
        write_torch(path, content)
        named = ", ".join(batch.ids[:NUM_NAMED]) + (", ..." if len(batch.ids) > NUM_NAMED else "")
        found = "" if np.isfinite(loaded.feats_NTF).all() else "; its features are not finite"
        return AsrtoolError(
            f"step {step}: {what}{found}; the batch of {len(batch.ids)} utterances ({named}) is saved in {path}",
            "remove bad utterances and make the features again, or lower train.peak_lr or train.clip_norm",
        )
