"""Clipping and stepping, against torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from asrtool.distributed.strategies.update import Update, clip_gradients


def with_gradient(gradient: list[float]) -> nn.Parameter:
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor(gradient)
    return parameter


@pytest.mark.parametrize(("clip_norm", "expected"), [(10.0, [-3.0, -4.0]), (2.5, [-1.5, -2.0])])
def test_gradients_are_clipped_applied_and_cleared(clip_norm: float, expected: list[float]) -> None:
    parameter = with_gradient([3.0, 4.0])
    update = Update([parameter], torch.optim.SGD([parameter], lr=1.0), clip_norm)
    assert update.step() == 5
    torch.testing.assert_close(parameter.detach(), torch.tensor(expected), atol=1e-5, rtol=0)
    assert parameter.grad is None
    assert update.num_steps == 1


@pytest.mark.parametrize("clip_norm", [0.5, 3.0, 1000.0])
def test_clipping_is_that_of_torch_bit_for_bit(clip_norm: float) -> None:
    torch.manual_seed(1)
    shapes = [(3, 5), (7,), (), (129, 65)]
    ours, torchs = ([nn.Parameter(torch.zeros(shape)) for shape in shapes] for _ in range(2))
    for one, other in zip(ours[1:], torchs[1:], strict=True):  # the first has no gradient
        one.grad = torch.randn(one.shape)
        other.grad = one.grad.clone()
    expected = float(nn.utils.clip_grad_norm_(torchs, clip_norm))
    assert clip_gradients(ours, clip_norm) == expected
    assert all(torch.equal(one.grad, other.grad) for one, other in zip(ours[1:], torchs[1:], strict=True))


def test_gradients_that_are_short_enough_are_not_written() -> None:
    parameter = with_gradient([3.0, 4.0])
    version = parameter.grad._version
    clip_gradients([parameter], 5.1)
    assert parameter.grad._version == version
    clip_gradients([parameter], 5.0)  # torch divides by the norm and 1e-6
    assert parameter.grad._version > version


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_gradients_that_are_zero_or_not_finite_are_cleared_without_a_step(value: float) -> None:
    parameter = with_gradient([value, 0.0])
    optimizer = torch.optim.SGD([parameter], lr=1.0, momentum=0.9)
    update = Update([parameter], optimizer, 1.0)
    norm = update.step()
    assert str(norm) == str(value)
    assert parameter.tolist() == [0.0, 0.0]
    assert parameter.grad is None
    assert not optimizer.state
    assert update.num_steps == 0


def test_gradients_may_be_applied_elsewhere() -> None:
    parameter = with_gradient([3.0, 4.0])
    sent: list[list[float]] = []
    update = Update(
        [parameter], torch.optim.SGD([parameter], lr=1.0), 10.0, lambda: sent.append(parameter.grad.tolist())
    )
    update.step()
    assert sent == [[3.0, 4.0]]
    assert parameter.tolist() == [0.0, 0.0]
