"""RESULTS.md: what a run reached, and all that is needed to reach it again.

Reads `score/`, `decode/decode.json`, `train/`, `manifests/*/report.json` and `config/run.json` of a work directory;
writes `RESULTS.md` there, and its figures to `report/`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from asrtool.config import Config, format_toml
from asrtool.corpus.sets import EvaluationSet, read_sets
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder, write_text
from asrtool.report.markdown import format_table
from asrtool.report.plot import describe_training, draw_figures
from asrtool.report.training import read_training
from asrtool.score.result import Counts
from asrtool.score.table import SIZES, name_of
from asrtool.version import commit

FIGURES = "report"  # the folder of figures
SETTINGS = tuple(field.name for field in dataclasses.fields(Config) if field.name not in ("paths", "mini"))
PIECES = "pieces of long utterances"  # in the table of data


def write_results(work: Path, config: Config) -> Path:
    """Write ``RESULTS.md`` and ``report/`` of `work`; returns the path of the first.

    Raises AsrtoolError naming a missing file and its stage.
    """
    run = _read(work / "config" / "run.json", "run")
    training = _read(work / "train" / "train.json", "train")
    decoding = _read(work / "decode" / "decode.json", "decode")
    sets = read_sets(work / "manifests")
    manifests = {name: _read(work / "manifests" / name / "report.json", "prepare") for name in sets.names}
    cut = work / "cut" / "manifests" / "report.json"
    if config.data.cut_long and cut.exists():
        manifests[PIECES] = _read(cut, "cut")
    heard = [manifests[name] for name in (sets.train, PIECES) if name in manifests]
    methods = [method.name for method in config.decode.methods]
    scores = {name: _read_scores(work, name, methods) for name in sets.scored}
    learners = read_training(work / "train")
    sections = [
        f"# Results of {run['recipe']}",
        *(text for item in sets.test for text in _describe_test(item, scores[item.name], decoding)),
        f"On dev ({manifests[sets.dev]['num_utterances']} utterances {_origin_of_dev(config)}):",
        _score_table(scores[sets.dev], {}, decoding),
        "## How to get them again",
        f"```\n{run['command']}\n```",
        _facts(training, decoding, heard, [item.name for item in sets.test]),
        "## Training",
        describe_training(learners, f"{FIGURES}/"),
        "## Data",
        _data_table(manifests),
        "## Settings",
        f"```toml\n{format_toml(config, SETTINGS).strip()}\n```",
    ]
    with write_folder(work / FIGURES, "learners.svg") as folder:
        draw_figures(learners, folder)
    path = work / "RESULTS.md"
    write_text(path, "\n\n".join(sections) + "\n")
    return path


def _read(path: Path, stage: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise AsrtoolError(f"{path} is missing", f"run stage {stage} first") from error
    except ValueError as error:
        raise AsrtoolError(f"{path}: broken JSON: {error}", f"run stage {stage} again with --force") from error
    assert isinstance(content, dict), f"{path} holds {type(content)}"
    return content


def _read_scores(work: Path, test_set: str, methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    return {method: _read(work / "score" / test_set / method / "score.json", "score") for method in methods}


def _describe_test(
    item: EvaluationSet, scores: Mapping[str, Mapping[str, Any]], decoding: Mapping[str, Any]
) -> Iterator[str]:
    title = _title(item, next(iter(scores.values())))
    yield f"Word error rate in percent on {title}; language-model weights were chosen on dev and applied once to it."
    yield _score_table(scores, item.labels, decoding)


def _origin_of_dev(config: Config) -> str:
    own = ", ".join(corpus.name for corpus in config.data.dev)
    return f"of {own}, or held out where it has none" if own else "held out by conversation and speaker"


def _title(item: EvaluationSet, score: Mapping[str, Any]) -> str:
    """What the scored test set is: one whose size is known is called by its title only where it is whole."""
    title = f"{item.name} (not {item.title})" if item.title in SIZES else item.title or item.name
    labels = {label: Counts.from_dict(counts) for label, counts in score["labels"].items()}
    return name_of(Counts.from_dict(score["overall"]), labels, title)


def _score_table(
    scores: Mapping[str, Mapping[str, Any]], headings: Mapping[str, str], decoding: Mapping[str, Any]
) -> str:
    """A row a method: error rates by label, of those with `headings`, and overall, and the counts behind the latter."""
    labels = [label for label in headings if all(label in score["labels"] for score in scores.values())]
    names = [headings[label] for label in labels]
    rows = []
    for method, score in scores.items():
        overall = score["overall"]
        weight = decoding["methods"][method]["lm_weight"]
        rates = [_rate(score["labels"][label]) for label in labels]
        counts = [overall[key] for key in ("sub", "del", "ins", "words", "segments")]
        rows.append([method, "-" if weight is None else f"{weight:g}", *rates, _rate(overall), *counts])
    return format_table(["method", "LM weight", *names, "Overall", "sub", "del", "ins", "words", "segments"], rows)


def _rate(counts: Mapping[str, int]) -> str:
    wer = Counts.from_dict(counts).wer
    return "-" if wer is None else f"{wer:.1f}"


def _facts(
    training: Mapping[str, Any], decoding: Mapping[str, Any], heard: Iterable[Mapping[str, Any]], tested: Iterable[str]
) -> str:
    weights = {
        method: ", ".join(f"{name} {value:g}" for name, value in chosen.items() if value is not None)
        for method, chosen in decoding["methods"].items()
    }
    facts = [
        ("commit", commit()),
        ("code that trained", ", then ".join(training.get("code", [])) or "not recorded"),
        ("parameters", f"{training['num_parameters']:,}"),
        ("speech trained on", f"{sum(of['speech_hours'] for of in heard):.2f} h, before speed perturbation"),
        (
            "training",
            f"{training['num_steps']} steps, {training['num_samples']} utterances, {training['seconds']:.0f} s",
        ),
        ("padding", f"{100 * training['padding_fraction']:.1f} % of the frames"),
        ("chosen on dev", "; ".join(f"{method} {text}" for method, text in weights.items() if text) or "nothing"),
        *((f"real-time factor on {name}", _format_rtf(decoding["sets"][name])) for name in tested),
    ]
    return "\n".join(f"- {name}: {value}" for name, value in facts)


def _format_rtf(factors: Mapping[str, Any]) -> str:
    searches = ", ".join(f"{method} {factor:.4f}" for method, factor in factors["search_rtf"].items())
    return f"acoustic {factors['acoustic_rtf']:.4f}; search: {searches}"


def _data_table(manifests: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for name, report in manifests.items():
        dropped = ", ".join(f"{num} {reason}" for reason, num in report["dropped"].items()) or "nothing"
        counts = [report[key] for key in ("num_recordings", "num_speakers", "num_utterances", "num_words")]
        rows.append([name, f"{report['speech_hours']:.2f}", *counts, dropped])
    return format_table(["set", "hours of speech", "recordings", "speakers", "utterances", "words", "left out"], rows)
