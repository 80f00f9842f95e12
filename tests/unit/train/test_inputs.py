"""Trainings of different inputs are distinguished and never mixed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from asrtool.errors import AsrtoolError
from asrtool.settings.toml_files import load_config
from asrtool.train.inputs import Inputs, describe_inputs, open_training


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Files that look like features and a tokenizer to `describe_inputs`."""
    for name in ("features/train/index.jsonl", "features/train/cmvn.npz", "features/dev/index.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    (tmp_path / "features" / "features.json").write_text("{}", encoding="utf-8")
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.model").write_text("pieces", encoding="utf-8")
    return tmp_path


def describe(data: Path, *overrides: str) -> Inputs:
    return describe_inputs(data / "features", data / "tokenizer", load_config(overrides=overrides))


@pytest.mark.parametrize(
    "override",
    [
        "train.peak_lr=0.1",
        "train.optimizer=sgd",
        "train.save_every_steps=3",  # of what is averaged
        "model.lstm.dropout=0.3",
        "specaugment.num_time_masks=1",
        "data.mix=temperature:2",
    ],
)
def test_a_setting_that_changes_the_weights_makes_another_training(data: Path, override: str) -> None:
    assert describe(data) == describe(data)
    assert describe(data, override) != describe(data)


@pytest.mark.parametrize(
    "override",
    [
        "train.log_every_steps=3",
        "train.save_every_minutes=3",
        "train.keep_best=1",
        "decode.beam.beam_sizes=9",
        "train.shards.cache_gib=1",
        "train.sgd.momentum=0.1",  # of what is not chosen
        "distributed.bmuf.block_steps=3",
    ],
)
def test_a_setting_without_effect_on_the_weights_does_not(data: Path, override: str) -> None:
    assert describe(data, override) == describe(data)


@pytest.mark.parametrize("name", ["features/train/index.jsonl", "features/features.json", "tokenizer/tokenizer.model"])
def test_other_data_makes_another_training(data: Path, name: str) -> None:
    before = describe(data)
    (data / name).write_text("changed", encoding="utf-8")
    assert describe(data) != before


def test_missing_data_is_named(data: Path) -> None:
    (data / "tokenizer" / "tokenizer.model").unlink()
    with pytest.raises(AsrtoolError, match=r"tokenizer\.model: cannot be read.*run the stage that makes it first"):
        describe(data)


def opened(out: Path, settings: dict[str, Any]) -> bool:
    with open_training(out, Inputs(settings)) as finished:
        return finished


def test_the_same_training_is_resumed_until_train_json_says_it_is_finished(tmp_path: Path) -> None:
    out = tmp_path / "train"
    assert not opened(out, {"a": 1})
    (out / "checkpoints").mkdir()
    assert not opened(out, {"a": 1})
    (out / "train.json").write_text("{}", encoding="utf-8")
    assert opened(out, {"a": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["train"]


def test_a_training_of_other_inputs_is_moved_aside_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    out = tmp_path / "train"
    for number in (1, 2, 3):
        assert not opened(out, {"a": number})
        (out / "checkpoints").mkdir()
        (out / "train.json").write_text(str(number), encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train", "train.old-1", "train.old-2"]
    assert (tmp_path / "train.old-1" / "train.json").read_text(encoding="utf-8") == "1"
    assert (tmp_path / "train.old-2" / "train.json").read_text(encoding="utf-8") == "2"


@pytest.mark.parametrize("content", [None, "of a user", "[]", "{}"])
def test_a_folder_of_a_user_is_refused_and_an_empty_one_is_used(tmp_path: Path, content: str | None) -> None:
    out = tmp_path / "train"
    out.mkdir()
    (out / ".123.tmp.inputs.json").touch()  # what a training killed at once leaves
    assert not opened(out, {})
    (out / "inputs.json").unlink()
    (out / "thesis.tex").touch()
    if content is not None:
        (out / "inputs.json").write_text(content)
    with pytest.raises(AsrtoolError, match="train: holds other files, expected a new folder or one of a training"):
        opened(out, {})
    assert [path.name for path in tmp_path.iterdir()] == ["train"]


def test_a_folder_where_a_training_is_at_work_is_not_opened_again(tmp_path: Path) -> None:
    """Nor moved aside for one of other settings: what writes in it would write on in the new one."""
    out = tmp_path / "train"
    message = (
        rf"{out}: another training is running there \(process {os.getpid()}\); wait for it, or name another folder"
    )
    assert not opened(out, {"a": 0})
    with open_training(out, Inputs({"a": 1})):
        (out / "checkpoints").mkdir()
        for number in (1, 2):
            with pytest.raises(AsrtoolError, match=message):
                opened(out, {"a": number})
        assert sorted(path.name for path in tmp_path.iterdir()) == ["train", "train.old-1"]
    assert not opened(out, {"a": 1})


STREAM = """
from dataclasses import dataclass
from typing import ClassVar

from asrtool.train.batches.shard_source import Shards


class Stream(Shards):
    @dataclass(frozen=True)
    class Settings:
        files: ClassVar[tuple[str, ...]] = ("stream.txt",)
"""


def test_a_source_names_the_files_of_the_training_set(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream may have no index; what it reads instead keeps trainings apart."""
    (data / "source_of_a_test.py").write_text(STREAM, encoding="utf-8")
    monkeypatch.syspath_prepend(str(data))
    (data / "features" / "train" / "index.jsonl").unlink()
    (data / "features" / "train" / "stream.txt").write_text("one", encoding="utf-8")
    before = describe(data, "train.source=source_of_a_test:Stream")
    assert before == describe(data, "train.source=source_of_a_test:Stream")
    (data / "features" / "train" / "stream.txt").write_text("two", encoding="utf-8")
    assert before != describe(data, "train.source=source_of_a_test:Stream")
