"""`asrtool simulate --train`: a recipe's training in virtual time, and one that was logged once more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from learners import MANY_BATCHES, Learners, batches_trained, planned
from test_virtual import train_logged
from toy_task import assert_same_bits, last_weights

from asrtool.cli.main import cli
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import load_model
from asrtool.predict.simulate.scenario import load_scenario
from asrtool.predict.theory.measure import read_config
from asrtool.predict.virtual.learners import Diverged
from asrtool.predict.virtual.training import train_cases
from asrtool.report.training import read_training

pytestmark = pytest.mark.slow

ASYNCHRONOUS = ["adpsgd", "adpsgd-pairs", "h-adpsgd", "ps-async", "hogwild", "none"]
STRATEGIES = ["single", "allreduce", "ps-sync", "adpsgd-d1", "bmuf", *ASYNCHRONOUS]
SLOW = ("slow.learners=0:5", "compute.distribution=lognormal", "compute.spread=0.3", "job.parameters_m=2")

Train = Callable[..., Path]


@pytest.fixture
def work(toy: Path, tmp_path: Path) -> Path:
    """A work directory of the toy task, with small batches."""
    (tmp_path / "work" / "config").mkdir(parents=True)
    for name in ("features", "tokenizer"):
        shutil.copytree(toy / name, tmp_path / "work" / name)
    (tmp_path / "work" / "config" / "train.toml").write_text(MANY_BATCHES, encoding="utf-8")
    return tmp_path / "work"


@pytest.fixture
def train_there(work: Path, tmp_path: Path) -> Train:
    """Train by a strategy, into a new folder of this name."""

    def train(name: str, strategy: str, *overrides: str, num_learners: int = 4) -> Path:
        given = (f"distributed.strategy={strategy}", f"distributed.num_learners={num_learners}")
        scenario = load_scenario([], [*SLOW, *given, *overrides])
        list(train_cases(work, (), scenario, True, None, tmp_path / name))
        (folder,) = (tmp_path / name).iterdir()
        return folder

    return train


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_model(folder / "model.pt")[0].state_dict()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_batch_of_an_epoch_is_trained_once_and_the_same_twice(
    strategy: str, work: Path, train_there: Train
) -> None:
    own = ("distributed.h-adpsgd.node_size=2",) if strategy == "h-adpsgd" else ()
    num_learners = 1 if strategy == "single" else 4
    one, other = (train_there(name, strategy, *own, num_learners=num_learners) for name in ("one", "other"))
    assert batches_trained(one) == planned(work, work / "config" / "train.toml")
    assert_same_bits(weights_of(one), weights_of(other))
    for file in ("metrics.jsonl", "train.json", *(f"learners/{rank}.jsonl" for rank in range(num_learners))):
        assert (one / file).read_bytes() == (other / file).read_bytes(), file


def test_settings_of_sequence_training_are_those_that_it_was_trained_by(work: Path) -> None:
    overrides = "model.objective=lf-mmi", "decode.methods=graph", "train.num_epochs=9", "train.peak_lr=0.6"
    train = read_config(work, [], overrides).train
    assert (train.num_epochs, train.peak_lr) == (2, pytest.approx(0.1))
    assert train.init_model == str(work / "start" / "model.pt")
    assert read_config(work, [], ["train.num_epochs=9"]).train.num_epochs == 9


def test_a_slow_learner_trains_fewer_batches_on_older_weights(train_there: Train) -> None:
    run = read_training(train_there("run", "ps-async", "slow.learners=0:5"))
    assert run.strategy == "ps-async"
    assert run.finished
    assert len(run.learners[0]) < len(run.learners[1])
    assert run.learners[0]["staleness"].mean() > 2 * run.learners[1]["staleness"].mean()
    assert run.dev_epochs == [1, 2, 3]
    assert run.seconds > 0


def test_the_model_counts_staleness_as_it_is(train_there: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the cluster model, which it finds without weights, is that of the views."""
    from asrtool.predict.virtual import learners

    counted = []
    end = learners.VirtualLearners._end

    def noting(learners: Any, event: Any) -> Any:
        found = end(learners, event)
        counted.append((event.staleness, found.trained.staleness))
        return found

    monkeypatch.setattr(learners.VirtualLearners, "_end", noting)
    for strategy in ("adpsgd-random", "adpsgd-pairs", "ps-async"):
        train_there(strategy, strategy)
    assert all(one == other for one, other in counted), counted
    assert max(one for one, _ in counted) > 0


@pytest.mark.parametrize("strategy", ["allreduce", "adpsgd-d1", "bmuf"])
def test_learners_that_wait_for_each_other_train_the_same_whatever_the_times(strategy: str, train_there: Train) -> None:
    one = train_there("one", strategy)
    other = train_there("other", strategy, "slow.learners=2:9", "compute.spread=0.1")
    assert_same_bits(weights_of(one), weights_of(other))
    assert (
        json.loads((one / "train.json").read_text())["seconds"]
        < json.loads((other / "train.json").read_text())["seconds"]
    )


