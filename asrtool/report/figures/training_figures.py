"""Figures and tables of a training, for RESULTS.md or on their own."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from asrtool.files import write_folder, write_text
from asrtool.log import plural
from asrtool.report.figures.draw_training import (
    draw_consensus,
    draw_errors,
    draw_hosts,
    draw_learners,
    draw_loss,
    draw_timeline,
    time_fractions,
)
from asrtool.report.figures.figure import BETWEEN, PARTS, save_figure
from asrtool.report.markdown import Table
from asrtool.report.training import Floats, TrainingRun, read_training
from asrtool.settings.train import OVERFITTING_PATIENCE

MAX_PARTNERS = 4  # partners of a learner that are named


def plot_training(train: Path, out: Path) -> Path:
    """Write the figures of a training to `out`; return the path of ``training.md``.

    Raises AsrtoolError if `train` cannot be read, or `out` holds other files.
    """
    run = read_training(train)
    with write_folder(out, "training.md") as folder:
        draw_figures(run, folder)
        write_text(folder / "training.md", f"# Training\n\n{describe_training(run, '')}\n")
    return out / "training.md"


def draw_figures(run: TrainingRun, folder: Path) -> None:
    """Write ``NAME.svg`` to `folder` for each figure with content."""
    for name in figure_names(run):
        save_figure(functools.partial(FIGURES[name][1], run=run), folder / f"{name}.svg")


def describe_training(run: TrainingRun, folder: str) -> str:
    """Describe a training in Markdown: its course, a row a learner, and figures.

    The figures are in `folder` ("" or "NAME/").
    """
    figures = [f'![{FIGURES[name][2](run)}]({folder}{name}.svg "{FIGURES[name][0]}")' for name in figure_names(run)]
    tables = [table.to_markdown() for table in training_tables(run).values()]
    return "\n\n".join([" ".join(training_facts(run)), *tables, *figures])


def training_facts(run: TrainingRun) -> list[str]:
    """Return sentences of Markdown on how the training went, with warnings."""
    facts = [
        f"`{run.strategy}`, {plural(run.num_learners, 'learner')}: {run.num_steps:,} batches"
        f" in {run.seconds:.0f} s{'' if run.finished else ', not finished'}."
    ]
    if run.simulated:
        facts.append("Simulated: nothing was trained, times are of a cluster model, and there is no loss to show.")
    elif run.emulated:
        facts.append("Computation was emulated, so there is no loss to show.")
    facts += [f"Learner {rank} was lost{f' ({why})' if why else ''}." for rank, why in run.lost.items()]
    facts += [f"Learner {rank} joined later." for rank in run.joined]
    facts += [f"Learner {rank} was left out when training was resumed with fewer." for rank in run.dropped]
    if run.num_overflows:
        facts.append(f"Learner 0 skipped {run.num_overflows} steps, in which fp16 overflowed.")
    return list(filter(None, [*facts, _describe_best(run), warn_of_overfitting(run)]))


def training_tables(run: TrainingRun) -> dict[str, Table]:
    """Return tables by title: corpora by epoch if several, and learners."""
    corpora = {"What each corpus gave": _corpus_table(run)} if run.corpora else {}
    hosts = {"What each host did": _host_table(run)} if len({*run.hosts.values()}) > 1 else {}
    return {**corpora, **hosts, "What each learner did": _learner_table(run)}


def _describe_best(run: TrainingRun) -> str:
    """Describe the best epoch on dev, and whether training ended for it."""
    if run.emulated or not len(run.dev):
        return ""
    best, last = run.dev_epochs[run.best], run.dev_epochs[-1]
    fact = f"The loss on dev was lowest after epoch {best} of {last}: {run.dev[run.best, 1]:.3f}."
    early = f" Training stopped early (`early_stop`): no loss was lower since epoch {best}."
    return fact + early if run.stopped_early else fact


def figure_names(run: TrainingRun) -> list[str]:
    """Return the FIGURES with content; one learner has nothing side by side."""
    alone = len(run.learners) == 1
    empty = {
        "loss": run.emulated,
        "errors": run.emulated or bool(np.isnan(run.dev[:, 2]).all()),
        "learners": alone,
        "hosts": len(run.host_rates) < 2,
        "timeline": alone,
        "consensus": not run.differ,
    }
    return [name for name in FIGURES if not empty.get(name)]


def _corpus_table(run: TrainingRun) -> Table:
    """Return the portions of corpora by epoch; equal epochs share a row."""
    names = list(next(iter(run.corpora.values())))
    cells = {epoch: [_portion(corpora[name]) for name in names] for epoch, corpora in sorted(run.corpora.items())}
    rows = []
    for same, group in itertools.groupby(cells, key=lambda epoch: cells[epoch]):
        first, *others = group
        rows.append([f"{first} to {others[-1]}" if others else first, *same])
    return Table(["epoch", *names], rows, text=range(len(names) + 1))


def _portion(values: Mapping[str, float]) -> str:
    return f"{values['utterances']:,} utterances ({100 * values['fraction']:.1f} %), {values['hours']:.2f} h"


def _host_table(run: TrainingRun) -> Table:
    """Return counts by host; a learner that moved counts at its last one."""
    rows = []
    for host in sorted({*run.hosts.values()}):
        ranks = [rank for rank, other in run.hosts.items() if other == host]
        steps = np.concatenate([run.learners[rank] for rank in ranks])
        counts = [sum(rank in of for rank in ranks) for of in (run.lost, run.joined)]
        speed, staleness = len(steps) / run.seconds, steps["staleness"].mean()
        rows.append([host, len(ranks), len(steps), f"{speed:.2f}", f"{staleness:.2f}", steps["skipped"].sum(), *counts])
    return Table(["host", "learners", "steps", "steps a second", "mean staleness", "skipped", "lost", "joined"], rows)


def _learner_table(run: TrainingRun) -> Table:
    """Return percentages by learner: of all learners' batches, and of its time."""
    rows = []
    for rank, steps in run.learners.items():
        num = len(steps)
        fractions = time_fractions(run, rank)
        means = [f"{steps['staleness'].mean():.2f}", f"{steps['bytes'].mean() / 1e6:.3g}"] if num else ["-", "-"]
        exchanges = [steps["exchanges"].sum(), steps["skipped"].sum(), _ranks(run.partners[rank])]
        rows.append(
            [
                rank,
                num,
                f"{100 * num / run.num_steps:.1f}",
                *(f"{100 * fraction:.1f}" for fraction in fractions.values()),
                *means,
                *exchanges,
            ]
        )
    head = ["learner", "steps", "% of batches", *(f"% {part}" for part in (*PARTS, BETWEEN))]
    means_of = ["mean staleness", "MB sent a step"]
    return Table([*head, *means_of, "exchanges", "skipped", "partners"], rows, text=(len(head) + 4,))


