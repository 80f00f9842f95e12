"""Metrics of a running training: `metrics.jsonl`, loggers, and the log."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from asrtool.distributed.strategies.strategy import ConsensusMetrics
from asrtool.distributed.strategies.update import LossScale
from asrtool.files import disk_full, write_text
from asrtool.settings.schema import Choice
from asrtool.settings.train import OVERFITTING_PATIENCE, OVERFITTING_RISE, Optimisation
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.source import Portion
from asrtool.train.checkpoints.checkpoint import State
from asrtool.train.inputs import INPUTS
from asrtool.train.loop.host_rates import HOST, HostRates
from asrtool.train.loop.loss import Sums
from asrtool.train.loop.step_records import Lines, Step

CORPUS = "corpus/"  # kind of a line on a corpus's share of an epoch, before its name
NO_CURVES = ("epoch", "samples", "seconds")  # values that only grow
FIRST = ("word_errors", "errors", "loss")  # dev figures, whose curves come first; train curves follow


@dataclass
class Interval:
    """Sums since the last report; divided once, when reported."""

    num_steps: int = 0
    losses: Sums = field(default_factory=Sums)
    grad_norm: float = 0.0
    frames: int = 0
    padded_frames: int = 0
    wait_s: float = 0.0  # for data
    seconds: float = 0.0
    num_skipped: int = 0  # steps skipped by loss scaling

    def add(self, batch: TrainingBatch, step: Step, seconds: float, skipped: bool) -> None:
        """Count a batch and its `seconds`; a `skipped` step has no loss and gradient."""
        self.num_steps += 1
        self.num_skipped += skipped
        if not skipped:
            self.losses.add(step.loss, batch.normaliser, step.figures)
            self.grad_norm += step.grad_norm
        self.frames += batch.frames
        self.padded_frames += batch.padded_frames
        self.wait_s += batch.wait_s
        self.seconds += seconds

    def rates(self) -> dict[str, float]:
        """Return loss, gradient norm, frames a second, padding and waiting fractions.

        Loss and gradient norm are NaN if all steps were skipped.
        """
        num_trained = self.num_steps - self.num_skipped
        return {
            **(self.losses.means() if num_trained else {"loss": math.nan}),
            "grad_norm": self.grad_norm / num_trained if num_trained else math.nan,
            "frames_per_s": self.frames / self.seconds,
            "padding_fraction": 1 - self.frames / self.padded_frames,
            "data_wait_fraction": self.wait_s / self.seconds,
        }


class Logger(Protocol):
    """Receiver of curves and texts of a training, such as TensorBoard's SummaryWriter."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Take one value of the curve `tag`."""

    def add_text(self, tag: str, text_string: str, global_step: int) -> object:
        """Take a text, such as the settings."""

    def close(self) -> object:
        """Write buffered values."""


def tensorboard(settings: object, out: Path, next_step: int | None) -> Logger:
    """Curves for TensorBoard, in the folder tensorboard."""
    from torch.utils.tensorboard import SummaryWriter

    writer: Logger = SummaryWriter(str(out / "tensorboard"), purge_step=next_step)
    return writer


