"""Gossip by real messages between threads, its weights on a GPU that is memory of the host (tests/fake_gpu.py).

And the thread that takes the mean for delay-by-one; test_equations.py has the rule itself.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from fake_gpu import fake_gpu
from learner_threads import Net, at_once, build, give_gradients, started, weights_of, worlds
from torch import Tensor, nn
from torch.distributed import HashStore

from asrtool.distributed.members.members import LostLearner, Members
from asrtool.distributed.strategies import hierarchical
from asrtool.distributed.strategies.delay_by_one import DelayByOne
from asrtool.distributed.strategies.gossip import Gossip
from asrtool.distributed.strategies.strategy import StepCost
from asrtool.distributed.strategies.topology import fixed_ring, on_ring
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.world import World

NUM_STEPS = 5


class SameGradients:
    """In the place of AveragedGradients: those of a node are the same already."""

    def __init__(self, task: nn.Module, *_: Any) -> None:
        self.task = task

    def start(self) -> None:
        pass

    def cost(self) -> StepCost:
        return StepCost()

    def close(self) -> None:
        pass


@pytest.mark.parametrize("message_type", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("name", "num", "node_size", "num_exchanges"),
    [
        ("adpsgd-random", 4, 1, 4),
        ("adpsgd-pairs", 4, 1, 2),  # active learners ask, passive ones answer
        ("h-adpsgd", 16, 8, 16),  # a learner copies and sends its part of a node
    ],
)
def test_a_step_copies_the_weights_once_to_and_fro_and_an_exchange_sends_two_messages(
    name: str, num: int, node_size: int, num_exchanges: int, message_type: str
) -> None:
    settings = {"message_type": message_type} | ({"node_size": node_size} if node_size > 1 else {})

    def run(world: World, model: nn.Module) -> Any:
        strategy: Any = build(name, world, model, settings)
        strategy.start()
        strategy.synchronise()
        random = np.random.default_rng(world.rank // node_size)
        for _ in range(NUM_STEPS):
            give_gradients(model, random)
            strategy.step()
            strategy.mixing.staging.wait()
            world.barrier()
        strategy.synchronise()
        strategy.close()
        return strategy

    with fake_gpu() as streams, patch.object(hierarchical, "AveragedGradients", SameGradients):
        learners = at_once(run, worlds(num), [Net() for _ in range(num)])
    part = learners[0].flat.weights_P.nbytes // node_size
    for stream in streams:  # the synchronisations copy as well
        assert (stream.to_host, stream.to_gpu) == ((NUM_STEPS + 2) * part, (NUM_STEPS + 2) * part)
    sent = sum(learner.mixing.exchanger.num_bytes for learner in learners)
    assert sent == NUM_STEPS * num_exchanges * 2 * part // (2 if message_type == "bf16" else 1)
    for learner in learners:  # of a node alike
        first = learner.world.rank // node_size * node_size
        np.testing.assert_array_equal(weights_of(learner.model), weights_of(learners[first].model))
    assert (weights_of(learners[0].model) != weights_of(learners[-1].model)).any()


@pytest.mark.parametrize(("name", "settings"), [("adpsgd-fixed", {}), ("h-adpsgd", {"node_size": 1})])
def test_nobody_exchanges_with_weights_that_an_optimizer_has_half_changed(name: str, settings: dict[str, Any]) -> None:
    answered: list[bool] = []

    def run(world: World, model: nn.Module) -> None:
        strategy: Any = build(name, world, model, settings)
        strategy.start()
        strategy.synchronise()
        gossip = strategy.mixing
        if world.rank == 0:
            world.barrier()  # the other one changes its weights from now on
            gossip.begin()
            gossip.staging.wait()
        else:
            changed: list[bool] = []
            step = strategy.update.apply

            def slow() -> None:
                world.barrier()  # the other one begins now
                end = time.monotonic() + 0.3
                while not gossip.view.num_pulls and time.monotonic() < end:
                    time.sleep(0.001)
                answered.append(bool(gossip.view.num_pulls))
                step()
                changed.append(True)

            strategy.update.apply = slow
            give_gradients(model, np.random.default_rng(0))
            strategy.step()
            assert changed
        world.barrier()
        strategy.synchronise()
        strategy.close()

    with patch.object(hierarchical, "AveragedGradients", SameGradients):
        at_once(run, worlds(2), [Net(), Net()])
    assert answered == [False]


def test_others_never_read_the_buffers_of_a_node_as_a_sum_on_the_way_to_their_mean() -> None:
    model = torch.nn.BatchNorm1d(4)
    flat = FlatWeights(model, slices=2)
    buffers_B, locked = flat.weights_P[flat.num_weights :], []
    before_B = buffers_B.clone()

    class Node:
        """Another learner has three times as much."""

        def mean(self, values_B: torch.Tensor) -> None:
            values_B *= 4
            assert torch.equal(buffers_B, before_B)
            values_B /= 2

    @contextlib.contextmanager
    def changing() -> Iterator[None]:
        assert torch.equal(buffers_B, before_B)
        yield
        locked.append(buffers_B.clone())

    learner: Any = SimpleNamespace(buffers_B=buffers_B, node=Node(), mixing=SimpleNamespace(changing=changing))
    hierarchical.SuperLearner.average_buffers(learner)
    assert torch.equal(locked[0], 2 * before_B)
    assert before_B.any()


@pytest.fixture
def pair() -> Iterator[list[Any]]:
    """An active learner and a passive one, of other weights."""
    learners: list[Any] = started("adpsgd-pairs", [Net(0), Net(1)])
    pair = [learner.mixing for learner in learners]
    yield pair
    for mixing in pair:
        mixing.staging.wait()
    for mixing in pair:
        mixing.close()


def test_the_update_of_an_active_learner_waits_for_the_answer_however_late(pair: list[Any]) -> None:
    """The weights of both are then their mean, as if they had exchanged at one instant."""
    active, passive = pair
    mean_P = (active.weights_P + passive.weights_P) / 2
    with passive.view.lock:  # keeps it from answering
        active.begin()
        while active.view._asked_at is None:  # the thread has not begun it
            assert active.exchanger.thread.is_alive()
            time.sleep(0.001)
        active.weights_P += 10  # the step meanwhile
        step = threading.Thread(target=active.mix)
        step.start()
        time.sleep(0.05)
        assert step.is_alive()
    step.join(60)
    torch.testing.assert_close(active.weights_P, mean_P + 10)
    torch.testing.assert_close(passive.view.copy(), mean_P)


def test_a_passive_learner_begins_nothing_and_waits_for_nobody(pair: list[Any]) -> None:
    active, passive = pair
    before_P = passive.weights_P.clone()
    passive.begin()
    with active.view.lock:
        cost = passive.mix()
    assert torch.equal(passive.view.copy(), before_P)
    assert cost.partners == []


def test_the_ring_of_a_step_is_over_the_learners_that_train() -> None:
    """The last one left exchanges with nobody."""
    store, world, begun = HashStore(), World(2, 5, members=Members(5)), []
    assert world.members
    gossip: Any = Gossip(torch.zeros(3), world, on_ring(fixed_ring), "fp32", 1)
    gossip.exchanger = SimpleNamespace(addresses=dict.fromkeys(range(5)))
    gossip.staging = SimpleNamespace(begin=lambda partner: begun.append(partner) or True)
    for rank in (3, 4, 0, 1):
        gossip.begin()
        world.members.lose(store, LostLearner(rank, "was ended by SIGKILL", 0))
    gossip.begin()
    assert begun == [3, 4, 0, 1]


class Doubling(World):
    """A world in which the mean is twice what this learner has, once `free` is set."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.begun, self.free = threading.Event(), threading.Event()

    def mean(self, values_P: Tensor, message_type: torch.dtype = torch.float32) -> None:
        self.begun.set()
        assert self.free.wait(60)
        if self.error:
            raise self.error
        values_P *= 2


