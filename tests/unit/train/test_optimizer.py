from __future__ import annotations

from typing import Any

import pytest
import torch

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import build_model
from asrtool.models.settings import Model
from asrtool.settings import Choice
from asrtool.train.optimizer import build_optimizer, set_learning_rate
from asrtool.train.settings import Train


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_weight_decay_shrinks_matrices_and_leaves_biases_and_gains(name: str) -> None:
    torch.manual_seed(1)
    model = build_model(
        Model(encoder=Choice.of("encoder", "lstm", num_layers=1, hidden_size=3)), num_features=2, num_tokens=4
    )
    before = {key: value.clone() for key, value in model.named_parameters()}
    optimizer = build_optimizer(
        list(model.named_parameters()), Train(optimizer=Choice.of("optimizer", name, weight_decay=0.5))
    )
    set_learning_rate(optimizer, 0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for key, value in model.named_parameters():
        expected = before[key] * (1.0 if value.ndim == 1 else 1 - 0.1 * 0.5)
        torch.testing.assert_close(value.detach(), expected)


def forgetful(named_parameters: Any, settings: Any, learning_rate: float) -> None:
    """Makes an optimizer and does not return it."""


def test_a_function_that_returns_no_optimizer_is_refused() -> None:
    settings = Train(optimizer=Choice.of("optimizer", f"{__name__}:forgetful"))
    with pytest.raises(AsrtoolError, match=r"forgetful returned NoneType, expected torch\.optim\.\S*:Optimizer; r"):
        build_optimizer([("weight", torch.nn.Parameter(torch.zeros(2)))], settings)
