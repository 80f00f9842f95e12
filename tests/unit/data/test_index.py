"""The list of utterances of a feature set, and its columns: when they are stale, and that they say the same."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asrtool.data.storage.index import (
    ShardIndex,
    Utterance,
    format_line,
    read_feature_settings,
    read_index,
    write_index,
)
from asrtool.data.storage.index_columns import (
    KINDS,
    IndexColumns,
    index_digest,
    open_index_columns,
    writing_columns,
)
from asrtool.data.storage.transcripts import key_of
from asrtool.errors import AsrtoolError

UTTERANCE = Utterance("a-1", "a", "A", 0.5, 1.25, "a-A", "hello there", 0, 125)

utterances = st.builds(
    Utterance,
    id=st.text(min_size=1),
    recording=st.text(),
    channel=st.sampled_from("AB"),
    start_s=st.floats(0, 1e5),
    duration_s=st.floats(0, 100),
    speaker=st.text(),
    text=st.none() | st.text(),
    shard=st.just(0),
    num_frames=st.integers(1, 10_000),
    corpus=st.text(),
    fields=st.dictionaries(st.text(), st.one_of(st.integers(), st.text(), st.lists(st.integers()))),
)


def test_an_index_written_before_corpora_were_known_is_read_without_them(tmp_path: Path) -> None:
    old = {name: value for name, value in dataclasses.asdict(UTTERANCE).items() if name not in ("corpus", "fields")}
    (tmp_path / "index.jsonl").write_text(json.dumps(old) + "\n")
    assert read_index(tmp_path) == [UTTERANCE]
    assert (UTTERANCE.corpus, UTTERANCE.fields) == ("", {})
    assert hash(dataclasses.replace(UTTERANCE, corpus="calls")) != hash(UTTERANCE)


def test_a_missing_or_empty_index_says_which_stage_to_run(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"index\.jsonl: no readable list of utterances; run the features stage"):
        read_index(tmp_path)
    write_index(tmp_path, [])
    with pytest.raises(AsrtoolError, match="lists no utterance"):
        read_index(tmp_path)


LINE = json.loads(format_line(UTTERANCE))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({**LINE, "num_frames": "125"}, "'>=' not supported between instances of 'str' and 'int'"),
        ({**LINE, "num_frames": 0}, "channel A, num_frames 0, expected channel A or B, one frame or more"),
        ({**LINE, "channel": "1"}, "channel 1, num_frames 125, expected channel A or B"),
        ({**LINE, "corpus": None}, "intern"),
        ({**LINE, "word": "hello"}, "unexpected keyword argument 'word'"),
        ({"id": "a-1"}, "missing"),
        *((other, "") for other in ([], 7, "text", '{"id": "a-1", "recor')),
    ],
)
def test_a_wrong_line_is_named_with_file_and_number(tmp_path: Path, line: object, message: str) -> None:
    write_index(tmp_path, [UTTERANCE])
    with open(tmp_path / "index.jsonl", "a") as file:
        file.write(line if isinstance(line, str) and line[0] == "{" else json.dumps(line))
    with pytest.raises(AsrtoolError, match=rf"index\.jsonl:2: no utterance: .*{message}"):
        read_index(tmp_path)


def test_shards_out_of_storage_order_are_refused(tmp_path: Path) -> None:
    write_index(tmp_path, [Utterance("a-1", "a", "A", 0, 1, "a", "x", shard, 9) for shard in (0, 2, 1)])
    with pytest.raises(AsrtoolError, match=r"index\.jsonl:3: shard 1 after 2"):
        read_index(tmp_path)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"speed": 1}', '{"speeds": [1.0], "colour": 3}', '{"speeds": [1.0], "cmvn": "odd"}']
)
def test_broken_feature_settings_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "features.json").write_text(text)
    with pytest.raises(AsrtoolError, match=r"features\.json: no feature settings"):
        read_feature_settings(tmp_path)


def test_an_index_that_changes_under_its_reader_is_an_error(tmp_path: Path) -> None:
    index = [dataclasses.replace(UTTERANCE, shard=shard) for shard in (0, 0, 1, 1)]
    write_index(tmp_path, index)
    found = ShardIndex(tmp_path, open_index_columns(tmp_path).shards)
    write_index(tmp_path, index[:3])
    assert found[1] == index[1]
    with pytest.raises(AsrtoolError, match=r"index\.jsonl: changed while it was in use; run the same command again"):
        found[2]


def assert_same(one: IndexColumns, other: IndexColumns) -> None:
    for name in (*KINDS, "shards"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert one.names == other.names


def is_mapped(columns: IndexColumns) -> bool:
    return isinstance(columns.keys.base, np.memmap)


def parse(directory: Path) -> IndexColumns:
    """The columns by the lines of the index."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(directory / "index.jsonl", folder)
        return open_index_columns(Path(folder))


