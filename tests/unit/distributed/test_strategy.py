"""Properties of all strategies, or of those whose learners have their own weights; clipping and scaling by torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from learner_threads import Net, NormalisedNet, at_once, build, give_gradients, started, train_alone, weights_of
from torch import nn

from asrtool.distributed.strategies import update
from asrtool.distributed.strategies.replica import LocalReplica, MixingRule
from asrtool.distributed.strategies.strategy import NamedParameters, StepCost, Strategy, StrategyContext
from asrtool.distributed.strategies.update import FIRST_SCALE, LossScale, Update
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.schema import Choice

NAMES = registry.names("strategy")


@pytest.mark.parametrize("name", NAMES)
def test_the_optimizers_of_a_strategy_get_the_names_of_the_model(name: str) -> None:
    model, of_optimizers = Net(), []

    def make_optimizer(named_parameters: NamedParameters) -> torch.optim.Optimizer:
        of_optimizers.append([(key, parameter.shape) for key, parameter in named_parameters])
        return torch.optim.SGD([parameter for _, parameter in named_parameters], lr=1.0)

    chosen = Choice.of("strategy", name)
    chosen.load()(StrategyContext(model, model, make_optimizer, 1.0, chosen.settings, 1, World()))
    expected = [(key, parameter.shape) for key, parameter in model.named_parameters()]
    assert of_optimizers == [expected] * (2 if name.startswith("ps-") else 1)  # a server has an optimizer as well


@pytest.fixture(scope="module")
def of_single() -> dict[str, np.ndarray]:
    return {optimizer: train_alone("single", optimizer) for optimizer in ("adamw", "sgd")}


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "single"])
def test_one_learner_of_any_strategy_is_single_bit_for_bit(name: str, optimizer: str, of_single) -> None:
    """Buffers are the same as well."""
    np.testing.assert_array_equal(train_alone(name, optimizer), of_single[optimizer])


@pytest.mark.parametrize("name", NAMES)
def test_gradients_that_are_zero_or_not_finite_are_no_step(name: str) -> None:
    model = Net()
    (learner,) = started(name, [model])
    before = weights_of(model)
    for value in (0.0, float("nan"), float("inf")):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, value)
        norm, cost = learner.step()
        assert str(norm) == str(value)
        assert cost.num_bytes == 0 or name == "ps-sync"  # servers find the norm of the mean
    learner.synchronise()
    np.testing.assert_array_equal(weights_of(model), before)
    assert learner.update.num_steps == 0
    learner.close()


@pytest.mark.parametrize(
    ("name", "learners", "settings", "message"),
    [
        ("ps-async", World(0, 2, 2), {"num_servers": 3}, r"distributed\.ps-async\.num_servers is 3, with 2 learners"),
        ("ps-sync", World(0, 2, 2), {"num_servers": 3}, r"distributed\.ps-sync\.num_servers is 3, with 2 learners"),
        ("hogwild", World(0, 4, 2), {}, "4 learners, 2 of them on this machine"),
        ("hogwild", World(), {}, "GPU"),
        ("single", World(0, 2, 2), {}, "strategy single with 2 learners"),
    ],
)
def test_learners_that_a_strategy_cannot_have_are_refused(
    name: str, learners: World, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(AsrtoolError, match=message):
        build(name, learners, Net().to("meta") if message == "GPU" else Net(), settings)


class Unrecorded(MixingRule):
    """Asynchronous by its own word, and cannot say what its weights were at a snapshot."""

    asynchronous = True

    def mix(self) -> StepCost:
        return StepCost()


def test_an_asynchronous_rule_that_cannot_be_recorded_is_refused_before_the_first_step() -> None:
    model = Net()
    context = StrategyContext(model, model, lambda named: torch.optim.SGD([p for _, p in named]), 1.0, None, 1, World())
    with pytest.raises(AsrtoolError, match="Unrecorded is asynchronous and has no `record`; give it one"):
        LocalReplica(context, FlatWeights(model), Unrecorded(), AssignmentRule(lockstep=False), model)


def test_distance_and_drift_are_those_of_weights_and_not_of_buffers() -> None:
    models = [NormalisedNet(), NormalisedNet()]
    for model in models:
        model.register_buffer("larger_than_all_weights", torch.ones(1000))
    learners = started("bmuf", models)
    for rank, model in enumerate(models):
        model.norm.running_var.fill_(100.0 * rank)
        model.larger_than_all_weights *= 2
    for metrics in at_once(lambda learner: learner.synchronise(), learners):
        assert (metrics.distance, metrics.drift) == (0.0, 0.0)
    for rank, model in enumerate(models):
        with learners[rank].consensus():
            assert model.norm.running_var.tolist() == [50.0] * 5
        assert model.norm.running_var.tolist() == [100.0 * rank] * 5
    assert (weights_of(models[0]) == weights_of(models[1])).all()


def test_the_distance_is_the_root_of_the_mean_square() -> None:
    learners = started("none", [Net(seed) for seed in range(3)])
    own_LW = np.stack([weights_of(learner.model) for learner in learners])
    mean_W = own_LW.mean(0)
    expected = np.sqrt(np.square(own_LW - mean_W).sum(1).mean()) / np.linalg.norm(mean_W)
    for metrics in at_once(lambda learner: learner.synchronise(), learners):
        assert metrics.distance == pytest.approx(expected, rel=1e-5)
    for learner, own_W in zip(learners, own_LW, strict=True):
        with learner.consensus():
            np.testing.assert_allclose(weights_of(learner.model), mean_W, atol=1e-7)
        np.testing.assert_array_equal(weights_of(learner.model), own_W)


@pytest.mark.parametrize("name", ["none", "bmuf"])
def test_the_drift_is_what_the_mean_has_moved_beyond_the_updates(name: str) -> None:
    learners = started(name, [Net(0), Net(1)], {"bmuf": {"block_steps": 2, "block_momentum": 0.0}}.get(name))

    def take_steps(learner: Strategy) -> None:
        random = np.random.default_rng(learner.world.rank)
        for _ in range(3):
            give_gradients(learner.task, random)
            learner.step()

    def mean() -> np.ndarray:
        return np.mean([weights_of(learner.task) for learner in learners], axis=0)

    before = mean()
    at_once(take_steps, learners)
    assert np.linalg.norm(mean() - before) > 1e-3 * np.linalg.norm(before)
    for metrics in at_once(lambda learner: learner.synchronise(), learners):
        assert metrics.drift < 1e-6
    learners[0].flat.weights_P.mul_(3)
    learners[1].flat.weights_P.copy_(learners[0].flat.weights_P)
    own_S = learners[0].flat.sample(learners[0].flat.weights_P)
    was_S = learners[0].mean_S
    for metrics in at_once(lambda learner: learner.synchronise(), learners):
        assert metrics.drift == pytest.approx(float((own_S - was_S).norm() / own_S.norm()))


@pytest.mark.parametrize("clip_norm", [0.5, 3.0, 1000.0])
def test_clipping_is_that_of_torch_bit_for_bit(clip_norm: float) -> None:
    torch.manual_seed(1)
    shapes = [(3, 5), (7,), (), (129, 65)]
    ours, torchs = ([nn.Parameter(torch.zeros(shape)) for shape in shapes] for _ in range(2))
    for one, other in zip(ours[1:], torchs[1:], strict=True):  # the first has no gradient
        one.grad = torch.randn(one.shape)
        other.grad = one.grad.clone()
    expected = float(nn.utils.clip_grad_norm_(torchs, clip_norm))
    update = Update(ours, torch.optim.SGD(ours, lr=1.0), clip_norm)
    assert update.step() == expected
    assert all(torch.equal(-one, other.grad) for one, other in zip(ours[1:], torchs[1:], strict=True))
    assert update.num_steps == 1
    assert all(parameter.grad is None for parameter in ours)


def test_an_overflow_halves_the_scale_and_many_steps_without_one_double_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "GROWTH_STEPS", 3)
    scale = LossScale()
    values = []
    for norm in (1.0, math.inf, 1.0, math.nan, 1.0, 0.0, 2.0, 1.0, 1.0, 1.0):
        scale.note(norm)
        values.append(scale.value / FIRST_SCALE)
    assert values == [1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 1]
    assert scale.num_skipped == 2


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
