"""The work queue and its claims by windows: each batch once, whatever the speeds."""

from __future__ import annotations

import heapq
import itertools
import random as random_module
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_threads import InRounds, wishes
from torch.distributed import HashStore, Store

from asrtool.distributed.members.members import LostLearner, Members
from asrtool.distributed.work.lost_batches import LostBatches
from asrtool.distributed.work.shard_claims import ShardClaims
from asrtool.distributed.work.work_queue import COUNTER, NUM_DONE, Assignment, AssignmentRule, WorkQueue
from asrtool.distributed.world import World


def assign_to_all(
    size: int,
    rule: AssignmentRule,
    lengths: Sequence[int],
    stop_requested: Callable[[int, int], bool] = lambda rank, num_steps: False,
    saves: Callable[[int], bool] = lambda number: False,
    period: int = 1,
    window: int = 0,
) -> tuple[list[list[Assignment]], list[WorkQueue]]:
    """The assignments of each learner, a thread; all run in lock-step where `rule` says so, else each group.

    Those wait for each other every `period` steps. Batches are in windows of so many, if of any. `stop_requested`
    (learner, steps done) is called at each assignment, `saves` (round) by learner 0.
    """
    store = HashStore()
    together = rule.round_size(size)
    plan = InRounds(lengths, together, window)
    waiting = [threading.Barrier(together) for _ in range(0, size, together)]
    assigned: list[list[Assignment]] = [[] for _ in range(size)]
    queues = [
        WorkQueue(
            World(rank, size, size, store),
            rule,
            plan,
            wishes(lambda rank=rank: stop_requested(rank, len(assigned[rank])), lambda number, _: saves(number)),
        )
        for rank in range(size)
    ]

    def learn(rank: int) -> None:
        mine = assigned[rank]
        ahead = queues[rank].assign()
        assignment = next(ahead, None)
        while assignment:
            following = next(ahead, None)  # assigned before the current one is trained
            mine.append(assignment)
            if together > 1 and len(mine) % period == 0:
                waiting[rank // together].wait(timeout=120)
            if random_module.random() < 0.2:
                time.sleep(random_module.random() / 500)
            assignment = following

    threads = [threading.Thread(target=learn, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    return assigned, queues


def positions(assigned: list[list[Assignment]]) -> list[tuple[int, int]]:
    """Epoch and position of all batches, sorted."""
    return sorted(one.batch for mine in assigned for one in mine if one.batch)


def all_of(lengths: Sequence[int]) -> list[tuple[int, int]]:
    return [(epoch, position) for epoch, length in enumerate(lengths) for position in range(length)]


def test_where_an_epoch_ends_is_known_in_steps_of_all_sync_groups() -> None:
    ends: list[bool] = []

    def save(number: int, ends_within: Callable[[int], bool]) -> bool:
        ends.append(ends_within(2))
        return False

    plan = InRounds([20, 21], 1)
    queue = WorkQueue(World(0, 4, 4, HashStore()), AssignmentRule(), plan, wishes(save=save))
    drawn = [assignment.number for assignment in queue.assign()]  # by one of four, whose step counts as one of each
    assert ends == [any(0 < end - number <= 8 for end in (20, 41)) for number in [0, *drawn]]
    assert 10 < sum(ends) < len(ends) - 10


rules = st.sampled_from([AssignmentRule(), AssignmentRule(lockstep=True), AssignmentRule(group_size=2)])
epochs = st.lists(st.integers(1, 20), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([2, 4, 6]), rules, epochs, st.sampled_from([0, 1, 3, 8]))
def test_every_batch_of_every_epoch_is_assigned_once(
    size: int, rule: AssignmentRule, lengths: list[int], window: int
) -> None:
    """Its epoch is that of its round, so cuts at the ends of epochs include the whole epoch."""
    assigned, _ = assign_to_all(size, rule, lengths, window=window)
    assert positions(assigned) == all_of(lengths)
    assert all(one.batch.epoch == one.round.epoch for mine in assigned for one in mine if one.batch)
    for mine in assigned:
        assert [one.number for one in mine] == sorted({one.number for one in mine})


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([2, 4, 6]), rules, epochs, st.sets(st.integers(0, 12), max_size=4))
def test_all_learners_know_on_which_side_of_a_cut_a_round_is(
    size: int, rule: AssignmentRule, lengths: list[int], numbers: set[int]
) -> None:
    """Learner 0 requests cuts at these of its own steps, at any time for the others."""
    assigned, queues = assign_to_all(size, rule, lengths, saves=lambda number: number in numbers)
    assert positions(assigned) == all_of(lengths)
    cuts = queues[0].cuts
    assert cuts == sorted(cuts)
    for mine in assigned:
        for one in mine:
            assert one.cuts == (one.round.epoch, sum(cut <= one.number for cut in cuts))
    if rule.lockstep:
        last = max(one.number for mine in assigned for one in mine)
        assert all(queue.cuts == cuts for queue in queues)
        assert len(cuts) <= len({number for number in numbers if number <= last})


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([2, 4, 6]), rules, st.sampled_from([1, 2, 3, 50]), st.integers(0, 5), st.integers(0, 5))
def test_when_one_is_asked_to_stop_all_stop_and_no_batch_before_is_left_out(
    size: int, rule: AssignmentRule, period: int, who: int, when: int
) -> None:
    assigned, _ = assign_to_all(
        size, rule, [7, 200], lambda rank, num_steps: rank == who % size and num_steps >= when, period=period
    )
    trained = positions(assigned)
    assert trained == all_of([7, 200])[: len(trained)]
    if rule.lockstep:
        assert len({len(mine) for mine in assigned}) == 1
        assert len(assigned[0]) <= when + 2 + period


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_stop_beside_a_save_is_not_lost(lockstep: bool) -> None:
    """Both are asked for at the same step."""
    rule = AssignmentRule(lockstep=lockstep)
    assigned, _ = assign_to_all(2, rule, [500], lambda _, num_steps: num_steps >= 4, saves=lambda number: number >= 4)
    trained = positions(assigned)
    assert trained == all_of([500])[: len(trained)]
    assert len(trained) < 60


@pytest.mark.parametrize("rule", [AssignmentRule(group_size=4, lockstep=True), AssignmentRule(group_size=2)])
def test_a_sync_group_has_neighbouring_batches_and_its_last_round_may_have_too_few(rule: AssignmentRule) -> None:
    assigned, _ = assign_to_all(4, rule, [10, 9])
    for group in range(0, 4, rule.group_size):
        for together in zip(*assigned[group : group + rule.group_size], strict=True):
            (of_group,) = {one.group for one in together}
            first = of_group[0]
            assert list(of_group) == [(first.epoch, first.position + i) for i in range(len(of_group))]
            assert tuple(one.batch for one in together if one.batch) == of_group
    without = [one for mine in assigned for one in mine if one.batch is None]
    assert len(without) == (2 + 3 if rule.lockstep else 0 + 1)


def ends_in_virtual_time(
    seconds: Sequence[float], *num_rounds: int, group_size: int = 1, store: Store | None = None, window: int = 0
) -> tuple[list[float], list[list[Assignment]]]:
    """Return the end and the batches of each sync group, by its duration of steps; epochs have `num_rounds`.

    As in a training: a learner draws the next batch when it begins to train one.
    """
    store = store or HashStore()
    size = len(seconds) * group_size
    rule, plan = AssignmentRule(group_size), InRounds([num * group_size for num in num_rounds], group_size, window)
    queues = [WorkQueue(World(rank, size, size, store), rule, plan, wishes()) for rank in range(0, size, group_size)]
    assigned = [queue.assign() for queue in queues]
    drawn = [[*itertools.islice(one, 1)] for one in assigned]
    ends = [0.0] * len(seconds)
    begins = [(0.0, group) for group in range(len(seconds)) if drawn[group]]
    while begins:
        now, group = heapq.heappop(begins)
        ends[group] = now + seconds[group]
        if found := next(assigned[group], None):
            drawn[group].append(found)
            heapq.heappush(begins, (ends[group], group))
    assert not any(queue.stopped for queue in queues)
    assert sorted(one.number for mine in drawn for one in mine) == list(range(sum(num_rounds)))
    return ends, drawn


@pytest.mark.parametrize(("num_rounds", "group_size"), [(300, 1), (306, 1), (313, 2), (319, 2)])
def test_nobody_waits_at_the_end_for_a_slow_learner(num_rounds: int, group_size: int) -> None:
    ends, _ = ends_in_virtual_time([10.0, 1.01, 1.0, 0.99, 0.98, 1.0, 1.0, 1.02], num_rounds, group_size=group_size)
    assert max(ends) - min(ends[1:]) < 1.1  # a step, as among equal learners
    assert ends[0] > max(ends) - 12  # and it trains as long as it can


@pytest.mark.parametrize(("num_rounds", "num_left"), [((306,), 1), ((300, 6), 0), ((6, 300), 1)])
def test_nobody_leaves_before_the_last_epoch(num_rounds: tuple[int, ...], num_left: int) -> None:
    """A learner that has left would pass the cut between two epochs only at the end of the training."""
    store = HashStore()
    ends_in_virtual_time([10.0, *7 * [1.0]], *num_rounds, store=store)
    assert store.add(NUM_DONE, 0) == num_left


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([0.1, 0.9, 1.0, 3.0, 30.0]), min_size=1, max_size=6), st.integers(1, 60))
def test_whatever_the_speeds_all_rounds_are_drawn(seconds: list[float], num_rounds: int) -> None:
    ends_in_virtual_time(seconds, num_rounds)


