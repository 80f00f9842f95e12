"""The list of utterances of a feature set."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asrtool.data.storage.index import (
    ShardIndex,
    ShardTable,
    Utterance,
    read_feature_settings,
    read_index,
    scan_index,
    write_feature_settings,
    write_index,
)
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Features
from asrtool.settings.schema import Choice

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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(utterances, min_size=1, max_size=5))
def test_what_is_written_is_read_back(tmp_path: Path, index: list[Utterance]) -> None:
    assert write_index(tmp_path, index) == len(index)
    assert read_index(tmp_path) == index


def test_an_index_written_before_corpora_were_known_is_read_without_them(tmp_path: Path) -> None:
    old = {
        "id": "a-1", "recording": "a", "channel": "A", "start_s": 0.5, "duration_s": 1.25, "speaker": "a-A",
        "text": "hello there", "shard": 0, "num_frames": 125,
    }  # fmt: skip
    (tmp_path / "index.jsonl").write_text(json.dumps(old) + "\n")
    assert read_index(tmp_path) == [UTTERANCE]
    assert (UTTERANCE.corpus, UTTERANCE.fields) == ("", {})


def test_further_fields_need_no_change_here(tmp_path: Path) -> None:
    described = dataclasses.replace(
        UTTERANCE, corpus="calls", fields={"language": "en", "quality": 0.7, "ali": [1, 1, 2]}
    )
    write_index(tmp_path, [described, UTTERANCE])
    assert read_index(tmp_path) == [described, UTTERANCE]
    assert hash(described) != hash(UTTERANCE)


def test_a_missing_index_says_which_stage_to_run(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"index\.jsonl: no readable list of utterances; run the features stage"):
        read_index(tmp_path)


def test_an_empty_index_is_an_error(tmp_path: Path) -> None:
    write_index(tmp_path, [])
    with pytest.raises(AsrtoolError, match="lists no utterance"):
        read_index(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_frames": "125"}, r"num_frames is '125', expected int"),
        ({"num_frames": 0}, r"channel 'A', num_frames 0, expected channel A or B, one frame or more"),
        ({"num_frames": True}, r"num_frames is True, expected int"),
        ({"channel": "1"}, r"channel '1', num_frames 125, expected channel A or B"),
        ({"duration_s": None}, r"duration_s is None, expected float"),
        ({"fields": [1]}, r"fields is \[1\], expected dict"),
        ({"corpus": None}, r"corpus is None, expected str"),
        ({"word": "hello"}, r"found \[.*'word'\], expected the keys id, recording"),
    ],
)
def test_a_wrong_field_is_named_with_file_and_line(tmp_path: Path, change: dict[str, object], message: str) -> None:
    write_index(tmp_path, [UTTERANCE, UTTERANCE])
    lines = (tmp_path / "index.jsonl").read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), **change})
    (tmp_path / "index.jsonl").write_text("\n".join(lines))
    with pytest.raises(AsrtoolError, match=r"index\.jsonl:2: " + message):
        read_index(tmp_path)


@pytest.mark.parametrize("line", ['{"id": "a-1", "recor', "[]", "7", '"text"'])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    write_index(tmp_path, [UTTERANCE])
    with open(tmp_path / "index.jsonl", "a") as file:
        file.write(line)
    with pytest.raises(AsrtoolError, match=r"index\.jsonl:2: "):
        read_index(tmp_path)


def test_shards_out_of_storage_order_are_refused(tmp_path: Path) -> None:
    write_index(tmp_path, [Utterance("a-1", "a", "A", 0, 1, "a", "x", shard, 9) for shard in (0, 2, 1)])
    with pytest.raises(AsrtoolError, match=r"index\.jsonl:3: shard 1 after 2"):
        read_index(tmp_path)


def test_feature_settings_are_read_back(tmp_path: Path) -> None:
    features = Features(
        sampling_rate_hz=16000, type=Choice.of("features", "fbank", num_mel_bins=80), speeds=(1.0, 1.1), cmvn="global"
    )
    write_feature_settings(tmp_path, features)
    assert read_feature_settings(tmp_path) == features


def test_missing_feature_settings_mean_that_features_are_not_complete(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"features\.json: missing, so the features are not complete"):
        read_feature_settings(tmp_path)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"speed": 1}', '{"speeds": [1.0], "colour": 3}', '{"speeds": [1.0], "cmvn": "odd"}']
)
def test_broken_feature_settings_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "features.json").write_text(text)
    with pytest.raises(AsrtoolError, match=r"features\.json: no feature settings"):
        read_feature_settings(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(utterances, min_size=1, max_size=30), st.lists(st.integers(0, 9), min_size=30, max_size=30))
def test_an_index_read_by_shards_has_the_same_utterances(
    tmp_path: Path, index: list[Utterance], shards: list[int]
) -> None:
    index = [dataclasses.replace(u, shard=shard) for u, shard in zip(index, sorted(shards), strict=False)]
    write_index(tmp_path, index)
    table = ShardTable()
    for utterance, end in scan_index(tmp_path):
        table.add(utterance, end)
    found = ShardIndex(tmp_path, table.to_array())
    assert list(found) == found[:] == index
    assert [found[i] for i in reversed(range(len(index)))] == index[::-1]
    assert found.num_frames == sum(utterance.num_frames for utterance in index)
    assert found.numbers[:-1].tolist() == sorted({utterance.shard for utterance in index})


def test_an_index_that_changes_under_its_reader_is_an_error(tmp_path: Path) -> None:
    index = [dataclasses.replace(UTTERANCE, shard=shard) for shard in (0, 0, 1, 1)]
    write_index(tmp_path, index)
    table = ShardTable()
    for utterance, end in scan_index(tmp_path):
        table.add(utterance, end)
    found = ShardIndex(tmp_path, table.to_array())
    write_index(tmp_path, index[:3])
    assert found[1] == index[1]
    with pytest.raises(AsrtoolError, match=r"index\.jsonl: changed while it was in use; run the same command again"):
        found[2]
