"""The work queue: which batch of an epoch a learner trains next.

All learners know the list of an epoch's batches. They are dealt in rounds. In lock-step a round has a batch for every
learner, and learner r takes batch r of each: nothing has to be asked, and a restart deals the same again. Otherwise a
round has a batch for every member of a team (of one, or of those who share their gradients), and the next round is
whatever a counter that all teams share says, so each batch is trained once however fast each team is.

A learner that is told to stop ends the dealing for all, so that all stop at the same batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from asrtool.dist.world import World

FAR = 2**40  # added to the counter, this ends the dealing


@dataclass(frozen=True)
class Dealing:
    """How a strategy wants its batches dealt."""

    team: int = 1  # learners in a row of ranks that average their gradients
    lockstep: bool = False  # whether all learners step together


@dataclass(frozen=True)
class Share:
    """What a learner trains in a step; positions count the batches of an epoch from 0."""

    position: int | None  # its batch; None when the last round has none left for this learner
    team: range  # positions of its team
    end: int  # all positions below are dealt once this round is


class Queue:
    """Deals the batches of an epoch to this learner."""

    def __init__(self, world: World, dealing: Dealing, told_to_stop: Callable[[], bool]) -> None:
        self.world = world
        self.dealing = dealing
        self.told_to_stop = told_to_stop
        self.num_deals = 0

    def deal(self, begin: int, end: int, last: int) -> Iterator[Share]:
        """This learner's shares of the batches `begin` to `end` (more, to fill a round), `last` being the epoch's end.

        To be called by all learners alike. A share that was dealt is to be trained, also when dealing ends early; one
        without a batch is the last.
        """
        self.num_deals += 1
        size = self.world.size if self.dealing.lockstep else self.dealing.team
        rounds = self._in_order if self.dealing.lockstep or self.world.size == size else self._by_counter
        team = self.dealing.team
        mine = self.world.rank % size
        for number in rounds(f"deal/{self.num_deals}", -(-(end - begin) // size)):
            first = begin + number * size
            team_first = first + mine // team * team
            share = range(min(team_first, last), min(team_first + team, last))
            yield Share(first + mine if first + mine < last else None, share, min(first + size, last))

    def _in_order(self, key: str, num_rounds: int) -> Iterator[int]:
        """0, 1, 2, ...: the same for all learners.

        Each tells its round before it looks whether dealing ends. Who ends it says so before looking at the rounds of
        all, so none that it does not see has been dealt, however far learners may run before they wait for another.
        """
        store = self.world.store
        for number in range(num_rounds):
            if store is None:
                if self.told_to_stop():
                    return
            elif self._ends_before(number, key):
                return
            yield number

    def _ends_before(self, number: int, key: str) -> bool:
        store, rounds = self.world.store, [f"{key}/round/{rank}" for rank in range(self.world.size)]
        store.set(rounds[self.world.rank], str(number))
        if self.told_to_stop():
            store.set(f"{key}/ends", "")
            seen = [int(store.get(name)) for name in rounds if store.check([name])]
            store.compare_set(f"{key}/end", "", str(max(seen) + 1))
        return bool(store.check([f"{key}/ends"])) and number >= int(store.get(f"{key}/end"))

    def _by_counter(self, key: str, num_rounds: int) -> Iterator[int]:
        """The rounds of this team."""
        store, team = self.world.store, self.dealing.team
        number_of_team, member = divmod(self.world.rank, team)
        for count in itertools.count():
            if self.told_to_stop():
                store.add(key, FAR)
            told = f"{key}/team{number_of_team}/{count}"
            if member == 0:
                number = store.add(key, 1) - 1
                if team > 1:
                    store.set(told, str(number))
            else:
                number = int(store.get(told))
            if number >= num_rounds:
                return
            yield number