@pytest.mark.parametrize(("group_size", "slowness"), [(1, 10.0), (8, 1.0)])
def test_the_shards_of_a_window_are_read_by_about_one_of_64_learners(group_size: int, slowness: float) -> None:
    window, num_windows = 16, 200
    seconds = np.random.default_rng(1).uniform(0.8, 1.2, 64 // group_size)
    seconds[0] *= slowness
    _, drawn = ends_in_virtual_time(seconds, window * num_windows // group_size, group_size=group_size, window=window)
    readers = {
        (group, member, batch.position // window)
        for group, mine in enumerate(drawn)
        for one in mine
        for member, batch in enumerate(one.group)
    }
    assert num_windows <= len(readers) <= num_windows + 64  # each helps another with a window in the end


def test_learners_that_all_seem_slow_leave_one_that_draws_the_rest() -> None:
    """Each finds that the counter has moved far since its last ticket, as after a pause of all."""
    store, num = HashStore(), 3
    plan = InRounds([1000], 1)
    queues = [WorkQueue(World(rank, num, num, store), AssignmentRule(), plan, wishes()) for rank in range(num)]
    assigned = [queue.assign() for queue in queues]
    for one in assigned:
        next(one)
    store.add(COUNTER, 900)
    for one in assigned:
        next(one)
    assert [len(list(one)) > 0 for one in assigned] == [False, False, True]


def test_a_learner_alone_is_assigned_all_in_order() -> None:
    queue = WorkQueue(World(), AssignmentRule(), InRounds([3, 2], 1), wishes(every=lambda number: number in (2, 4)))
    found = list(queue.assign())
    assert [one.batch for one in found] == all_of([3, 2])
    assert [one.round for one in found] == [(epoch, range(i, i + 1)) for epoch, i in all_of([3, 2])]
    assert [one.cuts and one.cuts.num_requested for one in found] == [0, 0, 1, 1, 2]


def windows_of(lengths: list[int]) -> list[range]:
    return [range(sum(lengths[:i]), sum(lengths[: i + 1])) for i in range(len(lengths))]


def claims_of(windows: list[range], num_groups: int, group_size: int = 1) -> list[ShardClaims]:
    store = HashStore()
    return [ShardClaims(store, 0, windows, group / num_groups, group_size) for group in range(num_groups)]


def test_a_learner_asks_its_sync_group_once_a_step() -> None:
    """The store may be far away, and each answer takes it as long as the way there and back."""
    store, read = HashStore(), Counter[str]()
    near = SimpleNamespace(add=store.add, set=store.set, check=store.check)
    near.get = lambda key: (read.update([key]), store.get(key))[1]
    queues = []
    for rank in range(2):
        world = World(rank, 4, 4, near, members=Members(4))
        assert world.members
        lost = LostBatches(world, world.members, lambda: False, lambda: True, list)
        queues.append(WorkQueue(world, AssignmentRule(2), InRounds([20], 2), wishes(), lost))
    first, second = ([one.batch for one in queue.assign()] for queue in queues)
    assert (first, second) == ([(0, k) for k in range(0, 20, 2)], [(0, k) for k in range(1, 20, 2)])
    assert sorted(read.values()) == 11 * [1]  # ten steps, and the end


def test_a_step_with_batches_of_several_rounds_counts_as_the_last_of_them() -> None:
    """If a lost learner had the last round, this step shows the others that all are assigned."""
    left: Any = SimpleNamespace(
        claim=lambda *_: (), wait=lambda *_: iter([[(2, 0, 5), (0, 0, 0)], [(1, 0, 2), (3, 1, 0)]])
    )
    queue = WorkQueue(World(0, 4, 4, HashStore()), AssignmentRule(2), InRounds([6, 6], 2), wishes(), left)
    list(queue.assign())
    found = [(step.round.epoch, step.number, step.group) for step in queue.assign_lost_batches()]
    assert found == [(0, 2, ((0, 5), (0, 0))), (0, 1, ((0, 2),)), (1, 3, ((1, 0),))]


@pytest.mark.parametrize("rest", [range(3, 4), range(0)])
def test_a_lost_batch_of_the_next_epoch_is_trained_behind_the_end_of_this_one(rest: range) -> None:
    """Other learners have drawn the rounds from 2 on but `rest`, and one of them is lost."""
    world = World(0, 3, 3, HashStore(), members=Members(3))
    members = world.members
    assert members
    lost_batches = LostBatches(world, members, lambda: False, lambda: True, list)
    queue = WorkQueue(world, AssignmentRule(), InRounds([2, 2], 1), wishes(), lost_batches)
    assignments = queue.assign()
    assert [next(assignments).batch for _ in range(2)] == [(0, 0), (0, 1)]
    world.store.add(COUNTER, 2 - len(rest))
    members.lose(world.store, LostLearner(1, "was ended by SIGKILL", 0, [(2, 1, 0)]))
    members.lose(world.store, LostLearner(2, "was ended by SIGKILL", 0, []))
    found = [(step.number, step.batch, step.cuts) for step in (*assignments, *queue.assign_lost_batches())]
    assert found == [*((number, (1, number - 2), (1, 0)) for number in rest), (2, (1, 0), None if rest else (1, 0))]


def test_who_finds_no_window_helps_where_most_is_left_for_each_from_the_last_batch_on_and_stays_there() -> None:
    slow, fast, third, fourth = claims_of(windows_of([6, 9, 2]), 4)
    assert [slow.claim(0), fast.claim(0), fast.claim(0)] == [0, 6, 7]
    assert [third.claim(0) for _ in range(3)] == [15, 16, 14]  # of the second, where 7 are left for two: 5 of the first
    assert fourth.claim(0) == 5  # 6 left of the second would be for three
    assert [third.claim(0) for _ in range(2)] == [13, 12]
    assert [fast.claim(0) for _ in range(5)] == [8, 9, 10, 11, 4]
    assert [third.claim(0), slow.claim(0), fourth.claim(0)] == [3, 1, 2]
