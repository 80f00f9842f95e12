"""Systems side by side: methods of one or several experiments, and differences."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asrtool.data.manifests.sets import read_sets
from asrtool.errors import AsrtoolError
from asrtool.report.experiment import Experiment
from asrtool.report.figures.figure import BLUE, add_legend, short
from asrtool.report.markdown import Table
from asrtool.report.rates import describe_interval, format_interval, format_wer, interval_of, small_set_warning
from asrtool.report.results import SETTINGS, format_weight
from asrtool.score.result import Pair, Result, Segment
from asrtool.score.segments import FILE as SEGMENTS
from asrtool.score.segments import read_segments
from asrtool.score.significance import CONFIDENCE, FEW_STRETCHES, Comparison, compare_segments
from asrtool.score.tables import format_rate
from asrtool.settings.config import select
from asrtool.settings.values import flatten, format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SPEAKERS = 100  # in a table: those with most errors
MAX_CONFUSIONS = 50  # in the page, the most frequent ones
MAX_POINTS = 200  # points of a curve
KINDS = {"S": "substituted", "D": "deleted", "I": "inserted"}
CHANCE = (
    "p is that of one test: where many systems are compared, some differ by chance. The interval of A - B is by"
    " bootstrap, of the same samples for both."
)


@dataclass(frozen=True, eq=False)
class System:
    """Result of a method of an experiment on a set."""

    name: str
    experiment: Experiment
    method: str
    score: Result


def systems_on(name: str, experiments: Sequence[Experiment]) -> list[System]:
    """Return the systems of all `experiments` on the set `name`, with short names."""
    found = [
        (experiment, method, score)
        for experiment in experiments
        for method, score in experiment.scores.get(name, {}).items()
    ]
    alone = len({method for _, method, _ in found}) == 1

    def name_of(experiment: Experiment, method: str) -> str:
        if len(experiments) == 1:
            return method
        return experiment.name if alone else f"{experiment.name}, {method}"

    return [System(name_of(experiment, method), experiment, method, score) for experiment, method, score in found]


def compared(systems: Sequence[System]) -> list[tuple[System, System]]:
    """Return the pairs to test.

    Those are the best methods of the experiments with one another, and each method with the first experiment's. Of one
    experiment, all methods with one another.
    """
    if len({system.experiment.name for system in systems}) == 1:
        return list(itertools.combinations(systems, 2))
    firsts: dict[str, System] = {}
    pairs = list(itertools.combinations((system for system in systems if system.method == system.experiment.best), 2))
    pairs += [(firsts.setdefault(system.method, system), system) for system in systems]
    return [(one, other) for one, other in dict.fromkeys(pairs) if one is not other]


def comparison_table(systems: Sequence[System]) -> Table | None:
    """Return a row a pair of `compared`; None without pairs."""
    rows = [
        [one.name, other.name, *_compare(one.score, other.score, f"{one.name} and {other.name}")]
        for one, other in compared(systems)
    ]
    interval = f"{100 * CONFIDENCE:g} % interval"
    head = ["A", "B", "WER of A", "WER of B", "A - B", interval, "p (MAPSSWE)", "remark"]
    return Table(head, rows, text=(0, 1, 7)) if rows else None


def _compare(one: Result, other: Result, names: str) -> list[str]:
    try:
        found = compare_segments(one.segments, other.segments, names)
    except AsrtoolError as error:
        return ["-"] * 5 + [error.what.partition(": ")[2].partition(", the first")[0]]
    low, high = found.interval
    rates = [f"{found.wer_a:.1f}", f"{found.wer_b:.1f}", f"{found.difference:+.2f}", f"{low:+.2f} to {high:+.2f}"]
    return [*rates, found.mapsswe.p_text, _verdict(found)]


def _verdict(found: Comparison) -> str:
    if found.mapsswe.num_stretches < FEW_STRETCHES:
        return f"{found.mapsswe.num_stretches} stretches of errors, too few for the test"
    if found.mapsswe.p_value >= 1 - CONFIDENCE:
        return "may be chance"
    return f"{'B' if found.difference > 0 else 'A'} is better"


def shown_labels(segment: Segment) -> tuple[str, ...]:
    """Return the labels of a segment except the one of all."""
    return tuple(label for label in segment.labels if label.upper() != "O")


def part_table(
    what: str, systems: Sequence[System], names: Callable[[Segment], tuple[str, ...]], titles: Mapping[str, str]
) -> Table:
    """Return a row for each of the MAX_SPEAKERS parts with most errors."""
    scores = [system.score.parts(names) for system in systems]
    errors: Counter[str] = Counter()
    for score in scores:
        errors.update({name: part.overall.err for name, part in score.items()})
    shown = [name for name, _ in errors.most_common(MAX_SPEAKERS)]
    rows = []
    for name in sorted(shown):
        first = next(score[name] for score in scores if name in score).overall
        found = [score.get(name) for score in scores]
        cells = [f"{format_wer(part.overall)} ({format_interval(part)})" if part else "-" for part in found]
        rows.append([titles.get(name, name), f"{first.segments:,}", f"{first.num_words:,}", *cells])
    heads = [f"WER of {system.name} (interval)" for system in systems]
    rest = f"{len(shown)} of {len(errors)} {what}s, those with most errors" if len(errors) > len(shown) else ""
    return Table([what, "segments", "words", *heads], rows, text=(0,), note=rest)


def confusion_table(systems: Sequence[System]) -> Table:
    """Return the MAX_CONFUSIONS most frequent errors with counts by system."""
    counts = [
        Counter(pair for segment in system.score.segments for pair in segment.alignment.errors) for system in systems
    ]
    summed = sum(counts, Counter[Pair]())
    pairs = sorted(summed, key=lambda pair: (-summed[pair], pair))
    rows = [
        [KINDS[pair.kind], pair.ref, pair.hyp, *(f"{found[pair]:,}" for found in counts)]
        for pair in pairs[:MAX_CONFUSIONS]
    ]
    rest = f"{MAX_CONFUSIONS} of {len(pairs):,} different errors, the most frequent" if len(pairs) > len(rows) else ""
    return Table(["error", "reference", "recognised", *(system.name for system in systems)], rows, (0, 1, 2), rest)


def speaker_rates(system: System) -> list[float]:
    """Return sorted word error rates in percent of speakers with reference words."""
    return sorted(part.overall.wer for part in system.score.speakers.values() if part.overall.wer is not None)


def draw_speakers(figure: Figure, systems: Sequence[System]) -> None:
    """Draw the rates of the speakers of each system, from lowest to highest."""
    axes = figure.subplots()
    for system in systems:
        rates = speaker_rates(system)
        shown = np.unique(np.linspace(0, len(rates) - 1, min(len(rates), MAX_POINTS)).round().astype(int))
        marker = "." if len(rates) <= MAX_POINTS else ""
        axes.plot(shown + 1, [rates[rank] for rank in shown], marker=marker, label=short(system.name))
    axes.set(xlabel="speakers, from the lowest rate to the highest", ylabel="word error rate, %")
    axes.set_ylim(bottom=0)
    axes.locator_params("x", integer=True)
    add_legend(figure)


def describe_speakers(systems: Sequence[System]) -> str:
    """Describe errors by speaker in words."""
    texts = [
        f"{system.name}: {rates[0]:.1f} to {rates[-1]:.1f} %, median {rates[len(rates) // 2]:.1f} %"
        for system in systems
        if (rates := speaker_rates(system))
    ]
    return f"Word error rate of each speaker. {'; '.join(texts)}."


def draw_rates(figure: Figure, systems: Sequence[System]) -> None:
    """Draw the rate of each system as a dot with its interval, top to bottom."""
    figure.set_figheight(0.8 + 0.42 * len(systems))
    axes = figure.subplots()
    for row, system in enumerate(systems):
        above = ("axes fraction", "data")
        axes.annotate(short(system.name), (0, row), xycoords=above, xytext=(4, 5), textcoords="offset points")
        if (interval := interval_of(system.score)) and system.score.overall.wer is not None:
            axes.plot(interval[:2], [row, row], "-", color=BLUE, linewidth=2, alpha=0.6)
            axes.plot([system.score.overall.wer], [row], "o", color=BLUE)
    axes.set(xlabel="word error rate, %", ylim=(len(systems) - 0.7, -0.8), yticks=[])
    axes.set_xlim(left=0)


def describe_rates(systems: Sequence[System]) -> str:
    """Describe error rates in words."""
    texts = [
        f"{system.name}: {format_wer(system.score.overall)} %, {format_interval(system.score)}" for system in systems
    ]
    return f"Word error rate with its interval. {'; '.join(texts)}."


# Several experiments


def format_comparison(experiments: Sequence[Experiment]) -> str:
    """Format RESULTS.md of several experiments."""
    sections = [f"# {', '.join(experiment.name for experiment in experiments)}"]
    for name in scored_sets(experiments):
        systems = systems_on(name, experiments)
        sections += [f"Word error rate in percent on {systems[0].experiment.title(name)}:"]
        sections += [rate_table(systems).to_markdown()]
        sections += [" ".join(filter(None, [describe_interval(systems[0].score), small_set_warning(systems[0].score)]))]
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
    for experiment in experiments:
        dev = experiment.learners.dev
        axes.plot(dev[:, 0], dev[:, 1], marker=".", label=short(experiment.name))
    axes.set(xlabel="utterances trained", ylabel="loss on dev, nats a token")
    axes.set_ylim(bottom=0)
    add_legend(figure)


def describe_dev_losses(experiments: Sequence[Experiment]) -> str:
    """Describe the dev losses in words."""
    texts = [
        f"{each.name}: lowest {dev[:, 1].min():.3f}, at the end {dev[-1, 1]:.3f}"
        for each in experiments
        if len(dev := each.learners.dev)
    ]
    return f"Loss on dev of each training. {'; '.join(texts)}."


# A sweep


def format_sweep(folds: Mapping[str, Sequence[Path]]) -> str:
    """Format errors of systems on dev, NAME -> work folder of each fold, as Markdown.

    Each method is a row: its counts in all folds, and a test against the method of the first system. Raises
    AsrtoolError if a score is missing.
    """
    pooled = {name: _pool(works) for name, works in folds.items()}
    baseline, *_ = pooled.values()
    rows = []
    for name, scores in pooled.items():
        for method, score in scores.items():
            rates = [name, method, f"{score.overall.num_words:,}", format_rate(score.overall.wer, 2)]
            is_tested = method in baseline and scores is not baseline
            tested = _compare(baseline[method], score, f"{name}, {method}")[2:] if is_tested else [""] * 4
            rows.append([*rates, *tested])
    interval = f"{100 * CONFIDENCE:g} % interval"
    head = ["B", "method", "words", "WER %", "A - B", interval, "p (MAPSSWE)", "remark"]
    return Table(head, rows).to_markdown()


def _pool(works: Sequence[Path]) -> dict[str, Result]:
    """Read the scores on dev that all of `works` have, by method."""
    scores = [work / "score" / read_sets(work / "manifests").dev for work in works]
    methods = sorted(path.parent.name for path in scores[0].glob(f"*/{SEGMENTS}"))
    return {
        method: Result(tuple(one for score in scores for one in read_segments(score / method))) for method in methods
    }
