"""The Switchboard recipe from end to end, on a corpus so small that the model learns next to nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import run_command
from warm import run_asrtool

from asrtool.local.corpus import open_corpus
from asrtool.models.acoustic import load_model, save_model

ROOT = Path(__file__).resolve().parents[2]
STAGES = ["corpus", "prepare", "features", "tokenizer", "lang", "lm", "graph"]
STAGES += ["train", "average", "decode", "score", "report"]
CHAIN = ["aligner", "targets", "hybrid", "realign"]
BEFORE = [*CHAIN, "start"]
OFF = dict.fromkeys(["text", "cutter", "cut", *BEFORE, "nnlm"], "off")
SMALL = [
    "mini.train_hours=0.04", "mini.test_minutes=0.4", "tokenizer.vocab_size=60", "model.lstm.num_layers=1",
    "model.lstm.hidden_size=24", "train.num_epochs=1", "train.batch_s=40", "features.speeds=1.0",
    "decode.beam.lm_weights=0.5", "decode.graph.lm_weights=0.5", "decode.beam.beam_sizes=4",
    "decode.beam.word_penalties=0", "decode.graph.word_penalties=0", "decode.graph.beams=8",
    "decode.graph.max_active=200", "decode.rescore.lattice_beam=5", "features.num_jobs=1",
]  # fmt: skip
CORPORA = [open_corpus(name) for name in ("swbd", "fisher", "hub5", "rt03")]
# Wherever this site has the releases.
SYNTHETIC = [f"paths.{release.key}=" for corpus in CORPORA for release in corpus.releases]

pytestmark = pytest.mark.timeout(580)


def asrtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("asrtool")), *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work directory of a finished run; its name has a space."""
    work = tmp_path_factory.mktemp("swbd") / "a work directory"
    words = ["run", "--config", "ci", "--work", str(work), "--set", "features.num_jobs=1"]  # more would import torch
    said = run_asrtool(words, ROOT, afresh=True)
    assert "| greedy |" in said
    assert said.rstrip().endswith(str(work / "RESULTS.md"))
    return work


def states(work: Path, *overrides: str) -> dict[str, str]:
    words = (word for override in overrides for word in ("--set", override))
    listed = run_command("run", "--config", "ci", "--work", work, "--list", *words)
    return {line.split()[1]: line[16:].split()[0] for line in listed.stdout.splitlines()[1:]}


def done_of(listed: str, names: list[str]) -> list[str]:
    """Return the `names` that a list of states has as done, in its order."""
    return [line.split()[1] for line in listed.splitlines()[1:] if line.split()[1] in names and line[16:20] == "done"]


def test_the_results_have_a_rate_for_each_method_and_corpus_and_the_code_that_trained(work: Path) -> None:
    text = (work / "RESULTS.md").read_text(encoding="utf-8")
    assert "| method | LM weight | Switchboard | CallHome | Overall |" in text
    for method in ("greedy", "beam", "graph"):
        assert f"| {method} |" in text
        assert (work / "decode" / "hub5" / f"{method}.ctm").is_file()
    assert "asrtool run" in text
    assert "Percent of the words on dev that are wrong: " in text  # by epoch
    (code,) = json.loads((work / "train" / "train.json").read_text(encoding="utf-8"))["code"]
    assert f"- code that trained: {code}\n" in text


def test_without_a_search_that_needs_it_there_is_no_language_model(work: Path, tmp_path: Path) -> None:
    greedy = "decode.methods=greedy"
    rest = {"decode": "stale", "score": "stale", "report": "stale", **OFF}
    off = dict.fromkeys(("lang", "lm", "graph"), "off")
    assert states(work, greedy) == {**dict.fromkeys(STAGES, "done"), **off, **rest}
    copy = tmp_path / "greedy"
    shutil.copytree(work, copy)
    for name in off:  # nobody reads what is left of them
        shutil.rmtree(copy / name)
    run_asrtool(["run", "--config", "ci", "--work", str(copy), "--set", greedy], ROOT)
    assert states(copy, greedy) == {**dict.fromkeys(STAGES, "done"), **off, **OFF}
    assert "| graph |" not in (copy / "RESULTS.md").read_text(encoding="utf-8")


