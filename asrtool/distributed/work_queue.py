"""The work queue: which batch of an epoch a learner trains next.

All learners know the list of an epoch's batches. They are assigned in rounds. In lock-step a round has a batch for
every learner, and learner r takes batch r of each: no request is needed, and a restart assigns the same again.
Otherwise a round has a batch for every member of a sync group (one learner, or those that average their gradients), and
a counter in the store, common to all groups, gives the next round, so each batch is trained once whatever the speed of
each group.

A learner that is asked to stop ends the assignment for all, so that all stop at the same batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from asrtool.distributed.world import World

FAR = 2**40  # added to the counter, this ends the assignment


@dataclass(frozen=True)
class AssignmentRule:
    """How a strategy wants its batches assigned."""

    group_size: int = 1  # learners of a sync group: neighbours by rank that average their gradients
    lockstep: bool = False  # whether all learners step together


@dataclass(frozen=True)
class Assignment:
    """What a learner trains in a step; positions count the batches of an epoch from 0."""

    position: int | None  # its batch; None when the last round has none left for this learner
    group: range  # positions of its sync group
    end: int  # all positions below are assigned once this round is


class WorkQueue:
    """Assigns the batches of an epoch to this learner."""

    def __init__(self, world: World, rule: AssignmentRule, stop_requested: Callable[[], bool]) -> None:
        self.world = world
        self.rule = rule
        self.stop_requested = stop_requested
        self.num_calls = 0

    def assign(self, begin: int, end: int, last: int) -> Iterator[Assignment]:
        """This learner's part of the batches `begin` to `end` (more, to fill a round), `last` being the epoch's end.

        To be called by all learners alike. What was assigned is to be trained, also when the assignment ends early; one
        without a batch is the last.
        """
        self.num_calls += 1
        group_size = self.rule.group_size
        size = self.world.size if self.rule.lockstep else group_size
        rounds = self._in_order if self.rule.lockstep or self.world.size == size else self._by_counter
        place = self.world.rank % size
        for number in rounds(f"assign/{self.num_calls}", -(-(end - begin) // size)):
            first = begin + number * size
            group_first = first + place // group_size * group_size
            group = range(min(group_first, last), min(group_first + group_size, last))
            yield Assignment(first + place if first + place < last else None, group, min(first + size, last))

    def _in_order(self, key: str, num_rounds: int) -> Iterator[int]:
        """0, 1, 2, ...: the same for all learners.

        Each publishes its round before it looks whether the assignment ends. Who ends it says so before it looks at the
        rounds of all, so none that it does not see has been assigned, however far learners may run before they wait.
        """
        store = self.world.store
        for number in range(num_rounds):
            if store is None:
                if self.stop_requested():
                    return
            elif self._ends_before(number, key):
                return
            yield number

    def _ends_before(self, number: int, key: str) -> bool:
        store, rounds = self.world.store, [f"{key}/round/{rank}" for rank in range(self.world.size)]
        store.set(rounds[self.world.rank], str(number))
        if self.stop_requested():
            store.set(f"{key}/ends", "")
            seen = [int(store.get(name)) for name in rounds if store.check([name])]
            store.compare_set(f"{key}/end", "", str(max(seen) + 1))
        return bool(store.check([f"{key}/ends"])) and number >= int(store.get(f"{key}/end"))

    def _by_counter(self, key: str, num_rounds: int) -> Iterator[int]:
        """The rounds of this sync group."""
        store, group_size = self.world.store, self.rule.group_size
        group, member = divmod(self.world.rank, group_size)
        for count in itertools.count():
            if self.stop_requested():
                store.add(key, FAR)
            announced = f"{key}/group{group}/{count}"
            if member == 0:
                number = store.add(key, 1) - 1
                if group_size > 1:
                    store.set(announced, str(number))
            else:
                number = int(store.get(announced))
            if number >= num_rounds:
                return
            yield number
