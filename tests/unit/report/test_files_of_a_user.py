"""Files of a user: no command writes into data or replaces files that asrtool did not write."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow
import pytest
import soundfile
from click.testing import CliRunner
from commands import run_command
from example_work import CTM, STM, TEXTS, TRN, write_own
from lhotse import CutSet, RecordingSet, SupervisionSet
from published_releases import write_commonvoice, write_librispeech
from pyarrow import parquet
from report_work import write_work
from toy_work import make_work

from asrtool.cli.main import cli
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.errors import AsrtoolError
from asrtool.files import MARK

LAYOUTS = (
    *("kaldi", "pipes", "folder", "tree", "lhotse", "cuts", "shar", "arrow", "commonvoice", "data.parquet", "data.csv"),
    *("data.tsv", "data.jsonl", "deepspeech.csv"),
)
WAV = b"RIFF of a user"


def run(*words: object) -> str:
    """The error of a command in one line; empty if it did what it was asked for."""
    done = CliRunner().invoke(cli, [str(word) for word in words])
    if done.exception is None:
        return ""
    assert isinstance(done.exception, AsrtoolError | SystemExit), (words, done.exc_info)
    if isinstance(done.exception, AsrtoolError):
        assert "\n" not in str(done.exception)
        return str(done.exception)
    return done.output


def state(folder: Path) -> dict[str, object]:
    """Return digest and times of files, and targets of links."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        else:
            found[name] = "folder"
    return found


