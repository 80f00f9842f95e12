"""The moving average of the weights against its equation, under every strategy, and what is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn
from toy_task import assert_same_bits, last_weights
from trainings import LOCKSTEP, components_of, named, run_training, summary

from asrtool.distributed.weights.ema import Ema
from asrtool.distributed.world import World
from asrtool.models.acoustic import load_model
from asrtool.train.average import average_checkpoints
from asrtool.train.checkpoints.checkpoint import checkpoint_path, load_checkpoint
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.checkpoints.snapshots import Snapshots

pytestmark = pytest.mark.slow

DECAY = 0.8
ON = f"train.ema_decay={DECAY}"
OFTEN = ("train.save_every_steps=2", "train.keep_last=100")


@pytest.fixture
def toy_config(small_batches_config: Path) -> Path:
    return small_batches_config


def decay_of(number: int) -> float:
    """Return the decay of the step `number`, counted from 1."""
    return min(DECAY, (1 + number) / (10 + number))


def a_model() -> nn.Module:
    """Make a model with batch normalisation and a frozen weight."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model[2].bias.requires_grad = False
    return model


def change(model: nn.Module, seed: int) -> None:
    """Change weights and statistics as a step does."""
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
    ema.restart()  # as one that joins does
    assert ema.num_updates == 0
    assert all(map(torch.equal, ema.model.parameters(), model.parameters()))


def values_of(ema: Ema) -> np.ndarray:
    return np.concatenate([view.numpy().ravel() for view in ema.flat.views])


def train(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> list[np.ndarray]:
    """Be one of the learners; its average before the first step, and after each."""
    found, update = list[np.ndarray](), Ema.update

    def noted(self: Ema) -> None:
        found[:] = found or [values_of(self)]
        update(self)
        found.append(values_of(self))

    with (
        patch.object(Snapshots, "busy", False),  # else a busy machine leaves checkpoints out
        patch.object(Checkpointer, "busy", False),
        patch.object(Ema, "update", noted),
    ):
        run_training(toy, config, out, overrides)
    return found


def flat_of(ema: dict[str, Any], model: nn.Module) -> np.ndarray:
    """Return flat values in the order of the averages: trained weights, then statistics."""
    names = [name for name, _ in model.named_parameters()]
    names += [name for name, buffer in model.named_buffers() if buffer.is_floating_point()]
    return np.concatenate([ema["weights"][name].numpy().ravel() for name in names])


@pytest.mark.parametrize("name", ["allreduce", "bmuf", "adpsgd-random", "h-adpsgd", "ps-async", "hogwild"])
def test_what_checkpoints_have_is_the_mean_of_the_averages_of_all_learners(
    learners, toy, toy_config, tmp_path, name: str
) -> None:
    """Each intermediate checkpoint is checked by the steps in its parts."""
    overrides = (*named(name), ON, *OFTEN)
    of_learners = learners.run(train, toy, toy_config, tmp_path / "train", overrides)
    model = components_of(toy, toy_config).model
    paths = sorted((tmp_path / "train" / "checkpoints").glob("step-????????.pt"))
    last = load_checkpoint(paths[-1])[0]
    expected = np.mean([steps[-1] for steps in of_learners], axis=0)
    np.testing.assert_allclose(flat_of(last["ema"], model), expected, atol=2e-6)
    assert not np.allclose(expected, flat_of(last, model), atol=1e-3)
    with_parts = [path for path in paths if list(path.parent.glob(f"{path.stem}.learner-*.pt"))]
    assert with_parts
    for path in with_parts:
        content, _ = load_checkpoint(path)
        files = [path.with_suffix(f".learner-{rank}.pt") for rank in range(1, len(of_learners))]
        parts = [content["part"], *(torch.load(file, weights_only=True) for file in files)]
        numbers = [part["learner"]["ema"]["num_updates"] for part in parts]
        assert sum(numbers) > 0
        expected = np.mean([steps[number] for steps, number in zip(of_learners, numbers, strict=True)], axis=0)
        np.testing.assert_allclose(flat_of(content["ema"], model), expected, atol=2e-6)
        assert len(set(numbers)) == 1 or name not in LOCKSTEP


def test_weights_are_trained_as_without_an_average_and_one_learner_of_bmuf_has_that_of_single(
    train_toy, undisturbed, tmp_path
) -> None:
    expected = last_weights(undisturbed(ON))
    plain = ("distributed.strategy=bmuf", "distributed.bmuf.block_momentum=0", "distributed.bmuf.block_steps=2")
    assert_same_bits(train_toy(tmp_path / "one", ON, *plain), expected)
    without = {name: value for name, value in expected.items() if not name.startswith("ema ")}
    assert len(without) == len(expected) / 2
    assert_same_bits(without, last_weights(undisturbed()))


def test_the_model_file_is_made_of_averages(undisturbed, tmp_path: Path) -> None:
    out = undisturbed(ON)
    steps = [entry["step"] for entry in summary(out)["checkpoints"]][-2:]
    contents = [load_checkpoint(checkpoint_path(out / "checkpoints", step))[0] for step in steps]
    average_checkpoints(out, tmp_path / "model.pt", "last", 2)
    model, _ = load_model(tmp_path / "model.pt")
    for name, value in model.state_dict().items():
        expected = sum(content["ema"]["weights"][name].double() for content in contents) / 2
        torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-8)