def test_the_command_replays_a_training(learners: Learners, work: Path, tmp_path: Path) -> None:
    overrides = ("distributed.strategy=adpsgd-random", "train.peak_lr=0.01")
    learners.run(train_logged, work, work / "config" / "train.toml", tmp_path / "real", overrides)
    words = ["--train", work, "--replay", tmp_path / "real", "--out", tmp_path / "again", "--json"]
    result = CliRunner().invoke(cli, ["simulate", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert [found["num_learners"] for found in json.loads(result.stdout)] == [4]
    real, ours = last_weights(tmp_path / "real"), weights_of(tmp_path / "again")
    for name, weight in real.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-6, atol=1e-6)
    assert batches_trained(tmp_path / "again") == batches_trained(tmp_path / "real")
    times = [json.loads(line)["compute_s"] for line in (tmp_path / "real/learners/0.jsonl").read_text().splitlines()]
    again = [json.loads(line)["compute_s"] for line in (tmp_path / "again/learners/0.jsonl").read_text().splitlines()]
    assert times == again


def replayed(work: Path, logged: Path, out: Path, *overrides: str) -> None:
    list(train_cases(work, overrides, load_scenario(), False, logged, out))


def test_what_cannot_be_replayed_is_refused(learners: Learners, work: Path, tmp_path: Path) -> None:
    real, config = tmp_path / "real", work / "config" / "train.toml"
    learners.run(train_logged, work, config, real, ("distributed.strategy=adpsgd-fixed",), num=2)
    log = real / "events" / "1.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-1]))
    with pytest.raises(AsrtoolError, match=r"1\.jsonl has no end"):
        replayed(work, real, tmp_path / "out")
    at_ns, _, _, machine = json.loads(lines[0])
    log.write_text(json.dumps([at_ns, "start", 7, machine]) + "\n" + "".join(lines[1:]))
    with pytest.raises(AsrtoolError, match="begins after 7 batches"):
        replayed(work, real, tmp_path / "out")
    log.write_text(json.dumps([at_ns, "start", 0, "another"]) + "\n" + "".join(lines[1:]))
    with pytest.raises(AsrtoolError, match="on several machines"):
        replayed(work, real, tmp_path / "out")
    joined = shutil.copy(log, log.with_name("2.jsonl"))
    with pytest.raises(AsrtoolError, match="a learner joined the 2"):
        replayed(work, real, tmp_path / "out")
    Path(joined).unlink()
    log.unlink()
    with pytest.raises(AsrtoolError, match=r"1\.jsonl is missing"):
        replayed(work, real, tmp_path / "out")
    inputs = json.loads((real / "inputs.json").read_text())
    for strategy, reason in (("allreduce", "step together"), ("hogwild", "nobody can log")):
        inputs["settings"]["distributed"] = {"strategy": strategy}
        (real / "inputs.json").write_text(json.dumps(inputs))
        with pytest.raises(AsrtoolError, match=reason):
            replayed(work, real, tmp_path / "out")
    with pytest.raises(AsrtoolError, match="no OUT of asrtool train"):
        replayed(work, tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("overrides", "what"),
    [
        (("train.ema_decay=0.99",), "ema_decay"),
        (("train.pipeline_stages=2",), "pipeline_stages"),
        (("train.precision=fp16",), "fp16"),
    ],
)
def test_what_virtual_learners_cannot_train_is_refused(
    overrides: tuple[str, ...], what: str, work: Path, tmp_path: Path
) -> None:
    scenario = load_scenario([], ["distributed.strategy=allreduce", "distributed.num_learners=2"])
    with pytest.raises(AsrtoolError, match=what):
        list(train_cases(work, overrides, scenario, True, None, tmp_path / "out"))


def test_a_loss_that_is_no_number_ends_it(work: Path, tmp_path: Path) -> None:
    scenario = load_scenario([], ["distributed.strategy=none", "distributed.num_learners=2"])
    with pytest.raises(Diverged, match=r"learner [01], step \d+: loss nan"):
        list(train_cases(work, ("train.peak_lr=1e30",), scenario, True, None, tmp_path / "out"))


def test_messages_in_bf16_are_rounded_where_views_are_and_refused_elsewhere(train_there: Train) -> None:
    plain, rounded = (train_there(name, "adpsgd-random", *more) for name, more in BF16)
    one, other = weights_of(plain), weights_of(rounded)
    assert any(not torch.equal(weight, other[name]) for name, weight in one.items())
    with pytest.raises(AsrtoolError, match=r"adpsgd-d1\.message_type is bf16"):
        train_there("refused", "adpsgd-d1", "distributed.adpsgd-d1.message_type=bf16")


BF16 = (("plain", ()), ("rounded", ("distributed.adpsgd-random.message_type=bf16",)))
