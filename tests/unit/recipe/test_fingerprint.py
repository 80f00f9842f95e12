"""Changes that make a finished stage stale, and others: new keys, components, their code, and untouched outputs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import toy

from asrtool.recipe.engine import run_stages
from asrtool.recipe.source import chosen_modules, code_digests
from asrtool.recipe.stage import Line, Stage
from asrtool.recipe.state import Run, read_marker
from asrtool.settings.toml_files import load_config

TRAIN = Stage(
    "train",
    "Learns.",
    makes=("train",),
    run=(Line("asrtool join {work}/train/model.txt {config}"),),
    settings=("model", "train", "distributed"),
)
# The same, by a command that has nothing left to do once it is done.
KEEPING = dataclasses.replace(TRAIN, run=(Line("asrtool keep {work}/train/model.txt {config}"),), resumes=True)
SOURCES = {
    "asrtool/models/acoustic.py": "",
    "asrtool/models/encoders/lstm.py": "",
    "asrtool/models/objectives/ctc.py": "",
    "asrtool/models/objectives/topology.py": "",
    "asrtool/train/optimisation/optimizer.py": "",
    "asrtool/train/optimisation/learning_rate.py": "",
    "asrtool/train/batches/shard_source.py": "",
    "asrtool/train/loop/metrics.py": "",
    "asrtool/distributed/strategies/strategy.py": "def single(): return 1\n",
    "asrtool/distributed/strategies/gossip.py": "def adpsgd():\n"
    "    from asrtool.distributed.transport.exchange import Exchanger\n",
    "asrtool/distributed/transport/exchange.py": "Exchanger = 1\n",
    "asrtool/distributed/strategies/topology.py": "",
}


@pytest.fixture
def root(toy_root: Path) -> Path:
    for name, text in SOURCES.items():
        for package in (toy_root / name).parent, (toy_root / name).parent.parent:
            package.mkdir(parents=True, exist_ok=True)
            (package / "__init__.py").touch()
        (toy_root / name).write_text(text)
    return toy_root


def make_run(folder: Path, *overrides: str, stage: Stage = TRAIN) -> Run:
    return toy.make_run(folder, [stage], load_config(overrides=overrides))


def state(run: Run) -> str:
    (found,) = toy.states(run, range(1))
    return found


def test_a_marker_that_lacks_a_key_had_its_default(root: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run_stages(run, range(1))
    path = run.work / ".stages" / "train.json"
    marker = json.loads(path.read_text())
    for key in list(marker["settings"]):
        settings = {name: value for name, value in marker["settings"].items() if name != key}
        path.write_text(json.dumps({**marker, "settings": settings}))
        assert state(run) == "done", key
    for settings in ({}, {**marker["settings"], "train.sgd.momentum": 0.3}):  # of a component that is not chosen
        path.write_text(json.dumps({**marker, "settings": settings}))
        assert state(run) == "done"
    assert state(make_run(tmp_path, "train.optimizer=sgd")) == 'stale train.optimizer "adamw" -> "sgd"'


def test_only_what_is_chosen_counts(root: Path, tmp_path: Path) -> None:
    run_stages(make_run(tmp_path), range(1))
    assert state(make_run(tmp_path, "train.sgd.momentum=0.5", "distributed.bmuf.block_steps=3")) == "done"
    assert state(make_run(tmp_path, "train.adamw.weight_decay=0.5")) == "stale train.adamw.weight_decay 0.01 -> 0.5"
    assert state(make_run(tmp_path, "distributed.strategy=adpsgd")).startswith("stale distributed.")


def test_who_computes_does_not_count(root: Path, tmp_path: Path) -> None:
    stage = dataclasses.replace(TRAIN, settings=("decode.batch_s", "features.executor", "decode.executor"))
    run_stages(make_run(tmp_path, stage=stage), range(1))
    executors = ("features.executor=dask:tcp://node:8786", "decode.executor=dask:tcp://node:8786")
    assert state(make_run(tmp_path, *executors, stage=stage)) == "done"
    assert state(make_run(tmp_path, *executors, "decode.batch_s=3", stage=stage)) == "stale decode.batch_s 200.0 -> 3.0"


@pytest.mark.parametrize("key", ["train.init_model", "augment.noise_dir", "augment.reverb_dir", "lm.extra_text"])
def test_what_settings_name_counts_by_what_is_there(root: Path, tmp_path: Path, key: str) -> None:
    stage = dataclasses.replace(TRAIN, settings=("train", "augment", "lm"))
    named = tmp_path / "named"
    named.mkdir()
    (named / "file").write_text("before")
    overrides = (f"{key}={named}", "features.keep_audio=true")
    run_stages(make_run(tmp_path, *overrides, stage=stage), range(1))
    assert state(make_run(tmp_path, *overrides, stage=stage)) == "done"
    (named / "file").write_text("another content")
    assert state(make_run(tmp_path, *overrides, stage=stage)) == f"stale {named} changed"


def test_a_path_that_is_set_or_removed_counts_and_an_empty_one_is_none(root: Path, tmp_path: Path) -> None:
    stage = dataclasses.replace(TRAIN, settings=("paths",))
    corpora = ("data.train=an4", "data.test=own")
    run_stages(make_run(tmp_path, "paths.an4=/a", *corpora, stage=stage), range(1))
    assert state(make_run(tmp_path, "paths.an4=/a", "paths.own_test=", *corpora, stage=stage)) == "done"
    assert state(make_run(tmp_path, "paths.an4=/b", *corpora, stage=stage)) == 'stale paths.an4 "/a" -> "/b"'
    assert state(make_run(tmp_path, *corpora, stage=stage)) == 'stale paths.an4 "/a" -> ""'
    assert state(make_run(tmp_path, "paths.an4=/a", "paths.ldc97s62=/d", *corpora, stage=stage)) == "done"


def test_a_tar_file_of_a_release_that_is_replaced_is_noticed(tmp_path: Path, root: Path) -> None:
    tar, folder = tmp_path / "a.tar", tmp_path / "folder"
    tar.write_text("a")
    folder.mkdir()
    stage = dataclasses.replace(TRAIN, settings=("paths",))
    run = make_run(tmp_path, f"paths.an4=[{folder},{tar}]", "data.train=an4", "data.test=an4", stage=stage)
    run_stages(run, range(1))
    assert state(run) == "done"
    tar.write_text("b")
    (folder / "another").touch()  # followed by a link of the corpus folder
    assert state(run) == f"stale {tar} changed"


def test_the_code_of_a_chosen_component_counts_and_that_of_others_does_not(root: Path, tmp_path: Path) -> None:
    gossip = make_run(tmp_path / "gossip", "distributed.strategy=adpsgd")
    single = make_run(tmp_path / "single")
    for run in (gossip, single):
        run_stages(run, range(1))
        assert state(run) == "done"
    (root / "asrtool" / "distributed" / "transport" / "exchange.py").write_text("Exchanger = 2\n")
    assert state(gossip) == "stale code changed: asrtool/distributed/transport/exchange.py"
    assert state(single) == "done"


def test_every_module_of_the_real_gossip_is_behind_its_strategy() -> None:
    def files(strategy: str) -> set[str]:
        config = load_config(overrides=[f"distributed.strategy={strategy}"])
        return set(code_digests(["asrtool.cli.training:train"], chosen_modules(config, TRAIN.settings)))

    gossip = {f"asrtool/distributed/strategies/{name}.py" for name in ("gossip", "topology")}
    gossip.add("asrtool/distributed/transport/exchange.py")
    assert gossip <= files("adpsgd")
    assert "asrtool/distributed/strategies/bmuf.py" not in files("adpsgd")
    assert not {"asrtool/distributed/strategies/gossip.py"} & files("single")
    assert {
        "asrtool/models/encoders/lstm.py",
        "asrtool/models/objectives/ctc.py",
        "asrtool/train/optimisation/learning_rate.py",
    } <= files("single")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of a person's own, outside the sources, without __init__.py in its lower folder."""
    package = tmp_path / f"own_{tmp_path.name}"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text(
        f"from .rate import RATE\nimport {package.name}.parts.deep\ndef adagrad(parameters, settings): ...\n"
    )
    (package / "rate.py").write_text("import numpy\nRATE = 1\n")
    (package / "parts" / "deep.py").write_text("DEPTH = 1\n")
    (package / "unused.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    return package


@pytest.mark.parametrize(("name", "counts"), [("net", 1), ("rate", 1), ("parts/deep", 1), ("unused", 0)])
def test_an_own_module_and_what_it_imports_of_its_package_count(
    name: str, counts: int, own: Path, root: Path, tmp_path: Path
) -> None:
    run = make_run(tmp_path, f"train.optimizer={own.name}.net:adagrad")
    run_stages(run, range(1))
    assert state(run) == "done"
    with open(own / f"{name}.py", "a") as file:
        file.write("Y = 2\n")
    assert state(run) == (f"stale code changed: {own}/{name}.py" if counts else "done")


def test_the_topology_of_an_own_objective_counts(own: Path, root: Path, tmp_path: Path) -> None:
    """Settings name it, and nothing imports it."""
    (own / "goal.py").write_text(
        "from asrtool.models.acoustic import Objective\n"
        "class Goal(Objective):\n    class Settings: ...\n    def fits(self): ...\n    def loss(self): ...\n"
        f"Goal.Settings.topology = '{own.name}.unused:Paths'\n"
        "import dataclasses\ndataclasses.dataclass(frozen=True)(Goal.Settings)\n"
    )
    run = make_run(tmp_path, f"model.objective={own.name}.goal:Goal")
    run_stages(run, range(1))
    assert state(run) == "done"
    (own / "unused.py").write_text("X = 2\n")
    assert state(run) == f"stale code changed: {own}/unused.py"


# A stage whose command leaves alone what is there


def change_code(root: Path) -> None:
    (root / "asrtool" / "words.py").write_text("def add(a, b):\n    return a - b\n")


def test_a_stage_that_left_its_outputs_alone_keeps_the_code_that_made_them(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(tmp_path, stage=KEEPING)
    run_stages(run, range(1))
    before = read_marker(run.work, KEEPING.name)
    assert before
    change_code(root)
    for _ in range(2):
        with caplog.at_level("INFO"):
            assert run_stages(run, range(1)) == ["train"]
        assert "made by other code (asrtool/words.py changed); --force makes it again" in caplog.text
        caplog.clear()
        assert state(run) == "stale code changed: asrtool/words.py"
        after = read_marker(run.work, KEEPING.name)
        assert after
        assert after["code"] == before["code"]
    assert run_stages(run, range(1), force=True) == ["train"]
    assert "made by other code" not in caplog.text
    assert state(run) == "done"
    assert (run.work / "train.old-1").exists()


def test_a_stage_that_wrote_its_outputs_has_the_code_that_wrote_them(root: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run_stages(run, range(1))
    change_code(root)
    assert run_stages(run, range(1)) == ["train"]
    assert state(run) == "done"
