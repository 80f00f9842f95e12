"""Learners of the same weights, in servers or in shared memory: against equations; no gradient is lost on the way."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from learner_threads import (
    NUM_LEARNERS,
    Net,
    NormalisedNet,
    at_once,
    give_gradients,
    run_schedule,
    started,
    synchronise,
    weights_of,
)
from torch import nn

from asrtool.distributed.baselines.weight_server import split_evenly
from asrtool.distributed.strategies.strategy import Strategy
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.train.optimisation.optimizer import set_learning_rate

TURNS = (0, 1, 1, 2, 0, 2, 2, 2, 1, 0)  # which learner steps next
RATE, MOMENTUM = 2**-6, 0.9
SGD: dict[str, Any] = {"optimizer": "sgd", "weight_decay": 0.0}
PLAIN = SGD | {"momentum": 0.0, "peak_lr": RATE}


@pytest.mark.parametrize("num_servers", [1, 2, 3])
def test_a_server_steps_on_each_gradient_in_the_order_of_arrival(num_servers: int) -> None:
    """v <- mu v + g(w'), w <- w - alpha v, where w' is what the learner pulled last."""
    models = [Net() for _ in range(3)]
    learners = started("ps-async", models, {"num_servers": num_servers}, **SGD)
    weights = weights_of(models[0])
    pulled = [weights] * 3
    momentum = np.zeros_like(weights)
    last, num_bytes = [0] * 3, 0
    for number, learner in enumerate(TURNS):
        rate = RATE / (number + 1)
        set_learning_rate(learners[learner].optimizer, rate)
        (sum(p.square().sum() for p in models[learner].parameters()) / 2).backward()
        _, cost = learners[learner].step()
        momentum = MOMENTUM * momentum + pulled[learner]
        weights = weights - rate * momentum
        pulled[learner] = weights
        np.testing.assert_allclose(weights_of(models[learner]), weights, atol=1e-6)
        assert cost.staleness == number - last[learner]
        num_bytes += cost.num_bytes
        last[learner] = number + 1
    num_bytes += answered_since(learners)
    # Each gradient and its answer, and what the learners pulled before the first step.
    assert num_bytes == (2 * len(TURNS) + 3) * learners[0].gradients_P.nbytes  # type: ignore[attr-defined]
    synchronise(learners)
    for model in models:
        np.testing.assert_allclose(weights_of(model), weights, atol=1e-6)
    close(learners)


def answered_since(learners: list[Any]) -> int:
    """The bytes that servers have answered, which are in no step's cost."""
    return sum(learner.server.num_bytes - learner.num_answered for learner in learners if learner.server)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_recorded_at_a_cut_is_all_gradients_from_before_it_and_none_from_behind(seed: int) -> None:
    """The weights, and the momentum and count of steps, by which another step is made after resuming."""
    models = [Net() for _ in range(NUM_LEARNERS)]
    learners = started("ps-async", models, {"num_servers": 2}, momentum=MOMENTUM, **SGD)
    expected, taken = run_schedule(seed, learners, models, MOMENTUM, optimizer_of=lambda _: 0)
    synchronise(learners)  # all orders of before have been followed
    np.testing.assert_allclose(weights_of(models[0]), expected[-1].weights, atol=1e-6)
    close(learners)
    for reference, snapshots in zip(expected, taken, strict=False):
        parts = [snapshot for snapshot in snapshots if snapshot.values_P is not None]
        assert all(part.settled() for part in parts)
        assert [part.offset for part in parts] == [0, len(parts[0].values_P)]
        resumed = [Net(seed=9) for _ in range(NUM_LEARNERS)]
        flat = [FlatWeights(model, with_buffers=False).weights_P for model in resumed]
        for weights_P in flat:
            weights_P.copy_(torch.cat([part.values_P for part in parts]))
        np.testing.assert_allclose(weights_of(resumed[0]), reference.weights, atol=1e-6)
        learners = started("ps-async", resumed, {"num_servers": 2}, snapshots, momentum=MOMENTUM, peak_lr=RATE, **SGD)
        gradient = give_gradients(resumed[1], np.random.default_rng(0))
        learners[1].step()
        reference.step(0, gradient, RATE, MOMENTUM)
        np.testing.assert_allclose(weights_of(resumed[1]), reference.weights, atol=1e-6)
        close(learners)


def test_with_bf16_messages_servers_keep_float32_and_learners_the_same_rounded() -> None:
    models = [Net() for _ in range(2)]
    learners = started(
        "ps-async", models, {"num_servers": 2, "message_type": "bf16"}, momentum=0.0, peak_lr=RATE, **SGD
    )
    weights = weights_of(Net())
    random = np.random.default_rng(0)
    np.testing.assert_array_equal(weights_of(models[1]), rounded(weights))
    for learner in (0, 1, 1, 0):
        weights = weights - RATE * give_gradients(models[learner], random)  # whole numbers, exact in bf16
        learners[learner].step()
        np.testing.assert_array_equal(weights_of(models[learner]), rounded(weights))
    for learner in learners:  # what is sent in a step
        assert 2 * learner.gradients_P.nbytes == learner.flat.weights_P.nbytes  # type: ignore[attr-defined]
        assert 2 * learner.server.message_P.nbytes == learner.server.slice.weights_P.nbytes  # type: ignore[attr-defined]
    synchronise(learners)
    for rank, model in enumerate(models):
        with learners[rank].consensus():
            np.testing.assert_allclose(weights_of(model), weights, atol=1e-7)
            assert not np.array_equal(weights_of(model), rounded(weights))
        np.testing.assert_array_equal(weights_of(model), rounded(weights))
    recorded = torch.cat([snapshot.values_P for snapshot in (learner.snapshot(0) for learner in learners)])
    with learners[0].consensus():
        assert torch.equal(recorded, learners[0].flat.weights_P)
    close(learners)


def rounded(values: np.ndarray) -> np.ndarray:
    return torch.from_numpy(values).float().bfloat16().double().numpy()


def test_a_parameter_without_a_gradient_counts_as_one_of_gradient_zero() -> None:
    model = Net()
    (learner,) = started("ps-async", [model], momentum=0.0, peak_lr=1.0, **SGD)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(2):  # what was sent before is not sent again
        give_gradients(model, np.random.default_rng(0))
        learner.step()
        before[0] -= torch.from_numpy(np.random.default_rng(0).integers(-3, 4, tuple(before[0].shape)))
    after_two = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = None
    next(model.parameters()).grad = torch.ones_like(before[0])
    learner.step()
    expected = [after_two[0] - 1, *after_two[1:]]
    for parameter, wanted in zip(model.parameters(), expected, strict=True):
        assert torch.equal(parameter, wanted)
    close([learner])


def test_runs_are_about_even_and_have_each_parameter_once() -> None:
    assert split_evenly([4] * 12, 3) == [slice(0, 4), slice(4, 8), slice(8, 12)]
    assert split_evenly([100, 1, 1, 98], 2) == [slice(0, 1), slice(1, 4)]
    assert split_evenly([1, 1, 1, 97], 3) == [slice(0, 2), slice(2, 3), slice(3, 4)]


@pytest.fixture
def two() -> Iterator[list[Any]]:
    """Learners of two servers; the first has gradients, and a snapshot that is not settled."""
    models = [Net() for _ in range(2)]
    learners: list[Any] = started("ps-async", models, {"num_servers": 2})
    give_gradients(models[0], np.random.default_rng(0))
    yield learners
    close(learners)


def test_an_error_in_a_server_is_raised_by_its_learner_and_by_what_writes_a_checkpoint(two, monkeypatch) -> None:
    snapshot = two[0].snapshot(1)
    assert not snapshot.settled()
    monkeypatch.setattr(two[0].server.slice.optimizer, "step", lambda: 1 / 0)
    for raises in (two[0].step, snapshot.settled):
        with pytest.raises(ZeroDivisionError):
            raises()


def test_a_server_that_has_died_is_named_at_once(two: list[Any]) -> None:
    two[1].close()
    with pytest.raises(ConnectionError, match="server 1 has ended its connection"):
        two[0].step()


def close(learners: list[Strategy]) -> None:
    for learner in learners:
        learner.close()


NUM_SYNCHRONOUS = 5
SGD_SYNC: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9, "peak_lr": 0.1}


