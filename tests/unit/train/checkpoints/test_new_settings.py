"""A training that began before a setting existed is resumed after it exists."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from toy_task import assert_same_bits
from trainings import summary

from asrtool.settings import registry

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


def test_a_half_done_training_resumes_and_a_finished_one_stays(
    train_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_code_that_trained_is_recorded_once_for_each_code(
    toy: Path, toy_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from asrtool.cli.main import cli
    from asrtool.recipe import source

    out = tmp_path / "train"

    def train() -> list[str]:
        words = ["train", toy / "features", toy / "tokenizer", out, "--config", toy_config]
        monkeypatch.setattr(sys, "argv", ["asrtool", *map(str, words)])
        CliRunner().invoke(cli, list(map(str, words)), catch_exceptions=False)
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
