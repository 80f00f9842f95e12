"""RESULTS.html: one page of a report, or of several experiments side by side."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from asrtool.data.audio.excerpts import Clips
from asrtool.log import plural
from asrtool.report.experiment import Experiment
from asrtool.report.figures.figure import narrow_svg
from asrtool.report.figures.training_figures import FIGURES, figure_names, training_facts, training_tables
from asrtool.report.markdown import Table
from asrtool.report.page.template import SCRIPT, STYLE, TEMPLATE
from asrtool.report.page.worst_utterances import describe_alignment, read_clip, worst_utterances
from asrtool.report.rates import (
    PUBLISHED,
    describe_interval,
    describe_weights,
    draw_weights,
    format_interval,
    format_wer,
    read_weights,
    small_set_warning,
)
from asrtool.report.results import DATA_COLUMNS, data_rows, explain_words, format_settings, list_facts
from asrtool.report.side_by_side import (
    CHANCE,
    System,
    comparison_table,
    confusion_table,
    describe_dev_losses,
    describe_rates,
    describe_speakers,
    draw_dev_losses,
    draw_rates,
    draw_speakers,
    part_table,
    rate_table,
    scored_sets,
    setting_table,
    shown_labels,
    speaker_rates,
    systems_on,
)
from asrtool.report.statistics import (
    HISTOGRAMS,
    describe_histogram,
    draw_histogram,
    percent_unknown,
    read_statistics,
    shown_histograms,
)
from asrtool.score.html import format_words

MAX_CLIP_BYTES = 4_000_000  # size of all encoded clips on a page
HEADLINE = ("speech trained on", "parameters", "training", "date")  # facts of a run, for its card


Part = dict[str, Any]  # part of the page: name in TEMPLATE -> value


def format_page(experiments: Sequence[Experiment], num_clips: int) -> str:
    """Format the page; `num_clips` of the worst utterances of a set have audio.

    The same folders give the same bytes. Raises AsrtoolError for an unreadable file.
    """
    sets = [_describe_set(name, number, experiments) for number, name in enumerate(scored_sets(experiments), 1)]
    sets = _with_clips(sets, experiments, num_clips)
    several = len(experiments) > 1
    of = ", ".join(each.name for each in experiments) if several else experiments[0].run["recipe"]
    page = {
        "title": f"Results of {of}",
        "sets": sets,
        "runs": [_describe_run(each, f"run{number}") for number, each in enumerate(experiments, 1)],
        "data": _describe_data(experiments),
        "published": {part["rates_of"]: PUBLISHED[part["rates_of"]] for part in sets if part["rates_of"] in PUBLISHED},
        "plots": _overlaid(experiments) if several else [],
        "settings": setting_table(experiments) if several else None,
        "chance": CHANCE,
        "has_audio": any(each.clip for part in sets for each in part["worst"]),
    }
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return (
        environment.from_string(TEMPLATE).render(
            page=page,
            style=Markup(STYLE),
            script=Markup(SCRIPT),
            policy=_policy(),
            describe_alignment=describe_alignment,
            words=lambda aligned: Markup(format_words(aligned)),
            inline=_inline,
            plural=plural,
        )
        + "\n"
    )


def _policy() -> str:
    """Return the content security policy: this style and script, embedded data only."""
    digest = base64.b64encode(hashlib.sha256(f"\n{SCRIPT}".encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; media-src data:"
    )


def _inline(text: str) -> Markup:
    """Convert code and bold text of a sentence of Markdown to HTML."""
    html = re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*(.*?)\*\*", r"<strong>\1</strong>", html))


def _picture(name: str, title: str, draw: Callable[..., None], describe: Callable[..., str], *shown: Any) -> Part:
    """Return a figure of what is `shown`, with a description; `name` is an identifier."""
    svg = narrow_svg(lambda figure: draw(figure, *shown), name)
    return {"name": name, "title": title, "alt": describe(*shown), "svg": Markup(svg)}


def _describe_set(name: str, number: int, experiments: Sequence[Experiment]) -> Part:
    systems = systems_on(name, experiments)
    first = systems[0]
    worst, num_utterances = worst_utterances(systems)
    title = first.experiment.title(name)
    return {
        "name": name,
        "title": title + ("" if name in first.experiment.tested else ", where weights were chosen"),
        "rates_of": title,
        "systems": [system.name for system in systems],
        "rates": rate_table(systems),
        "interval": describe_interval(first.score),
        "caution": _inline(small_set_warning(first.score)),
        "comparison": comparison_table(systems),
        "labels": part_table("label", systems, shown_labels, first.experiment.evaluation(name).labels),
        "speakers": part_table("speaker", systems, lambda segment: (segment.speaker,), {}),
        "confusions": confusion_table(systems),
        "plots": _plots_of_set(name, f"set{number}", systems, experiments),
        "worst": worst,
        "num_utterances": num_utterances,
    }


def _plots_of_set(name: str, prefix: str, systems: Sequence[System], experiments: Sequence[Experiment]) -> list[Part]:
    """Return the figures of a set with something to compare."""
    pictures = []
    if len(systems) > 1:
        title = "Word error rate and interval"
        pictures.append(_picture(f"{prefix}-rates", title, draw_rates, describe_rates, systems))
    if min(len(speaker_rates(system)) for system in systems) > 1:
        title = "Error rate of each speaker"
        pictures.append(_picture(f"{prefix}-speakers", title, draw_speakers, describe_speakers, systems))
    for number, experiment in enumerate(experiments, 1):
        if name == experiment.sets.dev and (curves := read_weights(experiment.work / "tune" / "tuning.tsv")):
            title = "Error rate on dev over the LM weight; the ring is the lowest"
            title += f", {experiment.name}" if len(experiments) > 1 else ""
            pictures.append(_picture(f"{prefix}-weights{number}", title, draw_weights, describe_weights, curves))
    return pictures


def _with_clips(sets: Sequence[Part], experiments: Sequence[Experiment], num_clips: int) -> list[Part]:
    """Return `sets` with audio of the worst utterances, up to MAX_CLIP_BYTES in all."""
    budget_bytes = MAX_CLIP_BYTES
    parts = []
    for part in sets:
        owner = next(each for each in experiments if part["name"] in each.scores)
        clips = Clips(owner.work / "manifests" / part["name"])
        worst = []
        for number, utterance in enumerate(part["worst"]):
            clip = read_clip(utterance, clips) if number < num_clips and any(utterance.errors) else None
            if clip and clip.num_bytes <= budget_bytes:
                budget_bytes -= clip.num_bytes
                utterance = replace(utterance, clip=clip)
            worst.append(utterance)
        parts.append({**part, "worst": worst})
    return parts


def _describe_run(experiment: Experiment, prefix: str) -> Part:
    run = experiment.learners
    plots = [_picture(f"{prefix}-{name}", *FIGURES[name], run) for name in figure_names(run)]
    facts = list_facts(experiment)
    return {
        "name": experiment.name,
        "best": [_describe_best(experiment, name) for name in experiment.tested or [experiment.sets.dev]],
        "headline": [fact for fact in facts if fact[0] in HEADLINE],
        "command": experiment.run["command"],
        "facts": [fact for fact in facts if fact[0] not in HEADLINE],
        "training": training_facts(run),
        "tables": training_tables(run),
        "plots": plots,
        "settings": format_settings(experiment),
    }


def _describe_best(experiment: Experiment, name: str) -> Part:
    """Return the rate on a set of the method that is best on dev."""
    scores, titles = experiment.scores[name], experiment.evaluation(name).labels
    score = scores[experiment.best]
    parts = {title: score.labels[label] for label, title in titles.items() if label in score.labels}
    return {
        "title": experiment.title(name),
        "wer": format_wer(score.overall),
        "interval": format_interval(score),
        "parts": "".join(f"; {title} {format_wer(part.overall)} %" for title, part in parts.items()),
        "method": experiment.best + (", the best on dev" if len(scores) > 1 else ""),
    }


def _overlaid(experiments: Sequence[Experiment]) -> list[Part]:
    """Return one figure of all dev losses, if at least two are meaningful."""
    trained = [each for each in experiments if len(each.learners.dev) and not each.learners.emulated]
    if len(trained) < 2:
        return []
    return [_picture("dev-losses", "Loss on dev of each training", draw_dev_losses, describe_dev_losses, trained)]


def _describe_data(experiments: Sequence[Experiment]) -> list[Part]:
    """Return one part for all experiments with the same data."""
    groups: list[list[Experiment]] = []
    for experiment in experiments:
        same = (group for group in groups if group[0].manifests == experiment.manifests)
        if (group := next(same, None)) is None:
            groups.append([experiment])
        else:
            group.append(experiment)
    return [_data_part(group, f"data{number}") for number, group in enumerate(groups, 1)]


def _data_part(group: Sequence[Experiment], prefix: str) -> Part:
    first = group[0]
    found = {name: read_statistics(first.work / "manifests" / name) for name in first.sets.names}
    trained = found[first.sets.train].words
    rows = []
    for row in data_rows(first):
        words = found[str(row[0])].words if row[0] in found else None
        rows.append([*row, *(["-", "-"] if words is None else [f"{len(words):,}", percent_unknown(words, trained)])])
    plots = [
        _picture(f"{prefix}-{name}", HISTOGRAMS[name][0], draw_histogram, describe_histogram, name, found)
        for name in shown_histograms(found)
    ]
    head = [*DATA_COLUMNS, "different words", "% not in training"]
    text = (0, DATA_COLUMNS.index("left out"))
    names = ", ".join(each.name for each in group)
    return {"name": names, "sets": Table(head, rows, text), "words": explain_words(first), "plots": plots}
