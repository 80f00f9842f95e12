"""Every batch is trained once, although learners die and join: what lost ones left is assigned again."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_threads import InRounds, Wishes
from torch.distributed import HashStore

from asrtool.distributed.members.members import Loss, LostBatch, Members, node_of
from asrtool.distributed.work import lost_batches
from asrtool.distributed.work.lost_batches import STOPPED, LostBatches, SyncGroup
from asrtool.distributed.work.work_queue import Assignment, AssignmentRule, WorkQueue
from asrtool.distributed.world import World

NUM_BATCHES = 23
WAIT_S = 120
MANY = 100  # rounds of polls: a few pass until what one has done is known to all


class Watch:
    """Ends all threads once one has failed, or once none can come any further, however fast they are.

    A thread polls wherever it waits for others. What it does between two polls depends on what all have done alone. So
    where each has polled again and again, and none has done anything, none ever will.
    """

    def __init__(self, size: int) -> None:
        self.running = set(range(size))
        self.errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._done: object = None
        self._polls: Counter[int] = Counter()
        self._num_vain = 0  # times that each has polled twice

    def poll(self, rank: int, done: object) -> None:
        """Where `rank` waits; `done` is what all have done so far."""
        with self._lock:
            if done != self._done:
                self._done, self._num_vain = done, 0
                self._polls.clear()
            self._polls[rank] += 1
            if all(self._polls[other] >= 2 for other in self.running):
                self._num_vain += 1
                self._polls.clear()
            assert self._num_vain < MANY, "all wait for one another"
        assert not self.errors, "another one has failed"

    def end(self, rank: int, error: BaseException | None) -> None:
        """`rank` runs no more."""
        with self._lock:
            self.running.remove(rank)
            self.errors += [error] if error else []


class Crew:
    """Learners that are threads, in nodes of `node_size`, and `num_join` more that join them at the start.

    The nodes that `dies` names die after so many assignments. A learner in `gaps` gets its last one at its
    death, and no other can see that.
    """

    def __init__(
        self,
        size: int,
        dies: dict[int, int],
        gaps: set[int],
        stop_after: int | None = None,
        node_size: int = 1,
        num_join: int = 0,
    ) -> None:
        self.store = HashStore()
        self.size, self.dies, self.gaps, self.stop_after = size, dies, gaps, stop_after
        self.num, self.have_joined = size + num_join, threading.Barrier(size + num_join, timeout=WAIT_S)
        self.node_size, self.dead = node_size, threading.Lock()
        self.losses: dict[int, Loss] = {}
        self.trained: list[list[int]] = [[] for _ in range(self.num)]
        self.assigned: list[list[int]] = [[] for _ in range(self.num)]
        self.num_got = [0] * self.num
        self.num_searches = 0  # that have found any missing
        self.ended: set[int] = set()
        self.watch = Watch(self.num)

    def run(self) -> None:
        threads = [threading.Thread(target=self.learn_watched, args=(rank,), daemon=True) for rank in range(self.num)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=WAIT_S)
            assert not thread.is_alive()
        for error in self.watch.errors:
            raise error

    def poll(self, rank: int) -> None:
        sums = (sum(self.num_got), sum(map(len, self.trained)), len(self.losses), len(self.ended), self.num_searches)
        self.watch.poll(rank, sums)

    def find_missing(self) -> Sequence[LostBatch]:
        found = {number for mine in self.trained for number in mine}
        missing = [position for position in range(NUM_BATCHES) if position not in found]
        self.num_searches += bool(missing)
        assert self.num_searches <= len(self.dies), "what was missing is missing again, though nobody has died"
        return [(position // self.node_size, 0, position) for position in missing]

    def stops(self, rank: int) -> bool:
        self.poll(rank)
        return self.stop_after is not None and sum(map(len, self.trained)) >= self.stop_after

    def learn_watched(self, rank: int) -> None:
        error = None
        try:
            self.learn(rank)
        except BaseException as found:
            error = found
        self.watch.end(rank, error)

    def learn(self, rank: int) -> None:
        world = World(rank, self.size, self.size, PolledStore(self, rank), members=Members(self.size))
        assert world.members
        stops = functools.partial(self.stops, rank)
        left = LostBatches(world, world.members, stops, lambda: not self.assigned[rank], self.find_missing)
        rounds = InRounds([NUM_BATCHES], self.node_size)
        queue = WorkQueue(world, AssignmentRule(self.node_size), rounds, Wishes(stops), left)
        if rank >= self.size:
            place = queue.next_round()
            assert place
            assert world.members.join(self.store, rank, place[1])
        if self.num > self.size:
            self.have_joined.wait()
        if self.dies.get(rank // self.node_size) == 0:
            return self.die(rank)
        ahead = None
        for assignment in queue.assign():  # one before the one before it is trained
            if not self.gets(rank, assignment):
                return None
            self.train(rank, ahead)
            ahead = assignment
            world.members.refresh(self.store)
        self.train(rank, ahead)
        for assignment in queue.assign_lost_batches():
            if not self.gets(rank, assignment):
                return None
            self.train(rank, assignment)
        assert world.members.closed
        return self.ended.add(rank)

    def gets(self, rank: int, assignment: Assignment) -> bool:
        """Whether it lives after that."""
        self.num_got[rank] += 1
        dies = self.num_got[rank] == self.dies.get(rank // self.node_size)
        if assignment.batch and not (dies and rank in self.gaps):
            self.assigned[rank].append(assignment.batch.position)
        if dies:
            self.die(rank)
        return not dies

    def train(self, rank: int, assignment: Assignment | None) -> None:
        if assignment and assignment.batch:
            self.trained[rank].append(assignment.batch.position)
            self.assigned[rank].remove(assignment.batch.position)

    def die(self, rank: int) -> None:
        """With the last of its node all of that are lost."""
        node = node_of(rank, self.node_size)
        left = [(position // self.node_size, 0, position) for position in self.assigned[rank]]
        with self.dead:
            self.losses[rank] = Loss(rank, "was ended by SIGKILL", 0, left)
            if self.losses.keys() >= set(node):
                Members(self.size).lose(self.store, *(self.losses[other] for other in node))


class PolledStore:
    """That of a crew as a learner sees it, who polls while it waits for a key."""

    def __init__(self, crew: Crew, rank: int) -> None:
        self.crew, self.rank = crew, rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self.crew.store, name)

    def get(self, key: str) -> bytes:
        while not self.crew.store.check([key]):
            self.crew.poll(self.rank)
            time.sleep(0.001)
        found: bytes = self.crew.store.get(key)
        return found


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_batches, "POLL_S", 0.001)


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(2, 5),
    num_join=st.integers(0, 2),
    dies=st.dictionaries(st.integers(0, 6), st.integers(0, 12), max_size=5),
    gaps=st.sets(st.integers(0, 6)),
)
def test_every_round_is_trained_once_although_learners_die_and_join(
    size: int, num_join: int, dies: dict[int, int], gaps: set[int]
) -> None:
    """One that dies after no assignment has begun or joined, and no more."""
    dies = {rank: when for rank, when in dies.items() if rank < size + num_join}
    if len(dies) == size + num_join:
        del dies[min(dies)]
    crew = Crew(size, dies, gaps, num_join=num_join)
    crew.run()
    assert Counter(number for mine in crew.trained for number in mine) == Counter(range(NUM_BATCHES))
    assert crew.ended >= set(range(size + num_join)) - set(dies)


@settings(max_examples=40, deadline=None)
@given(
    num_nodes=st.integers(2, 3),
    node_size=st.integers(2, 3),
    dies=st.dictionaries(st.integers(0, 2), st.integers(1, 6), max_size=2),
    gaps=st.sets(st.integers(0, 8)),
)
def test_what_a_lost_node_left_is_trained_by_others_in_steps_of_all_of_a_node(
    num_nodes: int, node_size: int, dies: dict[int, int], gaps: set[int]
) -> None:
    dies = {node: when for node, when in dies.items() if node < num_nodes}
    if len(dies) == num_nodes:
        del dies[min(dies)]
    crew = Crew(num_nodes * node_size, dies, gaps, node_size=node_size)
    crew.run()
    assert Counter(number for mine in crew.trained for number in mine) == Counter(range(NUM_BATCHES))
    left = [node_of(node * node_size, node_size) for node in range(num_nodes) if node not in dies]
    assert crew.ended >= {rank for node in left for rank in node}
    for node in left:  # in lock-step
        assert len({crew.num_got[rank] for rank in node}) == 1


def test_when_all_are_to_stop_what_is_left_stays_left() -> None:
    crew = Crew(3, {1: 3}, set(), stop_after=8)
    crew.run()
    numbers = [number for mine in crew.trained for number in mine]
    assert len(numbers) == len(set(numbers)) < NUM_BATCHES
    assert crew.ended | {1} == {0, 1, 2}


def lost_one(left: Sequence[LostBatch]) -> World:
    """What learner 0 sees after learner 2 of three is lost, with batches that it had `left`."""
    store, members = HashStore(), Members(3)
    members.lose(store, Loss(2, "was ended by SIGKILL", 0, left))
    return World(0, 3, 3, store, members=members)


def test_one_that_was_asked_to_stop_takes_nothing_that_is_left() -> None:
    world = lost_one([(0, 0, 0)])
    assert world.members
    world.store.set("idle/1", STOPPED)
    left = LostBatches(world, world.members, lambda: True, lambda: True, list)
    assert list(left.wait(False, SyncGroup(world, 1))) == []
    assert world.members.closed


def test_a_sync_group_takes_one_for_each_of_its_learners() -> None:
    lost = [(number, 0, number) for number in range(5)]
    world = lost_one(lost)
    assert world.members
    left = LostBatches(world, world.members, lambda: False, lambda: True, list)
    assert list(left.take(SyncGroup(world, 2))) == [lost[:2], lost[2:4], lost[4:]]


def test_two_learners_claim_batches_of_one_round_apart() -> None:
    lost = [(0, 0, 0), (0, 0, 1)]
    found = []
    world = lost_one(lost)
    for rank in (0, 1):
        members = Members(3)
        members.refresh(world.store)
        one = World(rank, 3, 3, world.store, members=members)
        claims = LostBatches(one, members, lambda: False, lambda: True, list).take(SyncGroup(one, 1))
        found.append(next(claims))
    assert found == [lost[:1], lost[1:]]


def test_the_training_does_not_end_before_a_learner_has_trained_all_that_it_got() -> None:
    world = lost_one([])
    members = world.members
    assert members
    world.store.set("idle/1", "0")
    idle = iter([False, False, True])

    def is_idle() -> bool:
        assert not members.closed
        assert not world.store.check(["idle/0"])
        return next(idle)

    assert list(LostBatches(world, members, lambda: False, is_idle, list).wait(False, SyncGroup(world, 1))) == []
    assert members.closed
    assert list(idle) == []
