"""Virtual learners against learners that are processes, and `asrtool simulate --train`, which trains by them."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import run_command
from learners import MANY_BATCHES, batches_trained, planned
from toy_task import assert_same_bits, last_weights
from trainings import LOCKSTEP, dev_losses, json_lines, named, run_training, summary, toy_job

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import load_model
from asrtool.predict.simulate.events import Event
from asrtool.predict.simulate.scenario import load_scenario
from asrtool.predict.theory.measure import read_config
from asrtool.predict.virtual.events import epoch_sizes, follow_simulation, replay
from asrtool.predict.virtual.learners import Diverged, Evaluated, Stepped, VirtualLearners
from asrtool.predict.virtual.training import train_cases
from asrtool.report.training import read_training
from asrtool.train.run import train

NUM_LEARNERS = 4


def slow(*names: str) -> list[Any]:
    """Parameters of tests outside the fast tier."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


IN_LOCK_STEP = ["allreduce", *slow("ps-sync", "adpsgd-d1", "bmuf", "h-adpsgd by adpsgd-d1")]


def train_logged(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> None:
    train(dataclasses.replace(toy_job(toy, out, config, overrides), logs_events=True))


def virtual(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> VirtualLearners:
    job = toy_job(toy, out, config, overrides)
    torch.manual_seed(job.optimisation.seed)
    return VirtualLearners(job, job.build(NUM_LEARNERS), NUM_LEARNERS)


def lock_step(learners: VirtualLearners) -> list[Event]:
    events: list[Event] = []
    sizes = epoch_sizes(learners.step_plan.plan, learners.job.optimisation.num_epochs)
    round_size = learners.rule.assignment_rule.round_size(NUM_LEARNERS)
    strategy = learners.job.distributed.strategy
    follow_simulation(load_scenario(), strategy, NUM_LEARNERS, sizes, round_size, events.append)
    return events


def assert_trained_alike(learners: VirtualLearners, found: list[Stepped | Evaluated], real: Path) -> None:
    """Weights, the loss and staleness of each step, and those on dev."""
    theirs = last_weights(real)
    ours = learners.model.state_dict()
    assert list(ours) == list(theirs)
    one, other = (torch.cat([value.flatten().double() for value in weights.values()]) for weights in (ours, theirs))
    assert float((one - other).norm() / other.norm()) < 1e-6
    for rank in range(NUM_LEARNERS):
        lines = json_lines(real / "learners" / f"{rank}.jsonl")
        steps = [step.trained for step in found if isinstance(step, Stepped) and step.end.learner == rank]
        steps = [step for step in steps if step.batch]
        assert [(step.begin.epoch + 1, step.begin.position, step.after.samples, step.staleness) for step in steps] == [
            (line["epoch"], line["batch"], line["samples"], line["staleness"]) for line in lines
        ]
        losses = [step.nats / max(step.batch.normaliser, 1) for step in steps if step.batch]
        np.testing.assert_allclose(losses, [line["loss"] for line in lines], rtol=2e-6)
    evaluated = [one.losses.means()["loss"] for one in found if isinstance(one, Evaluated)]
    np.testing.assert_allclose(evaluated, dev_losses(real), rtol=1e-6)


REPLAYED = ["adpsgd-random", *slow("adpsgd-fixed", "adpsgd-pairs", "ps-async", "none", "h-adpsgd by adpsgd-random")]


@pytest.mark.parametrize("name", [*IN_LOCK_STEP, *REPLAYED])
def test_virtual_learners_train_what_processes_do(name: str, learners, toy, small_batches_config, tmp_path) -> None:
    """Strategies in lock-step train directly, others by the log of their events."""
    overrides, real = (*named(name), f"distributed.num_learners={NUM_LEARNERS}"), tmp_path / "real"
    in_lock_step = name in LOCKSTEP
    learners.run(run_training if in_lock_step else train_logged, toy, small_batches_config, real, overrides)
    ours = virtual(toy, small_batches_config, tmp_path / "virtual", overrides)
    events = lock_step(ours) if in_lock_step else replay(real, ours.job.distributed, NUM_LEARNERS)
    assert_trained_alike(ours, list(ours.follow(events)), real)


SLOW = ("slow.learners=0:5", "compute.distribution=lognormal", "compute.spread=0.3", "job.parameters_m=2")


@pytest.fixture
def work(toy: Path, tmp_path: Path) -> Path:
    """A work directory of the toy task, with small batches."""
    (tmp_path / "work" / "config").mkdir(parents=True)
    for name in ("features", "tokenizer"):
        shutil.copytree(toy / name, tmp_path / "work" / name)
    (tmp_path / "work" / "config" / "train.toml").write_text(MANY_BATCHES, encoding="utf-8")
    return tmp_path / "work"


def train_virtually(work: Path, out: Path, strategy: str, *overrides: str) -> Path:
    """Folder of a training by four learners with a straggler."""
    given = (f"distributed.strategy={strategy}", "distributed.num_learners=4", *overrides)
    list(train_cases(work, (), load_scenario([], [*SLOW, *given]), True, None, out))
    (folder,) = out.iterdir()
    return folder


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_model(folder / "model.pt")[0].state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["adpsgd", "h-adpsgd", "ps-async", "hogwild"])
def test_the_same_times_give_the_same_training_twice(strategy: str, work: Path, tmp_path: Path) -> None:
    one, other = (
        train_virtually(work, tmp_path / name, strategy, "distributed.h-adpsgd.node_size=2")
        for name in ("one", "other")
    )
    assert batches_trained(one) == planned(work, work / "config" / "train.toml")
    for file in ("metrics.jsonl", "train.json", *(f"learners/{rank}.jsonl" for rank in range(4))):
        assert (one / file).read_bytes() == (other / file).read_bytes(), file
    assert_same_bits(weights_of(one), weights_of(other))
    if strategy == "ps-async":
        run = read_training(one)
        assert (run.strategy, run.finished, run.dev_epochs) == (strategy, True, [1, 2, 3])
        assert len(run.learners[0]) < len(run.learners[1])
        assert run.learners[0]["staleness"].mean() > 2 * run.learners[1]["staleness"].mean()


@pytest.mark.slow
def test_learners_that_wait_for_each_other_train_the_same_whatever_the_times(work: Path, tmp_path: Path) -> None:
    one, other = (
        train_virtually(work, tmp_path / slow, "adpsgd-d1", f"slow.learners={slow}", "compute.spread=0.1")
        for slow in ("0:5", "2:9")
    )
    assert_same_bits(weights_of(one), weights_of(other))
    assert summary(one)["seconds"] < summary(other)["seconds"]


@pytest.mark.slow
def test_settings_of_sequence_training_are_those_that_it_was_trained_by(work: Path) -> None:
    overrides = "model.objective=lf-mmi", "decode.methods=graph", "train.num_epochs=9", "train.peak_lr=0.6"
    train = read_config(work, [], overrides).train
    assert (train.num_epochs, train.peak_lr) == (2, pytest.approx(0.1))
    assert train.init_model == str(work / "start" / "model.pt")
    assert read_config(work, [], ["train.num_epochs=9"]).train.num_epochs == 9


@pytest.mark.slow
def test_the_command_replays_a_training_and_refuses_what_cannot_be(learners, work, tmp_path) -> None:
    real = tmp_path / "real"
    overrides = ("distributed.strategy=adpsgd-random", "train.peak_lr=0.01")
    learners.run(train_logged, work, work / "config" / "train.toml", real, overrides)
    result = run_command("simulate", "--train", work, "--replay", real, "--out", tmp_path / "again", "--json")
    assert [found["num_learners"] for found in json.loads(result.stdout)] == [4]
    theirs, ours = last_weights(real), weights_of(tmp_path / "again")
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-6, atol=1e-6)
    assert batches_trained(tmp_path / "again") == batches_trained(real)
    times, again = (json_lines(folder / "learners/0.jsonl") for folder in (real, tmp_path / "again"))
    assert [line["compute_s"] for line in times] == [line["compute_s"] for line in again]

    def assert_refused(why: str, folder: Path = real) -> None:
        with pytest.raises(AsrtoolError, match=why):
            list(train_cases(work, (), load_scenario(), False, folder, tmp_path / "out"))

    log = real / "events" / "1.jsonl"
    first, *others = log.read_text().splitlines(keepends=True)
    at_ns, _, _, machine = json.loads(first)
    log.write_text("".join([first, *others[:-1]]))
    assert_refused(r"1\.jsonl has no end")
    log.write_text(json.dumps([at_ns, "start", 7, machine]) + "\n" + "".join(others))
    assert_refused("begins after 7 batches")
    log.write_text(json.dumps([at_ns, "start", 0, "another"]) + "\n" + "".join(others))
    assert_refused("on several machines")
    joined = shutil.copy(log, log.with_name("4.jsonl"))
    assert_refused("a learner joined the 4")
    Path(joined).unlink()
    log.unlink()
    assert_refused(r"1\.jsonl is missing")
    inputs = json.loads((real / "inputs.json").read_text())
    for strategy, reason in (("allreduce", "step together"), ("hogwild", "nobody can log")):
        inputs["settings"]["distributed"] = {"strategy": strategy}
        (real / "inputs.json").write_text(json.dumps(inputs))
        assert_refused(reason)
    assert_refused("no OUT of asrtool train", tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_what_virtual_learners_cannot_train_is_refused(work, tmp_path) -> None:
    given = ["distributed.num_learners=2", "distributed.adpsgd-d1.message_type=bf16"]
    for strategies, overrides, what in (
        ("allreduce", ("train.ema_decay=0.99",), "ema_decay"),
        ("allreduce", ("train.pipeline_stages=2",), "pipeline_stages"),
        ("allreduce", ("train.precision=fp16",), "fp16"),
        ("allreduce,adpsgd-d1", (), "adpsgd-d1.message_type is bf16"),
    ):
        scenario = load_scenario([], [*given, f"distributed.strategy={strategies}"])
        with pytest.raises(AsrtoolError, match=what):
            list(train_cases(work, overrides, scenario, True, None, tmp_path / "out"))
    assert not list(tmp_path.glob("out/*/train.json"))


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_it(work: Path, tmp_path: Path) -> None:
    scenario = load_scenario([], ["distributed.strategy=none", "distributed.num_learners=2"])
    with pytest.raises(Diverged, match=r"learner [01], step \d+: loss nan"):
        list(train_cases(work, ("train.peak_lr=1e30",), scenario, True, None, tmp_path / "out"))