def write_set(directory: Path, shards: list[list[Utterance]]) -> None:
    """Write a set as the features stage does."""
    directory.mkdir(exist_ok=True)
    with writing_columns(directory) as columns, open(directory / "index.jsonl", "wb") as index:
        for number, shard in enumerate(shards):
            lines = "".join(map(format_line, shard)).encode()
            index.write(lines)
            columns.add(number, shard, lines)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(st.lists(st.lists(utterances, max_size=8), min_size=1, max_size=6))
def test_an_index_read_by_shards_has_the_same_utterances_and_columns_say_what_the_lines_do(
    tmp_path: Path, drawn: list[list[Utterance]]
) -> None:
    """Shards may be of several corpora, and of none."""
    drawn[0].append(UTTERANCE)
    shards = [[dataclasses.replace(u, shard=number) for u in shard] for number, shard in enumerate(drawn)]
    index = list(itertools.chain(*shards))
    write_set(tmp_path, shards)
    columns = open_index_columns(tmp_path)
    assert is_mapped(columns)
    assert_same(columns, parse(tmp_path))
    assert columns.num_frames.tolist() == [utterance.num_frames for utterance in index]
    assert columns.durations_s.tolist() == [utterance.duration_s for utterance in index]
    assert [columns.names[i] for i in columns.corpora] == [utterance.corpus for utterance in index]
    assert index_digest(tmp_path) == hashlib.sha256((tmp_path / "index.jsonl").read_bytes()).hexdigest()
    found = ShardIndex(tmp_path, columns.shards)
    assert list(found) == found[:] == read_index(tmp_path) == index
    assert [found[i] for i in reversed(range(len(index)))] == index[::-1]
    assert found.num_frames == sum(utterance.num_frames for utterance in index)
    assert found.numbers[:-1].tolist() == sorted({utterance.shard for utterance in index})


@pytest.mark.parametrize("same_time", [False, True])
def test_columns_of_another_index_are_not_taken(tmp_path: Path, same_time: bool) -> None:
    """The other index has the same size, and even the same time of change."""
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
    assert index_digest(tmp_path / "train") == hashlib.sha256(path.read_bytes()).hexdigest()


def test_columns_of_the_features_stage_are_taken_from_a_copy_unless_they_are_broken(
    corpus: Path, tmp_path: Path
) -> None:
    own = tmp_path / "train"
    shutil.copytree(corpus / "lilcom" / "train", own)
    columns = open_index_columns(own)
    assert is_mapped(columns)
    originals = [u.id.removeprefix("sp0.9-").removeprefix("sp1.1-") for u in read_index(own)]
    assert columns.keys.tolist() == list(map(key_of, originals))
    expected = parse(own)
    assert_same(columns, expected)
    for name, kept in itertools.product([*KINDS, "shards", "about.json"], (0, 9)):
        path = own / "columns" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:kept])
        found = open_index_columns(own)
        assert not is_mapped(found), name
        assert_same(found, expected)
        path.write_bytes(whole)


def test_what_a_killed_command_left_is_not_taken(tmp_path: Path) -> None:
    """The index is whole and as it was, and the columns of a shard are missing."""
    own = tmp_path / "train"
    write_set(own, [[UTTERANCE], [dataclasses.replace(UTTERANCE, shard=1)]])

    with contextlib.suppress(KeyboardInterrupt), writing_columns(own) as columns:
        columns.add(0, [UTTERANCE], b"")
        raise KeyboardInterrupt
    found = open_index_columns(own)
    assert not is_mapped(found)
    assert len(found.keys) == 2
