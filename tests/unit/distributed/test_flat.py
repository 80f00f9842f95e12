"""Weights that do not lie on the host are copied there and back.

No GPU is needed for it: parameters that are taken for a GPU's keep their own memory, and the copies have to be made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from learner_threads import Net, NormalisedNet, buffers_of, train_alone, weights_of
from torch import nn

from asrtool.distributed import flat
from asrtool.distributed.flat import FlatWeights
from asrtool.distributed.strategy import LocalReplica, MixingRule, StepCost, StrategyContext
from asrtool.distributed.work_queue import AssignmentRule
from asrtool.distributed.world import World, choose_gpu
from asrtool.train.optimizer import build_optimizer
from asrtool.train.settings import Train

COPYING = ["adpsgd-fixed", "adpsgd-random", "adpsgd-d1", "h-adpsgd", "bmuf", "ps-async", "ps-sync"]


@pytest.fixture
def off_host(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(flat, "are_on_host", lambda parameters: False)


def test_on_the_host_the_parameters_are_the_flat_weights() -> None:
    model = Net()
    weights = FlatWeights(model)
    with torch.no_grad():
        model.output.bias += 1
    np.testing.assert_array_equal(weights_in(weights), weights_of(model))


def test_columns_of_a_matrix_keep_their_values_and_those_of_their_neighbours() -> None:
    model = nn.Linear(3, 2)
    for number, column in enumerate(torch.arange(160.0).view(40, 4).unbind(1)):
        model.register_buffer(f"column{number}", column)
    model.register_buffer("repeated", torch.ones(1).expand(7))
    model.register_buffer("last", torch.ones(300))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    FlatWeights(model)
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor, before[name], name)


def test_elsewhere_the_parameters_are_fetched_and_loaded(off_host: Callable[[], None]) -> None:
    off_host()
    model = Net()
    weights = FlatWeights(model)
    with torch.no_grad():
        model.output.bias += 1
    assert (weights_in(weights) != weights_of(model)).sum() == 3
    weights.fetch()
    np.testing.assert_array_equal(weights_in(weights), weights_of(model))
    weights.weights_P *= 2
    assert (weights_in(weights) != weights_of(model)).any()
    weights.load()
    np.testing.assert_array_equal(weights_in(weights), weights_of(model))


def test_buffers_follow_the_parameters_which_lie_as_without_them() -> None:
    model = NormalisedNet()
    weights, without = FlatWeights(model), FlatWeights(NormalisedNet(), with_buffers=False)
    assert torch.equal(weights.weights_P[: weights.num_weights], without.weights_P)
    with torch.no_grad():
        model.norm.running_mean += 1
    model.largest = torch.tensor(5.0)
    weights.fetch()
    expected = [[5], [1] * 5, [1] * 5]  # the one that was replaced, means, variances
    assert [view.flatten().tolist() for view in weights.views[len(weights.parameters) :]] == expected
    weights.weights_P *= 2
    assert model.largest == 10
    assert model.norm.running_var.tolist() == [2] * 5
    assert model.norm.num_batches_tracked.dtype == torch.int64
    assert model.unsaved.tolist() == [1] * 3


def test_elsewhere_buffers_are_fetched_and_loaded(off_host: Callable[[], None]) -> None:
    off_host()
    model = NormalisedNet()
    weights = FlatWeights(model)
    model.norm.running_mean += 1
    model.largest = torch.tensor(5.0)
    weights.fetch_buffers()
    weights.weights_P *= 2
    weights.load()
    np.testing.assert_array_equal(buffers_of(model), [10] + [1] * 3 + [2] * 10 + [0])


@pytest.mark.parametrize("name", COPYING)
def test_a_learner_elsewhere_trains_as_one_on_the_host(name: str, off_host: Callable[[], None]) -> None:
    on_host = train_alone(name, "adamw")
    off_host()
    np.testing.assert_array_equal(train_alone(name, "adamw"), on_host)


class Halving(MixingRule):
    """Halves the weights at every step, so that it shows whether the model gets them back."""

    def __init__(self, weights_P: torch.Tensor) -> None:
        self.weights_P = weights_P

    def mix(self) -> StepCost:
        self.weights_P /= 2
        return StepCost()


def halve() -> np.ndarray:
    """The weights after some steps that each end with half of them."""
    model = Net()
    make_optimizer = functools.partial(build_optimizer, settings=Train())
    context = StrategyContext(model, model, make_optimizer, 1e9, None, 1, World())
    weights = FlatWeights(model)
    learner = LocalReplica(context, weights, Halving(weights.weights_P), AssignmentRule(), model)
    for _ in range(3):
        model(torch.ones(4, 2, 5)).backward()
        learner.step()
    learner.synchronise()
    with learner.consensus():
        return weights_of(model)


def test_mixed_weights_are_loaded_into_the_model(off_host: Callable[[], None]) -> None:
    on_host = halve()
    off_host()
    np.testing.assert_array_equal(halve(), on_host)


def weights_in(weights: FlatWeights) -> np.ndarray:
    return np.concatenate([view.numpy().ravel() for view in weights.views])


def test_each_learner_of_a_machine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for rank in ("0", "1", "2"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        choose_gpu()
    assert chosen == [0, 1, 0]
