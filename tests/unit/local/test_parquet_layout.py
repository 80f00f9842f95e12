"""Audio in columns of Parquet and Arrow files, as HuggingFace's hub and `save_to_disk` have it."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from small_releases import dropped, make_data, read_jsonl, supervisions

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.own import Corpus as Own
from asrtool.local.layouts.detect import find_set, prepare_any
from asrtool.local.releases.releases import collect_corpora
from asrtool.settings.data import Data

pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow, of the extra dev")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow, of the extra dev")

RATE_HZ = 8000
Entry = dict[str, Any]


def sound(seed: int, format_: str = "WAV", duration_s: float = 1.5) -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(seed).normal(0, 0.05, int(duration_s * RATE_HZ))
    soundfile.write(file, noise, RATE_HZ, format=format_)
    return file.getvalue()


def entry(seed: int, text: str, path: str | None = None, **more: object) -> Entry:
    return {"audio": {"bytes": sound(seed), "path": path}, "text": text, **more}


def write_parquet(path: Path, *entries: Entry) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(list(entries)), path, row_group_size=2)
    return path


def write_arrow(path: Path, *entries: Entry, is_stream: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.Table.from_pylist(list(entries))
    new = pyarrow.ipc.new_stream if is_stream else pyarrow.ipc.new_file
    with pyarrow.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def texts(out: Path) -> dict[str, str]:
    return {s["recording_id"]: s["text"] for s in supervisions(out)}


def sources(out: Path) -> dict[str, Path]:
    return {r["id"]: Path(r["sources"][0]["source"]) for r in read_jsonl(out / "recordings.jsonl.gz")}


WORDS = ("none", "one", "two", "three", "four", "five")
SPLITS = {"train-00000-of-00002": (0, 1, 2), "train-00001-of-00002": (3,), "validation-00000-of-00001": (4,),
          "test-00000-of-00001": (5,)}  # fmt: skip


def numbered(seeds: tuple[int, ...]) -> list[Entry]:
    return [entry(seed, WORDS[seed], f"n{seed}.wav", speaker_id=seed % 2, id=str(seed)) for seed in seeds]


def write_hub(folder: Path) -> Path:
    """Write a dataset as fetched from the hub, with links to blobs."""
    for name, seeds in SPLITS.items():
        blob = write_parquet(folder / "blobs" / name.replace("-", ""), *numbered(seeds))
        (folder / "snapshot" / "data").mkdir(parents=True, exist_ok=True)
        (folder / "snapshot" / "data" / f"{name}.parquet").symlink_to(blob)
    (folder / "snapshot" / "README.md").write_text("about it")
    (folder / "snapshot" / "dataset_infos.json").write_text("{}")
    return folder / "snapshot"


def write_saved(folder: Path) -> Path:
    """Write a dataset as `DatasetDict.save_to_disk` and `map` do."""
    for name, seeds in SPLITS.items():
        split, _, numbers = name.partition("-")
        write_arrow(folder / split / f"data-{numbers}.arrow", *numbered(seeds))
        (folder / split / "state.json").write_text("{}")
    write_arrow(folder / "train" / "cache-0123.arrow", *numbered((5,)))
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "validation", "test"]}')
    return folder


@pytest.mark.parametrize("write", [write_hub, write_saved])
def test_each_role_has_its_files(write: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The stages of a recipe run, which link the data."""
    folder = write(tmp_path / "data")
    paths = {f"own_{role}": str(folder) for role in ("train", "dev", "test")}
    data = make_data(("own",), ("own",), ("own",))
    collect_corpora(tmp_path / "corpus", data, paths, lambda *_: None)
    Own().prepare(tmp_path / "corpus", tmp_path / "m", data)
    for role, seeds in (("train", (0, 1, 2, 3)), ("dev", (4,)), ("test", (5,))):
        assert texts(tmp_path / "m" / role) == {f"n{seed}": WORDS[seed] for seed in seeds}
        assert {s["speaker"] for s in supervisions(tmp_path / "m" / role)} == {str(seed % 2) for seed in seeds}
        files = sources(tmp_path / "m" / role)
        assert {id_: file.read_bytes() for id_, file in files.items()} == {f"n{seed}": sound(seed) for seed in seeds}
    assert "results will look better" not in caplog.text


