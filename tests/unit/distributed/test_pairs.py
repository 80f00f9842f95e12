"""Atomic averages of pairs; tests/unit/train/test_learners.py has the rule itself, test_asynchronous.py its runs."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from asrtool.distributed.strategies.gossip import Pairs
from asrtool.distributed.strategies.topology import passive_partner
from asrtool.distributed.transport.exchange import Exchanger
from asrtool.distributed.transport.staging import HostStaging
from asrtool.distributed.transport.view import View
from asrtool.distributed.world import World

NUM_PARAMETERS, NUM_STEPS = 1000, 60


def connected(starts: Sequence[torch.Tensor]) -> list[Pairs]:
    """Learners of one process, each with its thread that answers."""
    learners = [
        Pairs(start.clone(), World(rank, len(starts)), passive_partner, "fp32", seed=3)
        for rank, start in enumerate(starts)
    ]
    for learner in learners:
        learner.view = View(learner.weights_P, torch.float32)
        learner.exchanger = Exchanger(learner.view, learner.weight)
        learner.staging = HostStaging(learner.view, learner.exchanger)
    for learner in learners:
        assert learner.exchanger
        learner.exchanger.addresses = {
            rank: other.exchanger.address for rank, other in enumerate(learners) if other.exchanger
        }
    return learners


def close(learners: Sequence[Pairs]) -> None:
    for learner in learners:
        assert learner.exchanger
        learner.exchanger.wait()
    for learner in learners:
        learner.close()


def test_an_update_waits_for_the_answer_however_late_it_is() -> None:
    starts = torch.tensor([[0.0, 4.0], [2.0, -4.0]])
    active, passive = connected(starts)
    with passive.view.lock:  # keeps it from answering
        active.begin()
        assert active.exchanger
        while active.view._asked_at is None:  # the thread has not begun it
            assert active.exchanger.thread.is_alive()
            time.sleep(0.001)
        active.weights_P += 10  # the step meanwhile
        step = threading.Thread(target=active.mix)
        step.start()
        time.sleep(0.05)
        assert step.is_alive()
    step.join(60)
    assert active.weights_P.tolist() == [11.0, 10.0]  # the mean, then the update
    assert passive.view.copy().tolist() == [1.0, 0.0]
    close([active, passive])


def test_a_passive_learner_begins_nothing_and_waits_for_nobody() -> None:
    active, passive = connected(torch.tensor([[0.0], [2.0]]))
    passive.begin()
    with active.view.lock:
        cost = passive.mix()
    assert (passive.view.copy().tolist(), active.view.copy().tolist()) == ([2.0], [0.0])
    assert cost.partners == []
    close([active, passive])


@pytest.mark.parametrize("num_learners", [2, 5])
def test_each_exchange_is_as_if_at_one_instant_whatever_the_delays(num_learners: int) -> None:
    """Exchanges and updates, replayed one after the other in the order of the answers, end in the same views."""
    starts = torch.randn(num_learners, NUM_PARAMETERS, generator=torch.Generator().manual_seed(0))
    learners = connected(starts)
    happened: list[tuple[int, int] | tuple[int, torch.Tensor]] = []
    log = threading.Lock()
    unread: list[list[tuple[int, torch.Tensor]]] = [[] for _ in learners]  # updates that its last snapshot lacks
    for learner in learners:
        _log_exchanges(learner, happened, unread[learner.world.rank], log)

    def train(learner: Pairs) -> None:
        random = np.random.default_rng(learner.world.rank)
        updates = happened if learner.world.rank % 2 else unread[learner.world.rank]
        for _ in range(NUM_STEPS):
            time.sleep(random.exponential(0.001))
            update_P = torch.from_numpy(random.standard_normal(NUM_PARAMETERS).astype(np.float32)) / 10
            with learner.changing(), log:  # exchanges hold the first when they want the second
                learner.weights_P += update_P
                updates.append((learner.world.rank, update_P.double()))
            learner.mix()
            learner.begin()

    threads = [threading.Thread(target=train, args=(learner,)) for learner in learners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    close(learners)

    views = starts.double()
    for rank, what in [*happened, *itertools.chain(*unread)]:
        if isinstance(what, int):
            views[rank] = views[what] = (views[rank] + views[what]) / 2
        else:
            views[rank] += what
    num_exchanges = sum(isinstance(what, int) for _, what in happened)
    assert num_exchanges == (num_learners + 1) // 2 * NUM_STEPS
    for view, learner in zip(views, learners, strict=True):
        torch.testing.assert_close(learner.view.copy().double(), view, atol=1e-5, rtol=0)


def _log_exchanges(
    learner: Pairs,
    happened: list[tuple[int, int] | tuple[int, torch.Tensor]],
    unread: list[tuple[int, torch.Tensor]],
    log: threading.Lock,
) -> None:
    """Put exchanges that `learner` answers behind `happened`, at the instant of the answer; what is `unread`, before it
    asks, since nobody reads its view but by its snapshots."""
    view, rank = learner.view, learner.world.rank
    answer, ask = view.answer, view.ask

    def logged_answer(message_P: torch.Tensor, weight: float, cut: int) -> bool:
        with log:
            asker = next(iter(np.flatnonzero([bool((message_P == mine).all()) for mine in _asked.values()])))
            happened.append((list(_asked)[asker], rank))
            return answer(message_P, weight, cut)

    def logged_ask(message_P: torch.Tensor) -> int:
        with log:
            happened.extend(unread)
            unread.clear()
            return ask(message_P)

    view.answer, view.ask = logged_answer, logged_ask  # type: ignore[method-assign]
    assert learner.exchanger
    _asked[rank] = learner.exchanger.message.values_P


_asked: dict[int, torch.Tensor] = {}  # learner -> the snapshot that it sent last
