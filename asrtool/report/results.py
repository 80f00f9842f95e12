"""RESULTS.md: what a run reached, and all that is needed to reach it again.

Reads `score/`, `decode/decode.json`, `train/`, `manifests/*/report.json` and `config/run.json` of a work directory;
writes `RESULTS.md` there, and its figures to `report/`.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from asrtool.config import Config
from asrtool.config_file import format_toml
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder, write_text
from asrtool.report.markdown import format_table
from asrtool.report.plot import describe_training, draw_figures
from asrtool.report.training import read_training
from asrtool.score.result import Counts
from asrtool.score.table import name_of

# The corpora of Hub5 references by label, in the order papers print them; other references have only Overall.
CORPORA = {"SW": "Switchboard", "EN": "CallHome"}
FIGURES = "report"  # the folder of figures
SETTINGS = tuple(field.name for field in dataclasses.fields(Config) if field.name not in ("paths", "mini"))


def write_results(work: Path, config: Config) -> Path:
    """Write ``RESULTS.md`` and ``report/`` of `work`; returns the path of the first.

    Raises AsrtoolError naming a missing file and its stage.
    """
    run = _read(work / "config" / "run.json", "run")
    training = _read(work / "train" / "train.json", "train")
    decoding = _read(work / "decode" / "decode.json", "decode")
    manifests = {name: _read(work / "manifests" / name / "report.json", "prepare") for name in ("train", "dev", "test")}
    scores = {
        name: _read_scores(work, name, [method.name for method in config.decode.methods]) for name in ("test", "dev")
    }
    test_name = _test_name(next(iter(scores["test"].values())))
    learners = read_training(work / "train")
    sections = [
        f"# Results of {run['recipe']}",
        f"Word error rate in percent on {test_name}; language-model weights were chosen on dev and applied once to it.",
        _score_table(scores["test"], decoding),
        f"On dev ({manifests['dev']['num_utterances']} utterances held out by conversation and speaker):",
        _score_table(scores["dev"], decoding),
        "## How to get them again",
        f"```\n{run['command']}\n```",
        _facts(training, decoding, manifests),
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


def _test_name(score: Mapping[str, Any]) -> str:
    labels = {label: Counts.from_dict(counts) for label, counts in score["labels"].items()}
    return name_of(Counts.from_dict(score["overall"]), labels, "the test set (not Hub5'00)")


def _score_table(scores: Mapping[str, Mapping[str, Any]], decoding: Mapping[str, Any]) -> str:
    """A row a method: error rates by corpus and overall, and the counts behind the overall rate."""
    labels = [label for label in CORPORA if all(label in score["labels"] for score in scores.values())]
    names = [CORPORA[label] for label in labels]
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


def _facts(training: Mapping[str, Any], decoding: Mapping[str, Any], manifests: Mapping[str, Any]) -> str:
    factors = decoding["sets"]["test"]
    weights = {
        method: ", ".join(f"{name} {value:g}" for name, value in chosen.items() if value is not None)
        for method, chosen in decoding["methods"].items()
    }
    searches = ", ".join(f"{method} {factor:.4f}" for method, factor in factors["search_rtf"].items())
    facts = [
        ("commit", _commit()),
        ("parameters", f"{training['num_parameters']:,}"),
        ("speech trained on", f"{manifests['train']['speech_hours']:.2f} h, before speed perturbation"),
        (
            "training",
            f"{training['num_steps']} steps, {training['num_samples']} utterances, {training['seconds']:.0f} s",
        ),
        ("padding", f"{100 * training['padding_fraction']:.1f} % of the frames"),
        ("chosen on dev", "; ".join(f"{method} {text}" for method, text in weights.items() if text) or "nothing"),
        ("real-time factor on test", f"acoustic {factors['acoustic_rtf']:.4f}; search: {searches}"),
    ]
    return "\n".join(f"- {name}: {value}" for name, value in facts)


def _data_table(manifests: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for name, report in manifests.items():
        dropped = ", ".join(f"{num} {reason}" for reason, num in report["dropped"].items()) or "nothing"
        counts = [report[key] for key in ("num_recordings", "num_speakers", "num_utterances", "num_words")]
        rows.append([name, f"{report['speech_hours']:.2f}", *counts, dropped])
    return format_table(["set", "hours of speech", "recordings", "speakers", "utterances", "words", "left out"], rows)


def _commit() -> str:
    """The commit of the checkout this code lies in, marked when files differ from it; else the version."""
    here = Path(__file__)
    try:
        # Fails for an installed package in the environment of another project, whose commit says nothing of this code.
        _git(here.parent, "ls-files", "--error-unmatch", here.name)
        return _git(here.parent, "describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.CalledProcessError):
        return f"unknown, {_release()} lies in no git checkout"


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True).stdout.strip()


def _release() -> str:
    try:
        return f"asrtool {importlib.metadata.version('asrtool')}"
    except importlib.metadata.PackageNotFoundError:  # a copy of the sources
        return "the code"
