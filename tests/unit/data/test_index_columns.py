"""What is written beside index and texts for training: whose it is, when it is stale, and that it is what these say."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asrtool.data.storage import index_columns
from asrtool.data.storage.index import Utterance, format_line, read_index, write_index
from asrtool.data.storage.index_columns import (
    KINDS,
    IndexColumns,
    index_digest,
    open_index_columns,
    pack,
    writing_columns,
)
from asrtool.data.storage.transcripts import (
    key_of,
    map_text_columns,
    number_words,
    open_text_columns,
    write_transcripts,
)

UTTERANCE = Utterance("a-1", "a", "A", 0.5, 1.25, "a-A", None, 0, 125)


def assert_same(one: IndexColumns, other: IndexColumns) -> None:
    for name in (*KINDS, "shards"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert one.names == other.names


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The sets whose lines were parsed."""
    found: list[Path] = []
    scan = index_columns._scan
    monkeypatch.setattr(index_columns, "_scan", lambda directory: [found.append(directory), scan(directory)][1])
    return found


@pytest.fixture
def own(corpus: Path, tmp_path: Path) -> Path:
    """A copy of a set."""
    shutil.copytree(corpus / "lilcom" / "train", tmp_path / "train")
    return tmp_path / "train"


def write_set(directory: Path, shards: list[list[Utterance]]) -> None:
    """As the features stage puts it together."""
    directory.mkdir()
    with writing_columns(directory) as columns, open(directory / "index.jsonl", "wb") as index:
        for number, shard in enumerate(shards):
            lines = "".join(map(format_line, shard)).encode()
            index.write(lines)
            columns.add(number, json.loads(json.dumps(pack(shard))), lines)


@pytest.mark.parametrize("name", ["train", "dev"])
def test_the_features_stage_writes_what_the_lines_say(corpus: Path, name: str, parsed: list[Path]) -> None:
    directory = corpus / "lilcom" / name
    columns = open_index_columns(directory)
    listed = read_index(directory)
    assert not parsed
    assert columns.num_frames.tolist() == [utterance.num_frames for utterance in listed]
    assert columns.durations_s.tolist() == [utterance.duration_s for utterance in listed]
    assert [columns.names[i] for i in columns.corpora] == [utterance.corpus for utterance in listed]
    originals = [utterance.id.removeprefix("sp0.9-").removeprefix("sp1.1-") for utterance in listed]
    assert columns.keys.tolist() == list(map(key_of, originals))
    assert index_digest(directory) == hashlib.sha256((directory / "index.jsonl").read_bytes()).hexdigest()
    assert_same(columns, index_columns._scan(directory))


def test_shards_of_several_corpora_and_of_none_are_put_together(tmp_path: Path, parsed: list[Path]) -> None:
    shards = [
        [
            dataclasses.replace(UTTERANCE, id=f"{number}-{i}", shard=number, corpus=corpus, num_frames=1 + i)
            for i, corpus in enumerate(corpora)
        ]
        for number, corpora in enumerate(("b", "", "ab", "c"))
    ]
    write_set(tmp_path / "train", shards)
    columns = open_index_columns(tmp_path / "train")
    assert not parsed
    assert_same(columns, index_columns._scan(tmp_path / "train"))
    assert columns.names == ["b", "a", "c"]
    assert columns.shards[:, 0].tolist() == [0, 2, 3, -1]


def test_a_copied_set_keeps_its_columns(own: Path, parsed: list[Path]) -> None:
    assert_same(open_index_columns(own), index_columns._scan(own))
    assert parsed == [own]  # by the line above


@pytest.mark.parametrize("same_time", [False, True])
def test_columns_of_another_index_are_not_taken(tmp_path: Path, parsed: list[Path], same_time: bool) -> None:
    """Of the same size, and even of the same time of change."""
    write_set(tmp_path / "train", [[UTTERANCE]])
    path = tmp_path / "train" / "index.jsonl"
    before = path.stat()
    about = (tmp_path / "train" / "columns" / "about.json").stat()
    while path.stat().st_ctime_ns <= about.st_ctime_ns:  # a clock of a file system ticks every 4 ms
        write_index(tmp_path / "train", [dataclasses.replace(UTTERANCE, num_frames=126)])
    if same_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert open_index_columns(tmp_path / "train").num_frames.tolist() == [126]
    assert parsed == [tmp_path / "train"]
    assert index_digest(tmp_path / "train") == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", [*KINDS, "shards", "about.json"])
@pytest.mark.parametrize("kept", [0, 9])
def test_broken_columns_are_not_taken(own: Path, parsed: list[Path], name: str, kept: int) -> None:
    path = own / "columns" / name
    path.write_bytes(path.read_bytes()[:kept])
    assert_same(open_index_columns(own), index_columns._scan(own))
    assert parsed == [own, own]


def test_what_a_killed_command_left_is_not_taken(own: Path, parsed: list[Path]) -> None:
    """The index is whole and as it was, and the columns of a shard are missing."""
    shard = [one for one in read_index(own) if not one.shard]

    def be_killed() -> None:
        with writing_columns(own) as columns:
            columns.add(0, pack(shard), b"")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be_killed()
    assert len(open_index_columns(own).keys) == len(read_index(own))
    assert parsed == [own]


names = st.text(st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]), min_size=1)
texts = st.text(st.sampled_from("ab \r\x0b\x85\u2028\u00a0'"), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(names, texts, min_size=1, max_size=6))
def test_texts_can_be_put_together_again(tmp_path: Path, said: dict[str, str]) -> None:
    write_transcripts(tmp_path, said.items())
    for columns in (map_text_columns(tmp_path, tmp_path / "transcripts.tsv"), number_words(said.items())):
        assert columns
        assert [columns.text(line) for line in range(len(said))] == list(said.values())
        assert columns.keys.tolist() == list(map(key_of, said))


@pytest.mark.parametrize("damage", ["texts", "words", "vocabulary.txt", "about.json"])
def test_words_of_other_texts_or_broken_ones_are_not_taken(tmp_path: Path, damage: str) -> None:
    write_transcripts(tmp_path, [("a", "one two"), ("b", "two")])
    if damage == "texts":
        (tmp_path / "transcripts.tsv").write_text("a\tone two\nb\tone\n")
    else:
        (tmp_path / "words" / damage).write_bytes(b"")
    assert map_text_columns(tmp_path, tmp_path / "transcripts.tsv") is None
    columns = open_text_columns(tmp_path)
    assert [columns.text(line) for line in (0, 1)] == ["one two", "one" if damage == "texts" else "two"]
