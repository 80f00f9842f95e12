"""RESULTS.md from the files of a run."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from run_files import write_training

from asrtool import version
from asrtool.config import Config
from asrtool.config_file import load_config
from asrtool.corpus.sets import EvaluationSet, Sets, write_sets
from asrtool.errors import AsrtoolError
from asrtool.report.results import write_results
from asrtool.settings import Choice

COUNTS = {"segments": 10, "words": 80, "corr": 74, "sub": 4, "del": 2, "ins": 2, "err": 8}
MANIFEST = {
    "num_recordings": 3, "num_utterances": 10, "num_speakers": 6, "num_words": 80,
    "speech_hours": 0.5, "audio_hours": 1.0,
    "dropped": {"empty": 2},
}  # fmt: skip
HUB5 = EvaluationSet("hub5", "Hub5'00", {"SW": "Switchboard", "EN": "CallHome"})
CONFIG: Config = load_config(overrides=["decode.methods=greedy,graph"])


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work directory with what the report reads; greedy is wrong in 8 of 80 words, graph in 4."""
    write_json(tmp_path / "config/run.json", {"command": "asrtool run --config mini", "recipe": "swbd", "work": "exp"})
    write_training(tmp_path / "train", num_learners=1)
    rtf = {"acoustic_rtf": 0.002, "search_rtf": {"greedy": 0.0001, "graph": 0.0004}}
    methods = {"greedy": {"lm_weight": None}, "graph": {"lm_weight": 0.5, "word_penalty": 0.0, "beam": 14.0}}
    write_json(tmp_path / "decode/decode.json", {"methods": methods, "sets": {"dev": rtf, "hub5": rtf}})
    write_sets(tmp_path / "manifests", Sets((HUB5,)))
    for name in ("train", "dev", "hub5"):
        write_json(tmp_path / f"manifests/{name}/report.json", MANIFEST)
    for name in ("dev", "hub5"):
        labels = (
            {"SW": COUNTS, "EN": COUNTS | {"sub": 12, "corr": 66, "err": 16}} if name == "hub5" else {"swbd": COUNTS}
        )
        graph = COUNTS | {"sub": 0, "corr": 78, "err": 4}
        for method, overall in (("greedy", COUNTS), ("graph", graph)):
            score = {"overall": overall, "labels": labels, "speakers": {}}
            write_json(tmp_path / f"score/{name}/{method}/score.json", score)
    return tmp_path


def test_the_table_has_a_row_for_each_method_and_a_column_for_each_corpus(work: Path) -> None:
    text = write_results(work, CONFIG).read_text(encoding="utf-8")
    assert "| method | LM weight | Switchboard | CallHome | Overall |" in text
    assert "| greedy | - | 10.0 | 20.0 | 10.0 | 4 | 2 | 2 | 80 | 10 |" in text
    assert "| graph | 0.5 | 10.0 | 20.0 | 5.0 | 0 | 2 | 2 | 80 | 10 |" in text


def test_pieces_of_long_utterances_count_among_what_was_trained_on(work: Path) -> None:
    write_json(work / "cut/manifests/report.json", MANIFEST | {"speech_hours": 0.25})
    assert "speech trained on: 0.50 h" in write_results(work, CONFIG).read_text(encoding="utf-8")
    cut = dataclasses.replace(CONFIG, data=dataclasses.replace(CONFIG.data, cut_long=True))
    text = write_results(work, cut).read_text(encoding="utf-8")
    assert "speech trained on: 0.75 h" in text
    assert "| pieces of long utterances | 0.25 |" in text