class Curves:
    """Writer of `metrics.jsonl` and to `loggers`, continued from `state`.

    Lines of later steps are dropped. Several threads may write.
    """

    def __init__(self, out: Path, state: State, loggers: Sequence[Choice], resumes: bool = True) -> None:
        """Open them; if training `resumes` drop later lines, else later evaluations."""
        self._lock = threading.Lock()
        self._lines = Lines(out / "metrics.jsonl")
        step = state.step
        last = step if resumes else math.inf
        kept = _keep_lines(self._lines.path, lambda line: line["step"] <= last and not _is_to_come(line, state))
        self.begun = {line["epoch"] for line in kept if line["kind"].startswith(CORPUS)}  # epochs, from 1 on
        self._lines.open()
        next_step = step + 1 if resumes else None
        self._loggers: list[Logger] = [each.load()(each.settings, out, next_step) for each in loggers]
        if (out / INPUTS).exists():
            text = f"```\n{(out / INPUTS).read_text(encoding='utf-8')}\n```"
            for logger in self._loggers:
                logger.add_text("inputs", text, step)

    def close(self) -> None:
        """Close all of them."""
        self._lines.close()
        for logger in self._loggers:
            logger.close()

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Write one line, and points of curves, or text on a corpus.

        Raises AsrtoolError on a full disk.
        """
        is_text = kind.startswith(CORPUS)
        curves = {} if is_text else {_tag(kind, key): values[key] for key in values if key not in NO_CURVES}
        with self._lock:
            self._lines.write({"kind": kind, "step": step, **values})
            try:
                for logger in self._loggers:
                    for tag, value in curves.items():
                        logger.add_scalar(tag, value, step)
                    if not curves:
                        logger.add_text(kind, json.dumps(values), step)
            except OSError as error:
                raise disk_full(self._lines.path, error) from error


def _tag(kind: str, name: str) -> str:
    """Return the tag of a curve: TensorBoard opens the first two groups."""
    is_first = kind == "train" or (kind == "dev" and name in FIRST)
    return f"{kind}/{name}" if is_first else f"train_more/{kind}/{name}"


def _is_to_come(line: Mapping[str, Any], state: State) -> bool:
    """Return whether `line` is of an evaluation that will be repeated."""
    return line["kind"] == "dev" and (line["epoch"] > state.epoch or line["step"] in state.unevaluated)


def _keep_lines(path: Path, keep: Callable[[Mapping[str, Any]], bool]) -> list[dict[str, Any]]:
    """Keep the whole lines for which `keep` is true; return their content."""
    if not path.exists():
        return []
    lines = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    kept = [(line, content) for line in lines if keep(content := json.loads(line))]
    text = "".join(line for line, _ in kept)
    if len(text.encode()) != path.stat().st_size:
        write_text(path, text)
    return [content for _, content in kept]


@dataclass(eq=False)
class Reports:
    """Reports of learner 0's steps; all learners keep the time.

    `state` is the progress so far, and gets the seconds of `time`; `total_samples` is the count of the whole training.
    """

    settings: Optimisation
    total_samples: int
    out: Path
    state: State
    is_first: bool
    num_learners: int = 1
    time: Callable[[], float] = time.perf_counter
    _host_rates: HostRates | None = None  # None except at the first learner
    _epoch: int = -1
    _interval: Interval = field(default_factory=Interval)
    _scale: LossScale | None = None
    _curves: Curves | None = None  # None except at the first learner
    _clock: float = 0.0
    _train_loss: float = math.nan  # loss of the last report
    _best: tuple[int, float, float] = (0, math.inf, math.nan)  # epoch of the lowest loss on dev; that loss, training's
    _has_warned: bool = False

    def __post_init__(self) -> None:
        self._reported_step = self.state.step

    def __enter__(self) -> Reports:
        if self.is_first:
            self._curves = Curves(self.out, self.state, self.settings.loggers)
            self._host_rates = HostRates(self.out, self.num_learners, self.state.record_bytes)
        self._clock = self.time()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._curves:
            self._curves.close()

    def lead(self, newest: State) -> None:
        """Write from here on for a lost learner; `newest` is the last checkpoint's state."""
        self._curves = Curves(self.out, newest, self.settings.loggers, resumes=False)
        self._host_rates = HostRates(self.out, self.num_learners)

    def begin_epoch(self, epoch: int, step: int, portions: Callable[[int], Mapping[str, Portion]]) -> None:
        """Report the corpora's portions before the first step here of `epoch`."""
        if epoch <= self._epoch or not self._curves:
            return
        self._epoch = epoch
        found = portions(epoch)
        if not found:
            return
        parts = [
            f"{name} {part.num_samples:,} utterances ({100 * part.fraction:.1f} %), {part.hours:.2f} h"
            for name, part in found.items()
        ]
        logging.info("epoch %d/%d: %s", epoch + 1, self.settings.num_epochs, "; ".join(parts))
        for name, part in found.items() if epoch + 1 not in self._curves.begun else ():
            values = {"epoch": epoch + 1, "utterances": part.num_samples}
            self._write(CORPUS + name, step, {**values, "fraction": part.fraction, "hours": part.hours})

    def add(self, batch: TrainingBatch, step: Step, scale: LossScale | None = None) -> None:
        """Count a step that has just ended, with the loss `scale` of fp16."""
        skipped = scale is not None and scale.has_skipped
        self._interval.add(batch, step, self.lap_s(), skipped)
        self._scale = scale
        if scale and skipped:
            logging.info("step %d: overflow in fp16, skipped; the loss scale is %g now", step.number, scale.value)

    def is_due(self, step: int) -> bool:
        """Return whether a report is due after `step`."""
        every = self.settings.log_every_steps
        return step // every > self._reported_step // every

    def report(self, epoch: int, step: int, num_samples: int, learning_rate: float) -> None:
        """Report the steps since the last report, if any; epochs count from 0."""
        if not self._interval.num_steps:
            return
        rates = self._interval.rates()
        self._train_loss = rates["loss"]
        self._interval = Interval()
        self._reported_step = step
        seconds = self.state.seconds
        values = {"epoch": epoch + 1, "samples": num_samples, "lr": learning_rate, **rates, "seconds": seconds}
        if self._scale:
            values |= {"loss_scale": self._scale.value, "skipped_steps": self._scale.num_skipped}
        self._write("train", step, values)
        for host, rates_there in self._host_rates.take().items() if self._host_rates else ():
            self._write(HOST + host, step, rates_there)
        left_s = seconds / num_samples * max(self.total_samples - num_samples, 0)
        logging.info(
            "epoch %d/%d, step %d: loss %.4f, lr %.3g, %.0f frames/s, %.0f s left",
            epoch + 1, self.settings.num_epochs, step, rates["loss"], learning_rate, rates["frames_per_s"], left_s,
        )  # fmt: skip

    def report_dev(self, losses: Sums, state: State) -> float:
        """Report the evaluation at the end of an epoch; return the loss."""
        means = losses.means()
        self._write("dev", state.step, {"epoch": state.epoch, "samples": state.samples, **means})
        shown = (name for name in ("errors", "word_errors") if name in means)
        errors = "".join(f", {name.replace('_', ' ')} {100 * means[name]:.1f} %" for name in shown)
        logging.info("epoch %d/%d: loss on dev %.4f%s", state.epoch, self.settings.num_epochs, means["loss"], errors)
        if not math.isfinite(means["loss"]):
            logging.warning(
                "the loss on dev is NaN or infinite: this checkpoint is not the best one; "
                "remove dev utterances whose features are not finite, or lower %s.peak_lr",
                self.settings.section,
            )
        self._warn_of_overfitting(state.epoch, means["loss"])
        return means["loss"]

    def _warn_of_overfitting(self, epoch: int, loss: float) -> None:
        """Warn once if dev has not improved for a while, and the training loss fell."""
        best, lowest, train_loss = self._best
        if loss < lowest:
            self._best = (epoch, loss, self._train_loss)
        elif (
            epoch - best >= OVERFITTING_PATIENCE
            and loss > OVERFITTING_RISE * lowest  # a loss that wavers may fall again
            and self._train_loss < train_loss
            and not self._has_warned
        ):
            self._has_warned = True
            logging.warning(
                "overfitting: the loss on dev was lowest, %.4f, after epoch %d and is %.4f, while that of training fell"
                " from %.4f to %.4f; --set %s.early_stop=%d would end training here, more data or dropout may help",
                lowest, best, loss, train_loss, self._train_loss, self.settings.section, OVERFITTING_PATIENCE,
            )  # fmt: skip

    def report_learners(self, step: int, consensus: ConsensusMetrics) -> None:
        """Report the consensus distance at a checkpoint after `step`."""
        values = {"consensus_distance": consensus.distance, "drift": consensus.drift}
        self._write("learners", step, {key: value for key, value in values.items() if value is not None})

    def lap_s(self) -> float:
        """Return the seconds since the last call, and add them to the training's."""
        before, self._clock = self._clock, self.time()
        self.state.seconds += self._clock - before
        return self._clock - before

    def _write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        if self._curves:
            self._curves.write(kind, step, values)
