"""ShardClaims to batches by windows: each batch once, in whatever order learners come."""

from __future__ import annotations

import random as random_module

from hypothesis import given
from hypothesis import strategies as st
from learner_threads import at_once
from torch.distributed import HashStore

from asrtool.distributed.work.shard_claims import ShardClaims


def windows_of(lengths: list[int]) -> list[range]:
    return [range(sum(lengths[:i]), sum(lengths[: i + 1])) for i in range(len(lengths))]


def claims_of(windows: list[range], num_groups: int, group_size: int = 1) -> list[ShardClaims]:
    store = HashStore()
    return [ShardClaims(store, 0, windows, group / num_groups, group_size) for group in range(num_groups)]


@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    num_groups=st.integers(1, 5),
    group_size=st.integers(1, 3),
    random=st.randoms(use_true_random=False),
)
def test_each_batch_is_claimed_once_whoever_comes_when(
    lengths: list[int], num_groups: int, group_size: int, random: random_module.Random
) -> None:
    windows = windows_of(lengths)
    groups = claims_of(windows, num_groups, group_size)
    claimed = [random.choice(groups).claim(random.randrange(group_size)) for _ in range(sum(lengths))]
    assert sorted(claimed) == list(range(sum(lengths)))


def test_each_batch_is_claimed_once_by_learners_at_the_same_time() -> None:
    groups = claims_of(windows_of([7, 1, 9, 4] * 10), 6)
    claimed = at_once(lambda group: [group.claim(0) for _ in range(35)], groups)
    assert sorted(slot for of_group in claimed for slot in of_group) == list(range(210))


def test_members_of_a_group_have_windows_of_their_own_from_the_first_batch_on() -> None:
    (group,) = claims_of(windows_of([3, 3, 3, 3]), 1, 2)
    assert [[group.claim(member) for member in (0, 1)] for _ in range(6)] == [
        [0, 3],
        [1, 4],
        [2, 5],
        [6, 9],
        [7, 10],
        [8, 11],
    ]


def test_who_finds_no_window_helps_where_most_is_left_for_each_from_the_last_batch_on_and_stays_there() -> None:
    slow, fast, third, fourth = claims_of(windows_of([6, 9, 2]), 4)
    assert [slow.claim(0), fast.claim(0), fast.claim(0)] == [0, 6, 7]
    assert [third.claim(0) for _ in range(3)] == [15, 16, 14]  # of the second, where 7 are left for two: 5 of the first
    assert fourth.claim(0) == 5  # 6 left of the second would be for three
    assert [third.claim(0) for _ in range(2)] == [13, 12]
    assert [fast.claim(0) for _ in range(5)] == [8, 9, 10, 11, 4]
    assert [third.claim(0), slow.claim(0), fourth.claim(0)] == [3, 1, 2]
