"""Figures of a training in words, for who does not see them."""

from __future__ import annotations

from asrtool.report.figures.figure import BETWEEN, PARTS
from asrtool.report.figures.timeline import time_fractions
from asrtool.report.training import Floats, TrainingRun


def describe_figure(name: str, run: TrainingRun) -> str:
    """Describe in words the figure `name` of training_figures.FIGURES."""
    described = {
        "loss": _describe_loss,
        "learners": _describe_learners,
        "timeline": _describe_timeline,
        "consensus": _describe_consensus,
    }
    return described[name](run)


def _describe_loss(run: TrainingRun) -> str:
    steps = run.all_steps()
    train = steps["loss"][steps["loss"] == steps["loss"]]
    parts = [f"of the batches trained from {train[0]:.3g} to {train[-1]:.3g}"] if len(train) else []
    parts += [f"on dev from {_range(run.dev[:, 1])}"] if len(run.dev) else []
    return f"Loss in nats a token over {steps['samples'].max():,} utterances: {', '.join(parts)}."


def _describe_learners(run: TrainingRun) -> str:
    learners = []
    for rank, steps in run.learners.items():
        fractions = time_fractions(run, rank)
        spent = ", ".join(f"{100 * fractions[part]:.0f} % {part}" for part in (*PARTS, BETWEEN))
        learners.append(f"learner {rank} {len(steps) / run.seconds:.2f} steps a second, {spent}")
    return f"Speed of the learners and how they spend their time: {'; '.join(learners)}."


def _describe_timeline(run: TrainingRun) -> str:
    return (
        f"A row for each of {len(run.learners)} learners: when it waited for data, computed, waited for others and"
        " communicated, in steps at the start and in the middle of the training. The table of learners has the sums."
    )


def _describe_consensus(run: TrainingRun) -> str:
    return (
        f"Distance of the learners' weights from their mean, as a fraction of its norm, from"
        f" {_range(run.consensus[:, 1])}; drift of the mean from {_range(run.consensus[:, 2])}."
    )


def _range(values: Floats) -> str:
    found = values[values == values]
    if not len(found):
        return "no value"
    return f"{found[0]:.3g} to {found[-1]:.3g}, lowest {found.min():.3g}, highest {found.max():.3g}"
