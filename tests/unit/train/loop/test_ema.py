"""The moving average of the weights against its equation, under every strategy, and what is made of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from learners import Learners
from torch import Tensor, nn
from toy_task import assert_same_bits, last_weights
from trainings import LOCKSTEP, STRATEGIES, components_of, named, run_training, summary, toy_job, train_as_learner

from asrtool.distributed.launch.learner import learner
from asrtool.distributed.weights.ema import Ema
from asrtool.distributed.world import World
from asrtool.models.acoustic import load_model
from asrtool.train.average import average_checkpoints
from asrtool.train.checkpoints.checkpoint import checkpoint_path, load_checkpoint
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.checkpoints.snapshots import Snapshots
from asrtool.train.loop.joining import join
from asrtool.train.run import prepare

pytestmark = pytest.mark.slow

NUM_LEARNERS = 3
DECAY = 0.8
ON = f"train.ema_decay={DECAY}"
OFTEN = ("train.save_every_steps=2", "train.keep_last=100")
Weights = dict[str, Tensor]


@pytest.fixture
def toy_config(small_batches_config: Path) -> Path:
    return small_batches_config


def decay_of(number: int) -> float:
    """That of the step `number`, counted from 1."""
    return min(DECAY, (1 + number) / (10 + number))


def a_model() -> nn.Module:
    """With batch normalisation, and a weight that is frozen."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model[2].bias.requires_grad = False
    return model


def change(model: nn.Module, seed: int) -> None:
    """What a step would, of trained weights and statistics."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += torch.randn(parameter.shape, generator=random)
        model(torch.randn(8, 5, generator=random))


def test_it_is_its_equation_and_leaves_what_is_frozen() -> None:
    model = a_model()
    ema = Ema(model, DECAY)
    before = {name: value.double().numpy() for name, value in model.state_dict().items()}
    expected = dict(before)
    for number in range(1, 40):
        change(model, number)
        if number == 20:  # as strategies do, which move weights from one place to another
            for parameter in model.parameters():
                parameter.data = parameter.data.clone()
        ema.update()
        decay = decay_of(number)
        for name, value in model.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * value.double().numpy()
    ema.synchronise(World())
    found = ema.model.state_dict()
    for name, value in found.items():
        if value.is_floating_point():
            np.testing.assert_allclose(value.numpy(), expected[name], rtol=1e-5, atol=1e-6)
    assert np.array_equal(found["2.bias"].numpy(), before["2.bias"].astype(np.float32))
    assert found["1.num_batches_tracked"] == model[1].num_batches_tracked == 39


def noted(out: Path, function: Callable[[], None]) -> None:
    """Call that, and write to `out` what this learner's average is by its equation, in float64, after each step."""
    found: list[list[np.ndarray]] = []
    pairs, updates = Ema._pairs, Ema.update

    def update(self: Ema) -> None:
        if not found:
            found.append([average.double().numpy() for average, _ in pairs(self)])
        values = [(average, value.clone()) for average, value in pairs(self)]  # others may write it meanwhile
        decay = decay_of(len(found))
        new = [value.double().numpy() for _, value in values]
        found.append([decay * mean + (1 - decay) * value for mean, value in zip(found[-1], new, strict=True)])
        with patch.object(Ema, "_pairs", lambda _: iter(values)):
            updates(self)

    with patch.object(Ema, "update", update):
        function()
    flat = np.array([np.concatenate([value.ravel() for value in step]) for step in found])
    np.save(out, flat)


def train(toy: Path, config: Path, out: Path, overrides: tuple[str, ...], folder: Path) -> None:
    """Be one of the learners."""
    never_busy = patch.object(Snapshots, "busy", False)  # else a busy machine leaves checkpoints out
    with never_busy, patch.object(Checkpointer, "busy", False):
        noted(folder / f"ema-{os.environ['RANK']}.npy", lambda: run_training(toy, config, out, overrides))


def flat_of(ema: dict[str, Any], components: Any) -> np.ndarray:
    """In the order of the averages: trained weights, then statistics."""
    names = [name for name, _ in components.model.named_parameters()]
    names += [name for name, buffer in components.model.named_buffers() if buffer.is_floating_point()]
    return np.concatenate([ema["weights"][name].numpy().ravel() for name in names])


