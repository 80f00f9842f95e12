"""Who is taken for lost: a learner that stands still, not one that was suspended with all others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from torch.distributed import HashStore

from asrtool.distributed.launch.generation import host_key
from asrtool.distributed.members import heartbeat
from asrtool.distributed.members.heartbeat import Heartbeat
from asrtool.distributed.members.members import Loss, Members, Survival
from asrtool.distributed.members.supervisor import report_lost, why_lost
from asrtool.distributed.transport.sockets import NUM_WAITS, wait_for_answer
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
    own, why = Heartbeat(World(0, 2), timeout_s=10 * heartbeat.BEAT_S), []

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
    assert wait_for_answer(lambda seconds: answers.pop(0))
    assert not wait_for_answer(lambda seconds: answers.append(True))
    assert len(answers) == NUM_WAITS


def give_up_without_store(world: World, monkeypatch: pytest.MonkeyPatch, timeout_s: float) -> str:
    """What a learner of `world` says when nothing that it asks of the store returns; empty where it waits on."""
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.01)
    monkeypatch.setenv("MASTER_ADDR", "node7")
    monkeypatch.setenv("MASTER_PORT", "29500")
    answered, why = threading.Event(), SimpleQueue()
    monkeypatch.setattr(Heartbeat, "_run", lambda own: answered.wait())
    monkeypatch.setattr(Heartbeat, "_give_up", lambda own, reason: why.put(reason))
    try:
        with Heartbeat(world, timeout_s=10 * heartbeat.BEAT_S):
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


class Fading(HashStore):
    """Where a learner of four looks. Others beat along with it, but for those that a dict of `last` beats has."""

    def __init__(self, own: Heartbeat, last: dict[int, int], num_beats: int) -> None:
        super().__init__()
        self.own, self.last, self.left = own, last, num_beats

    def add(self, key: str, number: int) -> int:
        rank = int(key.removeprefix("beat"))
        if rank == self.own.rank:
            self.left -= 1
            if not self.left:
                self.own._end.set()
        beats = super().add(f"beat{rank}", 1)
        return min(beats, self.last.get(rank, beats))


def survive(
    monkeypatch: pytest.MonkeyPatch,
    out: Path,
    last: dict[int, int],
    own_rank: int = 0,
    node_size: int = 1,
    hosts: Mapping[int, str] | None = None,
) -> tuple[Members, list[str]]:
    """The members that learner `own_rank` of four sees after 60 beats, and why it gave up, if it did."""
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.001)
    world, why = World(own_rank, 4, members=Members(4)), []
    own = Heartbeat(world, 0.01, Survival(out, lambda out, rank, reason: Loss(rank, reason, 0), node_size))
    monkeypatch.setattr(own, "_give_up", why.append)
    store = Fading(own, last, 60)
    for rank, host in (hosts or {}).items():
        store.set(host_key(rank), host)
    own._beat(store)
    assert world.members
    return world.members, why


def test_survivors_close_the_ring_around_all_that_are_silent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The next one, and the one behind it."""
    members, why = survive(monkeypatch, tmp_path, {1: 3, 2: 3})
    assert members.live == (0, 3)
    assert members.losses[1].why == members.losses[2].why == "has given no sign of life for 0.01 s"
    assert why == []


def test_all_silent_learners_of_a_host_are_lost_in_one_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not one after each timeout. Learner 0 is on their host as well, and learner 3 on another that stands still."""
    hosts = {0: "h1", 1: "h1", 2: "h1", 3: "h2"}
    members, why = survive(monkeypatch, tmp_path, {1: 3, 2: 3}, hosts=hosts)
    assert members.live == (0, 3)
    assert members._num_read == 1
    assert why == []


def test_of_a_learner_that_was_killed_there_is_word_before_the_timeout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report_lost(tmp_path, 1, "was ended by SIGKILL")
    members, _ = survive(monkeypatch, tmp_path, {1: 55})
    assert members.losses[1].why == "was ended by SIGKILL"


def test_word_of_a_learner_that_lives_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It was of an earlier one, or its supervisor is about to end it."""
    report_lost(tmp_path, 1, "was ended by SIGKILL")
    members, _ = survive(monkeypatch, tmp_path, {})
    assert members.live == (0, 1, 2, 3)


@pytest.mark.parametrize("last", [{2: 3, 3: 3}, {2: 50, 3: 3}, {2: 3, 3: 50}])
def test_a_node_is_lost_in_one_change_once_all_of_it_stand_still(
    last: dict[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report_lost(tmp_path, 2, "was ended by SIGKILL")
    members, _ = survive(monkeypatch, tmp_path, last, own_rank=1, node_size=2)
    assert {rank: loss.why for rank, loss in members.losses.items()} == {
        2: "was ended by SIGKILL",
        3: "lost learner 2 of its node",
    }
    assert members._num_read == 1


def test_of_a_node_that_loses_a_learner_the_others_are_to_be_ended_before_it_is_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    members, _ = survive(monkeypatch, tmp_path, {2: 3}, own_rank=1, node_size=2)
    assert members.live == (0, 1, 2, 3)
    assert why_lost(tmp_path, 2) == "has given no sign of life for 0.01 s"
    assert why_lost(tmp_path, 3) == "lost learner 2 of its node"
    assert why_lost(tmp_path, 0) == why_lost(tmp_path, 1) == ""


def test_a_learner_whose_own_node_loses_one_leaves_the_rest_to_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is to be ended itself."""
    members, _ = survive(monkeypatch, tmp_path, {1: 3}, node_size=2)
    assert members.live == (0, 1, 2, 3)
    assert why_lost(tmp_path, 0) == "lost learner 1 of its node"


def test_a_learner_that_the_others_took_for_lost_exits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world, why = World(0, 4, members=Members(4)), []
    own = Heartbeat(world, 0.01, Survival(tmp_path, lambda out, rank, reason: Loss(rank, reason, 0)))
    monkeypatch.setattr(own, "_give_up", lambda reason: (why.append(reason), own._end.set()))
    assert world.members
    store = HashStore()
    Members(4).lose(store, Loss(0, "has given no sign of life for 20 s", 0))
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.001)
    own._beat(store)
    assert why == ["the others took it for lost: it has given no sign of life for 20 s"]


def test_once_a_training_ends_a_loss_ends_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.001)
    world, why = World(0, 2, members=Members(2)), []
    own = Heartbeat(world, 0.01, Survival(tmp_path, lambda out, rank, reason: Loss(rank, reason, 0)))
    monkeypatch.setattr(own, "_give_up", lambda reason: (why.append(reason), own._end.set()))
    store = HashStore()
    store.set("host1", "node7")
    assert world.members
    world.members.close(store, (0, 1))
    own._beat(store)
    assert why == ["learner 1 on node7 has given no sign of life for 0.01 s"]
