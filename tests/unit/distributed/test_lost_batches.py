"""Every batch is trained once, although learners die and join: lost batches are assigned again."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
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
MAX_POLLS = 20_000  # of all learners, each a millisecond: far more than any of these trainings needs


class Crew:
    """Learners that are threads, in nodes of `node_size`, and `num_join` more that join at the start.

    The nodes in `dies` die after so many assignments. A learner in `gaps` gets its last one at its death, and no
    other can see that.
    """

    def __init__(
        self,
        size: int,
        dies: dict[int, int],
        gaps: set[int],
        stop_after: float = float("inf"),
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
        self.errors: list[BaseException] = []
        self.polls = itertools.count()

    def run(self) -> Crew:
        threads = [threading.Thread(target=self.learn_watched, args=(rank,), daemon=True) for rank in range(self.num)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=WAIT_S)
            assert not thread.is_alive()
        for error in self.errors:
            raise error
        return self

    @property
    def numbers(self) -> list[int]:
        return sorted(itertools.chain(*self.trained))

    def poll(self) -> None:
        assert next(self.polls) < MAX_POLLS, "all wait for one another"
        assert not self.errors, "another one has failed"

    def find_missing(self) -> Sequence[LostBatch]:
        missing = sorted(set(range(NUM_BATCHES)) - set(self.numbers))
        self.num_searches += bool(missing)
        assert self.num_searches <= len(self.dies), "what was missing is missing again, though nobody has died"
        return [(position // self.node_size, 0, position) for position in missing]

    def stops(self) -> bool:
        self.poll()
        return len(self.numbers) >= self.stop_after

    def learn_watched(self, rank: int) -> None:
        try:
            if self.learn(rank):
                self.ended.add(rank)
        except BaseException as error:
            self.errors.append(error)

    def learn(self, rank: int) -> bool:
        """Return whether it is alive at the end."""
        world = World(rank, self.size, self.size, PolledStore(self), members=Members(self.size))
        assert world.members
        left = LostBatches(world, world.members, self.stops, lambda: not self.assigned[rank], self.find_missing)
        rounds = InRounds([NUM_BATCHES], self.node_size)
        queue = WorkQueue(world, AssignmentRule(self.node_size), rounds, Wishes(self.stops), left)
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
                return False
            self.train(rank, ahead)
            ahead = assignment
            world.members.refresh(self.store)
        self.train(rank, ahead)
        for assignment in queue.assign_lost_batches():
            if not self.gets(rank, assignment):
                return False
            self.train(rank, assignment)
        assert world.members.closed
        return True

    def gets(self, rank: int, assignment: Assignment) -> bool:
        """Return whether it lives after that."""
        self.num_got[rank] += 1
        dies = self.num_got[rank] == self.dies.get(rank // self.node_size)
        if assignment.batch and not (dies and rank in self.gaps):
            self.assigned[rank].append(assignment.batch.position)
        return not dies or self.die(rank)

    def train(self, rank: int, assignment: Assignment | None) -> None:
        if assignment and assignment.batch:
            self.trained[rank].append(assignment.batch.position)
            self.assigned[rank].remove(assignment.batch.position)

    def die(self, rank: int) -> bool:
        """With the last of its node all of that are lost."""
        node = node_of(rank, self.node_size)
        left = [(position // self.node_size, 0, position) for position in self.assigned[rank]]
        with self.dead:
            self.losses[rank] = Loss(rank, "was ended by SIGKILL", 0, left)
            if self.losses.keys() >= set(node):
                Members(self.size).lose(self.store, *(self.losses[other] for other in node))
        return False


class PolledStore:
    """The store of a crew for a learner, which polls while it waits for a key."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew

    def __getattr__(self, name: str) -> Any:
        return getattr(self.crew.store, name)

    def get(self, key: str) -> bytes:
        while not self.crew.store.check([key]):
            self.crew.poll()
            time.sleep(0.001)
        found: bytes = self.crew.store.get(key)
        return found


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_batches, "POLL_S", 0.001)


@settings(max_examples=60, deadline=None)
@given(
    num_nodes=st.integers(2, 5),
    node_size=st.sampled_from([1, 1, 2, 3]),
    num_join=st.integers(0, 2),
    dies=st.dictionaries(st.integers(0, 6), st.integers(0, 12), max_size=5),
    gaps=st.sets(st.integers(0, 8)),
)
def test_every_batch_is_trained_once_although_nodes_die_and_learners_join(
    num_nodes: int, node_size: int, num_join: int, dies: dict[int, int], gaps: set[int]
) -> None:
    """A node that dies after no assignment has begun or joined, and no more."""
    if node_size > 1:
        num_nodes, num_join = min(num_nodes, 3), 0
    num = num_nodes + num_join
    dies = {node: when for node, when in dies.items() if node < num}
    if len(dies) == num:
        del dies[min(dies)]
    crew = Crew(num_nodes * node_size, dies, gaps, node_size=node_size, num_join=num_join).run()
    assert crew.numbers == list(range(NUM_BATCHES))
    left = [node_of(node * node_size, node_size) for node in range(num) if node not in dies]
    assert crew.ended >= set(itertools.chain(*left))
    for node in left:  # in lock-step
        assert len({crew.num_got[rank] for rank in node}) == 1


def test_when_all_are_to_stop_what_is_left_stays_left() -> None:
    crew = Crew(3, {1: 3}, set(), stop_after=8).run()
    assert len(set(crew.numbers)) == len(crew.numbers) < NUM_BATCHES
    assert crew.ended | {1} == {0, 1, 2}


def lost_one(left: Sequence[LostBatch], rank: int = 0, world: World | None = None) -> World:
    """What a learner sees after learner 2 of three is lost, with batches that it had `left`."""
    store, members = world.store if world else HashStore(), Members(3)
    members.lose(store, Loss(2, "was ended by SIGKILL", 0, left))
    return World(rank, 3, 3, store, members=members)


def batches_of(world: World, stop: bool = False, idle: Iterator[bool] | None = None) -> LostBatches:
    assert world.members
    return LostBatches(world, world.members, lambda: stop, lambda: idle is None or next(idle), list)


def test_one_that_was_asked_to_stop_takes_nothing_that_is_left() -> None:
    world = lost_one([(0, 0, 0)])
    world.store.set("idle/1", STOPPED)
    assert list(batches_of(world, stop=True).wait(False, SyncGroup(world, 1))) == []
    assert world.members
    assert world.members.closed


def test_a_sync_group_takes_one_for_each_of_its_learners() -> None:
    world = lost_one(lost := [(number, 0, number) for number in range(5)])
    assert list(batches_of(world).take(SyncGroup(world, 2))) == [lost[:2], lost[2:4], lost[4:]]


def test_two_learners_claim_batches_of_one_round_apart() -> None:
    first = lost_one(lost := [(0, 0, 0), (0, 0, 1)])
    worlds = [first, lost_one(lost, 1, first)]
    assert [next(batches_of(world).take(SyncGroup(world, 1))) for world in worlds] == [lost[:1], lost[1:]]


def test_the_training_does_not_end_before_a_learner_has_trained_all_that_it_got() -> None:
    world = lost_one([])
    members = world.members
    assert members
    world.store.set("idle/1", "0")

    def idle() -> Iterator[bool]:
        for is_idle in (False, False, True):
            assert not members.closed
            assert not world.store.check(["idle/0"])
            yield is_idle

    states = idle()
    assert list(batches_of(world, idle=states).wait(False, SyncGroup(world, 1))) == []
    assert members.closed
    assert list(states) == []
