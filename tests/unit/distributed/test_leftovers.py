"""What lost learners left is dealt again: every batch is trained once, with or without word of what they had."""

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
from asrtool.distributed.members import Left, Loss, Members
from asrtool.distributed.work_queue import Assignment, AssignmentRule, WorkQueue
from asrtool.distributed.world import World

NUM_ROUNDS = 23
WAIT_S = 120


class Crew:
    """Learners that are threads; those that `dies` names die once they have got so many rounds.

    One that dies in a `gap` has got its last one in that moment, and nobody knows.
    """

    def __init__(self, size: int, dies: dict[int, int], gaps: set[int], stop_after: int | None = None) -> None:
        self.store = HashStore()
        self.size, self.dies, self.gaps, self.stop_after = size, dies, gaps, stop_after
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
        return [(number, 0, number) for number in range(NUM_ROUNDS) if number not in found]

    def stops(self) -> bool:
        return self.stop_after is not None and sum(map(len, self.trained)) >= self.stop_after

    def learn(self, rank: int) -> None:
        world = World(rank, self.size, self.size, self.store, members=Members(self.size))
        assert world.members
        idle = lambda: not self.assigned[rank]  # noqa: E731
        left = Leftovers(world, world.members, self.stops, idle, self.find_missing)
        queue = WorkQueue(world, AssignmentRule(), InRounds([NUM_ROUNDS], 1), Wishes(self.stops), left)
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
        dies = self.num_got[rank] == self.dies.get(rank)
        if not (dies and rank in self.gaps):
            self.assigned[rank].append(assignment.number)
        if dies:
            self.die(rank)
        return not dies

    def train(self, rank: int, assignment: Assignment | None) -> None:
        if assignment:
            self.trained[rank].append(assignment.number)
            self.assigned[rank].remove(assignment.number)

    def die(self, rank: int) -> None:
        Members(self.size).lose(
            self.store, Loss(rank, "was ended by SIGKILL", 0, [(number, 0, number) for number in self.assigned[rank]])
        )


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
    assert Counter(number for mine in crew.trained for number in mine) == Counter(range(NUM_ROUNDS))
    assert crew.ended >= set(range(size)) - set(dies)


def test_when_all_are_to_stop_what_is_left_stays_left() -> None:
    crew = Crew(3, {1: 3}, set(), stop_after=8)
    crew.run()
    numbers = [number for mine in crew.trained for number in mine]
    assert len(numbers) == len(set(numbers)) < NUM_ROUNDS
    assert crew.ended | {1} == {0, 1, 2}
