"""How often learners decode a shard, by the real plan and the real queue, on an index of 2,000 hours."""

from __future__ import annotations

import functools
import heapq
import random as random_module
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from learner_threads import Wishes
from torch.distributed import HashStore

from asrtool.data.batches import Lengths, plan_epoch
from asrtool.data.storage.index import WINDOW_SHARDS
from asrtool.distributed.work.work_queue import AssignmentRule, WorkQueue
from asrtool.distributed.world import World
from asrtool.settings.data import Features
from asrtool.train.batches.plan import Plan
from asrtool.train.batches.source import Planned
from asrtool.train.checkpoints.checkpoint import State

pytestmark = pytest.mark.slow

NUM_LEARNERS = 64
HOURS = 2000
SHARD_CUTS = Features().shard_cuts


@functools.cache
def lengths(hours: int) -> Lengths:
    """Of utterances in 10 ms: 3 s in the mean, 20 s at most, as in telephone conversations."""
    drawn = np.random.default_rng(1).lognormal(0.65, 0.95, hours * 1400).clip(0.1, 20)
    num_frames = (100 * drawn[: np.searchsorted(drawn.cumsum(), hours * 3600)]).astype(int)
    return Lengths(num_frames, np.arange(0, len(num_frames), SHARD_CUTS))


class Index:
    """A source of which nothing is read."""

    def __init__(self, hours: int, batch_s: int) -> None:
        self.batches = [
            Planned(batch.indices, len(batch.indices), 1, window=batch.window)
            for batch in plan_epoch(lengths(hours), 100 * batch_s, 1, 0)
        ]
        self.num_shards = len(lengths(hours).first)
        self.shards_of = [sorted({i // SHARD_CUTS for i in batch.content}) for batch in self.batches]

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        return iter(self.batches[batch:])


class Reader:
    """Counts the shards that a learner decodes; it has the last ones in memory."""

    def __init__(self) -> None:
        self.num_decoded = 0
        self._kept: OrderedDict[int, None] = OrderedDict()

    def read(self, shards: Sequence[int]) -> None:
        for shard in shards:
            if shard not in self._kept:
                self.num_decoded += 1
                if len(self._kept) == WINDOW_SHARDS:
                    self._kept.popitem(last=False)
            self._kept[shard] = None
            self._kept.move_to_end(shard)


def decodes(source: Index, rule: AssignmentRule, slowness: float = 1.0, num_learners: int = NUM_LEARNERS) -> float:
    """How often a shard is decoded in an epoch; steps take times of 0.8 to 1.2, of group 0 `slowness` times that."""
    size = rule.round_size(num_learners)
    plan, store = Plan(source, 1, size, State()), HashStore()  # type: ignore[arg-type]
    queues = [WorkQueue(World(rank, num_learners, 1, store), rule, plan, Wishes()) for rank in range(num_learners)]
    groups = [[queue.assign() for queue in queues[i : i + size]] for i in range(0, num_learners, size)]
    readers = [Reader() for _ in queues]
    draw = random_module.Random(1)
    coming = [(draw.random(), group) for group in range(len(groups))]
    trained = []
    while coming:
        time, group = heapq.heappop(coming)
        together = [next(assigned, None) for assigned in groups[group]]
        if together[0] is None:
            continue
        for reader, one in zip(readers[group * size :], together, strict=False):
            if one and one.batch:
                trained.append(one.batch.position)
                reader.read(source.shards_of[one.batch.position])
        heapq.heappush(coming, (time + draw.uniform(0.8, 1.2) * (slowness if group == 0 else 1), group))
    assert sorted(trained) == list(range(len(source.batches)))
    return sum(reader.num_decoded for reader in readers) / source.num_shards


@pytest.mark.parametrize("batch_s", [120, 600, 2400])
def test_shards_are_decoded_about_once_an_epoch_by_64_learners(batch_s: int) -> None:
    """But for learners in lock-step, whose batches of a round are neighbours: the bits of a training depend on it."""
    source = Index(HOURS, batch_s)
    found = {
        "equal": decodes(source, AssignmentRule()),
        "one 10x slower": decodes(source, AssignmentRule(), slowness=10),
        "nodes of 8": decodes(source, AssignmentRule(group_size=8)),
    }
    in_lock_step = decodes(source, AssignmentRule(lockstep=True))
    print(f"batch_s {batch_s}:", ", ".join(f"{name} {num:.2f}" for name, num in found.items()), end=", ")
    print(f"lock-step {in_lock_step:.1f}")
    assert all(1 <= num <= 1.2 for num in found.values())
    assert in_lock_step > 1.2


def test_one_learner_decodes_each_shard_once() -> None:
    assert decodes(Index(20, 120), AssignmentRule(), num_learners=1) == 1
