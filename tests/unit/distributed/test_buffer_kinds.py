"""Which buffers are averaged, which are counted, and which are left to each learner."""

from __future__ import annotations

import torch
from torch import nn

from asrtool.distributed.weights.buffers import counters, float_buffers


def test_statistics_are_averaged_and_numbers_that_have_an_order_counted() -> None:
    model = nn.BatchNorm1d(2, affine=False)
    model.register_buffer("rotations", torch.ones(2, dtype=torch.complex64))
    model.register_buffer("scratch", torch.ones(2), persistent=False)
    assert [buffer.name for buffer in float_buffers(model)] == ["running_mean", "running_var"]
    assert [buffer.name for buffer in counters(model)] == ["num_batches_tracked"]
