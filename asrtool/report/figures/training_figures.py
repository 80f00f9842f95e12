"""A training in figures and a table: for RESULTS.md, or by itself."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from asrtool.files import write_folder, write_text
from asrtool.report.figures.curves import draw_consensus, draw_loss
from asrtool.report.figures.figure import BETWEEN, PARTS, save_figure
from asrtool.report.figures.timeline import draw_learners, draw_timeline, time_fractions
from asrtool.report.markdown import Table
from asrtool.report.overfitting import warn_of_overfitting
from asrtool.report.training import TrainingRun, read_training

FIGURES: dict[str, tuple[str, Callable[..., None]]] = {  # which draw on a figure a `run`
    "loss": ("Loss on the batches trained, smoothed, and on dev", draw_loss),
    "learners": ("Speed of the learners, and how they spend their time", draw_learners),
    "timeline": ("Steps at the start and in the middle", draw_timeline),
    "consensus": ("Consensus distance and drift of the learners", draw_consensus),
}
MAX_PARTNERS = 4  # of a learner that are named


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
    figures = [f"![{FIGURES[name][0]}]({folder}{name}.svg)" for name in figure_names(run)]
    tables = [table.to_markdown() for table in training_tables(run).values()]
    return "\n\n".join([" ".join(training_facts(run)), *tables, *figures])


def training_facts(run: TrainingRun) -> list[str]:
    """Sentences of Markdown on how the training went, and what to be warned of."""
    num_learners = len(run.learners)
    facts = [
        f"`{run.strategy}`, {num_learners} learner{'s' if num_learners > 1 else ''}: {run.num_steps} steps"
        f" in {run.seconds:.0f} s{'' if run.finished else ', not finished'}."
    ]
    if run.simulated:
        facts.append("Simulated: nothing was trained, times are of a cluster model, and there is no loss to show.")
    elif run.emulated:
        facts.append("Computation was emulated, so there is no loss to show.")
    if run.num_overflows:
        facts.append(f"Learner 0 skipped {run.num_overflows} steps, in which fp16 overflowed.")
    return list(filter(None, [*facts, _describe_best(run), warn_of_overfitting(run)]))


def training_tables(run: TrainingRun) -> dict[str, Table]:
    """Return tables by title: corpora by epoch if several, and learners."""
    corpora = {"What each corpus gave": _corpus_table(run)} if run.corpora else {}
    return {**corpora, "What each learner did": _learner_table(run)}


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
    empty = {"loss": run.emulated, "learners": alone, "timeline": alone, "consensus": not run.differ}
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


def _learner_table(run: TrainingRun) -> Table:
    """Percentages: of the batches of all learners, and of the learner's time."""
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
