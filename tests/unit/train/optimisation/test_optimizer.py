from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import build_model
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.train import Train
from asrtool.train.optimisation.optimizer import FUSED, build_optimizer, decay_groups, set_learning_rate


@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize(
    "encoder", [("lstm", {"hidden_size": 3}), ("conformer", {"head_size": 4, "feed_forward_size": 8})]
)
def test_weight_decay_shrinks_matrices_and_leaves_biases_and_gains(
    encoder: tuple[str, dict[str, int]], name: str
) -> None:
    torch.manual_seed(1)
    model = build_model(
        Model(encoder=Choice.of("encoder", encoder[0], num_layers=1, **encoder[1])), num_features=2, num_tokens=4
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    before = {key: value.clone() for key, value in model.named_parameters()}
    optimizer = build_optimizer(
        list(model.named_parameters()), Train(optimizer=Choice.of("optimizer", name, weight_decay=0.5))
    )
    set_learning_rate(optimizer, 0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for key, value in model.named_parameters():
        expected = before[key] * (1.0 if value.ndim == 1 or key.endswith("_bias") else 1 - 0.1 * 0.5)
        torch.testing.assert_close(value.detach(), expected)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("adamw", {}, lambda groups: torch.optim.AdamW(groups, lr=0.02, **FUSED)),
        ("sgd", {"momentum": 0.5}, lambda groups: torch.optim.SGD(groups, lr=0.02, momentum=0.5, **FUSED)),
        (
            "sgd",
            {"momentum": 0.5, "nesterov": True},
            lambda groups: torch.optim.SGD(groups, lr=0.02, momentum=0.5, nesterov=True, **FUSED),
        ),
    ],
)
def test_optimizers_of_torch_take_its_steps_bit_for_bit_also_when_resumed(
    name: str, settings: dict[str, Any], expected: Callable[..., torch.optim.Optimizer]
) -> None:
    def steps(make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]) -> list[torch.nn.Parameter]:
        torch.manual_seed(5)
        parameters = [torch.nn.Parameter(torch.randn(4, 3)), torch.nn.Parameter(torch.randn(3))]
        optimizer = make(parameters)
        for step in range(6):
            if step == 3:
                saved = copy.deepcopy(optimizer.state_dict())
                optimizer = make(parameters)
                optimizer.load_state_dict(saved)
            optimizer.zero_grad()
            (parameters[0] @ parameters[1]).square().sum().backward()
            optimizer.step()
        assert all(parameter.is_leaf for parameter in parameters)
        return parameters

    choice = Choice.of("optimizer", name, weight_decay=0.1, **settings)
    train = Train(optimizer=choice, peak_lr=0.02)
    found = steps(lambda parameters: build_optimizer(list(zip("ab", parameters, strict=True)), train))
    wanted = steps(lambda parameters: expected(decay_groups(list(zip("ab", parameters, strict=True)), 0.1)))
    assert all(map(torch.equal, found, wanted))


def test_nesterov_without_momentum_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sgd\.nesterov is true with a momentum of 0, expected one above 0"):
        Choice.of("optimizer", "sgd", momentum=0.0, nesterov=True)


def forgetful(named_parameters: Any, settings: Any, learning_rate: float) -> None:
    """Makes an optimizer and does not return it."""


def test_a_function_that_returns_no_optimizer_is_refused() -> None:
    settings = Train(optimizer=Choice.of("optimizer", f"{__name__}:forgetful"))
    with pytest.raises(AsrtoolError, match=r"forgetful returned NoneType, expected torch\.optim\.\S*:Optimizer; r"):
        build_optimizer([("weight", torch.nn.Parameter(torch.zeros(2)))], settings)
