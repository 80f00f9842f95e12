"""The members of a training: all learners read the same changes, however many report them at once."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed import HashStore

from asrtool.distributed.members.members import Loss, Members


def loss(rank: int) -> Loss:
    return Loss(rank, "was ended by SIGKILL", 10 * rank, [(rank, 0, 100 + rank)])


def test_a_loss_counts_once_and_as_the_first_one_reports_it() -> None:
    store, members, other = HashStore(), Members(3), Members(3)
    members.lose(store, loss(1))
    other.lose(store, Loss(1, "has given no sign of life", 99))
    for one in (members, other):
        one.refresh(store)
        assert one.live == (0, 2)
        assert one.losses[1].record_bytes == 10
        assert one.lost_batches == [(1, 0, 101)]


def test_a_training_ends_only_with_the_members_that_it_was_to_end_with() -> None:
    store, members = HashStore(), Members(3)
    Members(3).lose(store, loss(2))
    assert not members.close(store, (0, 1, 2))
    assert members.close(store, (0, 1))
    Members(3).lose(store, loss(1))
    members.refresh(store)
    assert members.live == (0, 1)
    members.reassign(store, [(0, 0, 7)])
    assert members.lost_batches == [(2, 0, 102)]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.lists(st.integers(0, 5), max_size=6))
def test_all_agree_after_changes_at_the_same_time(size: int, lost: list[int]) -> None:
    store, lost = HashStore(), [rank for rank in lost if rank < size]
    everyone = [Members(size) for _ in range(size)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda rank: random.choice(everyone).lose(store, loss(rank)), lost))
    for members in everyone:
        members.refresh(store)
    assert {members.live for members in everyone} == {tuple(rank for rank in range(size) if rank not in lost)}
    assert all(
        sorted(members.lost_batches) == [(rank, 0, 100 + rank) for rank in sorted(set(lost))] for members in everyone
    )


def test_the_first_one_left_logs_all_losses(caplog: pytest.LogCaptureFixture) -> None:
    """Also those that one before it would have logged, had it not been lost as well."""
    store, members = HashStore(), Members(4, rank=2)
    for rank in (3, 0):
        members.lose(store, loss(rank))
    assert caplog.messages == []
    members.lose(store, loss(1))
    assert caplog.messages == [f"learner {rank} was ended by SIGKILL: 1 train without it" for rank in (3, 0, 1)]
