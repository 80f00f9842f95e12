"""Gossip views against the mixing matrix; nothing is lost between learners that exchange at any time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import zmq
from learner_threads import at_once

from asrtool.distributed.strategies.topology import EDGE_WEIGHT, right_neighbour
from asrtool.distributed.transport.exchange import Exchanger
from asrtool.distributed.transport.view import Recorded, View
from asrtool.settings import registry

NUM_LEARNERS, NUM_STEPS, NUM_PARAMETERS = 4, 120, 70_001  # more than a chunk
ANSWER_S = 480  # bounds a hang

Connect = Callable[[list[View]], list[Exchanger]]
every_message = pytest.mark.parametrize("message_type", [torch.float32, torch.bfloat16])


@pytest.fixture
def connected() -> Iterator[Connect]:
    """Connect the exchangers of views."""
    exchangers: list[Exchanger] = []

    def connect(views: list[View]) -> list[Exchanger]:
        exchangers.extend(Exchanger(view, EDGE_WEIGHT, rank=rank) for rank, view in enumerate(views))
        for exchanger in exchangers:
            exchanger.addresses = {learner: other.address for learner, other in enumerate(exchangers)}
        return exchangers

    yield connect
    for exchanger in exchangers:
        exchanger.close()


@every_message
def test_the_changes_of_an_exchange_cancel(message_type: torch.dtype) -> None:
    asks, answers = (View(torch.randn(NUM_PARAMETERS), message_type) for _ in range(2))
    asked_P, answered_P = asks.copy(), answers.copy()
    message_P = torch.empty(NUM_PARAMETERS, dtype=message_type)
    for round_trip in range(3):  # the second and third add to what was pulled before
        cut = asks.ask(message_P)
        if round_trip == 1:
            asks.weights_P += 1  # while the message travels
        assert answers.answer(message_P, EDGE_WEIGHT, cut)
        asks.pull(message_P)
    mean_P = (asked_P.double() + answered_P.double()) / 2 + 0.5
    torch.testing.assert_close((asks.copy().double() + answers.copy().double()) / 2, mean_P, atol=1e-6, rtol=0)
    assert (asks.copy() - answers.copy()).std() < (asked_P - answered_P).std() / 10
    assert (asks.num_pulls, answers.num_pulls) == (3, 3)


def test_learners_of_the_same_weights_pull_at_nothing_also_by_rounded_messages() -> None:
    weights_P = torch.randn(NUM_PARAMETERS)
    asks, answers = (View(weights_P.clone(), torch.bfloat16) for _ in range(2))
    message_P = torch.empty(NUM_PARAMETERS, dtype=torch.bfloat16)
    assert answers.answer(message_P, EDGE_WEIGHT, asks.ask(message_P))
    asks.pull(message_P)
    assert torch.equal(asks.copy(), weights_P)
    assert torch.equal(answers.copy(), weights_P)


def test_an_update_is_added_to_what_was_pulled_meanwhile_and_loaded() -> None:
    weights = torch.zeros(3)
    view = View(weights, torch.float32)
    view.pull(torch.tensor([-1.0, 0.0, 0.0]))
    weights += torch.tensor([0.0, 5.0, 0.0])
    assert view.copy().tolist() == [1.0, 5.0, 0.0]
    assert view.update() == 1  # which is how stale the next gradient is
    assert weights.tolist() == view.copy().tolist() == [1.0, 5.0, 0.0]
    assert view.update() == 0
    assert weights.tolist() == [1.0, 5.0, 0.0]
    view.pull(torch.tensor([0.0, 0.0, 2.0]))  # in the place of the first
    assert view.update() == 1
    assert weights.tolist() == [1.0, 5.0, -2.0]


@pytest.mark.parametrize(("ring", "message_type"), [("fixed", torch.float32), ("random", torch.bfloat16)])
def test_the_mean_moves_by_the_updates_alone_whatever_the_delays_also_as_recorded_at_cuts(
    ring: str, message_type: torch.dtype, connected
) -> None:
    """Each learner records at steps of its own, which are a consistent cut, three times."""
    starts = torch.randn(NUM_LEARNERS, NUM_PARAMETERS, generator=torch.Generator().manual_seed(0))
    views = [View(start.clone(), message_type) for start in starts]
    exchangers = connected(views)
    recorded: dict[tuple[int, int], tuple[Recorded, torch.Tensor]] = {}
    updated = starts.double()

    def learn(learner: int) -> None:
        random = np.random.default_rng(learner)
        cuts = {10 + 36 * cut + int(random.integers(20)): cut + 1 for cut in range(3)}
        for step in range(NUM_STEPS):
            exchangers[learner].begin(right_neighbour(registry.load("ring", ring)(NUM_LEARNERS, step, 7), learner))
            if step in cuts:
                recorded[cuts[step], learner] = views[learner].record(cuts[step]), updated[learner].clone()
            else:
                time.sleep(random.exponential(0.001))
                if step % 2:
                    exchangers[learner].idle.wait(ANSWER_S)
            updated[learner] += update_at_random(views[learner], random)
        exchangers[learner].wait()

    at_once(learn, range(NUM_LEARNERS))
    assert sum(exchanger.num_refused for exchanger in exchangers) > 0
    assert min(len(exchanger.partners) for exchanger in exchangers) > NUM_STEPS / 20
    assert_same_mean([view.copy() for view in views], updated)
    assert torch.stack([view.copy() for view in views]).std(dim=0).mean() < updated.std(dim=0).mean() / 2
    for cut in (1, 2, 3):
        of_all = [recorded[cut, learner] for learner in range(NUM_LEARNERS)]
        assert all(found.settled.is_set() for found, _ in of_all)
        assert_same_mean([found.values_P for found, _ in of_all], torch.stack([updated for _, updated in of_all]))


def assert_same_mean(weights: list[torch.Tensor], expected: torch.Tensor) -> None:
    mean_P, expected_P = torch.stack(weights).double().mean(dim=0), expected.mean(dim=0)
    assert (mean_P - expected_P).norm() < 1e-6 * expected_P.norm()


@every_message
def test_an_exchange_under_way_changes_what_its_asker_has_recorded_meanwhile(message_type: torch.dtype) -> None:
    """The steps are: ask, answer, record twice, pull; the other records after its answer."""
    starts = torch.tensor([[0.0, 3.0], [6.0, -3.0]])
    asks, answers = (View(start, message_type) for start in starts)
    message_P = torch.empty(2, dtype=message_type)
    assert answers.answer(message_P, EDGE_WEIGHT, asks.ask(message_P))
    first, second = asks.record(1), asks.record(2)
    assert not first.settled.is_set()
    assert not second.settled.is_set()
    asks.pull(message_P)
    assert first.settled.is_set()
    assert second.settled.is_set()
    other = answers.record(2)
    assert other.settled.is_set()
    for found in (first, second):
        assert found.values_P.tolist() == pytest.approx([2.0, 1.0])
    assert other.values_P.tolist() == pytest.approx([4.0, -1.0])
    asks.pull(message_P)  # a later one
    assert first.values_P.tolist() == pytest.approx([2.0, 1.0])


@pytest.mark.parametrize("recorded_first", [0, 1])
def test_who_has_recorded_and_who_has_not_exchange_nothing_until_both_have(recorded_first: int, connected) -> None:
    views = [View(torch.full((10,), 3.0 * i), torch.float32) for i in range(2)]
    first, _ = connected(views)
    views[recorded_first].record(1)
    with views[1].lock:  # keeps it from answering
        assert first.begin(1)
        assert not first.begin(1)  # one is under way
    first.wait()
    assert (first.partners, first.num_refused) == ([], 1)
    assert [view.copy()[0].item() for view in views] == [0.0, 3.0]
    views[1 - recorded_first].record(1)
    assert first.begin(1)
    first.wait()
    assert (first.partners, first.num_refused) == ([1], 1)
    assert [view.copy()[0].item() for view in views] == pytest.approx([1.0, 2.0])


def test_an_exchange_with_a_learner_that_is_lost_is_abandoned_and_a_cut_then_settles(connected: Connect) -> None:
    views = [View(torch.full((10,), 3.0 * i), torch.float32) for i in range(3)]
    exchangers = connected(views)
    lost: set[int] = set()
    exchangers[0].is_live = lambda learner: learner not in lost
    with views[1].lock:  # keeps it from answering, as if it were dead
        asked_in = exchangers[0].message
        assert exchangers[0].begin(1)
        while not views[0].is_exchanging:  # the thread has not begun it
            assert exchangers[0].thread.is_alive()
            time.sleep(0.001)
        recorded = views[0].record(1)
        assert not recorded.settled.is_set()
        lost.add(1)
        exchangers[0].wait()
        assert recorded.settled.is_set()
        assert (exchangers[0].partners, exchangers[0].num_refused) == ([], 1)
    assert exchangers[0].message.values_P.data_ptr() != asked_in.values_P.data_ptr()  # where the late answer is
    views[2].record(1)
    assert exchangers[0].begin(2)
    exchangers[0].wait()
    assert exchangers[0].partners == [2]
    assert [views[rank].copy()[0].item() for rank in (0, 2)] == pytest.approx([2.0, 4.0])
    assert recorded.values_P.tolist() == [0.0] * 10
    assert list(exchangers[0].requests) == [2]


def update_at_random(view: View, random: np.random.Generator) -> torch.Tensor:
    """A step of a learner; by how much it moved the weights, in float64 [P]."""
    with view.lock:
        before_P = view.weights_P.clone()
        view.weights_P += torch.from_numpy(random.standard_normal(NUM_PARAMETERS).astype(np.float32)) / 10
        moved_P = view.weights_P.double() - before_P.double()
    view.update()
    return moved_P


@pytest.mark.parametrize(("machine", "scheme"), [(None, b"ipc"), ("another", b"tcp"), ("", b"tcp")])
def test_learners_of_one_machine_exchange_by_memory_and_others_by_tcp(
    machine: str | None, scheme: bytes, connected
) -> None:
    views = [View(torch.full((10,), float(i)), torch.bfloat16) for i in range(2)]
    first, second = connected(views)
    if machine is None and not second.address.machine:
        pytest.skip("not on Linux")
    if machine is not None:
        first.addresses = {1: dataclasses.replace(second.address, machine=machine)}
    for _ in range(2):
        assert first.begin(1)
        first.wait()
    apart = (1 - 2 * EDGE_WEIGHT) ** 2
    assert [view.copy()[0].item() for view in views] == pytest.approx([(1 - apart) / 2, (1 + apart) / 2], rel=5e-3)
    assert first.requests[1].get(zmq.LAST_ENDPOINT).startswith(scheme)
    assert len(second.mapped) == (machine is None)
    assert first.num_bytes + second.num_bytes == 2 * 2 * views[0].weights_P.nbytes // 2  # two messages an exchange


@pytest.mark.parametrize("seen_as", ["/proc/self/fd/none", "FILE", ""])
def test_who_cannot_see_the_memory_of_another_gets_its_message_sent(seen_as: str, tmp_path, connected) -> None:
    (tmp_path / "FILE").touch()
    seen_as = seen_as.replace("FILE", str(tmp_path / "FILE"))
    views = [View(torch.full((10,), float(i)), torch.float32) for i in range(2)]
    first, _ = connected(views)
    own, first.message.path = first.message.path, seen_as and f"{seen_as}:0-0"
    num_unseen = bool(seen_as)  # of the first try
    for _ in range(num_unseen + 1):
        assert first.begin(1)
        first.wait()
    assert (first.partners, first.num_refused) == ([1], num_unseen)
    assert [view.copy()[0].item() for view in views] == pytest.approx([EDGE_WEIGHT, 1 - EDGE_WEIGHT])
    first.message.path = own
