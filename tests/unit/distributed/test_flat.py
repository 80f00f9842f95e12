"""Parameters and buffers of a model are views of its flat weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_gpu import fake_gpu
from learner_threads import Net, NormalisedNet, train_alone, weights_of
from torch import nn

from asrtool.distributed.weights.flat import FlatWeights, counters, float_buffers

EVERY = ["adpsgd-fixed", "adpsgd-random", "adpsgd-pairs", "adpsgd-d1", "h-adpsgd", "bmuf", "ps-async", "ps-sync"]


def test_the_parameters_are_the_flat_weights() -> None:
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


def test_buffers_follow_the_parameters_which_lie_as_without_them() -> None:
    model = NormalisedNet()
    weights, without = FlatWeights(model), FlatWeights(NormalisedNet(), with_buffers=False)
    assert torch.equal(weights.weights_P[: weights.num_weights], without.weights_P)
    with torch.no_grad():
        model.norm.running_mean += 1
    model.largest = torch.tensor(5.0)
    weights.fetch_buffers()
    expected = [[5], [1] * 5, [1] * 5]  # the one that was replaced, means, variances
    assert [view.flatten().tolist() for view in weights.views[len(weights.parameters) :]] == expected
    weights.weights_P *= 2
    assert model.largest == 10
    assert model.norm.running_var.tolist() == [2] * 5
    assert model.norm.num_batches_tracked.dtype == torch.int64
    assert model.unsaved.tolist() == [1] * 3


@pytest.mark.parametrize("name", EVERY)
def test_one_learner_on_a_gpu_trains_as_on_the_host(name: str) -> None:
    on_host = train_alone(name, "adamw")
    with fake_gpu():
        np.testing.assert_array_equal(train_alone(name, "adamw"), on_host)


def weights_in(weights: FlatWeights) -> np.ndarray:
    return np.concatenate([view.numpy().ravel() for view in weights.views])


def test_statistics_are_averaged_and_numbers_that_have_an_order_counted() -> None:
    model = nn.BatchNorm1d(2, affine=False)
    model.register_buffer("rotations", torch.ones(2, dtype=torch.complex64))
    model.register_buffer("scratch", torch.ones(2), persistent=False)
    assert [buffer.name for buffer in float_buffers(model)] == ["running_mean", "running_var"]
    assert [buffer.name for buffer in counters(model)] == ["num_batches_tracked"]
