"""The thread that takes the mean for delay-by-one; test_learners.py has the rule itself."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from asrtool.distributed.strategies.delay_by_one import DelayByOne
from asrtool.distributed.world import World


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
