"""Batches that lost learners left untrained: they are assigned again, each once.

A learner claims each by a key of its own, before the next round of the counter. When it has none left
it waits for the others, which may be lost as well. When all are idle, the first learner ends the
training, if every batch is in the records of a learner. A batch that was assigned at the moment of a
learner's death is in no list: it is found missing then, and is assigned again.

Learners of a sync group claim a batch for each of them, and train these in one step.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from asrtool.distributed.members.members import LostBatch, Members
from asrtool.distributed.world import World

FIRST_POLL_S, POLL_S = 0.005, 0.1  # longer and longer: learners of one speed end together, a slow one much later
STOPPED = "stopped"


class SyncGroup:
    """Sync group of `size` learners, neighbours by rank, of which this process is one."""

    def __init__(self, world: World, size: int) -> None:
        self.size = size
        self.number, self.member = divmod(world.rank, size)
        self._store = world.store
        self._counts = itertools.count()

    def share(self, find: Callable[[], Any]) -> Any:
        """Return the result of `find` at the first member; all call this, in one order."""
        if self.size == 1:
            return find()
        key = f"group{self.number}/{next(self._counts)}"
        if self.member:
            return json.loads(self._store.get(key))
        found = find()
        self._store.set(key, json.dumps(found))
        return found


@dataclass(eq=False)
class LostBatches:
    """Batches of lost learners that this learner or its sync group claims."""

    world: World
    members: Members
    stop: Callable[[], bool]  # all learners are to stop
    is_idle: Callable[[], bool]  # this learner has trained all its batches
    find_missing: Callable[[], Sequence[LostBatch]]  # after all are idle: the batches in no learner's records
    _num_claimed: int = 0  # batches of the list claimed by this learner or others

    def claim(self, num: int, epoch: float = math.inf) -> Sequence[LostBatch]:
        """Claim the next `num` batches that are known to be left and that no learner has.

        They end with the first batch of a later epoch: a checkpoint before it lacks that epoch.
        """
        claimed: list[LostBatch] = []
        while len(claimed) < num and self._num_claimed < len(self.members.lost_batches):
            batch = self.members.lost_batches[self._num_claimed]
            if batch[1] > epoch:
                break
            key, rank = f"again/{self._num_claimed}", str(self.world.rank)
            self._num_claimed += 1
            if self.world.store.compare_set(key, "", rank).decode() == rank:
                claimed.append(batch)
        return claimed

    def wait(self, stopped: bool, group: SyncGroup) -> Iterator[Sequence[LostBatch]]:
        """Yield batches until the training ends; none if the assignment was `stopped`."""
        pause_s = FIRST_POLL_S
        while True:
            stopped = stopped or self.stop()
            closed, batches, self._num_claimed = group.share(lambda: self._poll(0 if stopped else group.size))  # noqa: B023
            if closed:
                self.members.refresh(self.world.store)  # read the changes that the first one of the group has seen
                return
            if batches:
                yield batches
            elif self.is_idle():
                self._end(STOPPED if stopped else str(self._num_claimed))
                time.sleep(pause_s)
                pause_s = min(1.5 * pause_s, POLL_S)

    def _poll(self, num: int) -> tuple[bool, Sequence[LostBatch], int]:
        """Return whether the training ends, up to `num` batches, and the number claimed."""
        self.members.refresh(self.world.store)
        batches = [] if self.members.closed else self.claim(num)
        return self.members.closed, batches, self._num_claimed

    def _end(self, state: str) -> None:
        """Publish that this learner is idle; the first one ends the training if all are."""
        store, live = self.world.store, self.members.live
        store.set(f"idle/{self.world.rank}", state)
        if self.world.rank != live[0]:
            return
        keys = [f"idle/{rank}" for rank in live]
        states = {store.get(key).decode() for key in keys} if store.check(keys) else {""}
        if not states <= {STOPPED, str(len(self.members.lost_batches))}:
            return
        missing = [] if STOPPED in states else self.find_missing()
        if missing:
            self.members.reassign(store, missing)
        else:
            self.members.close(store, live)
