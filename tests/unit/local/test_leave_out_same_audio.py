"""What a set to be scored has too is reported, and left out of training with its text."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import soundfile
from click.testing import CliRunner
from lhotse import AudioSource, Recording, SupervisionSegment
from small_releases import make_data

from asrtool.cli.line import find_entry
from asrtool.cli.main import cli
from asrtool.config_file import load_config
from asrtool.corpus import same_audio
from asrtool.corpus.manifest import Drop, read_drops, read_manifests, read_report, write_manifests
from asrtool.corpus.sets import EvaluationSet, Sets, write_sets
from asrtool.corpus.settings import Features
from asrtool.recipe import engine
from asrtool.recipe.recipe import Recipe
from asrtool.recipe.stages import PREPARE
from asrtool.recipe.state import Run, stage_state
from local.same_audio import check_same_audio
from local.same_text import report_same_text


@pytest.fixture
def manifests(tmp_path: Path, mini_corpus: Path) -> Path:
    """Pieces of a recording; training has those of dev and hub5, changed, one of its own twice."""
    sound, rate = soundfile.read(next(iter(sorted(mini_corpus.rglob("*.sph")))), dtype="float32", always_2d=True)
    parts = [sound[k * rate * 8 : (k + 1) * rate * 8, :1] for k in range(4)]
    plans = {
        "dev": [parts[0]],
        "hub5": [parts[1]],
        "train": [parts[2], parts[1] * 0.3, parts[3], parts[0][rate:], parts[2]],
    }
    for name, sounds in plans.items():
        recordings, segments = [], []
        for number, samples in enumerate(sounds):
            path = tmp_path / f"{name}{number}.wav"
            soundfile.write(path, samples, rate)
            seconds = len(samples) / rate
            recordings.append(Recording(path.stem, [AudioSource("file", [0], str(path))], rate, len(samples), seconds))
            custom = {"corpus": "swbd" if number < 3 else "fisher"}
            segments.append(
                SupervisionSegment(path.stem, path.stem, 0.0, seconds, 0, f"words {number}", speaker="s", custom=custom)
            )
        texts = {"sentences.txt": "words 3\nwords 1\nwords 3\nwords 2\nwords 0\nwords 1\n"}
        texts |= {
            "sentences.swbd.txt": "words 1\nwords 3\nwords 2\nwords 0\nwords 1\n",
            "sentences.fisher.txt": "words 3\n",
        }
        write_manifests(tmp_path / name, recordings, segments, [Drop("x", "too long", "30 s")], 1.0, texts)
    write_sets(tmp_path, Sets((EvaluationSet("hub5"),)))
    return tmp_path


def found(manifests: Path) -> set[tuple[str, ...]]:
    lines = (manifests / "same_audio.tsv").read_text(encoding="utf-8").splitlines()
    return {tuple(line.split("\t")[:4]) for line in lines[1:]}


ONE = Features(num_jobs=1)
WITHIN = ("train4", "train", "train0", "train")
LEAKED = {("train1", "train", "hub50", "hub5"), ("train3", "train", "dev0", "dev")}


def test_reported_is_what_is_found_and_nothing_is_left_out(manifests: Path) -> None:
    before = {path: path.read_bytes() for path in sorted(manifests.rglob("*")) if path.is_file()}
    words = ["prepare", "same-audio", str(manifests), "--set", "data.same_audio=report"]
    done = CliRunner().invoke(cli, words)  # with a process a core
    assert done.exit_code == 0, done.output
    assert found(manifests) == {*LEAKED, WITHIN}
    assert "1 pairs of utterances of train and hub5 are one sound" in done.output
    assert {path: path.read_bytes() for path in before} == before


def write_set(folder: Path, *texts: str) -> None:
    ids = [f"{folder.name}{number}" for number in range(len(texts))]
    recordings = [Recording(id_, [AudioSource("file", [0], "none.wav")], 8000, 8000, 1.0) for id_ in ids]
    segments = [SupervisionSegment(id_, id_, 0.0, 1.0, 0, text) for id_, text in zip(ids, texts, strict=True)]
    write_manifests(folder, recordings, segments, [], 1.0, {})


def test_long_texts_of_what_is_scored_that_training_says_are_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long, other = "so what did you do when it was over", "no i went to the sea again with her"
    write_set(tmp_path / "train", long, "yeah", long, "yeah", f"{long} then", "it was fine")
    write_set(tmp_path / "dev", "yeah", other)
    write_set(tmp_path / "hub5", other, long, "it was fine", long, f"and {long}")
    report_same_text(tmp_path, ["dev", "hub5"], "train")
    assert (tmp_path / "same_text.tsv").read_text(encoding="utf-8").splitlines()[1:] == [
        f"hub51\thub5\t{long}\t2", f"hub53\thub5\t{long}\t2",
    ]  # fmt: skip
    said = [record.message for record in caplog.records if "said in training" in record.message]
    assert len(said) == 1
    assert "2 of 4 utterances of hub5 with 8 words or more are said in training, too" in said[0]


def test_dropped_is_what_is_scored_with_its_text(manifests: Path) -> None:
    check_same_audio(manifests, make_data(same_audio="drop"), Features(num_jobs=1))
    assert found(manifests) == {*LEAKED, WITHIN}
    train = manifests / "train"
    assert [s.id for s in read_manifests(train)[1]] == ["train0", "train2", "train4"]
    drops = [Drop("train1", "same audio in hub5", "hub50"), Drop("train3", "same audio in dev", "dev0")]
    assert sorted(read_drops(train / "dropped.tsv"), key=str) == sorted(
        [Drop("x", "too long", "30 s"), *drops], key=str
    )
    assert read_report(train)["dropped"] == {"same audio in dev": 1, "same audio in hub5": 1, "too long": 1}
    texts = {path.name: path.read_text(encoding="utf-8").split("\n")[:-1] for path in train.glob("sentences*.txt")}
    assert texts == {  # one of two that say the same
        "sentences.txt": ["words 3", "words 2", "words 0", "words 1"],
        "sentences.swbd.txt": ["words 3", "words 2", "words 0", "words 1"],
    }


def test_ignored_it_costs_nothing_and_an_old_list_is_gone(manifests: Path) -> None:
    for name in ("same_audio.tsv", "same_text.tsv"):
        (manifests / name).write_text("old", encoding="utf-8")
    (manifests / "hub50.wav").unlink()
    check_same_audio(manifests, make_data(same_audio="ignore"), Features(num_jobs=1))
    assert not list(manifests.glob("same_*.tsv"))


def test_the_stage_uses_the_executor_and_its_processes_which_make_nothing_stale(
    manifests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line of the stage, with the settings that the engine writes for it, in this process."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "manifests").symlink_to(manifests)
    seen: list[Features] = []
    open_executor = same_audio.open_executor
    monkeypatch.setattr(
        same_audio, "open_executor", lambda features, module: seen.append(features) or open_executor(ONE, module)
    )
    monkeypatch.setattr(engine, "run_logged", lambda words, _: CliRunner().invoke(cli, words).exit_code)
    stage = dataclasses.replace(PREPARE, needs=(), run=PREPARE.run[-1:], makes=("manifests/same_audio.tsv",))
    overrides = ["data.same_audio=report", "features.num_jobs=3", "features.executor=dask:a:1"]
    run = Run(Recipe(work, "", (stage,)), load_config(overrides=overrides), work, find_entry, "asrtool run")
    engine.run_stages(run, range(1))
    assert [(features.num_jobs, features.executor) for features in seen] == [(3, "dask:a:1")]
    for changed, word in ((overrides[:1], "done"), (["data.same_audio=drop"], "stale")):
        again = dataclasses.replace(run, config=load_config(overrides=changed))
        assert stage_state(again, stage).word == word
