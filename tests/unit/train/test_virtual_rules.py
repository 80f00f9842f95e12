"""The rules of virtual learners by the equations that strategies are tested with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import equations
import numpy as np
import pytest
import torch
from equations import NUM_INPUTS, RATE, SEED

from asrtool.distributed.weights.flat import FlatWeights
from asrtool.predict.simulate.events import Begin, Change, Event, Round
from asrtool.predict.simulate.scenario import load_scenario
from asrtool.predict.simulate.simulate import simulate
from asrtool.predict.virtual.gossip import Gossip
from asrtool.predict.virtual.learners import rule_of
from asrtool.predict.virtual.replica import Mean, Replica, Rule, SharedModel, VirtualStep
from asrtool.predict.virtual.shared_weights import ServerRule
from asrtool.predict.virtual.synchronous import DelayByOne
from asrtool.settings.schema import Choice
from asrtool.train.loop.gradient_accumulation import StepResult

NUM_STEPS = 8


class Regressions:
    """The batches of equations.py, in the place of Assigned and GradientAccumulation: batch = (learner, step)."""

    def rate(self, trained: VirtualStep) -> float:
        return RATE

    def divisor(self, group: Sequence[VirtualStep]) -> float:
        return 1.0

    def read(self, trained: VirtualStep) -> None:
        if trained.begin.position is not None:
            trained.batch = equations.data(trained.begin.learner, trained.begin.position)

    def backward(self, replica: Replica, batch: Any, divisor: float, before_others: Any) -> StepResult:
        loss = replica.task(tuple(torch.from_numpy(part).float() for part in batch))
        loss.backward()
        return StepResult(loss.detach(), {})


def shared_model(slices: int = 1) -> SharedModel:
    model = equations.Regression()
    batches: Any = Regressions()
    shared = SharedModel(model, model, FlatWeights(model, slices=slices), batches, equations.make_optimizer, 1e9)
    shared.step_plan = batches
    return shared


def strategy_of(name: str) -> tuple[Choice, int]:
    """Return the strategy by its name in equations.py, and the learners of a node."""
    name, nesterov, _ = name.partition(" with nesterov")
    name, _, outer = name.partition(" by ")
    more = {key: value for key, value in {"outer": outer, "nesterov": bool(nesterov)}.items() if value}
    return Choice.of("strategy", name, **{**equations.SETTINGS.get(name, {}), **more}), 2 if name == "h-adpsgd" else 1


def train(name: str, num_learners: int) -> Iterator[tuple[SharedModel, Rule]]:
    """Train all learners; yield after each step of all."""
    strategy, node_size = strategy_of(name)
    shared = shared_model(node_size)
    rule = rule_of(strategy, shared, num_learners, node_size)
    round_size, events = rule.assignment_rule.round_size(num_learners), list[Event]()
    steps = f"job.num_samples={NUM_STEPS * num_learners}", "job.batch=1", f"job.seed={SEED}", "job.parameters_m=1"
    simulate(load_scenario([], [*steps, "network.learners_per_node=0"]), strategy, num_learners, events.append)
    ended = 0
    for event in events:
        if isinstance(event, Begin):
            step = event.number * round_size // num_learners
            rule.steps[event.learner] = VirtualStep(event._replace(position=step), None)  # type: ignore[arg-type]
            rule.begin(event.learner)
        elif hasattr(event, "begin_s"):
            ended += 1
            if ended % num_learners == 0:
                yield shared, rule
        else:
            rule.follow(event)


def replicas_of(rule: Any) -> list[tuple[Replica, int]]:
    """Return the replica of each learner, with its place in it."""
    if hasattr(rule, "learners"):
        nodes = list(dict.fromkeys(learner.node for learner in rule.learners))
        return [(node.replica, place) for node in nodes for place in range(len(node.replica.members))]
    return [(replica, place) for replica in rule.replicas for place in range(len(replica.members))]


@pytest.mark.parametrize("name", equations.RULES)
def test_virtual_learners_in_lock_step_compute_the_equations(name: str) -> None:
    """This holds for weights and statistics."""
    num_learners = equations.num_learners_of(name)
    shape = (equations.NUM_OUTPUTS, NUM_INPUTS)
    weights, statistics = [], []
    for shared, rule in train(name, num_learners):
        replicas, own = replicas_of(rule), []
        weights.append(
            np.stack([replica.weights_P[: np.prod(shape)].reshape(shape).numpy() for replica, _ in replicas])
        )
        for replica, place in replicas:
            values_B = replica.buffers_B if replica.share_statistics else replica.statistics[place]
            own.append(np.concatenate([part[:NUM_INPUTS].numpy() for part in values_B.split(shared.flat.sizes[1:])]))
        statistics.append(np.stack(own))
    np.testing.assert_allclose(weights, equations.by_equations(name, num_learners, NUM_STEPS), atol=2e-6)
    if name in equations.STATISTICS and name != "adpsgd-pairs":
        expected = equations.statistics_by_equations(name, num_learners, NUM_STEPS)
        np.testing.assert_allclose(statistics, expected, atol=1e-5)


def test_a_learner_without_a_batch_mixes_and_keeps_its_momentum() -> None:
    shared = shared_model()
    rule = DelayByOne(shared, 2, 1)
    momenta, before = [], []
    for step, positions in enumerate([(0, 0), (1, None)]):
        for learner, position in enumerate(positions):
            rule.steps[learner] = VirtualStep(Begin(0.0, learner, step, 0, position), None)  # type: ignore[arg-type]
        before = [replica.weights_P.clone() for replica in rule.replicas]
        rule.follow(Round(0.0))
        state = rule.replicas[1].optimizer.state[rule.replicas[1].parameters[0]]
        momenta.append(state["momentum_buffer"].clone())
    assert torch.equal(rule.replicas[1].weights_P, (before[0] + before[1]) / 2)
    assert torch.equal(momenta[0], momenta[1])
    assert float(momenta[0].norm()) > 0


def test_the_mean_at_an_epoch_has_the_updates_before_it_alone() -> None:
    """Whatever exchange is under way when learners enter it; here nothing is updated, so the mean is that of before."""
    for order in EXCHANGES:
        shared = shared_model()
        rule = Gossip(shared, 2, 1 / 3, torch.float32)
        values = torch.randn(2, len(shared.start_P))
        for learner, start_P in zip(rule.learners, values, strict=True):
            learner.view.weights_P.copy_(start_P)
        expected = values.double().mean(0)
        for event in order:
            if isinstance(event, int):
                rule.enter(event, 1)
            else:
                rule.follow(event)
        torch.testing.assert_close(rule.means[1].sum_P / 2, expected, atol=1e-6, rtol=0)


SENT, ANSWERED, RECEIVED = Change(0, "send", 0, 1), Change(0, "answer", 1, 0), Change(0, "receive", 0, 1)
EXCHANGES: list[list[Event | int]] = [
    [0, SENT, ANSWERED, RECEIVED, 1],
    [SENT, 0, ANSWERED, RECEIVED, 1],
    [SENT, ANSWERED, 0, RECEIVED, 1],
    [SENT, ANSWERED, 0, 1, RECEIVED],
    [SENT, ANSWERED, 1, RECEIVED, 0],
    [SENT, 1, ANSWERED, RECEIVED, 0],
    [SENT, 1, ANSWERED, 0, RECEIVED],
    [1, SENT, ANSWERED, 0, RECEIVED],
    [SENT, 0, 1, ANSWERED, RECEIVED],
]


def test_the_consensus_distance_is_that_of_the_weights() -> None:
    values = torch.randn(3, 10)
    mean = Mean(values[0], 8, 3)
    for value in values:
        mean.add(value)
    apart = (values[:, :8] - values[:, :8].mean(0)).norm(dim=1).square().mean().sqrt()
    assert mean.consensus().distance == pytest.approx(float(apart / values[:, :8].mean(0).norm()), rel=1e-5)
    torch.testing.assert_close(mean.weights(), values.mean(0))


@pytest.mark.parametrize(("name", "apart"), [("ps-async", 0.0), ("hogwild", 0.01)])
def test_steps_of_a_new_epoch_are_not_in_the_mean_before_it(name: str, apart: float) -> None:
    """Another learner is still in the old one; its step there is. With hogwild weights decay from where they are."""
    means = []
    for num_ahead in (0, 2):
        strategy, _ = strategy_of(name)
        rule = rule_of(strategy, shared_model(), 2, 1)
        for learner in (0, 1):
            begin(rule, learner, 0)
            end(rule, learner)
        begin(rule, 1, 1)
        enter(rule, 0)
        for step in range(num_ahead):
            begin(rule, 0, 1 + step)
            end(rule, 0)
        end(rule, 1)
        enter(rule, 1)
        means.append(rule.means[1].weights())
        if not num_ahead:
            now_P = rule.servers[0].weights_P if isinstance(rule, ServerRule) else replicas_of(rule)[0][0].weights_P
            torch.testing.assert_close(means[0][: len(now_P)], now_P)
    assert float((means[0] - means[1]).norm() / means[0].norm()) <= apart


def begin(rule: Rule, learner: int, step: int) -> None:
    rule.steps[learner] = VirtualStep(Begin(0.0, learner, step, 0, step), None)  # type: ignore[arg-type]
    rule.begin(learner)


def end(rule: Rule, learner: int) -> None:
    rule.follow(Change(0.0, "push", learner, 0) if isinstance(rule, ServerRule) else Change(0.0, "update", learner))


def enter(rule: Rule, learner: int) -> None:
    rule.means[1].num_entered += 1
    rule.enter(learner, 1)