def test_the_mean_is_taken_in_the_background_and_of_the_weights_as_they_were() -> None:
    weights_P, world = torch.ones(5), Doubling()
    mixing = DelayByOne(weights_P, 5, world)
    mixing.start()
    world.free.set()
    mixing.mix()
    assert weights_P.tolist() == [2.0] * 5
    world.free.clear()
    world.begun.clear()
    mixing.begin()  # returns while the mean waits
    assert world.begun.wait(60)  # not only when it is waited for, where nothing would hide it
    world.free.set()
    mixing.mix()
    assert weights_P.tolist() == [4.0] * 5
    mixing.close()


def test_buffers_are_averaged_as_they_were_before_the_forward_pass_and_keep_its_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weights_P, world = torch.ones(5), Doubling()
    world.free.set()
    mixing = DelayByOne(weights_P, 3, world)
    forward = threading.Event()
    orders = mixing.background.orders
    waiting = SimpleNamespace(put=orders.put, get=lambda: forward.wait(60) and orders.get())
    monkeypatch.setattr(mixing.background, "orders", waiting)
    mixing.start()
    weights_P[3:] += 0.25  # before the thread copies anything
    forward.set()
    mixing.mix()
    assert weights_P.tolist() == [2.0] * 3 + [2.25] * 2
    mixing.close()


@pytest.mark.parametrize("error", [RuntimeError("connection closed"), MemoryError("no room")])
def test_an_error_is_raised_where_the_mean_is_waited_for(error: Exception) -> None:
    world = Doubling(error)
    world.free.set()
    mixing = DelayByOne(torch.ones(5), 5, world)
    mixing.start()
    with pytest.raises(type(error), match=str(error)):
        mixing.finish()
    mixing.finish()  # nothing is under way any more
    mixing.close()


def test_a_learner_that_exits_leaves_no_mean_under_way() -> None:
    """Python aborts where a thread returns from a collective at exit; the launcher would report that."""

    class Slow(World):
        def mean(self, values_P: Tensor, message_type: torch.dtype = torch.float32) -> None:
            time.sleep(0.5)

    before = set(threading.enumerate())
    mixing = DelayByOne(torch.zeros(3), 3, Slow(0, 2))
    mixing.start()
    mixing.close()
    assert set(threading.enumerate()) <= before
