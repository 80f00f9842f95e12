"""Batches of lost learners are claimed once; tests/unit/train/test_lost_learners.py has whole trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.distributed import HashStore

from asrtool.distributed.members.members import LostBatch, LostLearner, Members
from asrtool.distributed.work.lost_batches import STOPPED, LostBatches, SyncGroup
from asrtool.distributed.world import World


def lost_one(left: Sequence[LostBatch], rank: int = 0, world: World | None = None) -> World:
    """What a learner sees after learner 2 of three is lost, with batches that it had `left`."""
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
