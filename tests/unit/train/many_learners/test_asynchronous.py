"""Trainings of learners that wait for nobody, with real exchanges: what they record against what is documented."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from fake_gpu import fake_gpu
from learners import MANY_BATCHES, Learners
from toy_task import write_toy
from trainings import assert_recorded_once, components_of, json_lines, metrics, recorded_before, run_training, toy_job

from asrtool.distributed.world import World
from asrtool.settings.toml_files import load_config
from asrtool.train.checkpoints.checkpoint import load_checkpoint
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.checkpoints.snapshots import Snapshots
from asrtool.train.loop.loop import Training
from asrtool.train.loop.loss import EMULATED_GRADIENT, LossModule
from asrtool.train.loop.straggler import InjectionOptions
from asrtool.train.optimisation.learning_rate import learning_rate
from asrtool.train.run import train as train_job

NUM_EPOCHS, NUM_LEARNERS = 3, 4
CONFIG = MANY_BATCHES.replace("num_epochs = 3", f"num_epochs = {NUM_EPOCHS}\nkeep_last = 1000")
Run = Callable[[str], Path]
GOSSIP = ["adpsgd-random", "adpsgd-pairs"]
ON_GPU = "h-adpsgd on a gpu"
every_strategy = pytest.mark.parametrize("strategy", [*GOSSIP, "ps-async", "hogwild", ON_GPU])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `features` and `tokenizer`, and settings `toy.toml`: some 24 batches an epoch."""
    root = write_toy(tmp_path_factory.mktemp("large"), 48, 4)
    (root / "toy.toml").write_text(CONFIG, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def run(large: Path, learners: Learners) -> Run:
    """The folder of a training by a strategy, which takes place once."""

    @functools.cache
    def run_once(strategy: str) -> Path:
        learners.run(train, large, large / strategy, strategy)
        return large / strategy

    return run_once


def train(large: Path, out: Path, strategy: str) -> None:
    """Be one of the learners, on a GPU that is memory of the host where `strategy` is "NAME on a gpu"."""
    strategy, _, on_gpu = strategy.partition(" on ")
    overrides = (f"distributed.strategy={strategy}", "train.save_every_steps=3", "distributed.h-adpsgd.node_size=2")
    forward = LossModule.forward

    def slow(self: LossModule, batch: Any) -> torch.Tensor:
        time.sleep(0.005)
        return forward(self, batch)

    with (
        patch.object(Snapshots, "busy", False),  # else a busy machine leaves checkpoints out
        patch.object(Checkpointer, "busy", False),
        patch.object(LossModule, "forward", slow),
        no_collectives() if not on_gpu else fake_gpu(),  # those of a node average their gradients
    ):
        run_training(large, large / "toy.toml", out, overrides)


@contextlib.contextmanager
def no_collectives() -> Iterator[None]:
    """Inside, no learner calls one between its first step and its last."""
    train_steps = Training.train_steps

    def refuse(self: World, *_: Any) -> Any:
        raise AssertionError("a learner that trains waits for all others")

    def train_alone(self: Training) -> None:
        with patch.object(World, "gather", refuse), patch.object(World, "mean", refuse):
            train_steps(self)

    with patch.object(Training, "train_steps", train_alone):
        yield


@every_strategy
def test_each_batch_is_trained_once_and_checkpoints_on_the_way_have_those_before_them_but_those_they_name(
    run, large, strategy: str
) -> None:
    """The records of all learners in it, by their lengths, show this; the training has no collectives."""
    out = run(strategy)
    states = assert_recorded_once(out, large, large / "toy.toml")
    assert [state.step for state in states] == sorted({entry["step"] for entry in metrics(out, "learners")} - {0})
    assert any(state.batch for state in states)
    source = components_of(large, large / "toy.toml").train_set
    num_samples = {
        (epoch + 1, batch): planned.num_samples
        for epoch in range(NUM_EPOCHS)
        for batch, planned in enumerate(source.plan(epoch, 0, {}))
    }
    group_size = 2 if strategy == ON_GPU else 1
    for state in states:
        trained = recorded_before(out, state)
        assert len(trained) == state.step or group_size > 1
        assert sum(num_samples[batch] for batch in trained) == state.samples


@pytest.mark.parametrize("strategy", [*GOSSIP, ON_GPU])
def test_the_mean_moves_by_the_updates_alone(run: Run, strategy: str) -> None:
    """There are checkpoints when exchanges, and copies, are under way."""
    drifts = [entry["drift"] for entry in metrics(run(strategy), "learners") if "drift" in entry]
    assert len(drifts) >= NUM_EPOCHS
    assert max(drifts) < 1e-6


def test_a_learner_exchanges_with_the_one_of_the_same_slice_of_another_node(run: Run) -> None:
    for rank in range(NUM_LEARNERS):
        steps = json_lines(run(ON_GPU) / "learners" / f"{rank}.jsonl")
        assert {partner for step in steps for partner in step["partners"]} <= {(rank + 2) % NUM_LEARNERS}


def test_weights_of_servers_in_a_checkpoint_have_each_update_before_it_once(large: Path, learners: Learners) -> None:
    """Emulated compute has the same gradient for all weights: they move by it times the rates of those batches."""
    num, out = 3, large / "ps-emulated"
    learners.run(train_emulated, large, out, num=num)
    loaded = [load_checkpoint(path) for path in sorted((out / "checkpoints").glob("step-????????.pt"))]
    means = [
        torch.cat([value.flatten() for value in content["weights"].values()]).double().mean() for content, _ in loaded
    ]
    states = [state for _, state in loaded]
    config = load_config([large / "toy.toml"], EMULATED)
    rates = {
        (line["epoch"], line["batch"]): learning_rate(config.train, line["samples"], states[-1].samples)
        for rank in range(num)
        for line in json_lines(out / "learners" / f"{rank}.jsonl")
    }
    assert len(states) > NUM_EPOCHS
    summed = [sum(rates[place] for place in recorded_before(out, state)) for state in states]
    for number, (before, after) in enumerate(itertools.pairwise(summed)):
        moved = float(means[number] - means[number + 1]) / EMULATED_GRADIENT
        assert moved == pytest.approx(after - before, abs=0.1 * min(rates.values()))


EMULATED = (
    "distributed.strategy=ps-async",
    "distributed.ps-async.num_servers=2",
    "train.optimizer=sgd",
    "train.sgd.momentum=0",
    "train.sgd.weight_decay=0",
    "train.clip_norm=1e9",
    "train.peak_lr=100",
    "train.save_every_steps=4",
)


def train_emulated(large: Path, out: Path) -> None:
    """Be one of the learners."""
    train_job(toy_job(large, out, large / "toy.toml", EMULATED, injection=InjectionOptions(compute_ms=5)))
