"""The batches that learners left untrained when they were lost: they are assigned again, each once.

Each is claimed by a key of its own, before the next round of the counter. A learner that has none left waits for the
others, who may be lost as well. The first of them ends the training once all have nothing to do and every batch is in
somebody's records: one that was assigned to a learner in the moment of its death is in no list, and is found missing
then.
Learners of a sync group claim one for each of them, and train these in one step.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from asrtool.distributed.members.members import Left, Members
from asrtool.distributed.world import World


class SyncGroup:
    """The `size` learners of a sync group, neighbours by rank, of which this process is one."""

    def __init__(self, world: World, size: int) -> None:
        self.size = size
        self.number, self.member = divmod(world.rank, size)
        self._store = world.store
        self._counts = itertools.count()

    def share(self, find: Callable[[], Any]) -> Any:
        """What `find` returns at the first member, in the form of JSON at others. All call this, in the same order."""
        if self.size == 1:
            return find()
        key = f"group{self.number}/{next(self._counts)}"
        if self.member:
            return json.loads(self._store.get(key))
        found = find()
        self._store.set(key, json.dumps(found))
        return found


FIRST_POLL_S, POLL_S = 0.005, 0.1  # longer and longer: learners of one speed end together, a slow one much later
STOPPED = "stopped"


class Leftovers:
    """Those that this learner claims, or the first one of its sync group."""

    def __init__(
        self,
        world: World,
        members: Members,
        stop: Callable[[], bool],
        is_idle: Callable[[], bool],
        find_missing: Callable[[], Sequence[Left]],
    ) -> None:
        """`stop`: whether all are to; `is_idle`: whether this learner has trained all that it got.

        `find_missing` is asked when all are idle: which batches are in nobody's records.
        """
        self.world = world
        self.members = members
        self.stop = stop
        self.is_idle = is_idle
        self.find_missing = find_missing
        self._num_claimed = 0  # of the list, by this learner or others

    def take(self, group: SyncGroup) -> Iterator[Sequence[Left]]:
        """Those of which there is word now, by steps of the sync group."""
        while left := group.share(lambda: self._claim(group.size)):
            yield left

    def _claim(self, num: int) -> Sequence[Left]:
        """The next ones that nobody has, up to `num` of them."""
        claimed: list[Left] = []
        while len(claimed) < num and self._num_claimed < len(self.members.again):
            left = self.members.again[self._num_claimed]
            key, rank = f"again/{self._num_claimed}", str(self.world.rank)
            self._num_claimed += 1
            if self.world.store.compare_set(key, "", rank).decode() == rank:
                claimed.append(left)
        return claimed

    def wait(self, stopped: bool, group: SyncGroup) -> Iterator[Sequence[Left]]:
        """Behind the last round: those of which there is word before the training ends. `stopped`: it takes none."""
        pause_s = FIRST_POLL_S
        while True:
            stopped = stopped or self.stop()
            closed, left, self._num_claimed = group.share(lambda: self._look(0 if stopped else group.size))  # noqa: B023
            if closed:
                self.members.look(self.world.store)  # what the first one of the group has seen
                return
            if left:
                yield left
            elif self.is_idle():
                self._end(STOPPED if stopped else str(self._num_claimed))
                time.sleep(pause_s)
                pause_s = min(1.5 * pause_s, POLL_S)

    def _look(self, num: int) -> tuple[bool, Sequence[Left], int]:
        """Whether the training ends, up to `num` batches that are claimed else, and how far the list is claimed."""
        self.members.look(self.world.store)
        left = [] if self.members.closed else self._claim(num)
        return self.members.closed, left, self._num_claimed

    def _end(self, state: str) -> None:
        """Say that this learner is idle; the first one ends the training where all are."""
        store, live = self.world.store, self.members.live
        store.set(f"idle/{self.world.rank}", state)
        if self.world.rank != live[0]:
            return
        keys = [f"idle/{rank}" for rank in live]
        states = {store.get(key).decode() for key in keys} if store.check(keys) else {""}
        if not states <= {STOPPED, str(len(self.members.again))}:
            return
        missing = [] if STOPPED in states else self.find_missing()
        if missing:
            self.members.deal_again(store, missing)
        else:
            self.members.close(store, live)
