"""Who is taken for lost: a learner that stands still, not one that was stopped with all others."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from torch.distributed import HashStore

from asrtool.dist import heartbeat, patience
from asrtool.dist.heartbeat import Heartbeat
from asrtool.dist.patience import wait_patiently
from asrtool.dist.world import World


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


def told(monkeypatch: pytest.MonkeyPatch, beats: Iterator[int]) -> list[str]:
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
    (why,) = told(monkeypatch, iter([1, 2] + 30 * [3]))
    assert why.startswith("learner 1 on node7 has given no sign of life")


def test_one_that_has_not_begun_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, iter(30 * [0] + [1, 2, 3])) == []


def test_after_a_pause_of_all_nobody_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-Z and fg make one: much time has passed, and the other has not come to beat yet."""
    now = time.monotonic()

    def beats() -> Iterator[int]:
        nonlocal now
        yield 1
        now += 3600
        yield from (1, 2, 3)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert told(monkeypatch, beats()) == []


def test_a_pause_of_all_costs_a_wait_one_piece_of_its_patience() -> None:
    answers = [False, False, True]  # the first wait is over at once, as after a pause
    assert wait_patiently(lambda seconds: answers.pop(0))
    assert not wait_patiently(lambda seconds: answers.append(True))
    assert len(answers) == patience.NUM_PIECES
