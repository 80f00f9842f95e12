"""The groups of learners."""

from __future__ import annotations

import pytest
import torch
from torch.distributed import HashStore

from asrtool.distributed import world
from asrtool.distributed.world import World


@pytest.mark.parametrize(
    ("num_gpus", "expected"), [((2, 2, 2), "cpu:gloo,cuda:nccl"), ((2, 1, 2), "gloo"), ((2, 2, 0), "gloo")]
)
def test_nccl_connects_learners_only_where_each_has_a_gpu_of_its_own(
    num_gpus: tuple[int, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two learners on a machine; NCCL would refuse two on a GPU, and learners of two backends would wait for ever."""
    store, backends = HashStore(), []
    monkeypatch.setattr(world.collectives, "init_process_group", lambda backend, **_: backends.append(backend))
    monkeypatch.setattr(world, "choose_gpu", lambda: None)
    for rank in (2, 1, 0):
        for other in range(rank):  # what others have written by then
            own = num_gpus[other] >= 2
            store.set(f"collectives/gpu/{other}", str(own))
        monkeypatch.setattr(torch.cuda, "device_count", lambda rank=rank: num_gpus[rank])
        world.init_collectives(World(rank, 3, 2, store))
    assert backends == [expected] * 3


def test_the_learners_of_a_group_have_the_address_of_all() -> None:
    assert World(address="10.1.0.5").split([[0]]).address == "10.1.0.5"
