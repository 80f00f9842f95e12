"""The plugin of examples/plugin, installed by pip, and components that any package registers by a short name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from trainings import metrics

from asrtool.cli.main import cli
from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.toml_files import load_config

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "plugin"
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
GRU = ("model.encoder=gru", "model.Gru.hidden_size=12", "model.Gru.num_layers=1")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder that the example is installed in."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(EXAMPLE, folder / "source")
    words = ["--no-deps", "--no-build-isolation", "--no-index", "--target", folder / "site", folder / "source"]
    subprocess.run([*PIP, *map(str, words)], check=True)
    return folder / "site"


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(site)


class Run:
    """Run of Weights & Biases, which keeps what it gets."""

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.config = SimpleNamespace(update=lambda values, **_: self.texts.update(values))
        self.texts: dict[str, str] = {}
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.is_finished = False

    def log(self, values: dict[str, float], step: int) -> None:
        for tag, value in values.items():
            self.curves.setdefault(tag, []).append((step, value))

    def finish(self) -> None:
        self.is_finished = True


@pytest.mark.usefixtures("installed")
def test_an_encoder_and_a_logger_of_a_plugin_are_used_by_their_short_names(
    train_toy: Callable[..., dict[str, torch.Tensor]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Run] = []
    init = lambda **given: runs.append(Run(**given)) or runs[-1]  # noqa: E731
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    out = tmp_path / "train"
    weights = train_toy(out, *GRU, "train.loggers=wandb", "train.Wandb.project=calls", "train.num_epochs=1")
    assert weights["encoder.gru.weight_hh_l0"].shape == (36, 12)
    (run,) = runs
    assert run.is_finished
    assert run.given["project"] == "calls"
    assert '"hidden_size": 12' in run.texts["inputs"]
    for kind, name in (("train", "loss"), ("train", "lr"), ("dev", "loss")):
        assert run.curves[f"{kind}/{name}"] == [(line["step"], line[name]) for line in metrics(out, kind)]
    assert not (out / "tensorboard").exists()
    train_toy(out, *GRU, "train.loggers=tensorboard", "train.num_epochs=1")  # the same training
    assert len(runs) == 1


@pytest.mark.usefixtures("installed")
def test_a_wrong_name_is_answered_with_those_of_plugins() -> None:
    expected = "expected one of lstm, deepspeech2, conformer, gru; did you mean gru?"
    with pytest.raises(AsrtoolError, match=re.escape(f"unknown encoder 'grue', {expected}")):
        load_config(overrides=["model.encoder=grue"])
    assert load_config(overrides=GRU).model.encoder.name == "asrtool_example:Gru"
    assert load_config(overrides=[*GRU, "model.encoder=lstm"]).model.encoder.name == "lstm"
    with pytest.raises(AsrtoolError, match=r"unknown key model\.Gruu\.num_layers"):
        load_config(overrides=["model.Gruu.num_layers=3"])


def test_a_corpus_of_a_plugin_has_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    path = registry.path_of("corpus", "an4")
    monkeypatch.setattr(registry, "plugins", lambda kind: {"speech": path} if kind == "corpus" else {})
    found = [CliRunner().invoke(cli, ["prepare", name, "--help"]).stdout for name in ("speech", path)]
    assert found[0].partition("\n")[2] == found[1].partition("\n")[2]
    assert found[0].startswith("Usage: cli prepare speech")
    assert load_config(overrides=["data.train=speech"]).data.train[0].name == path


def test_rings_of_a_plugin_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    path = registry.path_of("ring", "fixed")
    monkeypatch.setattr(registry, "plugins", lambda kind: {"circle": path} if kind == "ring" else {})
    overrides = ["distributed.strategy=adpsgd", "distributed.adpsgd.ring=circle"]
    assert load_config(overrides=overrides).distributed.strategy.settings.ring == path
