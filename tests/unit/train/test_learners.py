"""Several learners, in processes of their own: every strategy against its equations, and that no work is lost."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import equations
import numpy as np
import pytest
from learners import MANY_BATCHES, Learners, batches_trained, planned
from toy_task import assert_same_bits, last_weights

from asrtool.config import STRATEGIES
from asrtool.config_file import load_config
from asrtool.corpus.batches import Batch
from asrtool.dist.drawn import read_drawn
from asrtool.dist.learner import learner
from asrtool.dist.world import World
from asrtool.train.epoch import Epoch
from asrtool.train.loop import Training
from asrtool.train.train import _prepare, train_model

NUM_LEARNERS = 4
MANY = [name for name in STRATEGIES if name != "single"]
LOCKSTEP = ["allreduce", "adpsgd-d1", "bmuf", "h-adpsgd by adpsgd-d1"]
PLAIN = ("model.dropout=0", "specaugment.num_freq_masks=0", "specaugment.num_time_masks=0")


@pytest.fixture(scope="module")
def learners() -> Iterator[Learners]:
    started = Learners(NUM_LEARNERS)
    yield started
    started.close()


@pytest.fixture
def toy_config(tmp_path: Path) -> Path:
    """As ever, with small batches."""
    path = tmp_path / "toy.toml"
    path.write_text(MANY_BATCHES)
    return path


@pytest.mark.parametrize("name", equations.RULES)
def test_a_strategy_in_lock_step_is_its_equation(learners: Learners, name: str) -> None:
    num_learners = 4 if name.startswith("h-adpsgd") else 3
    found = learners.run(equations.train, name, 8, num=num_learners)
    expected = equations.by_equations(name, num_learners, 8)
    np.testing.assert_allclose(np.stack(found, axis=1), expected, atol=1e-6)


def train(toy: Path, config: Path, out: Path, overrides: tuple[str, ...], stop: tuple[int, int] | None) -> None:
    """Be one of the learners; `stop` = (rank, steps) sends that learner SIGTERM after so many of its steps."""
    signal.signal(signal.SIGTERM, _exit)
    step, num_steps = Training._step, 0

    def interrupted(self: Training, share: object, batch: object) -> object:
        nonlocal num_steps
        num_steps += 1
        if stop == (self.world.rank, num_steps):
            signal.raise_signal(signal.SIGTERM)
        return step(self, share, batch)

    Training._step = interrupted  # type: ignore[method-assign, assignment]
    try:
        train_model(toy / "features", toy / "tokenizer", out, load_config([config], overrides))
    except SystemExit:
        assert stop
    finally:
        Training._step = step  # type: ignore[method-assign]


def _exit(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


@pytest.mark.parametrize("name", [*MANY, "h-adpsgd by adpsgd-d1"])
def test_after_sigterm_to_one_learner_all_go_on_and_every_batch_is_trained_once(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path, name: str
) -> None:
    strategy, _, outer = name.partition(" by ")
    settings = (f"train.strategy={strategy}", f"dist.outer={outer or 'adpsgd-random'}")
    overrides = (*settings, "dist.node_size=2", "dist.block_steps=2")
    out = tmp_path / "train"
    learners.run(train, toy, toy_config, out, overrides, (1, 2))
    assert not (out / "train.json").exists()
    stopped_at = batches_trained(out)
    assert 0 < sum(stopped_at.values()) < sum(planned(toy, toy_config).values())
    learners.run(train, toy, toy_config, out, overrides, None)
    assert batches_trained(out) == planned(toy, toy_config)
    final = json.loads((out / "train.json").read_text(encoding="utf-8"))
    assert (final["strategy"], final["num_learners"], final["num_samples"]) == (strategy, NUM_LEARNERS, 72)
    assert [read_drawn(out, rank)["batches"] for rank in range(NUM_LEARNERS)] == [[]] * NUM_LEARNERS
    if name in LOCKSTEP:
        undisturbed = tmp_path / "undisturbed"
        learners.run(train, toy, toy_config, undisturbed, overrides, None)
        assert_same_bits(last_weights(out), last_weights(undisturbed))


def test_with_another_number_of_learners_training_goes_on_from_the_mean(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    out = tmp_path / "train"
    overrides = ("train.strategy=adpsgd-random",)
    learners.run(train, toy, toy_config, out, overrides, (1, 2))
    newest = max((out / "checkpoints").glob("step-????????.pt"))
    learners.run(train, toy, toy_config, out, overrides, None, num=3)
    assert json.loads((out / "train.json").read_text(encoding="utf-8"))["num_learners"] == 3
    first_step = int(newest.stem.removeprefix("step-"))
    assert sum(batches_trained(out).values()) >= sum(planned(toy, toy_config).values()) - first_step


@pytest.mark.parametrize("name", MANY)
def test_one_learner_of_any_strategy_is_single_bit_for_bit(train_toy, tmp_path: Path, name: str) -> None:
    expected = train_toy(tmp_path / "single")
    found = train_toy(tmp_path / "one", f"train.strategy={name}", "dist.block_momentum=0", "dist.block_steps=2")
    assert_same_bits(found, expected)


def test_gradients_averaged_over_learners_are_those_of_the_batch_of_all(
    learners: Learners, toy: Path, toy_config: Path
) -> None:
    """Each learner has some of its utterances, whatever their numbers of tokens."""
    overrides = ("train.strategy=allreduce", *PLAIN)
    found = learners.run(averaged_gradients, toy, toy_config, overrides)
    expected = gradients_of_all(toy, toy_config, overrides)
    for gradients in found:
        for gradient, wanted in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-5)


def averaged_gradients(toy: Path, config: Path, overrides: tuple[str, ...]) -> list[np.ndarray]:
    """Of the first round of batches, by one of the learners."""
    with learner() as world:
        training = prepare(toy, config, overrides, world)
        training.strategy.start()
        epoch = Epoch.plan(training.train_set, training.max_frames, 1, 0)
        (batch,) = training.train_set.load([epoch.batches[world.rank]])
        num_tokens = epoch.num_tokens(range(world.size))
        (training.strategy.task(batch) / (num_tokens / world.size)).backward()
    return [parameter.grad.numpy() for parameter in training.model.parameters()]


def gradients_of_all(toy: Path, config: Path, overrides: tuple[str, ...]) -> list[np.ndarray]:
    training = prepare(toy, config, ("train.strategy=single", *overrides[1:]), World())
    epoch = Epoch.plan(training.train_set, training.max_frames, 1, 0)
    merged = Batch(0, tuple(i for batch in epoch.batches[:NUM_LEARNERS] for i in batch.indices))
    (batch,) = training.train_set.load([merged])
    (training.strategy.task(batch) / batch.num_tokens).backward()
    return [parameter.grad.numpy() for parameter in training.model.parameters()]


def prepare(toy: Path, config: Path, overrides: tuple[str, ...], world: World) -> Training:
    settings = load_config([config], overrides)
    return _prepare(toy / "features", toy / "tokenizer", toy / "never", settings, None, world)


def test_learners_that_share_gradients_stay_the_same_to_the_last_bit(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    overrides = ("train.strategy=allreduce", *PLAIN)
    learners.run(train, toy, toy_config, tmp_path / "train", overrides, None)
    entries = [json.loads(line) for line in (tmp_path / "train" / "metrics.jsonl").read_text().splitlines()]
    assert {entry["consensus_distance"] for entry in entries if entry["kind"] == "learners"} == {0.0}
