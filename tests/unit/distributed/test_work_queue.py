"""The work queue: every batch once, whatever the speeds, and all stop at the same one."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_threads import Net, started
from torch.distributed import HashStore

from asrtool.distributed.work_queue import Assignment, AssignmentRule, WorkQueue
from asrtool.distributed.world import World

Worlds = list[tuple[World, AssignmentRule]]


def assign_to_all(
    size: int,
    assignment_rule: AssignmentRule,
    begin: int,
    end: int,
    last: int,
    stop_requested: Callable[[int, int], bool],
    period: int = 1,
) -> list[list[Assignment]]:
    """The assignments of each learner, a thread; all run in lock-step where `assignment_rule` says so, else each group.

    Those wait for each other every `period` steps. `stop_requested` (learner, steps done) is called at each assignment.
    """
    store = HashStore()
    together = size if assignment_rule.lockstep else assignment_rule.group_size
    waiting = [threading.Barrier(together) for _ in range(0, size, together)]
    assigned: list[list[Assignment]] = [[] for _ in range(size)]

    def learn(rank: int) -> None:
        mine = assigned[rank]
        queue = WorkQueue(World(rank, size, size, store), assignment_rule, lambda: stop_requested(rank, len(mine)))
        ahead = queue.assign(begin, end, last)
        assignment = next(ahead, None)
        while assignment:
            following = next(ahead, None)  # assigned before the current one is trained
            mine.append(assignment)
            if together > 1 and len(mine) % period == 0:
                waiting[rank // together].wait(timeout=120)
            if random.random() < 0.2:
                time.sleep(random.random() / 500)
            assignment = following

    threads = [threading.Thread(target=learn, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    return assigned


def positions(assigned: list[list[Assignment]]) -> list[int]:
    return sorted(one.position for mine in assigned for one in mine if one.position is not None)


rules = st.sampled_from([AssignmentRule(), AssignmentRule(lockstep=True), AssignmentRule(group_size=2)])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([2, 4, 6]), rules, st.integers(0, 9), st.integers(1, 30), st.integers(0, 9))
def test_every_batch_is_assigned_once(
    size: int, assignment_rule: AssignmentRule, begin: int, num: int, beyond: int
) -> None:
    end, last = begin + num, begin + num + beyond
    assigned = assign_to_all(size, assignment_rule, begin, end, last, lambda *_: False)
    trained = positions(assigned)
    assert trained == list(range(begin, begin + len(trained)))
    unit = size if assignment_rule.lockstep else assignment_rule.group_size
    assert num <= len(trained) < num + unit  # the last round is filled where there are more batches
    assert len(trained) <= last - begin


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([2, 4, 6]), rules, st.sampled_from([1, 2, 3, 50]), *(st.integers(0, 5) for _ in range(3)))
def test_when_one_is_asked_to_stop_all_stop_and_no_batch_before_is_left_out(
    size: int, assignment_rule: AssignmentRule, period: int, who: int, when: int, begin: int
) -> None:
    end = begin + 200

    def stop_requested(rank: int, num_steps: int) -> bool:
        return rank == who % size and num_steps >= when

    assigned = assign_to_all(size, assignment_rule, begin, end, end, stop_requested, period)
    trained = positions(assigned)
    assert trained == list(range(begin, begin + len(trained)))
    if assignment_rule.lockstep:
        assert len({len(mine) for mine in assigned}) == 1
        assert len(assigned[0]) <= when + 2 + period


def test_learners_that_synchronise_once_a_long_block_still_stop_at_once() -> None:
    """Here both happen to be equally fast."""
    (alone,) = started("bmuf", [Net()], {"block_steps": 1000})
    alone.close()
    rule = alone.assignment_rule
    assigned = assign_to_all(2, rule, 0, 200, 200, lambda rank, num_steps: rank == 0 and num_steps >= 3)
    assert [len(mine) for mine in assigned] in ([4, 4], [5, 5], [6, 6])


@pytest.mark.parametrize("rule", [AssignmentRule(group_size=4, lockstep=True), AssignmentRule(group_size=2)])
def test_a_sync_group_has_neighbouring_batches_and_its_last_round_may_have_too_few(rule: AssignmentRule) -> None:
    assigned = assign_to_all(4, rule, 0, 10 - rule.group_size // 4, 10, lambda *_: False)
    for group in range(0, 4, rule.group_size):
        for together in zip(*assigned[group : group + rule.group_size], strict=True):
            first = together[0].position
            assert first is not None
            assert {one.group for one in together} == {range(first, min(first + rule.group_size, 10))}
            assert [one.position for one in together if one.position is not None] == list(together[0].group)
    without = [one for mine in assigned for one in mine if one.position is None]
    assert len(without) == (2 if rule.lockstep else 0)


def test_a_learner_alone_is_assigned_all_in_order() -> None:
    queue = WorkQueue(World(), AssignmentRule(), lambda: False)
    assert [assignment.position for assignment in queue.assign(3, 9, 12)] == [3, 4, 5, 6, 7, 8]
    assert [assignment.end for assignment in queue.assign(3, 5, 12)] == [4, 5]


def test_two_assignments_one_after_the_other_are_independent() -> None:
    queue = WorkQueue(World(0, 2, 2, HashStore()), AssignmentRule(), lambda: False)
    assert [assignment.position for assignment in queue.assign(0, 3, 9)] == [0, 1, 2]
    assert [assignment.position for assignment in queue.assign(3, 5, 9)] == [3, 4]
