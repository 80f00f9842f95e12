"""Learning-rate schedules: pure functions of progress, with no state to restore.

Progress is the fraction of utterances trained by all learners, so it is independent of batch size and number of
learners. A schedule gets its settings, the peak, this fraction and the number of epochs, and returns a learning rate.
A schedule with `needs_dev` in its settings also gets the known dev losses in order; checkpoints have them.
"""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.settings.train import Halving, InverseSqrt, OneCycle, Optimisation, Plateau

MIN_LR_FRACTION = 0.01  # fraction of the peak


@dataclass(frozen=True)
class LearningRates:
    """Learning rates of the steps of a training."""

    settings: Optimisation
    total_samples: int  # samples of the whole training, an estimate if the source cannot count
    scale: float = 1.0  # multiple of the schedule's rate, if `factor` is None
    factor: float | None = None  # the batch as a multiple of the schedule's reference batch

    @property
    def needs_dev(self) -> bool:
        """True if they depend on dev losses."""
        return _needs_dev(self.settings)

    def after(self, num_samples: int, dev_losses: Sequence[float] = ()) -> float:
        """Return the rate of the step that brings the utterances to `num_samples`.

        There may be more than estimated. `dev_losses` are the ones known before it. With a `factor` it is the linear
        rule with a warm-up from `peak_lr` to `factor` times it (Goyal et al., arXiv 1706.02677, section 2.2; Zhang et
        al., arXiv 1904.04956); the schedule then has a `warmup_fraction` above 0.
        """
        num_samples = min(num_samples, self.total_samples)
        settings, factor = self.settings, self.factor
        if factor is None:
            return self.scale * learning_rate(settings, num_samples, self.total_samples, dev_losses)
        fraction, warmup_fraction = num_samples / self.total_samples, settings.schedule.settings.warmup_fraction
        if fraction < warmup_fraction:
            return settings.peak_lr * (1 + (factor - 1) * fraction / warmup_fraction)
        return factor * learning_rate(settings, num_samples, self.total_samples, dev_losses)


def learning_rate(
    settings: Optimisation, num_samples: int, total_samples: int, dev_losses: Sequence[float] = ()
) -> float:
    """Return the rate of the batch that brings the utterances to `num_samples`.

    Raises AsrtoolError if a custom schedule returns an invalid one, checked each step.
    """
    assert 0 < num_samples <= total_samples, (num_samples, total_samples)
    schedule: Any = settings.schedule.load()
    fraction = num_samples / total_samples
    more = (dev_losses,) if _needs_dev(settings) else ()
    found = schedule(settings.schedule.settings, settings.peak_lr, fraction, settings.num_epochs, *more)
    rate = float(found) if isinstance(found, numbers.Real) else math.nan
    if not 0 <= rate < math.inf:
        returned = f"{settings.section}.schedule = {settings.schedule.name} returned {reprlib.repr(found)}"
        what = f"{returned} at {fraction:.1%} of the training, expected a rate of 0 or more"
        raise AsrtoolError(what, "return one, see docs/guide/extending.md")
    return rate


def one_cycle(settings: OneCycle, peak_lr: float, fraction: float, num_epochs: int) -> float:
    """Return half a cosine from the peak to its end (Smith and Topin, 2018).

    The end is MIN_LR_FRACTION of the peak.
    """
    if fraction < settings.warmup_fraction:
        return _warm_up(peak_lr, fraction, settings.warmup_fraction)
    fallen = (fraction - settings.warmup_fraction) / (1 - settings.warmup_fraction)
    return peak_lr * (MIN_LR_FRACTION + (1 - MIN_LR_FRACTION) * (1 + math.cos(math.pi * fallen)) / 2)


def inverse_sqrt(settings: InverseSqrt, peak_lr: float, fraction: float, num_epochs: int) -> float:
    """Return 1 / sqrt(progress), the peak at the warm-up's end (Vaswani et al., 2017)."""
    if fraction < settings.warmup_fraction:
        return _warm_up(peak_lr, fraction, settings.warmup_fraction)
    return peak_lr * math.sqrt(settings.warmup_fraction / fraction)


def halving(settings: Halving, peak_lr: float, fraction: float, num_epochs: int) -> float:
    """Return the peak until `hold_fraction` after the warm-up, then halve it.

    It is divided by sqrt(2) at the start of every epoch, so it is halved every two (Zhang et al., arXiv 1904.04956,
    hold 10 of 16 epochs).
    """
    if fraction < settings.warmup_fraction:
        return _warm_up(peak_lr, fraction, settings.warmup_fraction)
    epochs_after = (fraction - settings.warmup_fraction - settings.hold_fraction) * num_epochs
    return peak_lr * 2.0 ** (-0.5 * max(0, math.ceil(epochs_after - 1e-9)))


def plateau(settings: Plateau, peak_lr: float, fraction: float, num_epochs: int, dev_losses: Sequence[float]) -> float:
    """Return the peak times `factor` for each plateau of the dev loss.

    It is at least MIN_LR_FRACTION of the peak. A plateau is `patience` evaluations in a row without a lower loss.
    """
    if fraction < settings.warmup_fraction:
        return _warm_up(peak_lr, fraction, settings.warmup_fraction)
    lowest, num_since, num_falls = math.inf, 0, 0
    for loss in dev_losses:
        num_since = 0 if loss < lowest else num_since + 1
        lowest = min(lowest, loss)
        if num_since == settings.patience:
            num_since, num_falls = 0, num_falls + 1
    return peak_lr * max(settings.factor**num_falls, MIN_LR_FRACTION)


def _needs_dev(settings: Optimisation) -> bool:
    return bool(getattr(settings.schedule.settings, "needs_dev", False))


def _warm_up(peak_lr: float, fraction: float, warmup_fraction: float) -> float:
    """Return a line from 0 up to the peak."""
    return peak_lr * fraction / warmup_fraction
