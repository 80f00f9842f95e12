"""Manifests as NeMo, HuggingFace, Common Voice and LibriSpeech have them, and what is wrong with a line of them."""

from __future__ import annotations

import csv
import io
import json
import logging
import shutil
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from published_releases import write_commonvoice, write_librispeech
from small_releases import make_data, read_jsonl, supervisions, write_wav

from asrtool.errors import AsrtoolError
from asrtool.local.corpora.own import Corpus as Own
from asrtool.local.layouts.detect import find_set, prepare_any
from asrtool.local.layouts.manifest import COLUMNS, Row, prepare_manifest, read_rows
from asrtool.local.releases.releases import collect_corpora
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=1.0)


def facts(out: Path) -> list[tuple[Any, ...]]:
    keys = ("id", "recording_id", "start", "duration", "speaker", "text")
    return [tuple(s[key] for key in keys) for s in supervisions(out)]


def write_lines(path: Path, *entries: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries), encoding="utf-8")
    return path


def test_nemo_manifests_have_segments_of_files(tmp_path: Path) -> None:
    write_wav(tmp_path / "data" / "wavs" / "one.wav", 5.0)
    write_wav(tmp_path / "other" / "two.flac")
    manifest = write_lines(
        tmp_path / "data" / "train_manifest.json",
        {"audio_filepath": "wavs/one.wav", "offset": 0.5, "duration": 2.0, "text": "Hello", "speaker": "ann lee"},
        {"audio_filepath": "wavs/one.wav", "offset": 3, "duration": 2.01, "text": "there", "speaker": "ann lee"},
        {"audio_filepath": str(tmp_path / "other" / "two.flac"), "duration": 2.0, "text": "yes"},
    )
    prepare_any(manifest, tmp_path / "m", Data(), "own")
    assert facts(tmp_path / "m") == [
        ("two", "two", 0.0, 2.0, "two", "yes"),
        ("wavs-one-00000500", "wavs-one", 0.5, 2.0, "ann-lee", "hello"),
        ("wavs-one-00003000", "wavs-one", 3.0, 2.0, "ann-lee", "there"),  # no longer than the file
    ]
    sources = [r["sources"][0]["source"] for r in read_jsonl(tmp_path / "m" / "recordings.jsonl.gz")]
    assert sources == [str(tmp_path / "other" / "two.flac"), str(tmp_path / "data" / "wavs" / "one.wav")]


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
def test_audiofolders_of_huggingface_with_and_without_splits(name: str, tmp_path: Path) -> None:
    for split in ("", "train", "validation", "test"):
        folder = tmp_path / ("splits" if split else "flat") / split
        write_wav(folder / "data" / "a.wav")
        entry = {"file_name": "data/a.wav", "transcription": f'of {split or "all"}, "yes"'}
        if name.endswith("csv"):
            with (folder / name).open("w", newline="") as file:
                writer = csv.DictWriter(file, entry)
                writer.writeheader()
                writer.writerow(entry)
        else:
            write_lines(folder / name, entry)
    for role, split in (("train", "train"), ("dev", "validation"), ("test", "test")):
        prepare_any(tmp_path / "splits", tmp_path / role, Data(), "own", role)
        assert [s["text"] for s in supervisions(tmp_path / role)] == [f"of {split} yes"]
    prepare_any(tmp_path / "flat", tmp_path / "m", Data(), "own")
    assert [s["text"] for s in supervisions(tmp_path / "m")] == ["of all yes"]