def test_one_file_or_one_configuration_of_several_can_be_named(tmp_path: Path) -> None:
    folder = write_hub(tmp_path / "data")
    (tmp_path / "own_test").symlink_to(folder / "data" / "train-00001-of-00002.parquet")  # as the stage corpus links it
    prepare_any(tmp_path / "own_test", tmp_path / "m", Data(), "own", "test")
    assert texts(tmp_path / "m") == {"n3": "three"}
    for configuration, seed in (("clean", 1), ("other", 2)):
        write_parquet(tmp_path / "two" / configuration / "train.100" / "0000.parquet", *numbered((seed,)))
    prepare_any(tmp_path / "two", tmp_path / "both", Data(), "own")
    assert texts(tmp_path / "both") == {"n1": "one", "n2": "two"}
    prepare_any(tmp_path / "two" / "clean", tmp_path / "clean", Data(), "own")
    assert texts(tmp_path / "clean") == {"n1": "one"}


def test_files_of_no_role_are_all_of_them_and_a_role_that_lacks_is_named(tmp_path: Path) -> None:
    """Audio may be bytes alone or a path alone."""
    write_parquet(tmp_path / "all" / "trainers" / "0000.parquet", {"Audio": sound(1, "FLAC"), "Sentence": "one"})
    (tmp_path / "all" / "clips").mkdir()
    (tmp_path / "all" / "clips" / "c.flac").write_bytes(sound(3, "FLAC"))
    write_parquet(tmp_path / "all" / "b.parquet", {"audio": {"path": "c.flac", "bytes": None}, "text": "two"})
    write_parquet(tmp_path / "all" / "c.parquet", {"file": "/x.wav", "audio": {"bytes": sound(2, "MP3")}, "text": "x"})
    prepare_any(tmp_path / "all", tmp_path / "m", Data(), "own", "test")
    assert {id_: file.suffix for id_, file in sources(tmp_path / "m").items()} == {
        "0000-000001": ".flac", "c": ".flac", "c-000001": ".mp3",
    }  # fmt: skip
    folder = write_hub(tmp_path / "data")
    (folder / "data" / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(AsrtoolError, match=r"has data/train-00000-of-00002.parquet, .*, for test expected test; name"):
        find_set(folder, "test")


@pytest.mark.parametrize("is_stream", [False, True])
def test_both_formats_of_arrow(is_stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asrtool.local.layouts.parquet.BATCH_ROWS", 1)  # in memory at a time
    path = write_arrow(tmp_path / "x.arrow", *numbered((1, 2, 3)), is_stream=is_stream)
    prepare_any(path, tmp_path / "m", Data(), "own")
    assert texts(tmp_path / "m") == {"n1": "one", "n2": "two", "n3": "three"}


def test_names_that_repeat_or_lack_are_those_of_the_row(tmp_path: Path) -> None:
    names = ["audio.wav", "b/audio.wav", None, "two words.wav", "/abs/x.mp3", ".wav"]
    write_parquet(tmp_path / "d" / "a.parquet", *(entry(i, "yes", name) for i, name in enumerate(names)))
    write_parquet(tmp_path / "d" / "b.parquet", entry(9, "no", "audio.wav"))
    prepare_any(tmp_path / "d", tmp_path / "m", Data(), "own")
    expected = {"audio": 0, "a-000002": 1, "a-000003": 2, "two-words": 3, "x": 4, "wav": 5, "b-000001": 9}
    files = sources(tmp_path / "m")
    assert {id_: file.read_bytes() for id_, file in files.items()} == {i: sound(seed) for i, seed in expected.items()}
    assert {file.suffix for file in files.values()} == {".wav"}  # as it is, not as its name says


def test_files_of_one_name_without_names_of_rows_do_not_share_audio(tmp_path: Path) -> None:
    for folder, seed in (("clean/train.100", 1), ("other/train.500", 2)):
        write_parquet(tmp_path / "d" / folder / "0000.parquet", entry(seed, "yes"), entry(seed + 4, "no"))
    write_parquet(tmp_path / "d" / "z" / "train" / "1.parquet", entry(7, "one", "0000-000002.wav"))
    prepare_any(tmp_path / "d", tmp_path / "m", Data(), "own")
    found = sorted(file.read_bytes() for file in sources(tmp_path / "m").values())
    assert found == sorted(sound(seed) for seed in (1, 2, 5, 6, 7))


def test_other_data_with_columns_of_something_else_beside_it_is_read_as_before(tmp_path: Path) -> None:
    for folder in ("table", "pairs"):
        write_parquet(tmp_path / folder / "emb" / "vectors.parquet", {"id": 1, "vector": [0.5]})
        (tmp_path / folder / "a.wav").write_bytes(sound(1))
    (tmp_path / "table" / "train.csv").write_text("path,text\na.wav,one\n")
    (tmp_path / "pairs" / "a.txt").write_text("one\n")
    for folder in ("table", "pairs"):
        prepare_any(tmp_path / folder, tmp_path / f"{folder}-m", Data(), "own")
        assert texts(tmp_path / f"{folder}-m") == {"a": "one"}


def test_audio_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", *numbered((1, 2)))
    prepare_any(path, tmp_path / "m", Data(), "own")
    before = {id_: file.stat().st_mtime_ns for id_, file in sources(tmp_path / "m").items()}
    write_parquet(path, *numbered((1,)), entry(7, "two", "n2.wav"))
    prepare_any(path, tmp_path / "m", Data(), "own")
    files = sources(tmp_path / "m")
    assert files["n1"].stat().st_mtime_ns == before["n1"]
    assert files["n2"].read_bytes() == sound(7)


def test_what_is_no_audio_is_set_aside(tmp_path: Path) -> None:
    bad = {"audio": {"bytes": b"no audio", "path": "bad.wav"}, "text": "one"}
    empty = {"audio": {"bytes": b"", "path": None}, "text": "two"}
    write_parquet(tmp_path / "x.parquet", bad, empty, entry(3, "three", "good.wav"))
    prepare_any(tmp_path / "x.parquet", tmp_path / "m", Data(bad_fraction=1.0), "own")
    assert texts(tmp_path / "m") == {"good": "three"}
    assert dropped(tmp_path / "m") == dict.fromkeys(("bad", "x-000002"), "unusable audio")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"text": "one"}], r"x.parquet:1: no audio among text; expected one of audio_filepath"),
        ([{"audio": {"bytes": None, "path": None}, "text": "one"}], r"x.parquet:1: no audio: its path is null"),
        (
            [{"audio": {"array": [0.5], "sampling_rate": 8000}, "text": "one"}],
            r"x.parquet:1: no audio: its path is null",
        ),
        ([{"audio": 3, "text": "one"}], r"x.parquet:1: audio is 3; expected a path"),
    ],
)
def test_what_is_malformed_is_one_line_with_its_row(entries: list[Entry], message: str, tmp_path: Path) -> None:
    write_parquet(tmp_path / "x.parquet", *entries)
    with pytest.raises(AsrtoolError, match=message) as raised:
        prepare_any(tmp_path / "x.parquet", tmp_path / "m", Data(), "own")
    assert "\n" not in str(raised.value)


@given(content=st.binary(max_size=80) | st.integers(0, 400), suffix=st.sampled_from([".parquet", ".arrow"]))
def test_a_broken_file_is_one_line(content: bytes | int, suffix: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any bytes, and a good file that ends too early."""
    path = tmp_path_factory.mktemp("x") / f"x{suffix}"
    if isinstance(content, int):
        (write_parquet if suffix == ".parquet" else write_arrow)(path, entry(1, "one"))
        path.write_bytes(path.read_bytes()[: content * path.stat().st_size // 401])
    else:
        path.write_bytes(content)
    with pytest.raises(AsrtoolError) as raised:
        prepare_any(path, path.parent / "m", Data(), "own")
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value) or str(path.parent) in str(raised.value)


def test_without_pyarrow_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "x.parquet", *numbered((1,)))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(AsrtoolError, match=r"needs the package pyarrow.*pip install 'asrtool\[parquet\]'"):
        prepare_any(tmp_path / "x.parquet", tmp_path / "m", Data(), "own")