@pytest.mark.parametrize("name", [*STRATEGIES, "h-adpsgd by adpsgd-d1"])
def test_what_checkpoints_have_is_the_mean_of_the_averages_of_all_learners(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path, name: str
) -> None:
    """Of each learner by its equation; each checkpoint on the way by what its parts say of the steps of each."""
    num = 4 if name.startswith("h-adpsgd") else NUM_LEARNERS
    out = tmp_path / "train"
    overrides = (*named(name), "distributed.h-adpsgd.node_size=2", ON, *OFTEN)
    learners.run(train, toy, toy_config, out, overrides, tmp_path, num=num)
    of_learners = [np.load(tmp_path / f"ema-{rank}.npy") for rank in range(num)]
    components = components_of(toy, toy_config)
    paths = sorted((out / "checkpoints").glob("step-????????.pt"))
    last = load_checkpoint(paths[-1])[0]
    expected = np.mean([steps[-1] for steps in of_learners], axis=0)
    np.testing.assert_allclose(flat_of(last["ema"], components), expected, atol=2e-6)
    assert not np.allclose(expected, flat_of(last, components), atol=1e-3)
    assert len(paths) > 3
    with_parts = [path for path in paths if list(path.parent.glob(f"{path.stem}.learner-*.pt"))]
    for path in with_parts:
        content, _ = load_checkpoint(path)
        files = [path.with_suffix(f".learner-{rank}.pt") for rank in range(1, num)]
        parts = [content["part"], *(torch.load(file, weights_only=True) for file in files)]
        numbers = [part["learner"]["ema"]["num_updates"] for part in parts]
        assert sum(numbers) > 0
        expected = np.mean([steps[number] for steps, number in zip(of_learners, numbers, strict=True)], axis=0)
        np.testing.assert_allclose(flat_of(content["ema"], components), expected, atol=2e-6)
        if name in LOCKSTEP:
            assert len(set(numbers)) == 1
    assert with_parts


def resumed(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> tuple[int, list[Tensor]]:
    """Be one of the learners, and resume; the steps that its average is of, and that."""
    job = toy_job(toy, out, config, overrides)
    with learner() as world, contextlib.closing(prepare(job, world).strategy) as strategy:
        strategy.start()
        ema = strategy.ema
        assert ema
        return ema.num_updates, [value.clone() for value in ema.model.state_dict().values()]


@pytest.mark.parametrize("name", ["allreduce", "adpsgd-random", "ps-async"])
def test_with_another_number_of_learners_each_has_the_mean_of_their_averages(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path, name: str
) -> None:
    overrides = (*named(name), "distributed.h-adpsgd.node_size=2", ON)
    out = tmp_path / "train"
    learners.run(train_as_learner, toy, toy_config, out, overrides, (1, 2))
    saved = load_checkpoint(max((out / "checkpoints").glob("step-????????.pt")))[0]["ema"]
    assert saved["num_updates"] > 0
    for num_updates, values in learners.run(resumed, toy, toy_config, out, overrides, num=2):
        assert num_updates == saved["num_updates"]
        assert all(map(torch.equal, values, saved["weights"].values()))


@pytest.mark.parametrize("name", ["allreduce", "bmuf", "adpsgd-random"])
def test_one_learner_of_any_strategy_has_the_average_of_single(
    train_toy, undisturbed, tmp_path: Path, name: str
) -> None:
    expected = last_weights(undisturbed(ON))
    plain = ("distributed.bmuf.block_momentum=0", "distributed.bmuf.block_steps=2")
    assert_same_bits(train_toy(tmp_path / "one", ON, f"distributed.strategy={name}", *plain), expected)
    assert any(name.startswith("ema ") for name in expected)


def test_weights_are_trained_as_without_an_average(undisturbed) -> None:
    found, expected = last_weights(undisturbed(ON)), last_weights(undisturbed())
    assert_same_bits({name: value for name, value in found.items() if not name.startswith("ema ")}, expected)


def test_the_model_file_is_made_of_averages(undisturbed, tmp_path: Path) -> None:
    out = undisturbed(ON)
    steps = [entry["step"] for entry in summary(out)["checkpoints"]][-2:]
    contents = [load_checkpoint(checkpoint_path(out / "checkpoints", step))[0] for step in steps]
    average_checkpoints(out, tmp_path / "model.pt", "last", 2)
    model, _ = load_model(tmp_path / "model.pt")
    for name, value in model.state_dict().items():
        expected = sum(content["ema"]["weights"][name].double() for content in contents) / 2
        torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-8)


def test_one_that_joins_begins_its_average_from_the_weights_that_it_takes() -> None:
    model = a_model()
    ema = Ema(model, DECAY)
    change(model, 1)
    ema.update()
    change(model, 2)
    members = SimpleNamespace(join=lambda *_: True)
    world: Any = SimpleNamespace(members=members, store=None, rank=2, generation="a")
    checkpointer: Any = SimpleNamespace(world=world, directory=Path("out/checkpoints"))
    strategy: Any = SimpleNamespace(adopt=lambda: 0, join=lambda cut: None, ema=ema)
    with patch("asrtool.distributed.members.joining.is_current", lambda *_: True):
        join(checkpointer, strategy, model, SimpleNamespace(join=lambda: 1))  # type: ignore[arg-type]
    assert ema.num_updates == 0
    for name, value in ema.model.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]) or not value.is_floating_point(), name