@contextlib.contextmanager
def running(models: list[Net], settings: dict[str, Any], clip_norm: float = 1e9) -> Iterator[list[Strategy]]:
    learners = started("ps-sync", models, settings, **SGD_SYNC)
    for learner in learners:
        learner.clip_norm = clip_norm  # type: ignore[attr-defined]
    yield learners
    at_once(lambda learner: learner.close(), learners)


@pytest.mark.parametrize(("num_servers", "clip_norm"), [(1, 1e9), (2, 0.5), (5, 0.5)])
def test_the_step_is_that_of_torch_on_the_mean_of_all_gradients(num_servers: int, clip_norm: float) -> None:
    """The mean is clipped by its whole norm; each server has a part of it."""
    models = [Net() for _ in range(NUM_SYNCHRONOUS)]
    alone = Net()
    (optimizer,) = (learner.optimizer for learner in started("single", [alone], **SGD_SYNC))
    with running(models, {"num_servers": num_servers}, clip_norm) as learners:
        for seed in range(4):
            random = torch.Generator().manual_seed(seed)
            gradients = [[torch.randn(p.shape, generator=random) for p in alone.parameters()] for _ in models]
            for parameter, *of_all in zip(alone.parameters(), *gradients, strict=True):
                parameter.grad = torch.stack(of_all).mean(0)
            expected = float(nn.utils.clip_grad_norm_(alone.parameters(), clip_norm))
            optimizer.step()
            for model, own in zip(models, gradients, strict=True):
                for parameter, gradient in zip(model.parameters(), own, strict=True):
                    parameter.grad = gradient
            norms = [norm for norm, _ in at_once(lambda learner: learner.step(), learners)]
            assert norms == [pytest.approx(expected, rel=1e-5)] * NUM_SYNCHRONOUS
            for model in models:
                np.testing.assert_allclose(weights_of(model), weights_of(alone), atol=1e-6)
                np.testing.assert_array_equal(weights_of(model), weights_of(models[0]))


