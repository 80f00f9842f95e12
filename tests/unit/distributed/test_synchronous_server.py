"""Servers that step once for all learners, against torch, and what they add in which order."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import zmq
from learner_threads import Net, at_once, build, give_gradients, started, synchronise, weights_of, worlds
from torch import nn

from asrtool.distributed.baselines.parameter_server import PUSH, SynchronousServer
from asrtool.distributed.baselines.weight_server import Slice
from asrtool.distributed.strategies.strategy import Strategy
from asrtool.errors import AsrtoolError

NUM_LEARNERS = 5
SGD: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9, "peak_lr": 0.1}


@contextlib.contextmanager
def running(models: list[Net], settings: dict[str, Any], clip_norm: float = 1e9) -> Iterator[list[Strategy]]:
    learners = started("ps-sync", models, settings, **SGD)
    for learner in learners:
        learner.clip_norm = clip_norm  # type: ignore[attr-defined]
    yield learners
    at_once(lambda learner: learner.close(), learners)


def step_all(learners: list[Strategy], models: list[Net], seed: int) -> list[float]:
    """One round with random gradients, which stay in `models`; the norms that the learners find."""
    random = torch.Generator().manual_seed(seed)
    for model in models:
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=random)
    return [norm for norm, _ in at_once(lambda learner: learner.step(), learners)]


@pytest.mark.parametrize("num_servers", [1, 2, 5])
@pytest.mark.parametrize("clip_norm", [1e9, 0.5])
def test_the_step_is_that_of_torch_on_the_mean_of_all_gradients(num_servers: int, clip_norm: float) -> None:
    """Clipped by the norm of the whole mean, of which each server has a part."""
    models = [Net() for _ in range(NUM_LEARNERS)]
    alone = Net()
    (optimizer,) = (learner.optimizer for learner in started("single", [alone], **SGD))
    with running(models, {"num_servers": num_servers}, clip_norm) as learners:
        for seed in range(4):
            random = torch.Generator().manual_seed(seed)
            gradients = [[torch.randn(p.shape, generator=random) for p in alone.parameters()] for _ in models]
            for parameter, *of_all in zip(alone.parameters(), *gradients, strict=True):
                parameter.grad = torch.stack(of_all).mean(0)
            expected = float(nn.utils.clip_grad_norm_(alone.parameters(), clip_norm))
            optimizer.step()
            norms = step_all(learners, models, seed)
            assert norms == [pytest.approx(expected, rel=1e-5)] * NUM_LEARNERS
            for model in models:
                np.testing.assert_allclose(weights_of(model), weights_of(alone), atol=1e-6)
                np.testing.assert_array_equal(weights_of(model), weights_of(models[0]))


@pytest.mark.parametrize("message_type", ["fp32", "bf16"])
@pytest.mark.parametrize("num_servers", [1, 2])
def test_a_learner_sends_its_gradient_and_the_servers_the_weights_to_each(num_servers: int, message_type: str) -> None:
    """P values of a learner, and P of the servers together for each of L learners: 2 P L in a step."""
    models = [Net() for _ in range(NUM_LEARNERS)]
    padded = [-(-parameter.numel() // 16) * 16 for parameter in models[0].parameters()]  # up to 64 bytes
    message, pulled = sum(padded) * (2 if message_type == "bf16" else 4), sum(padded) * 4
    with running(models, {"num_servers": num_servers, "message_type": message_type}) as learners:
        total = 0
        for step in range(4):
            random = np.random.default_rng(step)
            for model in models:
                give_gradients(model, random)
            sent = [cost.num_bytes for _, cost in at_once(lambda learner: learner.step(), learners)]
            assert sent[num_servers:] == [message] * (NUM_LEARNERS - num_servers)
            total += sum(sent)
        assert total >= (4 + 3) * NUM_LEARNERS * message  # answers of the last step may be counted later
        synchronise(learners)  # a server counts an answer before it sends it: all are counted now
        total += sum(learner._num_answered() for learner in learners)  # type: ignore[attr-defined]
    assert total == 4 * 2 * NUM_LEARNERS * message + 2 * NUM_LEARNERS * pulled  # pulled before the first and at the end


def test_in_whatever_order_gradients_come_they_are_added_in_the_order_of_ranks() -> None:
    random = torch.Generator().manual_seed(1)
    gradients = torch.randn((4, 16), generator=random) * 10 ** torch.arange(4.0)[:, None]
    expected = (((gradients[0] + gradients[1]) + gradients[2]) + gradients[3]) / 4
    found = set()
    for order in itertools.permutations(range(4)):
        kept = Slice(
            [("weight", nn.Parameter(torch.zeros(16)))], [16], lambda named: torch.optim.SGD([named[0][1]], 0.1)
        )
        server = SynchronousServer(kept, 4, torch.float32)
        server._send = lambda rank, answer: found.add((rank, answer))  # type: ignore[method-assign]
        for rank in order:
            assert torch.equal(kept.gradients_P, expected) is False
            server.socket = Frames(gradients[rank])  # type: ignore[assignment]
            server._follow(rank, PUSH)
        assert torch.equal(kept.gradients_P, expected)
    assert sorted(rank for rank, _ in found) == [0, 1, 2, 3]  # the same answer each time


class Frames:
    """A socket that has one gradient."""

    def __init__(self, gradient_P: torch.Tensor) -> None:
        self.gradient_P = gradient_P

    def recv(self, copy: bool) -> zmq.Frame:
        return zmq.Frame(self.gradient_P.numpy().tobytes())


@pytest.mark.parametrize("bad", [0.0, float("nan")])
def test_a_mean_that_is_zero_or_not_finite_is_no_step_and_the_next_round_is_as_ever(bad: float) -> None:
    models, others = [Net() for _ in range(2)], [Net() for _ in range(2)]
    with running(models, {}) as learners, running(others, {}) as undisturbed:
        before = weights_of(models[0])
        for model in models:
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, bad)
        at_once(lambda learner: learner.step(), learners)
        np.testing.assert_array_equal(weights_of(models[1]), before)
        step_all(learners, models, 3)
        step_all(undisturbed, others, 3)
        np.testing.assert_array_equal(weights_of(models[1]), weights_of(others[1]))


def test_after_resuming_from_its_state_training_is_as_undisturbed() -> None:
    def train(message_type: str, stop: int) -> np.ndarray:
        """With a synchronisation that changes nothing, or after which all resume."""
        models = [Net() for _ in range(3)]
        settings = {"num_servers": 2, "message_type": message_type}
        with contextlib.ExitStack() as stack:
            learners = stack.enter_context(running(models, settings))
            for step in range(6):
                if step == abs(stop):
                    synchronise(learners)
                if step == stop:
                    states = [copy.deepcopy(learner.snapshot(0)) for learner in learners]
                    weights = at_once(exact_weights, learners, models)
                    models = [Net(seed=8) for _ in range(3)]
                    for model in models:
                        model.load_state_dict(weights[0])
                    learners = started("ps-sync", models, settings, states, **SGD)
                step_all(learners, models, step)
            synchronise(learners)
            at_once(lambda learner: learner.close(), learners)
            return np.concatenate(at_once(lambda *both: flat(exact_weights(*both)), learners, models))

    for message_type in ("fp32", "bf16"):
        np.testing.assert_array_equal(train(message_type, stop=3), train(message_type, stop=-3))
        np.testing.assert_array_equal(train(message_type, stop=-3), train(message_type, stop=-9))


def exact_weights(learner: Strategy, model: Net) -> dict[str, torch.Tensor]:
    with learner.consensus():
        return {name: value.clone() for name, value in model.state_dict().items()}


def flat(weights: dict[str, torch.Tensor]) -> np.ndarray:
    return np.concatenate([value.numpy().ravel() for value in weights.values()])


def test_more_servers_than_learners_are_refused() -> None:
    with pytest.raises(AsrtoolError, match=r"distributed\.ps-sync\.num_servers is 3, with 2 learners"):
        build("ps-sync", worlds(2)[0], Net(), {"num_servers": 3})
