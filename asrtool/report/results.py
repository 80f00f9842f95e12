"""RESULTS.md: results of a run, and all that is needed to repeat it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from asrtool.decode.words import is_spoken
from asrtool.report.experiment import PIECES, Experiment
from asrtool.report.figures.training_figures import describe_training
from asrtool.report.markdown import format_table
from asrtool.report.rates import describe_interval, format_interval, format_wer, small_set_warning
from asrtool.report.statistics import read_statistics
from asrtool.score.tables import format_rate
from asrtool.settings.config import Config, format_toml
from asrtool.version import commit

FIGURES = "report"  # the folder of figures
SETTINGS = tuple(field.name for field in dataclasses.fields(Config) if field.name not in ("paths", "mini"))


def format_results(experiment: Experiment) -> str:
    """Format RESULTS.md, whose figures are in the folder FIGURES beside it."""
    sections = [
        f"# Results of {experiment.run['recipe']}",
        *(text for name in experiment.tested for text in _describe_test(experiment, name)),
        *_describe_dev(experiment),
        "## How to get them again",
        f"```\n{experiment.run['command']}\n```",
        "\n".join(f"- {name}: {value}" for name, value in list_facts(experiment)),
        "## Errors in detail",
        _links(experiment),
        "## Training",
        describe_training(experiment.learners, f"{FIGURES}/"),
        "## Data",
        format_table(DATA_COLUMNS, data_rows(experiment)),
        *explain_words(experiment),
        "## Settings",
        f"```toml\n{format_settings(experiment)}\n```",
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def format_settings(experiment: Experiment) -> str:
    """Format the settings of the run as TOML, without the paths of corpora."""
    return format_toml(experiment.config, SETTINGS).strip()


def _describe_test(experiment: Experiment, name: str) -> Iterator[str]:
    rates = f"Word error rate, and character error rate (CER), in percent on {experiment.title(name)}"
    yield f"{rates}; language-model weights were chosen on dev and applied once to it."
    yield from _describe_scores(experiment, name)


def _describe_dev(experiment: Experiment) -> Iterator[str]:
    dev = experiment.sets.dev
    own = ", ".join(corpus.name for corpus in experiment.config.data.dev)
    origin = f"of {own}, or held out where it has none" if own else "held out by conversation and speaker"
    yield f"On dev ({experiment.manifests[dev]['num_utterances']} utterances {origin}):"
    yield from _describe_scores(experiment, dev)


def _describe_scores(experiment: Experiment, name: str) -> Iterator[str]:
    """Yield a table row a method: word error rates by label and overall, CER, counts."""
    scores = experiment.scores[name]
    headings = experiment.evaluation(name).labels
    labels = [label for label in headings if all(label in score.labels for score in scores.values())]
    rows = []
    for method, score in scores.items():
        rates = [format_wer(score.labels[label].overall) for label in labels]
        overall = format_wer(score.overall), format_interval(score), format_rate(score.characters.cer, 1)
        counts = score.overall
        sizes = (counts.sub, counts.del_, counts.ins, counts.num_words, counts.segments)
        rows.append([method, format_weight(experiment, method), *rates, *overall, *sizes])
    names = [headings[label] for label in labels]
    counted = ["sub", "del", "ins", "words", "segments"]
    yield format_table(["method", "LM weight", *names, "Overall", "95 % interval", "CER", *counted], rows)
    first = next(iter(scores.values()))
    yield " ".join(filter(None, [describe_interval(first), small_set_warning(first)]))


def format_weight(experiment: Experiment, method: str) -> str:
    """Format the LM weight chosen for a method, or a dash without one."""
    weight = experiment.decoding["methods"][method]["lm_weight"]
    return "-" if weight is None else f"{weight:g}"


def list_facts(experiment: Experiment) -> list[tuple[str, object]]:
    """Return facts on model, data and speed."""
    training, decoding = experiment.training, experiment.decoding
    weights = {
        method: ", ".join(f"{name} {value:g}" for name, value in chosen.items() if value is not None)
        for method, chosen in decoding["methods"].items()
    }
    trained = [experiment.manifests[name] for name in (experiment.sets.train, PIECES) if name in experiment.manifests]
    perturbed = "" if experiment.config.features.speeds == (1.0,) else ", before speed perturbation"
    return [
        ("commit", commit()),
        ("code that trained", ", then ".join(training.get("code", [])) or "not recorded"),
        ("parameters", f"{training['num_parameters']:,}"),
        ("speech trained on", f"{sum(of['speech_hours'] for of in trained):.2f} h{perturbed}"),
        (
            "training",
            f"{training['num_steps']:,} batches, {training['num_samples']:,} utterances, {training['seconds']:,.0f} s",
        ),
        ("date", experiment.learners.day),
        ("padding", f"{100 * training['padding_fraction']:.1f} % of the frames"),
        ("chosen on dev", "; ".join(f"{method} {text}" for method, text in weights.items() if text) or "nothing"),
        *((f"real-time factor on {name}", _format_rtf(decoding["sets"][name])) for name in experiment.tested),
    ]


def _format_rtf(factors: Mapping[str, Any]) -> str:
    searches = ", ".join(f"{method} {factor:.4f}" for method, factor in factors["search_rtf"].items())
    return f"acoustic {factors['acoustic_rtf']:.4f}; search: {searches}"


def _links(experiment: Experiment) -> str:
    lines = ["- [RESULTS.html](RESULTS.html): this and the worst utterances, with audio, on one page"]
    for name, scores in experiment.scores.items():
        for method in scores:
            folder = f"score/{name}/{method}"
            files = ("alignment.html", "confusions.txt", "speakers.txt")
            links = ", ".join(f"[{file.partition('.')[0]}]({folder}/{file})" for file in files)
            lines.append(f"- {name}, {method}: {links}")
    return "\n".join(lines)


DATA_COLUMNS = ("set", "hours of speech", "recordings", "speakers", "utterances", "words", "left out")


def data_rows(experiment: Experiment) -> list[list[object]]:
    """Return a row a set, by DATA_COLUMNS."""
    rows = []
    for name, report in experiment.manifests.items():
        dropped = ", ".join(f"{num} {reason}" for reason, num in report["dropped"].items()) or "nothing"
        counts = [report[key] for key in ("num_recordings", "num_speakers", "num_utterances", "num_words")]
        rows.append([name, f"{report['speech_hours']:.2f}", *counts, dropped])
    return rows


def explain_words(experiment: Experiment) -> list[str]:
    """Explain, by set, the words of the transcripts that are not scored."""
    sentences = []
    for name, scores in experiment.scores.items():
        numbers = sorted({score.overall.num_words for score in scores.values()})  # methods may take other alternatives
        words = read_statistics(experiment.work / "manifests" / name).words
        total, num_tags = sum(words.values()), sum(num for word, num in words.items() if not is_spoken(word))
        if numbers != [total]:
            scored = " to ".join(f"{number:,}" for number in dict.fromkeys((numbers[0], numbers[-1])))
            tags = f", of which {num_tags:,} are tags such as [noise] and not scored" if num_tags else ""
            sentences.append(
                f"Of {name} {scored} words are scored, and the transcripts have {total:,}{tags}. The rules of `ref.glm`"
                " write some words as two, as a contraction in full, others as none; the reference may leave out"
                " segments."
            )
    return sentences
