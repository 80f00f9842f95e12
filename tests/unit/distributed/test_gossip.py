"""Rings against closed forms and brute force; gossip by real messages between threads.

And the thread that takes the mean for delay-by-one; test_equations.py has the rule itself.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learner_threads import Net, at_once, build, give_gradients, started, worlds
from torch import Tensor, nn
from torch.distributed import HashStore

from asrtool.distributed.members.members import LostLearner, Members
from asrtool.distributed.strategies import hierarchical
from asrtool.distributed.strategies.delay_by_one import DelayByOne
from asrtool.distributed.strategies.gossip import Gossip
from asrtool.distributed.strategies.strategy import StrategyContext
from asrtool.distributed.strategies.topology import (
    fixed_ring,
    mixing_matrix,
    passive_partner,
    random_ring,
    ring_partner,
)
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.settings.schema import Choice


def test_nobody_exchanges_with_weights_that_an_optimizer_has_half_changed() -> None:
    answered: list[bool] = []

    def run(world: World, model: nn.Module) -> None:
        strategy: Any = build("adpsgd-fixed", world, model)
        strategy.start()
        strategy.synchronise()
        gossip = strategy.mixing
        if world.rank == 0:
            world.barrier()  # the other one changes its weights from now on
            gossip.begin()
            gossip.staging.wait()
        else:
            changed: list[bool] = []
            step = strategy.optimizer.step

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
        while not active.view.is_exchanging:  # the thread has not begun it
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


def test_the_ring_of_a_step_is_over_the_learners_that_train() -> None:
    """The last one left exchanges with nobody."""
    store, world, begun = HashStore(), World(2, 5, members=Members(5)), []
    assert world.members
    gossip: Any = Gossip(torch.zeros(3), world, ring_partner(fixed_ring), "fp32", 1)
    gossip.exchanger = SimpleNamespace(addresses=dict.fromkeys(range(5)))
    gossip.staging = SimpleNamespace(begin=lambda partner: begun.append(partner) or True)
    for rank in (3, 4, 0, 1):
        gossip.begin()
        world.members.lose(store, LostLearner(rank, "was ended by SIGKILL", 0))
    gossip.begin()
    assert begun == [3, 4, 0, 1]


@pytest.mark.parametrize("partner", [1.0, 3, -1, "0", [1]])
def test_a_partner_that_is_no_learner_is_refused(partner: Any) -> None:
    gossip: Any = Gossip(torch.zeros(3), World(2, 3), lambda *_: partner, "fp32", 1)
    message = rf"the partner of a learner is {re.escape(repr(partner))} at step 0, expected 0 to 2 or None; correct"
    with pytest.raises(AsrtoolError, match=message):
        gossip.begin()


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


def test_buffers_are_averaged_as_they_were_before_the_forward_pass_and_keep_its_changes(monkeypatch) -> None:
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


def test_an_error_is_raised_where_the_mean_is_waited_for() -> None:
    world = Doubling(RuntimeError("connection closed"))
    world.free.set()
    mixing = DelayByOne(torch.ones(5), 5, world)
    mixing.start()
    with pytest.raises(RuntimeError, match="connection closed"):
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


sizes = st.integers(1, 40)
steps = st.integers(0, 10_000)


def test_the_fixed_ring_mixes_by_t_1() -> None:
    expected = np.array([[1, 1, 0, 0, 1], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [1, 0, 0, 1, 1]]) / 3
    np.testing.assert_allclose(mixing_matrix(fixed_ring(5, 3, 1)), expected, atol=1e-15)


@given(num=st.integers(2, 40), step=steps, seed=steps)
def test_the_random_ring_is_the_fixed_one_in_another_order(num: int, step: int, seed: int) -> None:
    order = np.eye(num)[random_ring(num, step, seed)]
    np.testing.assert_allclose(mixing_matrix(random_ring(num, step, seed)), order.T @ mixing_matrix(range(num)) @ order)


def short_ring(num_learners: int, step: int, seed: int) -> Sequence[int]:
    """Forgets the last learner."""
    return range(num_learners - 1)


def late_ring(num_learners: int, step: int, seed: int) -> Sequence[int]:
    """Right at the first step."""
    return [min(learner, num_learners - 1 - step) for learner in range(num_learners)]


@pytest.mark.parametrize(
    ("name", "returned"),
    [("short_ring", "returned range(0, 2) at step 0"), ("late_ring", "returned [0, 1, 1] at step 1")],
)
def test_an_own_ring_that_is_no_order_of_the_learners_is_refused(name: str, returned: str) -> None:
    choice, model = Choice.of("strategy", "adpsgd", ring=f"{__name__}:{name}"), torch.nn.Linear(2, 2)
    make_optimizer = lambda named: torch.optim.SGD([parameter for _, parameter in named], lr=0.1)  # noqa: E731
    context = StrategyContext(model, model, make_optimizer, 1.0, choice.settings, 1, World(0, 3, 3, HashStore()))
    with pytest.raises(AsrtoolError) as caught:
        choice.load()(context)
    what = f"distributed.adpsgd.ring = {__name__}:{name} {returned}, expected a list that has each of 0 to 2 once; "
    assert str(caught.value).startswith(what)


def test_rings_of_other_steps_and_seeds_differ() -> None:
    rings = {tuple(random_ring(16, step, seed)) for step in range(50) for seed in range(2)}
    assert len(rings) == 100


@given(num=sizes, step=steps, seed=steps)
def test_each_even_rank_has_an_odd_partner_and_no_odd_one_has_any(num: int, step: int, seed: int) -> None:
    partners = [passive_partner(num, step, seed, learner) for learner in range(num)]
    assert partners[1::2] == [None] * (num // 2)
    assert all(partner in range(1, num, 2) for partner in partners[::2] if num > 1)
    assert passive_partner(1, step, seed, 0) is None


def test_an_active_learner_comes_to_all_passive_ones_alike_and_apart_from_the_others() -> None:
    drawn = [(passive_partner(7, step, 5, 0), passive_partner(7, step, 5, 2)) for step in range(900)]
    counts = [drawn.count(pair) for pair in itertools.product((1, 3, 5), repeat=2)]
    assert min(counts) > 60
    assert max(counts) < 140
