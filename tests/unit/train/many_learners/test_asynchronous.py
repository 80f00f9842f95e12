"""Trainings of learners that wait for nobody, with real exchanges: what they record against what is documented."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from equations import ring_order
from fake_gpu import fake_gpu
from learners import MANY_BATCHES, Learners, batches_trained, planned
from toy_task import write_toy
from trainings import components_of, json_lines, metrics, recorded_before, run_training, toy_job

from asrtool.distributed.transport.exchange import Exchanger
from asrtool.distributed.world import World
from asrtool.settings.toml_files import load_config
from asrtool.train.checkpoints.checkpoint import load_checkpoint
from asrtool.train.loop.loop import Training
from asrtool.train.loop.loss import EMULATED_GRADIENT, LossModule
from asrtool.train.loop.straggler import InjectionOptions
from asrtool.train.optimisation.learning_rate import learning_rate
from asrtool.train.run import train as train_job

NUM_EPOCHS = 3
FORWARD_S = 0.01
EXCHANGE_S = 60.0  # at most, on whatever machine
CONFIG = MANY_BATCHES.replace("num_epochs = 3", f"num_epochs = {NUM_EPOCHS}\nkeep_last = 1000")
SAVE_EVERY = {4: 8, 5: 0}  # by number of learners: steps of learner 0; each checkpoint refuses some exchanges
ABREAST = {3: 40, 4: 30, 5: 24}  # by number of learners: the first steps of each, of the 144 of all
EXCHANGED = {4: 0.6, 5: 0.7}  # of these steps, at least: a cut refuses one or two exchanges of each learner
Run = Callable[[str, int], Path]
GRAPHS = [("fixed", 4), ("random", 4), ("random", 5), ("pairs", 5)]
every_graph = pytest.mark.parametrize(("graph", "num"), GRAPHS)
every_strategy = pytest.mark.parametrize(
    ("strategy", "num"),
    [*((f"adpsgd-{graph}", num) for graph, num in GRAPHS), ("ps-async", 4), ("hogwild", 4)],
)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `features` and `tokenizer`, and settings `toy.toml`: some 48 batches an epoch."""
    root = write_toy(tmp_path_factory.mktemp("large"), 96, 4)
    (root / "toy.toml").write_text(CONFIG, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def run(large: Path) -> Iterator[Run]:
    """The folder of a training by a strategy with so many learners, which takes place once."""
    learners = Learners(5)

    @functools.cache
    def run_once(strategy: str, num: int) -> Path:
        out = large / f"{strategy}-{num}"
        learners.run(train, large, out, strategy, num=num)
        return out

    yield run_once
    learners.close()


def train(large: Path, out: Path, strategy: str) -> None:
    """Be one of the learners, on a GPU that is memory of the host where `strategy` is "NAME on a gpu".

    Emulated compute has the same gradient for all; here a real one takes a while. It takes longer than the exchange
    beside it, also on a busy machine.
    """
    strategy, _, on_gpu = strategy.partition(" on ")
    forward, begin = LossModule.forward, Exchanger.begin
    began: list[Exchanger] = []

    def slow(self: LossModule, batch: Any) -> torch.Tensor:
        time.sleep(FORWARD_S)
        for exchanger in began:
            exchanger.idle.wait(EXCHANGE_S)
        return forward(self, batch)

    def noted(self: Exchanger, neighbour: int) -> bool:
        began[:] = [self]
        return begin(self, neighbour)

    saved = f"train.save_every_steps={SAVE_EVERY[int(os.environ['WORLD_SIZE'])]}"
    overrides = (f"distributed.strategy={strategy}", saved, "distributed.h-adpsgd.node_size=2")
    device = fake_gpu() if on_gpu else contextlib.nullcontext()
    patches = patch.object(LossModule, "forward", slow), patch.object(Exchanger, "begin", noted)
    with patches[0], patches[1], collectives_counted(out), abreast(out), device:
        run_training(large, large / "toy.toml", out, overrides)


@contextlib.contextmanager
def abreast(out: Path) -> Iterator[None]:
    """Have this learner begin each of its first steps once all others have begun their step before that one.

    Else one that the machine leaves behind makes few steps, and others have no exchanges with it.
    """
    num = int(os.environ["WORLD_SIZE"])
    own, *others = (out / f"begun-{(int(os.environ['RANK']) + i) % num}" for i in range(num))
    train_step = Training.step
    num_begun = 0

    def step(self: Training, assignment: Any, batch: Any) -> Any:
        nonlocal num_begun
        num_begun += 1
        with own.open("ab") as file:
            file.write(b".")  # the size is the number
        while 1 < num_begun <= ABREAST[num] and any(num_begun > 1 + begun_by(other) for other in others):
            time.sleep(0.001)
        return train_step(self, assignment, batch)

    with patch.object(Training, "step", step):
        yield


def begun_by(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def collectives_counted(out: Path) -> Iterator[None]:
    """Write how many this learner calls while it trains."""
    gather, mean, train_steps = World.gather, World.mean, Training.train_steps
    called = training = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: World, value: Any) -> Any:
            nonlocal called
            called += training
            return function(self, value)

        return call

    def train_and_count(self: Training) -> None:
        nonlocal training
        training = 1
        train_steps(self)
        training = 0

    with (
        patch.object(World, "gather", counted(gather)),
        patch.object(World, "mean", counted(mean)),
        patch.object(Training, "train_steps", train_and_count),
    ):
        yield
    (out / f"waited-{os.environ['RANK']}").write_text(str(called))


def steps_of(out: Path, num: int) -> list[list[dict[str, Any]]]:
    """By learner, the lines of its steps."""
    return [json_lines(out / "learners" / f"{rank}.jsonl") for rank in range(num)]


@every_graph
def test_the_mean_moves_by_the_updates_alone(run: Run, graph: str, num: int) -> None:
    entries = metrics(run(f"adpsgd-{graph}", num), "learners")
    drifts = [entry["drift"] for entry in entries if "drift" in entry]
    assert len(drifts) >= NUM_EPOCHS
    assert max(drifts) < 1e-6


def test_on_a_gpu_the_mean_moves_by_the_updates_alone_and_each_batch_is_trained_once(run: Run, large: Path) -> None:
    """There is a checkpoint every three steps, when exchanges and copies are under way."""
    out = run("h-adpsgd on a gpu", 4)
    drifts = [entry["drift"] for entry in metrics(out, "learners") if "drift" in entry]
    assert len(drifts) > NUM_EPOCHS
    assert max(drifts) < 1e-6
    assert batches_trained(out) == planned(large, large / "toy.toml")
    partners = [{partner for step in steps for partner in step["partners"]} for steps in steps_of(out, 4)]
    assert partners == [{2}, {3}, {0}, {1}]  # with the same slice, of the other node


@every_graph
def test_most_steps_have_the_exchange_that_the_graph_of_the_step_before_names(run: Run, graph: str, num: int) -> None:
    """One that takes longer is found in a later line; none takes place twice, or with another learner."""
    for rank, all_steps in enumerate(steps_of(run(f"adpsgd-{graph}", num), num)):
        steps = all_steps[: ABREAST[num]]
        named = [partner_of(graph, num, step, rank) for step in range(len(steps))]
        partners = [step["partners"] for step in steps]
        exchanges = sum(map(len, partners))
        if named[0] is None:
            assert exchanges == 0
            continue
        assert partners[0] == []
        assert exchanges >= EXCHANGED[num] * len(steps)
        assert sum(found == [named[step]] for step, found in enumerate(partners)) >= (EXCHANGED[num] - 0.1) * len(steps)
        assert exchanges + sum(step["skipped"] for step in steps) <= len(steps)
        next_step = 1
        for step, found in enumerate(partners):
            for partner in found:
                next_step = named.index(partner, next_step, step + 1) + 1
        others = {partner for found in partners for partner in found}
        of_graph = {"fixed": {(rank + 1) % num}, "random": set(range(num)) - {rank}, "pairs": set(range(1, num, 2))}
        assert others == of_graph[graph]


def partner_of(graph: str, num: int, step: int, rank: int) -> int | None:
    """As documented, apart from asrtool.distributed.strategies.topology."""
    seed = load_config([]).train.seed
    if graph == "pairs":
        drawn = np.random.default_rng((seed, step, rank)).integers(num // 2)
        return None if rank % 2 else 2 * int(drawn) + 1
    order = ring_order(graph, num, step, seed)
    return order[(order.index(rank) + 1) % num]


@every_strategy
def test_a_learner_calls_no_collective_between_its_first_step_and_its_last(run: Run, strategy: str, num: int) -> None:
    out = run(strategy, num)
    assert [int((out / f"waited-{rank}").read_text()) for rank in range(num)] == [0] * num


@every_strategy
def test_a_checkpoint_asked_for_on_the_way_has_all_batches_before_it_but_those_it_names_and_none_behind(
    run: Run, large: Path, strategy: str, num: int
) -> None:
    """By the lengths of the records of all learners that are in it."""
    out = run(strategy, num)
    in_order = sorted(planned(large, large / "toy.toml"))
    states = [load_checkpoint(path)[1] for path in sorted((out / "checkpoints").glob("step-????????.pt"))]
    assert [state.step for state in states] == sorted({entry["step"] for entry in metrics(out, "learners")} - {0})
    on_the_way = [state for state in states if state.batch > 0]
    assert len(on_the_way) >= (1 if SAVE_EVERY[num] else 0)
    source = components_of(large, large / "toy.toml").train_set
    num_samples = {
        (epoch + 1, batch): planned.num_samples
        for epoch in range(NUM_EPOCHS)
        for batch, planned in enumerate(source.plan(epoch, 0, {}))
    }
    for state in states:
        untrained = [(epoch + 1, i) for epoch, first, end in state.untrained for i in range(first, end)]
        before = [batch for batch in in_order if batch < (state.epoch + 1, state.batch)]
        trained = sorted(recorded_before(out, state))
        assert trained == sorted(set(before) - set(untrained))
        assert len(trained) == state.step
        assert sum(num_samples[batch] for batch in trained) == state.samples


def test_weights_of_servers_in_a_checkpoint_have_each_update_before_it_once(large: Path) -> None:
    """Emulated compute has the same gradient for all weights: they move by it times the rates of those batches."""
    num, out = 3, large / "ps-emulated"
    with contextlib.closing(Learners(num)) as learners:
        learners.run(train_emulated, large, out)
    loaded = [load_checkpoint(path) for path in sorted((out / "checkpoints").glob("step-????????.pt"))]
    means = [
        torch.cat([value.flatten() for value in content["weights"].values()]).double().mean() for content, _ in loaded
    ]
    states = [state for _, state in loaded]
    config = load_config([large / "toy.toml"], EMULATED)
    rates = {
        (line["epoch"], line["batch"]): learning_rate(config.train, line["samples"], states[-1].samples)
        for steps in steps_of(out, num)
        for line in steps
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
    with abreast(out):
        train_job(toy_job(large, out, large / "toy.toml", EMULATED, injection=InjectionOptions(compute_ms=10)))
