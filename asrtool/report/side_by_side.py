"""Several experiments side by side: RESULTS.md, and how they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from asrtool.report.experiment import Experiment
from asrtool.report.figures.figure import LINES, short
from asrtool.report.markdown import Table
from asrtool.report.rates import caution, describe_interval, format_interval, format_wer
from asrtool.report.results import SETTINGS, format_weight
from asrtool.report.systems import System, comparison_table, systems_on
from asrtool.score.tables import format_rate
from asrtool.settings.config import select
from asrtool.settings.values import flatten, format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHANCE = (
    "p is that of one test: where many systems are compared, some differ by chance. The interval of A - B is by"
    " bootstrap, of the same samples for both."
)


def format_comparison(experiments: Sequence[Experiment]) -> str:
    """Format RESULTS.md of several experiments."""
    sections = [f"# {', '.join(experiment.name for experiment in experiments)}"]
    for name in scored_sets(experiments):
        systems = systems_on(name, experiments)
        sections += [f"Word error rate in percent on {systems[0].experiment.title(name)}:"]
        sections += [rate_table(systems).to_markdown()]
        sections += [" ".join(filter(None, [describe_interval(systems[0].score), caution(systems[0].score)]))]
        if table := comparison_table(systems):
            sections += [table.to_markdown(), CHANCE]
    sections += ["## Settings that differ", setting_table(experiments).to_markdown()]
    sections += ["## Commands", "\n".join(f"- {each.name}: `{each.run['command']}`" for each in experiments)]
    return "\n\n".join(sections) + "\n"


def scored_sets(experiments: Sequence[Experiment]) -> list[str]:
    """Return names of all scored sets: test sets first, dev last."""
    names = dict.fromkeys(name for experiment in experiments for name in experiment.tested)
    return list(dict.fromkeys([*names, *(experiment.sets.dev for experiment in experiments)]))


def rate_table(systems: Sequence[System]) -> Table:
    """Return a row a system: LM weight, rate, interval and counts."""
    rows = []
    for system in systems:
        counts = system.score.overall
        weight = format_weight(system.experiment, system.method)
        sizes = (counts.sub, counts.del_, counts.ins, counts.num_words, counts.segments)
        rates = format_wer(counts), format_interval(system.score), format_rate(system.score.characters.cer, 1)
        rows.append([system.name, weight, *rates, *(f"{size:,}" for size in sizes)])
    head = ["system", "LM weight", "WER %", "95 % interval", "CER %", "sub", "del", "ins", "words", "segments"]
    return Table(head, rows)


def setting_table(experiments: Sequence[Experiment]) -> Table:
    """Return a row for each setting that differs, and for the code."""
    flat = [flatten(select(experiment.config, SETTINGS)) for experiment in experiments]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    rows = [[key, *(format_value(settings[key]) if key in settings else "-" for settings in flat)] for key in keys]
    code = ["code that trained", *(", then ".join(each.training.get("code", [])) or "-" for each in experiments)]
    rows = [row for row in [*rows, code] if len(set(row[1:])) > 1]
    return Table(["setting", *(each.name for each in experiments)], rows, text=range(len(experiments) + 1))


def draw_dev_losses(figure: Figure, experiments: Sequence[Experiment]) -> None:
    """Draw the dev loss of each training against utterances."""
    axes = figure.subplots()
    for experiment, colour in zip(experiments, LINES * len(experiments), strict=False):
        dev = experiment.learners.dev
        axes.plot(dev[:, 0], dev[:, 1], ".-", color=colour, label=short(experiment.name))
    axes.set(xlabel="utterances trained", ylabel="loss on dev, nats a token")
    axes.set_ylim(bottom=0)
    axes.legend()


def describe_dev_losses(experiments: Sequence[Experiment]) -> str:
    """Describe the dev losses in words."""
    texts = [
        f"{each.name}: lowest {dev[:, 1].min():.3f}, at the end {dev[-1, 1]:.3f}"
        for each in experiments
        if len(dev := each.learners.dev)
    ]
    return f"Loss on dev of each training. {'; '.join(texts)}."