def _ranks(partners: Sequence[int]) -> str:
    """Format a few ranks, or the number of many."""
    return " ".join(map(str, partners)) if len(partners) <= MAX_PARTNERS else f"{len(partners)} learners"


def _describe_loss(run: TrainingRun) -> str:
    steps = run.all_steps()
    train = steps["loss"][steps["loss"] == steps["loss"]]
    parts = [f"of the batches trained from {train[0]:.3g} to {train[-1]:.3g}"] if len(train) else []
    parts += [f"on dev from {_range(run.dev[:, 1])}"] if len(run.dev) else []
    return f"Loss in nats a token over {steps['samples'].max():,} utterances: {', '.join(parts)}."


def _describe_errors(run: TrainingRun) -> str:
    sentences = []
    for column, name in ((3, "words"), (2, "tokens or frames")):
        parts = run.dev[:, column]
        shown = ("not known" if np.isnan(part) else f"{100 * part:.1f}" for part in parts)
        texts = (f"{part} after epoch {epoch}" for part, epoch in zip(shown, run.dev_epochs, strict=True))
        if not np.isnan(parts).all():
            sentences.append(f"Percent of the {name} on dev that are wrong: {', '.join(texts)}.")
    return " ".join(sentences)


def _describe_learners(run: TrainingRun) -> str:
    learners = []
    for rank, steps in run.learners.items():
        fractions = time_fractions(run, rank)
        spent = ", ".join(f"{100 * fractions[part]:.0f} % {part}" for part in (*PARTS, BETWEEN))
        learners.append(f"learner {rank} {len(steps) / run.lifetime_s(rank):.2f} steps a second, {spent}")
    return f"Speed of the learners and how they spend their time: {'; '.join(learners)}."


def _describe_hosts(run: TrainingRun) -> str:
    speeds = (f"{host} {_range(rates[:, 1])}" for host, rates in run.host_rates.items())
    return f"Steps a second of each host's learners over the training: {'; '.join(speeds)}."


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


# name -> title, what draws it on a figure with a `run`, what describes it in words
FIGURES: dict[str, tuple[str, Callable[..., None], Callable[[TrainingRun], str]]] = {
    "loss": ("Loss on the batches trained, smoothed, and on dev", draw_loss, _describe_loss),
    "errors": (
        "Wrong words and targets (tokens, or frames of a hybrid model) on dev by epoch",
        draw_errors,
        _describe_errors,
    ),
    "learners": ("Speed of the learners, and how they spend their time", draw_learners, _describe_learners),
    "hosts": ("Speed and staleness of the hosts", draw_hosts, _describe_hosts),
    "timeline": ("Steps at the start and in the middle", draw_timeline, _describe_timeline),
    "consensus": ("Consensus distance and drift of the learners", draw_consensus, _describe_consensus),
}


def _range(values: Floats) -> str:
    found = values[values == values]
    if not len(found):
        return "no value"
    return f"{found[0]:.3g} to {found[-1]:.3g}, lowest {found.min():.3g}, highest {found.max():.3g}"


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
    (at, lowest), (_, now) = run.dev[best, :2], run.dev[last, :2]
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
