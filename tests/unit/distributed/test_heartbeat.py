"""Heartbeats: learners that stand still are lost, learners suspended with all others are not."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping

import pytest
from torch.distributed import HashStore

from asrtool.distributed.launch.generation import host_key
from asrtool.distributed.members import heartbeat
from asrtool.distributed.members.heartbeat import Heartbeat
from asrtool.distributed.members.members import LostLearner, Members, Survival
from asrtool.distributed.members.supervisor import report_lost, why_lost
from asrtool.distributed.transport.sockets import NUM_WAITS, wait_for_answer
from asrtool.distributed.world import World

NUM_BEATS = 60
TIMEOUT_BEATS = 10
SILENT = "has given no sign of life for 0.01 s"
KILLED = "was ended by SIGKILL"


@pytest.fixture(autouse=True)
def short_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an hour pass between any two looks at the clock, as when all are suspended and resumed."""
    hours = itertools.count(0, 3600)
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.001)
    monkeypatch.setattr(time, "monotonic", lambda: next(hours))


class Beats(HashStore):
    """Store of learner `own_rank`; `count` gives the beats of others: (rank, own beats) -> beats."""

    def __init__(self, own_rank: int, count: Callable[[int, int], int]) -> None:
        super().__init__()
        self.own_rank, self.count, self.num = own_rank, count, 0
        self.ended, self.released = threading.Event(), threading.Event()

    def add(self, key: str, number: int) -> int:
        rank = int(key.removeprefix("beat"))
        if rank != self.own_rank:
            return self.count(rank, self.num)
        if self.num == NUM_BEATS:
            self.ended.set()
            self.released.wait()
        self.num += 1
        return self.num


