"""Clipping, stepping and loss scaling, against torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from asrtool.distributed.strategies import update
from asrtool.distributed.strategies.update import FIRST_SCALE, MIN_SCALE, LossScale, Update, clip_gradients


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


def test_an_overflow_halves_the_scale_and_many_steps_without_one_double_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "GROWTH_STEPS", 3)
    scale = LossScale()
    values = []
    for norm in (1.0, math.inf, 1.0, math.nan, 1.0, 0.0, 2.0, 1.0, 1.0, 1.0):
        scale.note(norm)
        values.append(scale.value / FIRST_SCALE)
    assert values == [1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 1]
    assert scale.num_skipped == 2


def test_at_the_smallest_scale_no_overflow_explains_a_gradient_that_is_not_finite() -> None:
    scale = LossScale()
    while scale.value > MIN_SCALE:
        scale.note(math.inf)
        assert scale.has_skipped
    scale.note(math.inf)
    assert not scale.has_skipped


def test_a_state_is_continued_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "GROWTH_STEPS", 3)
    one, other = LossScale(), LossScale()
    for norm in (math.inf, 1.0, 1.0):
        one.note(norm)
    other.load_state(one.state())
    one.note(1.0)
    other.note(1.0)
    assert one.state() == other.state() == {"value": FIRST_SCALE, "num_good": 0, "num_skipped": 1}


@pytest.mark.parametrize("clip_norm", [0.5, 100.0])
def test_an_update_with_a_scale_is_the_one_without(clip_norm: float) -> None:
    """Bit for bit: the scale is a power of two, and nothing is near the ends of the range."""
    found = []
    for scale in (None, LossScale()):
        parameter = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        update = Update([parameter], torch.optim.SGD([parameter], lr=0.1), clip_norm, loss_scale=scale)
        update.backward((parameter**2).sum())
        norm = update.step()
        assert norm == pytest.approx(2 * math.sqrt(14))
        found.append(parameter.detach().clone())
    assert torch.equal(*found)


def test_an_update_whose_scaled_gradients_overflow_is_skipped() -> None:
    parameter = nn.Parameter(torch.ones(1))
    scale = LossScale()
    update = Update([parameter], torch.optim.SGD([parameter], lr=0.1), 1.0, loss_scale=scale)
    update.backward(parameter.sum() * 1e36)  # finite by itself
    assert not math.isfinite(update.step())
    assert parameter.item() == 1
    assert parameter.grad is None
    assert (scale.value, scale.num_skipped, scale.has_skipped) == (FIRST_SCALE / 2, 1, True)
