"""The mean of a checkpoint: of the learners that are left, by nodes where these share their weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from asrtool.distributed.flat import FlatWeights
from asrtool.train.assembly import Assembly


def mean_of(node_size: int, num_nodes: int, live: list[int], weights_LP: torch.Tensor) -> torch.Tensor:
    """What a checkpoint has as mean, where each learner has written its slice of the weights of its node."""
    assembly = object.__new__(Assembly)
    assembly.twin = nn.Linear(5, 3, bias=False)  # type: ignore[assignment]
    assembly.flat = FlatWeights(assembly.twin, node_size)
    assembly.mean_P = torch.empty_like(assembly.flat.weights_P)
    assembly.size, assembly.before, assembly.before_S = node_size * num_nodes, live, None
    assembly.strategy = type("", (), {"mean_S": None})()
    parts: list[dict[str, Any]] = []
    for rank in live:
        padded_P = torch.zeros_like(assembly.flat.weights_P)
        padded_P[: weights_LP.shape[1]] = weights_LP[rank // node_size]
        own_P = padded_P.chunk(node_size)[rank % node_size]
        learner = {"values_P": own_P, "offset": int(own_P.storage_offset())}
        parts.append({"learner": learner, "weight": 1 / num_nodes, "updates_S": None, "counters": []})
    assembly._average(parts, live)
    return assembly.twin.weight.detach().flatten()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("node_size", "num_nodes", "live"),
    [
        (1, 3, [0, 1, 2]),
        (1, 3, [0, 2]),
        (1, 3, [1]),
        (2, 3, [0, 1, 2, 3, 4, 5]),
        (2, 3, [0, 1, 4, 5]),
        (2, 3, [2, 3]),
        (4, 2, [4, 5, 6, 7]),
    ],
)
def test_the_mean_is_that_of_the_nodes_that_are_left(node_size: int, num_nodes: int, live: list[int]) -> None:
    weights_LP = torch.randn(num_nodes, 15, generator=torch.Generator().manual_seed(1))
    left = sorted({rank // node_size for rank in live})
    found_P = mean_of(node_size, num_nodes, live, weights_LP)
    torch.testing.assert_close(found_P, weights_LP[left].mean(0))
