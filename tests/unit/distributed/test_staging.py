"""Weights on a GPU and their gossip view on the host; the GPU is memory of the host (tests/fake_gpu.py)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from fake_gpu import fake_gpu
from torch import Tensor

from asrtool.distributed.transport import device
from asrtool.distributed.transport.staging import GpuStaging
from asrtool.distributed.transport.view import View

NUM_VALUES = 7


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with fake_gpu():
        yield


class Direct:
    """An Exchanger without messages: an exchange has taken place when `begin` returns."""

    def __init__(self, view: View, views: list[View]) -> None:
        self.view, self.views = view, views
        self.idle = threading.Event()
        self.idle.set()
        self.error: Exception | None = None

    def check(self) -> None:
        if self.error:
            raise self.error

    def begin(self, neighbour: int) -> bool:
        self.check()
        message_P = torch.empty(NUM_VALUES)
        self.views[neighbour].answer(message_P, 1 / 3, self.view.ask(message_P))
        self.view.pull(message_P)
        return True


@pytest.fixture
def learners(request: pytest.FixtureRequest, gpu: None) -> Iterator[list[Any]]:
    """Make learners with different weights, two or as many as `request` says."""
    random = torch.Generator().manual_seed(0)
    weights = [torch.randn(NUM_VALUES, generator=random) for _ in range(getattr(request, "param", 2))]
    views = [View(own_P.clone(), torch.float32) for own_P in weights]
    exchangers = [Direct(view, views) for view in views]
    parts = zip(views, weights, exchangers, map(device.side_stream, weights), strict=True)
    found: list[Any] = [GpuStaging(*of_one) for of_one in parts]  # type: ignore[arg-type]
    yield found
    for learner in found:
        learner.close()


def train(learners: list[Any], num_steps: int, drain: bool) -> Tensor:
    """Make steps with random updates, one learner after the other; return the mean of all updates."""
    random = torch.Generator().manual_seed(5)
    total_P = torch.zeros(NUM_VALUES)
    for step in range(num_steps):
        for rank, learner in enumerate(learners):
            update_P = torch.randn(NUM_VALUES, generator=random)
            learner.weights_P += update_P
            total_P += update_P
            learner.apply_pulls()
            learner.begin((rank + 1 + step % (len(learners) - 1)) % len(learners))
            if drain:
                learner.trips.idle.wait(60)
    return total_P / len(learners)


def settle(learners: list[Any]) -> None:
    for learner in learners:
        learner.wait()
    for learner in learners:
        learner.settle()


def test_an_update_in_two_halves_has_the_bits_of_one_in_one() -> None:
    random = torch.Generator().manual_seed(3)
    halves, whole = (View(torch.zeros(NUM_VALUES), torch.float32) for _ in range(2))
    halves_P, whole_P, pulls_P = torch.zeros(NUM_VALUES), whole.weights_P, torch.empty(NUM_VALUES)
    for _ in range(20):
        update_P, theirs_P = torch.randn(2, NUM_VALUES, generator=random)
        for view in (halves, whole):
            view.answer(theirs_P.clone(), 1 / 3, 0)
        whole_P += update_P
        assert whole.update() == 1
        before_P = halves.copy()
        assert halves.collect(pulls_P) == 1
        assert torch.equal(halves.copy(), before_P)
        halves_P += update_P
        halves_P += pulls_P
        halves.publish(halves_P)
        assert torch.equal(halves_P, whole_P)
        assert torch.equal(halves.copy(), whole.copy())


@pytest.mark.parametrize("learners", [3], indirect=True)
@pytest.mark.parametrize("drain", [True, False])
def test_the_mean_moves_by_the_updates_alone_however_late_copies_are(drain: bool, learners: list[Any]) -> None:
    before_P = torch.stack([learner.weights_P for learner in learners]).mean(0)
    updates_P = train(learners, 25, drain)
    settle(learners)  # as at a synchronisation, after which they train on
    updates_P += train(learners, 25, drain)
    settle(learners)
    after_P = torch.stack([learner.weights_P for learner in learners]).mean(0)
    np.testing.assert_allclose(after_P, before_P + updates_P, atol=1e-4)
    for learner in learners:
        np.testing.assert_allclose(learner.view.copy(), learner.weights_P, atol=1e-5)


def test_the_computing_thread_waits_for_no_copy(learners: list[Any]) -> None:
    learner, other = learners
    learner.stream.free.clear()
    other_P = other.view.copy()
    assert learner.apply_pulls() == 0
    assert learner.begin(1)
    weights_P = learner.weights_P.clone()
    assert learner.apply_pulls() == 0
    assert not learner.begin(1)
    assert torch.equal(learner.weights_P, weights_P)
    learner.stream.free.set()
    learner.wait()
    assert learner.apply_pulls() == 1
    np.testing.assert_allclose(learner.weights_P, weights_P + (other_P - weights_P) / 3, rtol=1e-5)
    assert (learner.stream.to_host, learner.stream.to_gpu) == (4 * NUM_VALUES, 4 * NUM_VALUES)
    assert learner.begin(1)
    learner.wait()
    assert learner.apply_pulls() == 1  # the first exchange counts no more


def test_what_is_recorded_has_all_updates_and_the_pulls_that_the_weights_still_lack(learners: list[Any]) -> None:
    learner, _ = learners
    learner.apply_pulls()
    learner.begin(1)
    learner.wait()
    learner.weights_P += 1
    weights_P = learner.weights_P.clone()
    learner.publish()
    assert torch.equal(learner.weights_P, weights_P)  # those of a node stay alike until the next step
    recorded = learner.view.record(1)
    assert recorded.settled.is_set()
    learner.apply_pulls()
    assert not torch.equal(learner.weights_P, weights_P)
    assert torch.equal(recorded.values_P, learner.weights_P)


def test_one_that_begins_no_exchange_publishes_and_takes_what_others_pulled(learners: list[Any]) -> None:
    learner, other = learners
    learner.weights_P += 1
    learner.apply_pulls()
    assert learner.begin(None)
    learner.wait()
    np.testing.assert_allclose(learner.view.copy(), learner.weights_P, rtol=1e-6)
    expected_P = learner.weights_P + (other.view.copy() - learner.weights_P) / 3
    other.exchanger.begin(0)
    for _ in range(2):  # the first trip fetches what the second swap adds
        learner.apply_pulls()
        learner.begin(None)
        learner.wait()
    np.testing.assert_allclose(learner.weights_P, expected_P, rtol=1e-5)


@pytest.mark.parametrize("begins", [True, False])
def test_an_error_of_an_exchange_is_raised_by_its_own_step_and_the_next(begins: bool, learners: list[Any]) -> None:
    """The exchange cannot begin, or ends by the error."""
    exchanger, error = learners[0].exchanger, ConnectionError("gone")
    begin, begun = exchanger.begin, threading.Event()
    exchanger.begin = lambda neighbour: (begin(neighbour), begun.set())
    exchanger.error = None if begins else error
    exchanger.idle.clear()
    learners[0].apply_pulls()
    learners[0].begin(1)
    if begins:
        assert begun.wait(60)
        exchanger.error = error
        exchanger.idle.set()
    for raises in (learners[0].wait, learners[0].apply_pulls):
        with pytest.raises(ConnectionError, match="gone"):
            raises()