def said_in(folder: Path) -> str:
    """The content of all files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return "".join(
        (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode(errors="replace")
        for path in files
    )


def write_layouts(root: Path) -> None:
    """Six utterances in each of LAYOUTS, root/LAYOUT/LAYOUT, with files of a user beside them."""
    own = root / "own"
    write_own(own)
    for layout in LAYOUTS:
        (root / layout).mkdir()
    shutil.copytree(own / "test", root / "kaldi" / "kaldi")
    shutil.copytree(own / "test", root / "pipes" / "pipes")
    wav_scp = root / "pipes" / "pipes" / "wav.scp"
    lines = (line.split() for line in wav_scp.read_text().splitlines())
    wav_scp.write_text("".join(f"{name} cat {path} |\n" for name, path in lines))
    shutil.copytree(own / "train", root / "folder" / "folder")
    for name in ("lhotse", "shar"):
        shutil.copytree(own / name, root / name / name)
    write_librispeech(root / "tree")
    shutil.move(root / "tree" / "LibriSpeech", root / "tree" / "tree")
    write_commonvoice(root / "commonvoice")
    shutil.move(root / "commonvoice" / "cv-corpus-13.0" / "en", root / "commonvoice" / "commonvoice")
    recordings = RecordingSet.from_file(own / "lhotse" / "recordings.jsonl.gz")
    supervisions = SupervisionSet.from_file(own / "lhotse" / "supervisions.jsonl.gz")
    (root / "cuts" / "cuts").mkdir()
    CutSet.from_manifests(recordings, supervisions).to_file(root / "cuts" / "cuts" / "cuts.jsonl.gz")
    files = sorted((own / "train").rglob("*.wav"))[:6]
    rows = [{"audio_filepath": str(path), "text": text} for path, text in zip(files, TEXTS, strict=True)]
    (root / "data.jsonl" / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, delimiter in (("data.csv", ","), ("data.tsv", "\t")):
        write_table(root / name / name, rows, delimiter)
    deepspeech = [
        {"wav_filename": row["audio_filepath"], "wav_filesize": "48044", "transcript": row["text"]} for row in rows
    ]
    write_table(root / "deepspeech.csv" / "deepspeech.csv", deepspeech, ",")
    audio = [{"audio": {"bytes": path.read_bytes(), "path": None}, "text": "so do I"} for path in files]
    table = pyarrow.Table.from_pylist(audio)
    parquet.write_table(table, root / "data.parquet" / "data.parquet")
    for part in ("a", "b"):  # two of one name, whose rows have no names
        (root / "arrow" / "arrow" / part).mkdir(parents=True)
        sink = pyarrow.OSFile(str(root / "arrow" / "arrow" / part / "data.arrow"), "wb")
        with sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    for layout in LAYOUTS:
        for name in ("data-000001", "arrow-data-000001", "a-data-000001", "b-data-000001", "u00"):
            for place in (root, root / layout):
                (place / f"{name}.wav").write_bytes(WAV)
        for name in ("check.md", f"{layout}.dropped.tsv", "dropped.tsv", "audio", "manifests", "ref.stm"):
            (root / layout / name).write_text("of a user")


def write_table(path: Path, rows: Sequence[dict[str, str]], delimiter: str) -> None:
    """A table with a heading."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data in each layout, a recogniser, a work folder, and texts; read only, for all but root."""
    here = tmp_path_factory.mktemp("user") / "here"
    (here / "data").mkdir(parents=True)
    write_layouts(here / "data")
    make_work(here / "toy")
    write_work(here / "work")
    for name in ("first", "second"):
        shutil.copytree(here / "work", here / name)
    for name, text in (("ref.trn", TRN), ("hyp.trn", TRN), ("ref.stm", STM), ("hyp.ctm", CTM)):
        (here / name).write_text(text)
    (here / "text.txt").write_text("".join(f"{text.lower()}\n" for text in TEXTS * 5))
    (here / "calls").mkdir()
    shutil.copy(sorted((here / "data" / "own").rglob("*.wav"))[0], here / "calls" / "a.wav")
    for path in [here, *here.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    return here


@pytest.fixture(autouse=True)
def _unchanged(here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    """Whatever is read stays as it is, with nothing beside it; and nothing is written where the command runs."""
    before = state(here)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    yield
    assert state(here) == before
    assert not any((tmp_path / "cwd").iterdir())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_data_of_any_layout_is_read_alone(layout: str, here: Path, tmp_path: Path) -> None:
    data = here / "data" / layout / layout
    assert run("check", data) == ""
    assert run("check", data, tmp_path / "check") == ""
    assert run("prepare", "manifest", data, tmp_path / "m") == ""
    assert run("decode", here / "toy", data, tmp_path / "out") == ""
    decoded, manifests = (tmp_path / "out" / name for name in ("decode", "manifests"))
    assert run("score", "all", decoded, manifests, tmp_path / "score") == ""
    assert said_in(tmp_path / "score") == said_in(tmp_path / "out" / "score")
    (of_set,) = filter(Path.is_dir, manifests.iterdir())
    assert run("check", of_set) == ""
    for folder in ("check", "out"):
        assert ".tmp." not in said_in(tmp_path / folder)
        assert "asrtool-" not in said_in(tmp_path / folder)
    if data.is_dir():
        for words in (("check", data), ("prepare", "manifest", data), ("decode", here / "toy", data)):
            for place in (data, data / "new"):
                assert "lies in the data" in run(*words, place)


COMMANDS: dict[str, Callable[[Path], tuple[object, ...]]] = {
    "check": lambda here: ("check", here / "data" / "kaldi" / "kaldi"),
    "prepare kaldi": lambda here: ("prepare", "kaldi", here / "data" / "kaldi" / "kaldi"),
    "prepare folder": lambda here: ("prepare", "folder", here / "data" / "folder" / "folder"),
    "prepare lhotse": lambda here: ("prepare", "lhotse", here / "data" / "lhotse" / "lhotse"),
    "prepare shar": lambda here: ("prepare", "shar", here / "data" / "shar" / "shar"),
    "prepare parquet": lambda here: ("prepare", "manifest", here / "data" / "data.parquet" / "data.parquet"),
    "decode": lambda here: ("decode", here / "toy", here / "data" / "folder" / "folder"),
    "transcribe": lambda here: ("transcribe", here / "toy", here / "calls", "--jobs", "1", "--out"),
    "score all": lambda here: ("score", "all", here / "work" / "decode", here / "work" / "manifests"),
    "score hub5": lambda here: ("score", "hub5", "--ref", here / "ref.stm", "--hyp", here / "hyp.ctm", "--out"),
    "score wer": lambda here: ("score", "wer", here / "ref.trn", here / "hyp.trn", "--out"),
    "report": lambda here: ("report", here / "first", here / "second", "--clips", "0", "--out"),
    "plot": lambda here: ("plot", here / "work" / "train"),
    "tokenizer": lambda here: ("tokenizer", here / "text.txt", "--set", "tokenizer.vocab_size=0"),
    "lang": lambda here: ("lang", here / "text.txt", here / "toy" / "tokenizer"),
    "lm": lambda here: ("lm", "--text", here / "text.txt", "--arpa"),
    "export": lambda here: ("export", here / "toy"),
    "theory": lambda here: ("theory", "--strategy", "allreduce", "--num-learners", "2", "--rate", "0.05", "--plot"),
}
FILES = {"lm": "G.arpa", "export": "toy.asrtool", "theory": "theory.svg"}  # commands that write one file


@pytest.mark.parametrize("name", COMMANDS)
def test_what_asrtool_wrote_is_replaced_and_nothing_else(name: str, here: Path, tmp_path: Path) -> None:
    words = COMMANDS[name](here)
    out = tmp_path / "out" / FILES.get(name, "")
    for _ in range(2):
        assert run(*words, out) == ""
    files = [path.relative_to(tmp_path) for path in (tmp_path / "out").rglob("*") if path.is_file()]
    written = [path for path in files if path.name != MARK and "audio" not in path.parts]
    assert written
    top = {path for path in written if len(path.parts) == 2} or set(written)
    for edited in (path for path in written if path.suffix in (".txt", ".md", ".ctm", ".arpa", ".svg")):
        content = (tmp_path / edited).read_bytes()
        (tmp_path / edited).write_bytes(content + b"by hand\n")
        before = state(tmp_path)
        assert "or it was edited since; choose another" in run(*words, out), edited
        assert state(tmp_path) == before
        (tmp_path / edited).write_bytes(content)
    for each in (*sorted(top), None):
        user = tmp_path / "user"
        for path in written if each is None else [each]:
            (user / path).parent.mkdir(parents=True, exist_ok=True)
            (user / path).write_bytes(WAV)
        before = state(user)
        assert run(*words, user / out.relative_to(tmp_path)), each
        assert state(user) == before
        shutil.rmtree(user)
    if name not in FILES:
        file = tmp_path / "file"
        file.write_bytes(WAV)
        assert run(*words, file)
        assert file.read_bytes() == WAV


def test_commands_that_print_write_nothing(here: Path) -> None:
    score = here / "work" / "score" / "hub5"
    assert run("compare", score / "greedy", score / "graph") == ""
    assert run("info", here / "toy" / "average" / "model.pt") == ""
    assert run("score", "wer", here / "ref.trn", here / "hyp.trn") == ""
    assert run("transcribe", here / "toy", here / "calls" / "a.wav") == ""


def test_features_alignment_and_training_write_to_their_folder_alone(here: Path, tmp_path: Path) -> None:
    for name in ("train", "dev", "test"):
        assert run("prepare", "folder", here / "data" / "folder" / "folder", tmp_path / "m" / name) == ""
    write_sets(tmp_path / "m", Sets((EvaluationSet("test", "Test"),)))
    settings = [word for key in ("features.fbank.num_mel_bins=20", "features.speeds=1.0") for word in ("--set", key)]
    features = (tmp_path / "m", *settings, "--set", "features.num_jobs=1")
    assert run("features", *features, tmp_path / "f") == ""
    toy = (here / "toy" / "average" / "model.pt", tmp_path / "f")
    for out in ("f/dev", "m", "user/a"):
        if not (tmp_path / out).exists():
            (tmp_path / out).mkdir(parents=True)
            (tmp_path / out / "inputs.json").write_bytes(WAV)
        before = state(tmp_path)
        assert run("align", toy[0], toy[1] / "dev", here / "toy" / "tokenizer", tmp_path / out)
        assert run("finetune", *toy, here / "toy" / "tokenizer", tmp_path / out)
        assert state(tmp_path) == before
    for place in ("features.json", "dev/index.jsonl", "dev/mine.txt", "dev.dropped.tsv"):
        user = tmp_path / "user" / place.replace("/", "-")
        (user / place).parent.mkdir(parents=True)
        (user / place).write_bytes(WAV)
        assert run("features", *features, user)
        assert list(state(user)) == sorted({place, *(["dev"] if "/" in place else [])})
    assert run("align", toy[0], toy[1] / "dev", here / "toy" / "tokenizer", tmp_path / "align") == ""


def test_audio_of_another_rate_is_named_by_its_set_without_advice_for_a_training(here: Path, tmp_path: Path) -> None:
    (tmp_path / "low").mkdir()
    soundfile.write(tmp_path / "low" / "a.wav", [0.1, -0.1] * 6000, 6000)
    (tmp_path / "low" / "a.txt").write_text("so do i\n")
    said = run_command("decode", here / "toy", tmp_path / "low", tmp_path / "out").stderr
    where = tmp_path / "out" / "manifests" / "low"
    assert f"{where}: 1 of 1 recordings have 6000 Hz, resampled to 8000: NOTHING ABOVE 3000 Hz IS IN THEM\n" in said
    assert ".tmp." not in said


def test_a_failed_decode_leaves_the_list_of_what_it_set_aside(here: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(3):
        soundfile.write(data / f"{number}.wav", [0.0] * 8000, 8000)
        (data / f"{number}.txt").write_text("room 42\n" if number else "so do i\n")
    listed = tmp_path / "out.dropped.tsv"
    listed.write_bytes(WAV)
    usable = here / "data" / "folder" / "folder"
    for words in (("decode", here / "toy", data), ("prepare", "folder", data), ("prepare", "folder", usable)):
        assert "is no list of rejected utterances by asrtool" in run(*words, tmp_path / "out")
        assert [path.name for path in tmp_path.glob("out*")] == [listed.name]
    assert listed.read_bytes() == WAV
    listed.unlink()
    error = run("decode", here / "toy", data, tmp_path / "out")
    assert error.endswith(f"fix what {listed} lists, or raise data.bad_fraction")
    assert len(listed.read_text().splitlines()) == 3
    assert ".tmp." not in error + listed.read_text()
    assert not (tmp_path / "out").exists()
    (data / "1.txt").write_text("so do i\n")
    (data / "2.txt").write_text("so do i\n")
    assert run("decode", here / "toy", data, tmp_path / "out") == ""
    assert not listed.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["my,set", "o", "O", "train", "a b", "<x> \"'", "größe", ";;", "-x", ","])
def test_a_folder_of_any_name_is_decoded_and_scored(name: str, here: Path, tmp_path: Path) -> None:
    shutil.copytree(here / "data" / "folder" / "folder", tmp_path / name)
    assert run("decode", here / "toy", "--", tmp_path / name, tmp_path / "out") == ""
    assert len(list((tmp_path / "out" / "score").glob("*/greedy/score.json"))) == 1
    assert run("prepare", "folder", "--", tmp_path / name, tmp_path / "m" / name) == ""
