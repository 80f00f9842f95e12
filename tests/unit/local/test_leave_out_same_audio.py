"""Training data that a test set has too are reported, and left out with their text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from commands import run_command
from lhotse import AudioSource, Recording, SupervisionSegment
from memory import peak_bytes
from small_releases import make_data, read_manifests

from asrtool.data.duplicates import fingerprint
from asrtool.data.manifests.manifest import Drop, read_drops, read_report, write_manifests
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.local.sets.duplicates import check_same_audio, report_same_text
from asrtool.recipe.stages import PREPARE
from asrtool.settings.data import Features


def write_set(folder: Path, sounds: Sequence[np.ndarray], text: str, sentences: dict[str, str]) -> None:
    """Utterances folder0, folder1 and so on, each in a file beside `folder`."""
    recordings, segments = [], []
    for number, samples in enumerate(sounds):
        path = folder.with_name(f"{folder.name}{number}.wav")
        soundfile.write(path, samples, 8000)
        recordings.append(Recording.from_file(path))
        said = SupervisionSegment(path.stem, path.stem, 0.0, len(samples) / 8000, 0, f"{text} {number}", speaker="s")
        segments.append(said.with_custom("corpus", "swbd" if number < 3 else "fisher"))
    write_manifests(folder, recordings, segments, [Drop("x", "too long", "30 s")], 1.0, sentences)


@pytest.fixture
def manifests(tmp_path: Path, mini_corpus: Path) -> Path:
    """Pieces of a recording; training has those of dev and hub5, changed, one of its own twice."""
    samples = soundfile.read(next(iter(sorted(mini_corpus.rglob("*.sph")))), dtype="float32", always_2d=True)[0][:, :1]
    parts = [samples[k * 64_000 : (k + 1) * 64_000] for k in range(4)]
    texts = {
        "sentences.txt": "words 3\nwords 1\nwords 3\nwords 2\nwords 0\nwords 1\n",
        "sentences.swbd.txt": "words 1\nwords 3\nwords 2\nwords 0\nwords 1\n",
        "sentences.fisher.txt": "words 3\n",
    }
    write_set(tmp_path / "dev", [parts[0]], "words", texts)
    write_set(tmp_path / "hub5", [parts[1]], "words", texts)
    write_set(tmp_path / "train", [parts[2], parts[1] * 0.3, parts[3], parts[0][8000:], parts[2]], "words", texts)
    write_sets(tmp_path, Sets((EvaluationSet("hub5"),)))
    return tmp_path


def write_long(manifests: Path, *sounds: np.ndarray) -> None:
    """Utterances that are too long: long0, long1 and so on, whose text the training set has as well."""
    write_set(manifests / "long", sounds, "tale", {"sentences.txt": "tale 1\ntale 0\n"})
    for name in ("sentences.txt", "sentences.swbd.txt"):
        with (manifests / "train" / name).open("a", encoding="utf-8") as file:
            file.write("tale 0\ntale 1\n")


def found(manifests: Path) -> set[tuple[str, ...]]:
    lines = (manifests / "same_audio.tsv").read_text(encoding="utf-8").splitlines()
    return {tuple(line.split("\t")[:4]) for line in lines[1:]}


OWN = Path(__file__).resolve().parents[3] / "recipes" / "own" / "conf" / "own.toml"  # which reports
ONE = Features(num_jobs=1)
WITHIN = ("train4", "train", "train0", "train")
LEAKED = {("train1", "train", "hub50", "hub5"), ("train3", "train", "dev0", "dev")}


def test_reported_is_what_is_found_and_nothing_is_left_out(manifests: Path) -> None:
    before = {path: path.read_bytes() for path in sorted(manifests.rglob("*")) if path.is_file()}
    done = run_command("prepare", "same-audio", manifests, "--config", OWN, "--set", "features.num_jobs=1")
    assert found(manifests) == {*LEAKED, WITHIN}
    for scored, example in (("hub5", "hub50, there train1"), ("dev", "dev0, there train3")):
        said = f"1 of 1 utterances of {scored} are in train, too, the first is {example}: {manifests}/same_audio.tsv"
        assert f"{said}; --set data.same_audio=drop leaves them out of training\n" in done.output
    said = f"train are in train, too, the first is train0, there train4: {manifests}/same_audio.tsv"
    assert f"1 of 5 utterances of {said}; leave one of each pair out\n" in done.output
    assert {path: path.read_bytes() for path in before} == before
    assert {"features.num_jobs", "features.executor"} <= set(PREPARE.settings)  # which the stage hands over


def write_texts(folder: Path, *texts: str | None) -> None:
    ids = [f"{folder.name}{number}" for number in range(len(texts))]
    recordings = [Recording(id_, [AudioSource("file", [0], "none.wav")], 8000, 8000, 1.0) for id_ in ids]
    segments = [SupervisionSegment(id_, id_, 0.0, 1.0, 0, text) for id_, text in zip(ids, texts, strict=True)]
    write_manifests(folder, recordings, segments, [], 1.0, {})


def test_long_texts_of_what_is_scored_that_training_says_are_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long, other = "so what did you do when it was over", "no i went to the sea again with her"
    write_texts(tmp_path / "train", long, "yeah", long, "yeah", f"{long} then", "it was fine")
    write_texts(tmp_path / "dev", "yeah", other, None)
    write_texts(tmp_path / "hub5", other, long, "it was fine", long, f"and {long}")
    report_same_text(tmp_path, ["dev", "hub5"], "train")
    assert (tmp_path / "same_text.tsv").read_text(encoding="utf-8").splitlines()[1:] == [
        f"hub51\thub5\t{long}\t2", f"hub53\thub5\t{long}\t2",
    ]  # fmt: skip
    said = [record.message for record in caplog.records if "said in training" in record.message]
    assert len(said) == 1
    assert "2 of 4 utterances of hub5 with 8 words or more are said in training, too" in said[0]


def test_dropped_is_what_is_scored_with_its_text(manifests: Path) -> None:
    scored = soundfile.read(manifests / "hub50.wav", dtype="float32")[0]
    write_long(manifests, scored)
    check_same_audio(manifests, make_data(same_audio="drop", cut_long=True), ONE)
    assert not (manifests / "long").exists()  # where all of it is scored
    assert {pair for pair in found(manifests) if pair[0] != "long0"} >= {*LEAKED, WITHIN}
    train = manifests / "train"
    assert [s.id for s in read_manifests(train)[1]] == ["train0", "train2", "train4"]
    drops = [Drop(name, "same audio in hub5", "hub50") for name in ("train1", "long0")]
    drops.append(Drop("train3", "same audio in dev", "dev0"))
    assert sorted(read_drops(train / "dropped.tsv"), key=str) == sorted(
        [Drop("x", "too long", "30 s"), *drops], key=str
    )
    assert read_report(train)["dropped"] == {"same audio in dev": 1, "same audio in hub5": 2, "too long": 1}
    texts = {path.name: path.read_text(encoding="utf-8").split("\n")[:-1] for path in train.glob("sentences*.txt")}
    assert texts == {  # one of two that say the same
        "sentences.txt": ["words 3", "words 2", "words 0", "words 1", "tale 1"],
        "sentences.swbd.txt": ["words 3", "words 2", "words 0", "words 1", "tale 1"],
    }


def test_what_is_too_long_and_to_be_cut_is_left_out_as_well(manifests: Path) -> None:
    """No piece of it will be trained on, nor is its text read: that of long utterances is in the training set's."""
    scored, other = (soundfile.read(manifests / f"{name}.wav", dtype="float32")[0] for name in ("dev0", "train2"))
    write_long(manifests, np.concatenate([other[:32_000], scored, other[32_000:]]), other[::-1])
    for leaks in ({*LEAKED, ("long0", "long", "dev0", "dev")}, set()):
        check_same_audio(manifests, make_data(same_audio="drop", cut_long=True), ONE)
        assert {pair for pair in found(manifests) if pair[3] in ("dev", "hub5")} == leaks
        assert [s.id for s in read_manifests(manifests / "long")[1]] == ["long1"]
        assert (manifests / "long" / "sentences.txt").read_text() == "tale 1\n"
        assert Drop("long0", "same audio in dev", "dev0") in read_drops(manifests / "train" / "dropped.tsv")
        assert read_report(manifests / "train")["dropped"] == {
            "same audio in dev": 2, "same audio in hub5": 1, "too long": 1,
        }  # fmt: skip
        for name in ("sentences.txt", "sentences.swbd.txt"):
            said = (manifests / "train" / name).read_text().split("\n")
            assert (said.count("tale 0"), said.count("tale 1")) == (0, 1)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_utterances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only columns grow; an object of lhotse takes several hundred bytes. One training utterance is left out."""
    monkeypatch.setattr(fingerprint, "COUNTERS", 2**10)  # else these would take more than all the rest
    soundfile.write(tmp_path / "short.wav", np.zeros(16_000), 8000)
    noise = np.random.default_rng(0).normal(size=16_000)
    soundfile.write(tmp_path / "long.wav", 0.1 * noise, 8000)

    def manifests_of(num: int, folder: Path) -> Path:
        for name, num_of_set in (("dev", 0), ("hub5", 0), ("train", num)):
            files = [(f"{name}{i}", "short.wav") for i in range(num_of_set // 100)] + [(f"{name}-long", "long.wav")]
            spans = [(f"{name}{i // 100}", i % 100 / 50, 0.02) for i in range(num_of_set)] + [(f"{name}-long", 0, 2.0)]
            said = [SupervisionSegment(f"{name}-u{i}", *span, 0, f"words of {i}") for i, span in enumerate(spans)]
            recordings = [Recording.from_file(tmp_path / file, id_) for id_, file in files]
            text = "".join(f"words of {i}\n" for i in range(num_of_set + 1))
            write_manifests(folder / name, recordings, said, [], 1.0, {"sentences.txt": text})
        write_sets(folder, Sets((EvaluationSet("hub5"),)))
        return folder

    def peak(num: int) -> int:
        folders = [manifests_of(num, tmp_path / f"{num}-{i}") for i in range(2)]
        left = iter(folders)  # for each run its own, as a second one would find nothing to leave out
        most_bytes = peak_bytes(lambda: check_same_audio(next(left), make_data(same_audio="drop"), ONE))
        assert [read_report(folder / "train")["num_utterances"] for folder in folders] == [num] * 2
        return most_bytes

    growth = (peak(1_400) - peak(400)) / 1_000
    assert growth < 150


def test_ignored_it_costs_nothing_and_an_old_list_is_gone(manifests: Path) -> None:
    for name in ("same_audio.tsv", "same_text.tsv"):
        (manifests / name).write_text("old", encoding="utf-8")
    (manifests / "hub50.wav").unlink()
    check_same_audio(manifests, make_data(same_audio="ignore"), Features(num_jobs=1))
    assert not list(manifests.glob("same_*.tsv"))
