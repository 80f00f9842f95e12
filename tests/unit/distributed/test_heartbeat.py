"""Who is taken for lost: a learner that stands still, not one that was suspended with all others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue

import pytest
from torch.distributed import HashStore

from asrtool.distributed import heartbeat, timeout
from asrtool.distributed.heartbeat import Heartbeat
from asrtool.distributed.timeout import wait_with_timeout
from asrtool.distributed.world import World


class Beside(HashStore):
    """Where learner 0 of two looks: `beats` are those of learner 1 by then, and at the last of them 0 ends."""

    def __init__(self, own: Heartbeat, beats: Iterator[int]) -> None:
        super().__init__()
        self.own, self.beats = own, beats
        self.set("host1", "node7")

    def add(self, key: str, number: int) -> int:
        if key != "beat1":
            return super().add(key, number)
        count = next(self.beats, None)
        if count is None:
            self.own._end.set()
        return count or 0


def reported(monkeypatch: pytest.MonkeyPatch, beats: Iterator[int]) -> list[str]:
    """Why learner 0 gave up, if it did."""
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.001)
    own, why = Heartbeat(World(0, 2)), []

    def give_up(reason: str) -> None:
        why.append(reason)
        own._end.set()

    monkeypatch.setattr(own, "_give_up", give_up)
    own._beat(Beside(own, beats))
    return why


def test_a_learner_that_stands_still_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (why,) = reported(monkeypatch, iter([1, 2] + 30 * [3]))
    assert why.startswith("learner 1 on node7 has given no sign of life")


def test_one_that_never_beats_is_named_and_one_that_begins_late_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(reported(monkeypatch, iter(30 * [0]))) == 1
    assert reported(monkeypatch, iter(5 * [0] + [1, 2, 3])) == []


def test_after_a_pause_of_all_nobody_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-Z and fg: much time has passed, and the other has had no time to beat yet."""
    now = time.monotonic()

    def beats() -> Iterator[int]:
        nonlocal now
        yield 1
        now += 3600
        yield from (1, 2, 3)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert reported(monkeypatch, beats()) == []


def test_a_pause_of_all_costs_a_wait_one_piece_of_its_timeout() -> None:
    answers = [False, False, True]  # the first wait is over at once, as after a pause
    assert wait_with_timeout(lambda seconds: answers.pop(0))
    assert not wait_with_timeout(lambda seconds: answers.append(True))
    assert len(answers) == timeout.NUM_PIECES


def give_up_without_store(world: World, monkeypatch: pytest.MonkeyPatch, timeout_s: float) -> str:
    """What a learner of `world` says when nothing that it asks of the store returns; empty where it waits on."""
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.01)
    monkeypatch.setenv("MASTER_ADDR", "node7")
    monkeypatch.setenv("MASTER_PORT", "29500")
    answered, why = threading.Event(), SimpleQueue()
    monkeypatch.setattr(Heartbeat, "_run", lambda own: answered.wait())
    monkeypatch.setattr(Heartbeat, "_give_up", lambda own, reason: why.put(reason))
    try:
        with Heartbeat(world):
            return str(why.get(timeout=timeout_s))
    except Empty:
        return ""
    finally:
        answered.set()


def test_learners_exit_when_the_machine_of_the_store_no_longer_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    why = give_up_without_store(World(2, 4, local_size=2), monkeypatch, timeout_s=60)
    assert why.startswith("the rendezvous store, node7:29500, has not answered for ")


def test_learners_of_one_machine_wait_for_a_launcher_that_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert give_up_without_store(World(1, 2, local_size=2), monkeypatch, timeout_s=0.3) == ""
