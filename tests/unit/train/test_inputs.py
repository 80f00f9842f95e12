"""Trainings of different inputs are distinguished and never mixed; one from before a setting existed is resumed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import run_command
from toy_task import assert_same_bits
from trainings import summary

from asrtool.errors import AsrtoolError
from asrtool.recipe import source
from asrtool.settings import registry
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


CHANGES = ["train.peak_lr=0.1", "train.optimizer=sgd", "model.lstm.dropout=0.3", "specaugment.num_time_masks=1"]
CHANGES += ["data.mix=temperature:2", "train.save_every_steps=3"]  # the last is of what is averaged
NO_CHANGES = ["train.log_every_steps=3", "train.save_every_minutes=3", "train.keep_best=1", "decode.beam.beam_sizes=9"]
NO_CHANGES += ["train.shards.cache_gib=1", "train.sgd.momentum=0.1", "distributed.bmuf.block_steps=3"]


@pytest.mark.parametrize("override", [*CHANGES, *NO_CHANGES])
def test_a_setting_that_changes_the_weights_makes_another_training_and_no_other_does(data: Path, override: str) -> None:
    """Settings of components that are not chosen change nothing."""
    assert describe(data) == describe(data)
    assert (describe(data, override) != describe(data)) == (override in CHANGES)


@pytest.mark.parametrize("name", ["features/train/index.jsonl", "features/features.json", "tokenizer/tokenizer.model"])
def test_other_data_makes_another_training(data: Path, name: str) -> None:
    before = describe(data)
    (data / name).write_text("changed", encoding="utf-8")
    assert describe(data) != before


def test_a_model_to_begin_with_counts_by_content_in_any_place(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "a.pt").write_text("weights")
    monkeypatch.chdir(data)
    before = describe(data, "train.init_model=a.pt")
    before.settings["train"]["init_model"] = "a.pt"  # as an earlier version
    (data / "inputs.json").write_text(before.to_json(1))
    (data / "a.pt").rename(data / "b.pt")
    assert describe(data, "train.init_model=b.pt").match(data / "inputs.json")
    assert describe(data).first_difference(data / "inputs.json") == "init_model"
    (data / "b.pt").write_text("others")
    assert describe(data, "train.init_model=b.pt").first_difference(data / "inputs.json") == "init_model"


def test_missing_data_is_named(data: Path) -> None:
    (data / "tokenizer" / "tokenizer.model").unlink()
    with pytest.raises(AsrtoolError, match=r"tokenizer\.model: cannot be read.*run the stage that makes it first"):
        describe(data)


def opened(out: Path, settings: dict[str, Any]) -> bool:
    with open_training(out, Inputs(settings)) as finished:
        return finished


def test_the_same_training_is_resumed_until_it_is_finished_and_another_is_moved_aside_whole(tmp_path, caplog) -> None:
    caplog.set_level("INFO")
    out = tmp_path / "train"
    for number in (1, 2, 3):
        assert not opened(out, {"a": number})
        (out / "checkpoints").mkdir()
        assert not opened(out, {"a": number})
        (out / "train.json").write_text(str(number), encoding="utf-8")
        assert opened(out, {"a": number})
    names = ["train", "train.old-1", "train.old-2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [(tmp_path / name / "train.json").read_text(encoding="utf-8") for name in names] == ["3", "1", "2"]
    assert [message.partition(" holds ")[2] for message in caplog.messages] == [
        f"a training of other settings or data (a {number} -> {number + 1}); it is now {out}.old-{number}"
        for number in (1, 2)
    ]


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


def test_a_source_names_the_files_of_the_training_set(data: Path) -> None:
    """A stream may have no index; what it reads instead keeps trainings apart."""
    (data / "features" / "train" / "index.jsonl").unlink()
    found = []
    for text in ("one", "one", "two"):
        (data / "features" / "train" / "stream.txt").write_text(text, encoding="utf-8")
        found.append(describe(data, "train.source=own_components:OfFile"))
    assert found[0] == found[1] != found[2]


GROWN = """
from dataclasses import dataclass
from asrtool.settings.models import Lstm as Before
from asrtool.settings.train import AdamW as AdamWBefore

@dataclass(frozen=True)
class Lstm(Before):
    bridges: int = 0  # a key that came later

@dataclass(frozen=True)
class AdamW(AdamWBefore):
    foreach: bool = False  # another one
"""


def grow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the settings of encoder and optimizer a further key each."""
    name = f"grown_{folder.name}"
    (folder / f"{name}.py").write_text(GROWN)
    monkeypatch.syspath_prepend(folder)
    for kind, component, settings in (("encoder", "lstm", "Lstm"), ("optimizer", "adamw", "AdamW")):
        entries = registry.TABLE[kind]
        assert isinstance(entries, dict)
        monkeypatch.setitem(entries, component, (entries[component][0], f"{name}:{settings}"))


def make_half_done(out: Path) -> None:
    (out / "train.json").unlink()
    for path in sorted((out / "checkpoints").iterdir())[2:]:
        path.unlink()


def test_a_half_done_training_resumes_and_a_finished_one_stays(train_toy, tmp_path, monkeypatch) -> None:
    out = tmp_path / "train"
    expected = train_toy(out)
    inputs = (out / "inputs.json").read_bytes()
    make_half_done(out)
    grow(tmp_path, monkeypatch)
    assert_same_bits(train_toy(out), expected)
    finished = (out / "train.json").stat().st_mtime_ns
    train_toy(out)
    assert (out / "train.json").stat().st_mtime_ns == finished
    assert (out / "inputs.json").read_bytes() == inputs
    assert not list(tmp_path.glob("train.old*"))


def test_the_code_that_trained_is_recorded_once_for_each_code(toy, toy_config, tmp_path, monkeypatch) -> None:
    out, warned = tmp_path / "train", []

    def train() -> list[str]:
        words = ["train", toy / "features", toy / "tokenizer", out, "--config", toy_config]
        monkeypatch.setattr(sys, "argv", ["asrtool", *map(str, words)])
        done = run_command(*words)
        warned.append(done.output.count("WARNING code changed since the checkpoint: training resumes"))
        codes: list[str] = summary(out)["code"]
        return codes

    (first,) = train()
    assert len(first) == 16
    make_half_done(out)
    assert train() == [first]
    monkeypatch.setattr(source, "code_of", lambda entry, config, sections: "other code")
    assert train() == [first]  # it was finished, and other code has not trained
    make_half_done(out)
    assert train() == [first, "other code"]
    assert warned == [0, 0, 0, 1]