class Exits:
    """Replacement of os._exit, which ends the thread that calls it."""

    def __init__(self) -> None:
        self.called = threading.Event()

    def __call__(self, code: int) -> None:
        self.called.set()
        raise SystemExit(code)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> Exits:
    exits, hook = Exits(), threading.excepthook
    monkeypatch.setattr(os, "_exit", exits)
    # Unlike Python's, the hook of pytest reports SystemExit.
    monkeypatch.setattr(threading, "excepthook", lambda args: args.exc_type is SystemExit or hook(args))
    monkeypatch.setenv("MASTER_ADDR", "node7")
    monkeypatch.setenv("MASTER_PORT", "29500")
    return exits


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return why learners exited."""
    texts = (record.getMessage() for record in caplog.records)
    return [text.partition(" exits: ")[2] for text in texts if " exits: " in text]


def beat(
    monkeypatch: pytest.MonkeyPatch,
    own: Heartbeat,
    count: Callable[[int, int], int],
    hosts: Mapping[int, str] | None = None,
    change: Callable[[HashStore], object] = lambda store: None,
) -> None:
    """Beat NUM_BEATS times, or until the learner exits."""
    store = Beats(own.rank, count)
    for rank, host in (hosts or {}).items():
        store.set(host_key(rank), host)
    change(store)
    monkeypatch.setattr(heartbeat, "TCPStore", lambda *_, **__: store)
    monkeypatch.setattr(heartbeat, "generation_store", lambda generation, store: store)
    with own:
        while threads() and not store.ended.is_set():
            time.sleep(0.001)
    store.released.set()
    for thread in threads():
        thread.join()


def threads() -> list[threading.Thread]:
    """List the threads that beat; one that exits at once may have ended before it is looked for."""
    return [thread for thread in threading.enumerate() if thread.name == "heartbeat"]


@pytest.mark.parametrize(
    ("count", "is_lost"),
    [
        (lambda _, num: min(num, 3), True),  # stands still
        (lambda _, num: 0, True),  # never began
        (lambda _, num: max(0, num - TIMEOUT_BEATS + 2), False),  # begins late
    ],
)
def test_without_survival_a_learner_that_stands_still_ends_all(
    count: Callable[[int, int], int], is_lost: bool, monkeypatch, exits: Exits, caplog
) -> None:
    beat(monkeypatch, Heartbeat(World(0, 2, local_size=2), 0.01), count, {1: "node7"})
    assert reasons(caplog) == [f"learner 1 on node7 {SILENT}"] * is_lost
    assert exits.called.is_set() == is_lost


def test_a_pause_of_all_costs_a_wait_one_piece_of_its_timeout() -> None:
    answers = [False, False, True]  # the first wait is over at once, as after a pause
    assert wait_for_answer(lambda seconds: answers.pop(0))
    assert not wait_for_answer(lambda seconds: answers.append(True))
    assert len(answers) == NUM_WAITS


@pytest.mark.parametrize(("local_size", "does_exit"), [(2, True), (4, False)])
def test_learners_of_several_machines_alone_exit_if_the_store_no_longer_answers(
    local_size: int, does_exit: bool, monkeypatch, exits: Exits, caplog
) -> None:
    """Learners of one machine wait for a launcher that was suspended."""
    answered = threading.Event()

    def connect(*_: object, **__: object) -> None:
        answered.wait()
        raise RuntimeError("the test has ended")

    monkeypatch.setattr(heartbeat, "TCPStore", connect)
    with Heartbeat(World(2, 4, local_size=local_size), 0.01):
        assert exits.called.wait(60 if does_exit else 0.3) == does_exit
    answered.set()
    expected = ["the rendezvous store, node7:29500, has not answered for 0.01 s"] * does_exit
    assert reasons(caplog) == expected


NODE_LOST = {2: KILLED, 3: "lost another learner of its node"}
ON_HOSTS = {0: "h1", 1: "h1", 2: "h1", 3: "h2"}  # learner 0 is on the host of those that are lost


@pytest.mark.parametrize(
    ("own_rank", "node_size", "last", "killed", "hosts", "lost", "reported"),
    [
        # The next one, and the one after it.
        (0, 1, {1: 3, 2: 3}, (), {}, {1: SILENT, 2: SILENT}, {1, 2}),
        # All of a host in one change, not one after each timeout.
        (0, 1, {1: 3, 2: 3}, (), ON_HOSTS, {1: SILENT, 2: SILENT}, {1, 2}),
        # A report counts before the timeout, but not for one that beats: it is of an earlier learner.
        (0, 1, {1: 55}, (1,), {}, {1: KILLED}, {1}),
        (0, 1, {}, (1,), {}, {}, {1}),
        # A node is lost in one change, once all of it stand still; until then the others are to be ended.
        (1, 2, {2: 3, 3: 3}, (2,), {}, NODE_LOST, {2, 3}),
        (1, 2, {2: 50, 3: 3}, (2,), {}, NODE_LOST, {2, 3}),
        (1, 2, {2: 3, 3: 50}, (2,), {}, NODE_LOST, {2, 3}),
        (1, 2, {2: 3}, (), {}, {}, {2, 3}),
        # One whose own node loses a learner is to be ended itself.
        (0, 2, {1: 3}, (), {}, {}, {0, 1}),
    ],
)
def test_survivors_lose_those_that_stand_still(
    own_rank: int,
    node_size: int,
    last: dict[int, int],
    killed: tuple[int, ...],
    hosts: dict[int, str],
    lost: dict[int, str],
    reported: set[int],
    monkeypatch,
    tmp_path,
    exits: Exits,
) -> None:
    """Run one of four learners, which beat until `last`; supervisors have reported the `killed` ones."""
    for rank in killed:
        report_lost(tmp_path, rank, KILLED)
    members, num_changes = Members(4), []
    survival = Survival(tmp_path, lambda out, rank, why: LostLearner(rank, why, 0), node_size)
    lose = members.lose
    monkeypatch.setattr(members, "lose", lambda *args: num_changes.append(args) or lose(*args))
    own = Heartbeat(World(own_rank, 4, members=members, local_size=4), 0.01, survival)
    beat(monkeypatch, own, lambda rank, num: min(num, last.get(rank, num)), hosts)
    assert not exits.called.is_set()
    assert {rank: loss.why for rank, loss in members.losses.items()} == lost
    assert {rank for rank in range(4) if why_lost(tmp_path, rank)} == reported
    assert len(num_changes) == (bool(lost) if hosts or node_size > 1 else len(lost))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda store: Members(2).lose(store, LostLearner(0, SILENT, 0)), f"the others took it for lost: it {SILENT}"),
        (lambda store: Members(2).close(store, (0, 1)), f"learner 1 on node7 {SILENT}"),  # at the end all are needed
    ],
)
def test_a_learner_that_is_lost_and_one_at_the_end_exit(
    change: Callable[[HashStore], object], why: str, monkeypatch, tmp_path, exits: Exits, caplog
) -> None:
    survival = Survival(tmp_path, lambda out, rank, why: LostLearner(rank, why, 0))
    own = Heartbeat(World(0, 2, members=Members(2), local_size=2), 0.01, survival)
    beat(monkeypatch, own, lambda rank, num: 0, {1: "node7"}, change)
    assert reasons(caplog) == [why]
    assert exits.called.is_set()