def test_several_test_sets_have_a_table_each(work: Path) -> None:
    write_sets(work / "manifests", Sets((HUB5, EvaluationSet("calls", "My calls", {"X": "Part X", "Y": "Part Y"}))))
    write_json(work / "manifests/calls/report.json", MANIFEST)
    decoding = json.loads((work / "decode/decode.json").read_text())
    decoding["sets"]["calls"] = {"acoustic_rtf": 0.5, "search_rtf": {"greedy": 0.25, "graph": 0.125}}
    write_json(work / "decode/decode.json", decoding)
    for method in ("greedy", "graph"):
        labels = {"X": COUNTS | {"sub": 20, "corr": 58, "err": 24}, "Z": COUNTS}
        write_json(work / f"score/calls/{method}/score.json", {"overall": COUNTS, "labels": labels, "speakers": {}})
    text = write_results(work, CONFIG).read_text(encoding="utf-8")
    first, second, _ = text.split("LM weight |", 3)[:3]
    assert "percent on hub5 (not Hub5'00);" in first
    assert "percent on My calls;" in second
    assert "| method | LM weight | Part X | Overall |" in text
    assert "| greedy | - | 30.0 | 10.0 | 4 | 2 | 2 | 80 | 10 |" in text
    assert "- real-time factor on calls: acoustic 0.5000; search: greedy 0.2500, graph 0.1250" in text
    rows = [line.split()[1] for line in text.splitlines() if line.startswith("| ")]
    assert rows[-4:] == ["train", "dev", "hub5", "calls"]


def test_a_set_of_another_size_is_not_called_hub5_00(work: Path) -> None:
    text = write_results(work, CONFIG).read_text(encoding="utf-8")
    assert "on hub5 (not Hub5'00)" in text


def test_the_report_shows_command_parameters_hours_and_settings(work: Path) -> None:
    text = write_results(work, CONFIG).read_text(encoding="utf-8")
    for shown in (
        "asrtool run --config mini",
        "1,234,567",
        "0.50 h",
        "2 empty",
        "- chosen on dev: graph lm_weight 0.5, word_penalty 0, beam 14",
        'methods = ["greedy", "graph"]',
        "commit",
    ):
        assert shown in text, shown


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_another_project_is_not_taken_for_that_of_an_installed_package(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    installed = project / ".venv" / "asrtool" / "version.py"
    installed.parent.mkdir(parents=True)
    installed.touch()
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", "-C", project, *words], check=True)
    monkeypatch.setattr(version, "__file__", str(installed))
    text = write_results(work, CONFIG).read_text(encoding="utf-8")
    assert f"- commit: unknown, asrtool {importlib.metadata.version('asrtool')} lies in no git checkout\n" in text
    subprocess.run(["git", "-C", project, "add", installed], check=True)
    assert "- commit: unknown" not in write_results(work, CONFIG).read_text(encoding="utf-8")


def test_a_missing_file_is_named_with_the_stage_that_makes_it(work: Path) -> None:
    (work / "score/hub5/graph/score.json").unlink()
    with pytest.raises(AsrtoolError, match=r"hub5/graph/score\.json is missing; run stage score first"):
        write_results(work, CONFIG)


def test_a_broken_file_is_named_and_no_report_is_left(work: Path) -> None:
    (work / "train/train.json").write_text("{", encoding="utf-8")
    with pytest.raises(AsrtoolError, match=r"train\.json: broken JSON"):
        write_results(work, CONFIG)
    assert not (work / "RESULTS.md").exists()


def test_the_report_shows_the_training(work: Path) -> None:
    text = write_results(work, CONFIG).read_text(encoding="utf-8")
    assert "## Training\n\n`single`, 1 learner: 40 steps in 10 s." in text
    assert "](report/loss.svg)" in text
    assert {path.name for path in (work / "report").iterdir()} == {"loss.svg", "learners.svg", "timeline.svg"}


def test_a_training_without_records_of_learners_names_the_stage_to_run_again(work: Path) -> None:
    (work / "train/learners/0.jsonl").unlink()
    with pytest.raises(AsrtoolError, match="run stage train again with --force"):
        write_results(work, CONFIG)


def test_a_development_set_of_a_corpus_is_not_called_held_out(work: Path) -> None:
    text = write_results(work, CONFIG).read_text(encoding="utf-8")
    assert "utterances held out by conversation and speaker):" in text
    named = dataclasses.replace(CONFIG, data=dataclasses.replace(CONFIG.data, dev=(Choice.of("corpus", "own"),)))
    text = write_results(work, named).read_text(encoding="utf-8")
    assert "utterances of own, or held out where it has none):" in text
