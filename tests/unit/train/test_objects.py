"""Objects of real learners, gathered by real collectives."""

from __future__ import annotations

import contextlib

import pytest
import torch.distributed as collectives
from learners import Learners

from asrtool.distributed import world
from asrtool.distributed.world import (
    FIRST_BYTES,
    LENGTH_BYTES,
    gather_objects,
    init_collectives,
    join_learners,
    leave_world,
)


def gather_all(values: list[list[object]]) -> tuple[list[list[object]], list[object]]:
    """Be one of the learners, with one of each of these values; and what torch itself makes of the last ones."""
    world = join_learners()
    init_collectives(world)
    found = [gather_objects(of_all[world.rank], world.size, world.group) for of_all in values]
    by_torch: list[object] = [None] * world.size
    collectives.all_gather_object(by_torch, values[-1][world.rank], group=world.group)
    leave_world()
    return found, by_torch


def test_objects_of_any_size_come_as_they_are_in_the_order_of_the_learners() -> None:
    overhead = len(world.pickle.dumps(b"x" * 100)) - 100 + LENGTH_BYTES  # of bytes, more than a few
    just = FIRST_BYTES - overhead
    sizes = [(0, 0, 0), (just, 1, 0), (just + 1, just, 3), (2, 5 * FIRST_BYTES, 100_000)]
    values: list[list[object]] = [[bytes([rank]) * size for rank, size in enumerate(of_all)] for of_all in sizes]
    values.append([None, {"lost": [1, 2.5, "three"]}, (False, ())])
    with contextlib.closing(Learners(3)) as learners:
        for found, by_torch in learners.run(gather_all, values):
            assert found == values
            assert found[-1] == by_torch


@pytest.mark.parametrize("num_over", [0, 1])
def test_small_objects_take_one_collective(num_over: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def all_gather(places: list[world.torch.Tensor], own_B: world.torch.Tensor, group: None) -> None:
        calls.append(len(own_B))
        for place in places:
            place.copy_(own_B)

    monkeypatch.setattr(world.collectives, "all_gather", all_gather)
    overhead = len(world.pickle.dumps(b"x" * 300)) - 300 + LENGTH_BYTES
    value = b"y" * (FIRST_BYTES - overhead + num_over)
    assert gather_objects(value, 2, None) == [value, value]
    assert calls == [FIRST_BYTES, 1][: 1 + num_over]
