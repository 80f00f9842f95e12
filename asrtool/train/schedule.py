"""Learning-rate schedules: pure functions of how much of the training is done, so nothing has to be restored.

Progress is counted in utterances trained by all learners together, as a share of those of the whole training: it
means the same whatever the batch size and the number of learners.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from asrtool.config import Train


def learning_rate(settings: Train, num_samples: int, total_samples: int) -> float:
    """The rate of the batch that brings the count of trained utterances to `num_samples` of `total_samples`."""
    assert 0 < num_samples <= total_samples, (num_samples, total_samples)
    share = num_samples / total_samples
    if share < settings.warmup_share:
        return settings.peak_lr * share / settings.warmup_share
    return settings.peak_lr * SCHEDULES[settings.schedule](settings, share)


def _one_cycle(settings: Train, share: float) -> float:
    """Half a cosine from 1 down to `final_lr_share` (after Smith and Topin, 2018)."""
    fallen = (share - settings.warmup_share) / (1 - settings.warmup_share)
    return settings.final_lr_share + (1 - settings.final_lr_share) * (1 + math.cos(math.pi * fallen)) / 2


def _inverse_sqrt(settings: Train, share: float) -> float:
    """1 / sqrt(progress), being 1 where the warm-up ends (Vaswani et al., 2017)."""
    return math.sqrt(settings.warmup_share / share)


def _halving(settings: Train, share: float) -> float:
    """1 until `hold_share` after the warm-up, then divided by sqrt(2) at the beginning of every epoch.

    It is halved every two epochs (Zhang et al., arXiv 1904.04956, hold 10 of 16 epochs).
    """
    epochs_after = (share - settings.warmup_share - settings.hold_share) * settings.num_epochs
    return 2.0 ** (-0.5 * max(0, math.ceil(epochs_after - 1e-9)))


SCHEDULES: dict[str, Callable[[Train, float], float]] = {
    "one-cycle": _one_cycle,
    "inverse-sqrt": _inverse_sqrt,
    "halving": _halving,
}
