"""The members of a training: all read the same changes, however many report them at once, and share lost batches.

tests/unit/train/test_lost_learners.py has whole trainings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from torch.distributed import HashStore

from asrtool.distributed.members.members import LostBatch, LostLearner, Members
from asrtool.distributed.work.lost_batches import STOPPED, LostBatches, SyncGroup
from asrtool.distributed.world import World

SIZE = 3
learners = st.integers(0, SIZE + 2)
views = st.integers(0, SIZE - 1)


def loss(rank: int, why: str = "was ended by SIGKILL") -> LostLearner:
    return LostLearner(rank, why, 10 * rank, [(rank, 0, 100 + rank)])


class Changes(RuleBasedStateMachine):
    """Changes by any learner from its view, against a plain list of the members."""

    def __init__(self) -> None:
        super().__init__()
        self.store = HashStore()
        self.views = [Members(SIZE) for _ in range(SIZE)]  # one may be older than others
        self.live = list(range(SIZE))
        self.joined: dict[int, int] = {}
        self.whys: dict[int, str] = {}
        self.left: list[tuple[int, int, int]] = []
        self.closed = False

    @rule(view=views, rank=learners, second=learners, why=st.sampled_from(["was killed", "is silent"]))
    def lose(self, view: int, rank: int, second: int, why: str) -> None:
        """Lose one learner, or two of a node; the first report counts."""
        lost = [other for other in dict.fromkeys((rank, second)) if other in (*range(SIZE), *self.joined)]
        if lost:
            self.views[view].lose(self.store, *(loss(other, why) for other in lost))
        if lost and lost[0] not in self.whys and not self.closed:
            new = [other for other in lost if other not in self.whys]
            self.whys |= dict.fromkeys(new, why)
            self.left += [(other, 0, 100 + other) for other in new]
            self.live = [other for other in self.live if other not in new]

    @rule(view=views, rank=st.integers(SIZE, SIZE + 2), cut=st.integers(0, 3))
    def join(self, view: int, rank: int, cut: int) -> None:
        has_joined = self.views[view].join(self.store, rank, cut)
        if rank not in self.joined and not self.closed:
            self.joined[rank] = cut
            self.live.append(rank)
        assert has_joined == (rank in self.live)

    @rule(view=views, position=st.integers(0, 9))
    def reassign(self, view: int, position: int) -> None:
        self.views[view].reassign(self.store, [(0, 0, position)])
        self.left += [] if self.closed else [(0, 0, position)]

    @rule(view=views)
    def close(self, view: int) -> None:
        """The training ends with the members in the learner's view, or it does not end."""
        known = self.views[view].live
        self.closed = self.closed or known == tuple(self.live)
        assert self.views[view].close(self.store, known) == self.closed

    @invariant()
    def all_agree(self) -> None:
        newest = Members(SIZE)
        newest.refresh(self.store)
        assert newest.live == tuple(self.live)
        assert {rank: lost.why for rank, lost in newest.losses.items()} == self.whys
        assert newest.lost_batches == self.left
        assert sorted(newest.all_ranks) == sorted([*range(SIZE), *self.joined])
        assert newest.closed == self.closed
        for cut in range(4):
            assert newest.at(cut) == tuple(rank for rank in self.live if self.joined.get(rank, 0) < cut)


Changes.TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
TestChanges = Changes.TestCase


def test_all_agree_after_changes_at_the_same_time() -> None:
    store, everyone = HashStore(), [Members(6) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda members, rank: members.lose(store, loss(rank)), everyone, [0, 1, 2, 3, 1, 2]))
    assert store.num_keys() == 4  # what two have reported is one change
    for members in everyone:
        members.refresh(store)
    assert {members.live for members in everyone} == {(4, 5)}
    assert all(sorted(members.lost_batches) == [(rank, 0, 100 + rank) for rank in range(4)] for members in everyone)


def test_a_training_does_not_end_while_its_members_change() -> None:
    store, members = HashStore(), Members(3)
    known = members.live
    Members(3).lose(store, loss(1))
    assert not members.close(store, known)
    assert members.close(store, members.live)


def test_the_first_one_left_logs_all_losses(caplog: pytest.LogCaptureFixture) -> None:
    """It also logs losses that earlier learners would have logged, had they not been lost as well."""
    store, members = HashStore(), Members(4, rank=2)
    for rank in (3, 0):
        members.lose(store, loss(rank))
    assert caplog.messages == []
    members.lose(store, loss(1))
    assert caplog.messages == [f"learner {rank} was ended by SIGKILL: 1 trains without it" for rank in (3, 0, 1)]


def lost_one(left: Sequence[LostBatch], rank: int = 0, world: World | None = None) -> World:
    """World of a learner after the loss of learner 2 of three, which `left` these batches."""
    store, members = world.store if world else HashStore(), Members(3)
    members.lose(store, LostLearner(2, "was ended by SIGKILL", 0, left))
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
    batches = batches_of(world)
    assert [batches.claim(2, 0) for _ in range(4)] == [lost[:2], lost[2:4], lost[4:], []]


def test_two_learners_claim_batches_of_one_round_apart() -> None:
    first = lost_one(lost := [(0, 0, 0), (0, 0, 1)])
    worlds = [first, lost_one(lost, 1, first)]
    assert [batches_of(world).claim(1, 0) for world in worlds] == [lost[:1], lost[1:]]


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