def test_in_whatever_order_gradients_come_they_are_added_in_the_order_of_ranks() -> None:
    """The gradients have sizes for which another order would round otherwise."""
    found = []
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)):
        models, random = [Net() for _ in range(4)], torch.Generator().manual_seed(1)
        for rank, model in enumerate(models):
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=random) * 10**rank
        with running(models, {"num_servers": 1}) as learners:
            at_once(lambda place, learner: (time.sleep(0.05 * place), learner.step()), order, learners)
        found.append(weights_of(models[0]))
    np.testing.assert_array_equal(found[1:], found[:1] * 2)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_recorded_at_a_cut_has_all_steps_from_before_it_and_none_from_behind(seed: int) -> None:
    """All numbers are multiples of a power of two, so that nothing is rounded."""
    models = [Net() for _ in range(NUM_LEARNERS)]
    for model in models:
        for parameter in model.parameters():
            parameter.data.mul_(9).round_()
    learners = started("hogwild", models, **PLAIN)
    expected, taken = run_schedule(seed, learners, models, momentum=0.0, optimizer_of=lambda rank: rank)
    for reference, (first, *others) in zip(expected, taken, strict=False):
        assert all(snapshot.settled() for snapshot in (first, *others))
        assert [snapshot.values_P for snapshot in others] == [None] * (NUM_LEARNERS - 1)
        recorded = Net()
        FlatWeights(recorded).weights_P.copy_(first.values_P)
        np.testing.assert_array_equal(weights_of(recorded), reference.weights)
    np.testing.assert_array_equal(weights_of(models[0]), expected[-1].weights)


def test_the_optimizer_of_a_learner_steps_once_where_its_step_is_recorded_as_well() -> None:
    """The velocity of momentum after steps before an open cut is the one of as many steps."""
    models = [Net(), Net()]
    learners = started("hogwild", models, **PLAIN | {"momentum": 0.5})
    alone = Net()
    (single,) = started("single", [alone], **PLAIN | {"momentum": 0.5})
    learners[0].snapshot(1)
    for _ in range(3):
        give_gradients(models[1], np.random.default_rng(0))
        learners[1].step()
        give_gradients(alone, np.random.default_rng(0))
        single.step()
    np.testing.assert_allclose(weights_of(models[0]), weights_of(alone), atol=1e-6)
    assert models[1].output.weight.data_ptr() == learners[1].flat.views[4].data_ptr()  # shared as before


def test_nothing_is_recorded_while_a_learner_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [Net(), Net()]
    learners = started("hogwild", models, **PLAIN)
    step = learners[0].optimizer.step
    held = []

    def step_and_look() -> None:
        file = learners[1].shared.lock  # type: ignore[attr-defined]
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # another step is possible
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(True)
        step()

    monkeypatch.setattr(learners[0].optimizer, "step", step_and_look)
    give_gradients(models[0], np.random.default_rng(0))
    learners[0].step()
    assert held == [True]


def test_statistics_are_those_of_all_batches_in_the_order_they_come() -> None:
    models = [NormalisedNet(seed) for seed in range(3)]
    learners = started("hogwild", models, **PLAIN)
    random = torch.Generator().manual_seed(0)
    expected = nn.BatchNorm1d(5)
    largest = 0.0
    for learner in TURNS:
        inputs_TNF = torch.randn(4, 2, 5, generator=random)
        largest = max(largest, float(inputs_TNF.max()))
        expected(inputs_TNF.flatten(0, 1))
        learners[learner].task(inputs_TNF).backward()
        learners[learner].step()
    synchronise(learners)
    for model in models:
        assert float(model.largest) == largest
        torch.testing.assert_close(model.norm.running_mean, expected.running_mean)
        torch.testing.assert_close(model.norm.running_var, expected.running_var)
        assert model.norm.num_batches_tracked == max(Counter(TURNS).values())
