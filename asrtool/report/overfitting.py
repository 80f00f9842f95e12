"""Detect overfitting: dev loss rises while training loss falls."""

from __future__ import annotations

import numpy as np

from asrtool.report.training import TrainingRun
from asrtool.settings.train import OVERFITTING_PATIENCE


def warn_of_overfitting(run: TrainingRun) -> str:
    """Return a warning if dev has been above its minimum while training fell, or ''.

    The training loss at an evaluation is the mean of the steps since the previous one.
    """
    if run.emulated or len(run.dev) <= OVERFITTING_PATIENCE:
        return ""
    best, last = run.best, len(run.dev) - 1
    train = _train_losses(run)
    if last - best < OVERFITTING_PATIENCE or not train[last] < train[best]:
        return ""
    (at, lowest), (_, now) = run.dev[best], run.dev[last]
    return (
        f"**Overfitting**: the loss on dev was lowest, {lowest:.3f}, after {at:,.0f} utterances and is {now:.3f} at the"
        f" end, while that of training fell from {train[best]:.3f} to {train[last]:.3f}. "
        '`average.by = "best"` takes the checkpoints with the lowest; '
        "more dropout or masks, or fewer epochs, may help."
    )


def _train_losses(run: TrainingRun) -> list[float]:
    """Return the mean training loss before each evaluation; NaN without steps."""
    steps = run.all_steps()
    steps = steps[np.isfinite(steps["loss"])]
    ends = np.searchsorted(steps["samples"], run.dev[:, 0], side="right")
    parts = np.split(steps["loss"], ends)[: len(ends)]
    return [float(np.mean(part)) if len(part) else float("nan") for part in parts]