def test_common_voice_is_read_by_role_whole_or_file_by_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The stages of a recipe run, which link the data."""
    write_commonvoice(tmp_path / "cv")
    folder = next(tmp_path.glob("cv/*/en"))
    for role in ("train", "dev", "test"):
        table = (folder / f"{role}.tsv").read_text("utf-8")
        (folder / f"{role}.tsv").write_text(table.replace("She said", f'Он "{role}"'), "utf-8")
    data = make_data(("own",), ("own",), ("own",), text_rules="unicode")
    paths = {"own_train": str(folder), "own_dev": str(folder / "dev.tsv"), "own_test": str(folder)}
    collect_corpora(tmp_path / "corpus", data, paths, lambda *_: None)
    Own().prepare(tmp_path / "corpus", tmp_path / "m", data)
    for role in ("train", "dev", "test"):
        clip = f"common_voice_en_{role}"
        assert facts(tmp_path / "m" / role) == [(clip, clip, 0.0, 1.0, f"speaker{role}", f"он {role} it's fine")]
    assert "results will look better" not in caplog.text
    shutil.copy(folder / "dev.tsv", folder / "validated.tsv")
    (folder / "test.tsv").unlink()
    with pytest.raises(AsrtoolError, match=r"the manifests .*, for test expected test; name one of the files"):
        find_set(folder, "test")
    assert find_set(folder, "train").name == "train.tsv"
    (folder / "train.tsv").unlink()
    assert find_set(folder, "train").name == "validated.tsv"


def test_one_set_for_two_roles_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manifest = write_lines(tmp_path / "data" / "x.jsonl", {"audio": {"path": "a.wav"}, "text": "yes"})
    write_wav(tmp_path / "data" / "a.wav")
    data = make_data(("own",), (), ("own",))
    paths = {"own_train": str(manifest), "own_test": str(manifest.parent)}
    collect_corpora(tmp_path / "corpus", data, paths, lambda *_: None)
    with caplog.at_level(logging.WARNING):
        Own().prepare(tmp_path / "corpus", tmp_path / "m", data)
    assert "own_test is both own_train and own_test: results will look better" in caplog.text
    assert "the speakers of 1 of 1 recordings or channels are not known. Each counts as a speaker" in caplog.text
    assert "dev" not in caplog.text


def test_librispeech_trees_are_read_whole_or_by_part(tmp_path: Path) -> None:
    write_librispeech(tmp_path)
    prepare_any(tmp_path / "LibriSpeech", tmp_path / "all", Data(), "own")
    assert [(f[0], f[4]) for f in facts(tmp_path / "all")] == [
        (f"{reader}-198-{i:04d}", reader) for reader in ("19", "367", "61", "84") for i in range(2)
    ]
    (tmp_path / "own_train").symlink_to(tmp_path / "LibriSpeech" / "train-clean-5")
    prepare_any(tmp_path / "own_train", tmp_path / "part", Data(), "own")
    assert [f[5] for f in facts(tmp_path / "part")] == ["northanger abbey", "this little work wasn't finished"]


@pytest.mark.parametrize("delimiter", [",", ";", "|"])
def test_tables_with_any_delimiter_and_columns_in_any_order(delimiter: str, tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav")
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(
        [["Speaker_ID", "duration", "wav_filename", "Transcript"], ["ann", "1.5", "a.wav", f"yes{delimiter}\nno"]]
    )
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbf" + text.getvalue().encode())
    prepare_any(tmp_path, tmp_path / "m", Data(), "own")
    assert facts(tmp_path / "m") == [("a", "a", 0.0, 1.5, "ann", "yes no")]


@pytest.mark.parametrize("empty", ["", "  ", ",,", " , ,"])
def test_rows_of_a_table_without_anything_are_passed_over(empty: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"path,text,speaker\r\na,b,c\r\n{empty}\r\nd,e,f\r\n{empty}\r\n", newline="")
    assert [(row.where[-1], row.audio) for row in read_rows(tmp_path / "x.csv")] == [("2", "a"), ("4", "d")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", '{"path": "a.wav", "text": "x"}\n{"path"\n', r"x.jsonl:2: no JSON: .*; expected an object"),
        (
            "x.jsonl",
            '{"path": "a.wav", "text": "x"}\n[1]\n',
            r"x.jsonl:2: '\[1\]'; expected an object of an utterance on each line",
        ),
        ("x.jsonl", '{"path": "a.wav"}\n', r"x.jsonl:1: no text among path; expected one of text, sentence"),
        ("x.jsonl", '{"path": 3, "text": "x"}\n', r"x.jsonl:1: audio is 3; expected a path"),
        ("x.jsonl", '{"path": "a.wav", "text": ["x"]}\n', r"x.jsonl:1: text is \['x'\]; expected a text"),
        ("x.jsonl", '{"path": "a.wav", "text": "x", "duration": "NaN"}\n', r"duration is 'NaN'; expected seconds"),
        ("x.jsonl", "\n", r"x.jsonl: no utterance in it; expected one a line"),
        ("x.jsonl", b'{"path": "a", "text": "x"}\n{"text": "\xe9"}\n', r"x.jsonl:2: byte 0xe9 is not UTF-8; conv"),
        ("x.csv", "path,text\na.wav,x\na.wav\n", r"x.csv:3: 1 fields; expected 2 as in the heading: path, text"),
        ("x.csv", "a.wav,x\n", r"x.csv: no utterance in it"),
        ("x.csv", "file,words\na.wav,x\n", r"x.csv:2: no text among file, words; expected one of text, sentence"),
        ("x.csv", 'path,text\n\n"a.wav,x\n', r"x.csv:3: unexpected end of data; correct the line"),
        ("x.tsv", "path\ttext\na.wav\tx\ty\n", r"x.tsv:2: 3 fields; expected 2"),
    ],
)
def test_what_is_malformed_is_one_line_with_its_place(
    name: str, content: str | bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(AsrtoolError, match=message) as raised:
        list(read_rows(path))
    assert "\n" not in str(raised.value)


def test_what_is_there_twice_is_named(tmp_path: Path) -> None:
    write_wav(tmp_path / "a" / "b.wav")
    write_wav(tmp_path / "a-b.wav")
    twice = [{"path": "a/b.wav", "text": "yes", "offset": 1}, {"path": "./a/b.wav", "text": "no", "offset": 1.0}]
    with pytest.raises(AsrtoolError, match=r"x.jsonl:2: ./a/b.wav from 1 s is repeated, first in .*x.jsonl:1; keep"):
        prepare_manifest(write_lines(tmp_path / "x.jsonl", *twice), tmp_path / "m", Data(), "own")
    alike = [{"path": "a/b.wav", "text": "yes"}, {"path": "a-b.wav", "text": "no"}]
    with pytest.raises(
        AsrtoolError, match=r"y.jsonl:2: .*a-b.wav and .*a/b.wav, of .*y.jsonl:1, would both be recording a-b;"
    ):
        prepare_manifest(write_lines(tmp_path / "y.jsonl", *alike), tmp_path / "m", Data(), "own")


def test_a_table_beside_pairs_is_no_manifest(tmp_path: Path) -> None:
    write_wav(tmp_path / "data" / "a.wav").with_suffix(".txt").write_text("yes")
    for name in ("notes.csv", "more.csv"):
        (tmp_path / "data" / name).write_text("x,y\n1,2\n")
    prepare_any(tmp_path / "data", tmp_path / "m", Data(), "own")
    assert [f[5] for f in facts(tmp_path / "m")] == ["yes"]


def test_a_manifest_that_is_a_link_finds_audio_beside_both(tmp_path: Path) -> None:
    """In the cache of HuggingFace files are links to blobs."""
    write_wav(tmp_path / "snapshot" / "a.wav")
    write_lines(tmp_path / "blobs" / "123", {"file_name": "a.wav", "text": "yes"})
    (tmp_path / "snapshot" / "metadata.jsonl").symlink_to("../blobs/123")
    (tmp_path / "corpus").symlink_to(tmp_path / "snapshot")
    prepare_any(tmp_path / "corpus", tmp_path / "m", Data(), "own")
    assert [f[0] for f in facts(tmp_path / "m")] == ["a"]


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), max_size=12)
PATHS = st.text(string.ascii_letters + "/._- é今", min_size=1, max_size=12).filter(str.strip)
TIMES = st.none() | st.floats(0, 1e6)
ROWS = st.lists(st.tuples(PATHS, CELL, CELL, TIMES, TIMES), min_size=1, max_size=5)


@given(
    rows=ROWS,
    names=st.tuples(*(st.sampled_from(COLUMNS[what]) for what in COLUMNS)),
    mark=st.sampled_from([",", ";", "|", ""]),
)
def test_lines_of_json_and_tables_are_read_as_they_were_written(
    rows: list[tuple[Any, ...]], names: tuple[str, ...], mark: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("x") / ("x.csv" if mark else "x.jsonl")
    if mark:
        with path.open("w", newline="", encoding="utf-8") as file:
            lines = [["" if cell is None else cell for cell in row] for row in rows]
            csv.writer(file, delimiter=mark).writerows([names, *lines])
    else:
        write_lines(path, *(dict(zip(names, row, strict=True)) for row in rows))
    expected = [
        Row(f"{path}:{number}", audio, text, speaker.strip(), begin_s, length_s)
        for number, (audio, text, speaker, begin_s, length_s) in enumerate(rows, start=2 if mark else 1)
    ]
    assert list(read_rows(path)) == expected


@given(content=st.binary(max_size=60) | st.text('{}[]",:path text\n\t0.5-', max_size=60).map(str.encode),
       suffix=st.sampled_from([".csv", ".tsv", ".jsonl", ".json"]))  # fmt: skip
@example(content=b'path,text\n"\0', suffix=".csv")
@example(content=b"path,text\nx,y\rz\n", suffix=".csv")
@example(content=b"[" * 3000, suffix=".jsonl")
@example(content=b'{"path": "a", "text": "b", "offset": 1' + b"0" * 400 + b"}", suffix=".jsonl")
def test_any_file_is_read_or_refused_in_one_line_that_names_it(
    content: bytes, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("x") / f"x{suffix}"
    path.write_bytes(content)
    found = ""
    try:
        list(read_rows(path))
    except AsrtoolError as error:
        found = str(error)
    assert "\n" not in found
    assert str(path) in found or not found
