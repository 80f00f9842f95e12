"""What lost learners left is assigned again: every batch is trained once, with or without word of what they had."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_threads import InRounds, Wishes
from torch.distributed import HashStore

from asrtool.distributed import leftovers
from asrtool.distributed.leftovers import Leftovers
from asrtool.distributed.members import Left, Loss, Members, node_of
from asrtool.distributed.work_queue import Assignment, AssignmentRule, WorkQueue
from asrtool.distributed.world import World

NUM_BATCHES = 23
WAIT_S = 120


class Crew:
    """Learners that are threads, in nodes of `node_size`; the nodes that `dies` names die after so many steps.

    One that dies in a `gap` has got its last one in that moment, and nobody knows.
    """

    def __init__(
        self, size: int, dies: dict[int, int], gaps: set[int], stop_after: int | None = None, node_size: int = 1
    ) -> None:
        self.store = HashStore()
        self.size, self.dies, self.gaps, self.stop_after = size, dies, gaps, stop_after
        self.node_size, self.dead = node_size, threading.Lock()
        self.losses: dict[int, Loss] = {}
        self.trained: list[list[int]] = [[] for _ in range(size)]
        self.assigned: list[list[int]] = [[] for _ in range(size)]
        self.num_got = [0] * size
        self.ended: set[int] = set()

    def run(self) -> None:
        threads = [threading.Thread(target=self.learn, args=(rank,), daemon=True) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=WAIT_S)
            assert not thread.is_alive()

    def find_missing(self) -> Sequence[Left]:
        found = {number for mine in self.trained for number in mine}
        return [(position // self.node_size, 0, position) for position in range(NUM_BATCHES) if position not in found]

    def stops(self) -> bool:
        return self.stop_after is not None and sum(map(len, self.trained)) >= self.stop_after

    def learn(self, rank: int) -> None:
        world = World(rank, self.size, self.size, self.store, members=Members(self.size))
        assert world.members
        idle = lambda: not self.assigned[rank]  # noqa: E731
        left = Leftovers(world, world.members, self.stops, idle, self.find_missing)
        rounds = InRounds([NUM_BATCHES], self.node_size)
        queue = WorkQueue(world, AssignmentRule(self.node_size), rounds, Wishes(self.stops), left)
        ahead = None
        for assignment in queue.assign():  # one before the one before it is trained
            if not self.gets(rank, assignment):
                return
            self.train(rank, ahead)
            ahead = assignment
            world.members.look(self.store)
        self.train(rank, ahead)
        for assignment in queue.assign_leftovers():
            if not self.gets(rank, assignment):
                return
            self.train(rank, assignment)
        self.ended.add(rank)

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


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "POLL_S", 0.001)


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(2, 5),
    dies=st.dictionaries(st.integers(0, 4), st.integers(1, 12), max_size=4),
    gaps=st.sets(st.integers(0, 4)),
)
def test_every_round_is_trained_once_although_learners_die(size: int, dies: dict[int, int], gaps: set[int]) -> None:
    dies = {rank: when for rank, when in dies.items() if rank < size}
    if len(dies) == size:
        del dies[min(dies)]
    crew = Crew(size, dies, gaps)
    crew.run()
    assert Counter(number for mine in crew.trained for number in mine) == Counter(range(NUM_BATCHES))
    assert crew.ended >= set(range(size)) - set(dies)


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
