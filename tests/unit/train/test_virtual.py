"""Virtual learners against learners that are processes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learners import Learners
from toy_task import last_weights

from asrtool.predict.simulate.events import Event
from asrtool.predict.simulate.scenario import load_scenario
from asrtool.predict.virtual.events import epoch_sizes, follow_simulation, replay
from asrtool.predict.virtual.learners import Evaluated, Stepped, VirtualLearners
from asrtool.settings.toml_files import load_config
from asrtool.train.run import train
from asrtool.train.train import acoustic_job

NUM_LEARNERS = 4


def slow(*names: str) -> list[Any]:
    """Parameters of tests outside the fast tier."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


IN_LOCK_STEP = ["allreduce", *slow("ps-sync", "adpsgd-d1", "bmuf", "h-adpsgd by adpsgd-d1")]
SETTINGS = {
    "bmuf": ("distributed.bmuf.block_steps=2",),
    "ps-sync": ("distributed.ps-sync.num_servers=2",),
    "ps-async": ("distributed.ps-async.num_servers=2",),
    "h-adpsgd": ("distributed.h-adpsgd.node_size=2",),
}


def settings_of(name: str) -> tuple[str, ...]:
    """Those of a strategy, h-adpsgd by the rule between its nodes."""
    strategy, _, outer = name.partition(" by ")
    own = (*SETTINGS.get(strategy, ()), *([f"distributed.h-adpsgd.outer={outer}"] if outer else ()))
    return f"distributed.strategy={strategy}", f"distributed.num_learners={NUM_LEARNERS}", *own


def train_real(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> None:
    train(acoustic_job(toy / "features", toy / "tokenizer", out, load_config([config], overrides)))


def train_logged(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> None:
    job = acoustic_job(toy / "features", toy / "tokenizer", out, load_config([config], overrides))
    train(dataclasses.replace(job, logs_events=True))


def virtual(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> VirtualLearners:
    job = acoustic_job(toy / "features", toy / "tokenizer", out, load_config([config], overrides))
    torch.manual_seed(job.optimisation.seed)
    return VirtualLearners(job, job.build(NUM_LEARNERS), NUM_LEARNERS)


def lock_step(learners: VirtualLearners) -> list[Event]:
    events: list[Event] = []
    sizes = epoch_sizes(learners.assigned.plan, learners.job.optimisation.num_epochs)
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
        lines = [json.loads(line) for line in (real / "learners" / f"{rank}.jsonl").read_text().splitlines()]
        steps = [step.trained for step in found if isinstance(step, Stepped) and step.end.learner == rank]
        steps = [step for step in steps if step.batch]
        assert [(step.begin.epoch + 1, step.begin.position, step.after.samples, step.staleness) for step in steps] == [
            (line["epoch"], line["batch"], line["samples"], line["staleness"]) for line in lines
        ]
        losses = [step.nats / max(step.batch.normaliser, 1) for step in steps if step.batch]
        np.testing.assert_allclose(losses, [line["loss"] for line in lines], rtol=2e-6)
    metrics = map(json.loads, (real / "metrics.jsonl").read_text().splitlines())
    on_dev = [line["loss"] for line in metrics if line["kind"] == "dev"]
    evaluated = [one.losses.means()["loss"] for one in found if isinstance(one, Evaluated)]
    np.testing.assert_allclose(evaluated, on_dev, rtol=1e-6)


@pytest.mark.parametrize("name", IN_LOCK_STEP)
def test_virtual_learners_train_what_processes_do(
    name: str, learners: Learners, toy: Path, small_batches_config: Path, tmp_path: Path
) -> None:
    overrides = settings_of(name)
    learners.run(train_real, toy, small_batches_config, tmp_path / "real", overrides)
    ours = virtual(toy, small_batches_config, tmp_path / "virtual", overrides)
    assert_trained_alike(ours, list(ours.follow(lock_step(ours))), tmp_path / "real")


REPLAYED = ["adpsgd-random", *slow("adpsgd-fixed", "adpsgd-pairs", "ps-async", "none", "h-adpsgd by adpsgd-random")]


@pytest.mark.parametrize("name", REPLAYED)
def test_an_asynchronous_training_is_replayed_step_by_step(
    name: str, learners: Learners, toy: Path, small_batches_config: Path, tmp_path: Path
) -> None:
    overrides = settings_of(name)
    learners.run(train_logged, toy, small_batches_config, tmp_path / "real", overrides)
    ours = virtual(toy, small_batches_config, tmp_path / "virtual", overrides)
    events = replay(tmp_path / "real", ours.job.distributed, NUM_LEARNERS)
    assert_trained_alike(ours, list(ours.follow(events)), tmp_path / "real")
