"""RESULTS.md from the files of a run."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from report_work import HUB5, TUNING, Said, score, usual, without_figures, write_json, write_set, write_work

from asrtool import version
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.errors import AsrtoolError
from asrtool.report.experiment import read_experiments
from asrtool.report.figures.figure import narrow_svg
from asrtool.report.rates import describe_weights, draw_weights, lowest, read_weights
from asrtool.report.results import SETTINGS, format_results
from asrtool.report.write import write_report
from asrtool.settings.config import format_toml
from asrtool.settings.toml_files import load_config


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_work(tmp_path_factory.mktemp("work") / "exp", audio=False)


@pytest.fixture
def work(template: Path, tmp_path: Path) -> Path:
    """A work directory of greedy, wrong in 8 of 80 words, and graph, in 4."""
    return Path(shutil.copytree(template, tmp_path / "exp"))


def results(work: Path) -> str:
    (experiment,) = read_experiments([work])
    return format_results(experiment)


def change(work: Path, *overrides: str) -> None:
    """Write the settings of the run again, with others."""
    file = work / "config/report.toml"
    file.write_text(format_toml(load_config([file], overrides), SETTINGS), encoding="utf-8")


def test_the_table_has_a_row_for_each_method_and_a_column_for_each_corpus(work: Path) -> None:
    text = results(work)
    assert "| method | LM weight | Switchboard | CallHome | Overall | 95 % interval | CER |" in text
    greedy, graph = (character_errors(work, method) for method in ("greedy", "graph"))
    assert f"| greedy | - | 5.0 | 15.0 | 10.0 | 2.5 to 20.0 | {greedy} | 4 | 3 | 1 | 80 | 20 |" in text
    assert f"| graph | 0.5 | 0.0 | 10.0 | 5.0 | 0.0 to 11.2 | {graph} | 0 | 3 | 1 | 80 | 20 |" in text
    assert 0 < float(graph) < float(greedy)


def character_errors(work: Path, method: str) -> str:
    """Return the character errors by the counts of the stage score."""
    counts = json.loads((work / "score/hub5" / method / "score.json").read_text())["overall"]
    return f"{100 * counts['char_err'] / counts['chars']:.1f}"


def test_a_small_set_has_a_caution_that_says_why_and_a_large_one_has_none(work: Path) -> None:
    caution = "**Caution**, a small set: 20 segments of 4 speakers with 80 words; one word is 1.2 points, and so few"
    assert results(work).count(caution) == 2  # of hub5 and of dev
    few = [Said("r", "A", "me", "SW", "one two three", {"greedy": "one two three", "graph": "one two"})] * 3
    write_set(work, "dev", few, audio=False)
    score(work)
    assert "3 segments of 1 speaker with 9 words; one word is 11.1 points, and so few make" in results(work)
    said = [
        Said(f"r{number}", "A", f"s{number}", "SW", "a b c d e " * 10, dict.fromkeys(("greedy", "graph"), "a " * 50))
        for number in range(25)
    ]
    write_set(work, "hub5", said, audio=False)
    score(work)
    assert results(work).partition("On dev")[0].count("Caution") == 0


def test_everything_a_person_looks_at_next_is_linked(work: Path) -> None:
    text = results(work)
    for name in ("dev", "hub5"):
        for method in ("greedy", "graph"):
            for file in ("alignment.html", "confusions.txt", "speakers.txt"):
                link = f"score/{name}/{method}/{file}"
                assert f"]({link})" in text
                assert (work / link).is_file()
    assert "[RESULTS.html](RESULTS.html)" in text


def test_why_other_numbers_of_words_are_scored_is_said_where_they_are(work: Path) -> None:
    assert "are scored, and" not in results(work)
    (work / "manifests/hub5/ref.glm").write_text("* name 'x'\n[WHAT] => [WHAT EVER] / [ ] __ [ ]\n")
    score(work)
    assert "Of hub5 100 words are scored, and the transcripts have 80. The rules of `ref.glm`" in results(work)
    assert "Of dev" not in results(work)
    said = [each._replace(text=f"{each.text} [noise]") for each in usual()]
    write_set(work, "dev", said, audio=False)
    (work / "manifests/dev/ref.stm").write_bytes((work / "manifests/hub5/ref.stm").read_bytes())
    score(work)
    assert "Of dev 80 words are scored, and the transcripts have 100, of which 20 are tags such as" in results(work)


def test_pieces_of_long_utterances_count_among_what_was_trained_on(work: Path) -> None:
    report = json.loads((work / "manifests/train/report.json").read_text())
    write_json(work / "cut/manifests/report.json", report | {"speech_hours": 0.25})
    assert "speech trained on: 0.01 h, before speed perturbation\n" in results(work)
    change(work, "features.speeds=[1.0]")
    assert "speech trained on: 0.01 h\n" in results(work)
    change(work, "data.cut_long=true")
    text = results(work)
    assert "speech trained on: 0.26 h" in text
    assert "| pieces of long utterances | 0.25 |" in text


def test_several_test_sets_have_a_table_each(work: Path) -> None:
    write_sets(work / "manifests", Sets((HUB5, EvaluationSet("calls", "My calls", {"SW": "Part X", "Y": "Part Y"}))))
    write_set(work, "calls", usual()[:14], audio=False)
    score(work)
    decoding = json.loads((work / "decode/decode.json").read_text())
    decoding["sets"]["calls"] = {"acoustic_rtf": 0.5, "search_rtf": {"greedy": 0.25, "graph": 0.125}}
    write_json(work / "decode/decode.json", decoding)
    text = results(work)
    first, second, _ = text.split("LM weight |", 3)[:3]
    assert "percent on hub5 (not Hub5'00);" in first
    assert "percent on My calls;" in second
    assert "| method | LM weight | Part X | Overall |" in text
    assert "| greedy | - | 5.0 | 10.7 | " in text
    assert "- real-time factor on calls: acoustic 0.5000; search: greedy 0.2500, graph 0.1250" in text
    rows = [line.split()[1] for line in text.splitlines() if line.startswith("| ")]
    assert rows[-4:] == ["train", "dev", "hub5", "calls"]


def test_the_report_shows_command_parameters_hours_and_settings(work: Path) -> None:
    text = results(work)
    for shown in (
        "asrtool run --config mini",
        "1,234,567",
        "0.01 h",
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
    text = results(work)
    assert f"- commit: unknown, asrtool {importlib.metadata.version('asrtool')} lies in no git checkout\n" in text
    subprocess.run(["git", "-C", project, "add", installed], check=True)
    assert "- commit: unknown" not in results(work)


@pytest.mark.parametrize(
    ("file", "stage"),
    [
        ("score/hub5/graph/segments.jsonl", "score"),
        ("train/train.json", "train"),
        ("decode/decode.json", "decode"),
        ("tune/tuning.tsv", "decode"),
        ("config/report.toml", "report"),
        ("manifests/dev/report.json", "prepare"),
    ],
)
def test_a_missing_or_broken_file_is_named_with_the_stage_that_makes_it(
    work: Path, file: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_figures(monkeypatch)
    (work / file).unlink()
    with pytest.raises(AsrtoolError, match=rf"{file} is missing; run stage {stage} first"):
        write_report([work], 0)
    if file.endswith("train.json"):
        (work / file).write_text("{", encoding="utf-8")
        with pytest.raises(AsrtoolError, match=r"train\.json: broken JSON: .*; run stage train again with --force"):
            write_report([work], 0)
    assert not (work / "RESULTS.md").exists()


def test_a_folder_of_no_run_is_named(tmp_path: Path) -> None:
    no_run = r"not a folder that `asrtool run` wrote, it has no config/run\.json; name"
    for folder in (tmp_path, tmp_path / "gone"):
        with pytest.raises(AsrtoolError, match=no_run):
            read_experiments([folder])


def test_a_score_of_an_earlier_asrtool_is_to_be_made_again(work: Path) -> None:
    line = '{"id": "a", "speaker": "s", "reference": "x", "outcomes": "C"}\n'
    (work / "score/hub5/graph/segments.jsonl").write_text(line, encoding="utf-8")
    with pytest.raises(AsrtoolError, match=r"no aligned words, .*; run stage score again with --force"):
        results(work)


def test_the_report_shows_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asrtool.report.page.page.narrow_svg", lambda draw, name: "")
    work = write_work(tmp_path / "exp", num_learners=2, audio=False)
    write_report([work], 0)
    text = (work / "RESULTS.md").read_text(encoding="utf-8")
    assert "## Training\n\n`adpsgd-random`, 2 learners: " in text
    figures = {"loss.svg", "learners.svg", "timeline.svg", "consensus.svg"}
    assert {path.name for path in (work / "report").glob("[!.]*")} == figures
    assert all(f"](report/{name} " in text for name in figures)


def test_a_development_set_of_a_corpus_is_not_called_held_out(work: Path) -> None:
    assert "utterances held out by conversation and speaker):" in results(work)
    change(work, "data.dev=own")
    assert "utterances of own, or held out where it has none):" in results(work)


# Error rates on dev over the weight of the language model


def test_each_weight_has_the_least_rate_of_what_was_tried_with_it(tmp_path: Path) -> None:
    path = tmp_path / "tuning.tsv"
    path.write_text(TUNING + "graph\t0.1\t2\t80\t9.00\tno\nbeam\t0.4\t0\t80\t5.00\tyes\nbeam\t0.4\t1\t80\t6.00\tno\n")
    curves = read_weights(path)
    assert curves == {"graph": {0.1: 9.0, 0.3: 7.5, 0.5: 5.0, 0.8: 6.25}}  # beam and greedy have one weight or none
    assert list(curves["graph"]) == [0.1, 0.3, 0.5, 0.8]
    assert "graph: 5.00 % at 0.5, the lowest of 9.00 at 0.1, 7.50 at 0.3" in describe_weights(curves)
    assert lowest({0.5: 5.0, 0.3: 5.0, 0.8: 7.0}) == 0.3
    svg = narrow_svg(lambda figure: draw_weights(figure, curves), "x")
    assert ">LM weight</text>" in svg
    assert ">graph</text>" in svg


@pytest.mark.parametrize("text", ["", "method\tlm_weight\n", "method\twer\nbeam\t1\n", f"{TUNING}beam\t0.5\n"])
def test_a_table_without_weights_or_with_broken_lines(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tuning.tsv"
    path.write_text(text)
    if text == "method\tlm_weight\n":
        assert read_weights(path) == {}
        return
    with pytest.raises(AsrtoolError, match=r"tuning\.tsv: no table of tuning: .*; run stage decode again with --force"):
        read_weights(path)