def test_a_finished_run_has_nothing_left_to_do_in_any_version(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "asrtool-99.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: asrtool\nVersion: 99.0\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "99.0" in asrtool("--version").stdout
    # Digests of what was young when the run ended are kept by the next one that looks.
    kept = [path for path in work.rglob("*.json") if "config" not in path.parts]
    before = {path: path.stat().st_mtime_ns for path in kept}
    again = asrtool("run", "--config", "ci", "--work", work)
    assert again.returncode == 0
    assert f"nothing to do, done: {', '.join(STAGES)}" in again.stdout
    assert states(work) == {**dict.fromkeys(STAGES, "done"), **OFF}
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize(
    ("override", "first", "spared"),
    [
        ("decode.beam.beam_sizes=5", "decode", ()),
        ("lm.order=1", "lm", ("train", "average")),
        ("tokenizer.vocab_size=50", "tokenizer", ()),
        ("train.peak_lr=0.001", "train", ()),
        ("features.fbank.num_mel_bins=30", "features", ("tokenizer", "lang", "lm", "graph")),
    ],
)
def test_a_changed_setting_makes_exactly_the_affected_stages_stale(
    work: Path, override: str, first: str, spared: tuple[str, ...]
) -> None:
    expected = [name for name in STAGES[STAGES.index(first) :] if name not in spared]
    if first == "tokenizer":
        expected = [name for name in expected if name != "features"]
    assert [name for name, state in states(work, override).items() if state == "stale"] == expected


@pytest.mark.slow
@pytest.mark.parametrize("config", ["swb300", "swb2000"])
def test_the_configurations_for_the_ldc_corpora_run_on_a_mini_corpus(tmp_path: Path, config: str) -> None:
    test = {"swb300": ["hub5"], "swb2000": ["hub5", "rt03"]}[config]
    neural = [f"nnlm.{key}" for key in ("word-lstm.hidden_size=16", "word-lstm.projection_size=8", "num_epochs=1")]
    neural += ["decode.rescore.lm_weights=0.5", "decode.rescore.num_paths=10"]
    settings = [*SMALL, *SYNTHETIC, *neural, *(["data.test=hub5"] if config == "swb300" else [])]
    overrides = [word for setting in settings for word in ("--set", setting)]
    run_asrtool(["run", "--config", config, "--work", str(tmp_path), *overrides], ROOT)
    assert (tmp_path / "manifests" / "corpora" / "fisher").is_dir() == (config == "swb2000")
    text = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    for method in ("graph", "rescore"):
        assert text.count(f"| {method} | 0.5 |") == len(test) + 1  # and on dev
    assert ("| Switchboard | Fisher | Overall |" in text) == ("rt03" in test)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transducer", "attention"])
def test_another_objective_trains_decodes_and_scores(work: Path, tmp_path: Path, name: str) -> None:
    """Its configuration is laid over that of a finished run, whose stages up to the graph are used."""
    copy = tmp_path / name
    shutil.copytree(work, copy)
    small = [f"decode.{name}-beam.{setting}" for setting in ("lm_weights=0.5", "word_penalties=0", "beam_sizes=2")]
    overrides = [word for setting in small for word in ("--set", setting)]
    words = ["run", "--config", "ci", "--config", name, "--work", str(copy), *overrides]
    run_asrtool([*words, "--stop-stage", "average"], ROOT)
    model, info = load_model(copy / "average" / "model.pt")
    if name == "transducer":  # which has learned the blank alone; less of it, and something is there to score
        with torch.no_grad():
            model.objective.output.bias[0] -= 20
        save_model(copy / "average" / "model.pt", model, info)
    run_asrtool([*words, "--stage", "decode"], ROOT)
    for ctm in (copy / "decode").glob("*/*-greedy.ctm"):
        assert len(ctm.read_text(encoding="utf-8").splitlines()) > 50
    text = (copy / "RESULTS.md").read_text(encoding="utf-8")
    assert text.count(f"| {name}-greedy | - |") == text.count(f"| {name}-beam | 0.5 |") == 2  # on dev as well
    assert "| graph |" not in text


def graph_lines(text: str) -> list[str]:
    """Return the lines of method graph in RESULTS.md: on the test set, and on dev."""
    return [line for line in text.splitlines() if line.startswith("| graph |")]


@pytest.mark.slow
def test_the_chain_of_a_hybrid_model_runs_from_end_to_end(work: Path, tmp_path: Path) -> None:
    """CTC aligns, a hybrid model learns that and aligns anew, another one learns that; features of a finished run."""
    copy = tmp_path / "hybrid"
    shutil.copytree(work, copy)
    small = "--set", "decode.graph.lm_weights=1", "--set", "tree.min_count=20"
    words = ["run", "--config", "ci", "--config", "hybrid", "--work", str(copy), *small]
    run_asrtool(words, ROOT)
    for name, folder in (("targets", "aligner"), ("realign", "hybrid")):
        assert (copy / folder / "model.pt").is_file()
        assert (copy / name / "train" / "segments.bin").stat().st_size > 1000
    # The graph for decoding has the tree of the last alignment.
    assert (copy / "graph" / "tree.npz").read_bytes() == (copy / "realign" / "tree.npz").read_bytes()
    assert (copy / "targets" / "tree.npz").read_bytes() != (copy / "realign" / "tree.npz").read_bytes()
    losses = {}
    for name in ("hybrid/train", "train"):
        lines = map(json.loads, (copy / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        losses[name] = [line["loss"] for line in lines if line["kind"] == "dev"]
        assert losses[name][-1] < losses[name][0]
    text = (copy / "RESULTS.md").read_text(encoding="utf-8")
    rates = [float(line.split("|")[5 - 2 * on_dev]) for on_dev, line in enumerate(graph_lines(text))]
    print("WER on hub5 and dev", *rates)
    assert len(rates) == 2
    assert all(0 < rate <= 100 for rate in rates)
    listed = run_command(*words, "--list")
    assert done_of(listed.stdout, CHAIN) == CHAIN


@pytest.mark.slow
def test_sequence_training_begins_with_the_hybrid_model_and_decodes_by_its_graph(work: Path, tmp_path: Path) -> None:
    copy = tmp_path / "mmi"
    shutil.copytree(work, copy)
    small = "--set", "decode.graph.lm_weights=1", "--set", "tree.min_count=20"
    epochs = "--set", "train.num_epochs=2", "--set", "model.lf-mmi.num_epochs=1"
    words = ["run", *("--config", "ci", "--config", "hybrid_mmi"), "--work", str(copy)]
    run_asrtool([*words, *small, *epochs], ROOT)
    entries = {
        name: list(map(json.loads, (copy / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()))
        for name in ("start/train", "train")
    }
    before, after = ([line for line in lines if line["kind"] == "dev"] for lines in entries.values())
    assert (len(before), len(after)) == (2, 1)
    log = (copy / "logs" / "07-train.log").read_text(encoding="utf-8")
    assert f"beginning with the weights of {copy / 'start' / 'model.pt'}\n" in log  # all of them
    assert after[0]["cross_entropy"] < before[0]["loss"]
    text = (copy / "RESULTS.md").read_text(encoding="utf-8")
    assert len(graph_lines(text)) == 2
    listed = run_command(*words, *small, *epochs, "--list")
    assert done_of(listed.stdout, BEFORE) == BEFORE
