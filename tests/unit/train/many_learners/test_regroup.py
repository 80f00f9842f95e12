"""Collectives of the learners that are left, and of the groups that they are in, once a node is lost."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from learners import Learners

from asrtool.distributed.members.members import LostLearner, Members
from asrtool.distributed.world import init_collectives, join_learners, leave_world

pytestmark = pytest.mark.slow

NODES = [[0, 1], [2, 3], [4, 5]]
PLACES = [[0, 2, 4], [1, 3, 5]]


def regroup_without(lost: list[int]) -> dict[str, Any] | None:
    """What the collectives give of a learner that is left: all ranks, those of its node, and those of its place."""
    world = join_learners()
    init_collectives(world)
    members = world.members = Members(world.size, world.rank)
    node, others = world.split(NODES), world.split(PLACES)
    world.barrier()
    found = None
    if world.rank not in lost:
        members.lose(world.store, *(LostLearner(rank, "was ended by SIGKILL", 0) for rank in lost))
        world.regroup()
        mean_P = torch.full((3,), float(world.rank))
        others.mean(mean_P)
        found = {
            "all": world.gather(world.rank),
            "node": node.gather(world.rank),
            "others": others.gather(world.rank),
            "mean": mean_P.tolist(),
            "live": (list(node.live), list(others.live)),
        }
    world.subgroups.clear()
    leave_world()
    return found


@pytest.mark.parametrize("lost", [[2, 3], [0, 1], [0, 1, 4, 5]])
def test_groups_have_the_learners_that_are_left(lost: list[int]) -> None:
    with contextlib.closing(Learners(6)) as learners:
        found = learners.run(regroup_without, lost)
    left = [rank for rank in range(6) if rank not in lost]
    for rank in left:
        others = [other for other in left if other % 2 == rank % 2]
        assert found[rank] == {
            "all": left,
            "node": NODES[rank // 2],
            "others": others,
            "mean": [sum(others) / len(others)] * 3,
            "live": ([0, 1], [other // 2 for other in others]),
        }
