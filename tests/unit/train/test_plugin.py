"""The plugin of examples/plugin, installed by pip; strategies outside asrtool say what learners can do by them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import run_command
from trainings import metrics, toy_job

from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.distributed import Distributed, joinable_strategies
from asrtool.settings.toml_files import load_config
from asrtool.train.run import prepare

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
def test_an_encoder_and_a_logger_of_a_plugin_are_used_by_their_short_names(train_toy, tmp_path, monkeypatch) -> None:
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
    found = [run_command("prepare", name, "--help").stdout for name in ("speech", path)]
    assert found[0].partition("\n")[2] == found[1].partition("\n")[2]
    assert found[0].startswith("Usage: cli prepare speech")
    assert load_config(overrides=["data.train=speech"]).data.train[0].name == path


GOSSIP = ("adpsgd", "adpsgd-fixed", "adpsgd-random", "none")
NAMES = registry.names("strategy")


def distributed(strategy: str, *more: str) -> Distributed:
    return load_config([], [f"distributed.strategy={strategy}", *more]).distributed


@pytest.mark.parametrize("name", NAMES)
def test_strategies_of_the_toolkit_say_of_themselves_what_learners_can_do(name: str) -> None:
    found = distributed(name)
    assert found.survives == (name in (*GOSSIP, "h-adpsgd"))
    assert found.joinable == (name in GOSSIP)
    assert found.node_size(4) == (4 if name == "h-adpsgd" else 1)
    assert joinable_strategies() == list(GOSSIP)


@pytest.mark.parametrize(
    ("name", "setting", "expected"),
    [
        ("h-adpsgd", "h-adpsgd.outer=adpsgd-d1", (False, False, 4)),  # they wait for others
        ("h-adpsgd", "h-adpsgd.node_size=2", (True, False, 2)),
        ("own_components:Gossiping", "lr_scale=1", (True, True, 1)),
        ("own_components:silent", "lr_scale=1", (False, False, 1)),  # says nothing
        ("own_components:InNodes", "lr_scale=1", (False, False, 4)),
        ("own_components:InNodes", "InNodes.node_size=2", (False, False, 2)),
    ],
)
def test_settings_say_it_too_and_those_of_an_own_strategy(
    name: str, setting: str, expected: tuple[bool, bool, int]
) -> None:
    found = distributed(name, f"distributed.{setting}")
    assert (found.survives, found.joinable, found.node_size(4)) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("forgetful", r"= own_components:forgetful returned NoneType, expected asrtool\.\S*:Strategy; return one"),
        ("Claiming", r"= own_components:Claiming says that its learners survive others, but they wait .*; leave out"),
    ],
)
def test_what_is_no_strategy_is_refused_in_one_line(name: str, message: str, toy, toy_config, tmp_path) -> None:
    job = toy_job(toy, tmp_path / "train", toy_config, [f"distributed.strategy=own_components:{name}"])
    with pytest.raises(AsrtoolError, match=message) as caught:
        prepare(job, World())
    assert "\n" not in str(caught.value)
