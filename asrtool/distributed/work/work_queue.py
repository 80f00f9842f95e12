"""Work queue: the batch that a learner trains next, until the end of training.

All learners have the same list of batches, in rounds. In lock-step a round has a batch for every
learner, and learner r takes batch r. So no request is needed, and a restart assigns the same again.

Otherwise a round has a batch for every member of a sync group: one learner, or those that average
their gradients. A counter in the store, common to all groups, gives the next round. Its number is a
ticket to so many batches of its epoch. The group claims these batches by windows (shard_claims); if
the plan has no windows they are the batches of the round. An epoch has as many batches as tickets,
so each batch is trained once, whatever the speed of each group.

Cuts divide the rounds: a checkpoint has all rounds before its cut, and none after it. An epoch ends
with a cut; learner 0 asks for others. The counter also counts these cuts (each adds CUT to it). So
all learners have each round on the same side of a cut, without waiting for one another.

A learner that is asked to stop ends the assignment for all; batches assigned before are trained. One
that is asked to leave draws once more, and its sync group then leaves the others; all stop if all are
asked to. A slow one leaves the last rounds to the others, which would wait for it at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from asrtool.distributed.members.members import LostBatch, LostLearner, node_of
from asrtool.distributed.work.lost_batches import LostBatches, SyncGroup
from asrtool.distributed.work.shard_claims import ShardClaims
from asrtool.distributed.world import World

AHEAD = 2  # batches that a learner has to train when it has drawn one: that, and the one before it
SLOW = 2  # a slow learner's step takes at least so many times the mean


def stop_of_others(before: int, last: int, num_groups: int) -> int:
    """Return the stop of the rounds that others draw while a slow group trains one.

    If they reach the end of training, the group leaves them to the others, which would wait for it.
    `before` and `last` are the last rounds that it has drawn. Time is counted in rounds of all: a
    step here takes as many as lie between these, and a mean step takes one for each group. -1 if
    this group is not slow. The simulator compiles this.
    """
    per_step = last - before
    return last + per_step + AHEAD * (per_step - num_groups) if per_step > SLOW * num_groups else -1


CUT = 2**32  # unit of cuts in the counter: rounds are below it
END = 2**56  # added to the counter, this ends the assignment
COUNTER = "rounds"
NUM_DONE = "rounds/done"  # counts the sync groups that left the last rounds to the others
NONE = -1  # in place of a round
DONE, LEAVE = -1, -2  # in place of a ticket


@dataclass(frozen=True)
class AssignmentRule:
    """Assignment of batches that a strategy needs."""

    group_size: int = 1  # learners of a sync group: neighbours by rank that average their gradients
    lockstep: bool = False  # all learners step together

    def round_size(self, num_learners: int) -> int:
        """Return the number of batches in a round."""
        return num_learners if self.lockstep else self.group_size


class BatchNumber(NamedTuple):
    """A batch of a training: epoch, and position in its plan, both from 0."""

    epoch: int
    position: int


class Round(NamedTuple):
    """Slots of a round in the order of its epoch."""

    epoch: int
    slots: range


# Batches of lost learners, or the number of a round, the cuts before it and slots claimed.
Draw = tuple[Sequence[LostBatch], int, int, Sequence[int]]


class Rounds(Protocol):
    """The batches of a training, in rounds."""

    def round(self, number: int) -> Round | None:
        """Return a round; None after the last one."""

    def batches(self, epoch: int, slots: Sequence[int]) -> tuple[BatchNumber, ...]:
        """Return the batches of slots in the order of `epoch`."""

    def windows(self, epoch: int) -> Sequence[range]:
        """Return the slots of `epoch` by the shards that they need; none if unknown."""


class Cuts(NamedTuple):
    """Cuts before a step: at the ends of earlier epochs, and requested ones."""

    epoch: int
    num_requested: int


@dataclass(frozen=True)
class Assignment:
    """A learner's share of a step."""

    round: Round  # its place in the training, for the learning rate and cuts
    batch: BatchNumber | None  # None if the last round of an epoch has too few
    group: tuple[BatchNumber, ...]  # the batches of its sync group
    number: int  # number of the round
    cuts: Cuts | None  # before it; None for batches of a lost learner on the same side of cuts as the step before


class Requests(Protocol):
    """Requests of a learner to the others, checked for each round."""

    def stop(self) -> bool:
        """Return whether all learners are to stop."""

    @property
    def may_leave(self) -> bool:
        """Return whether learners that are asked to stop leave alone."""

    def leave(self) -> bool:
        """Return whether this learner is to leave the others."""

    def save(self, number: int, ends_within: Callable[[int], bool]) -> bool:
        """Return whether to cut a checkpoint before round `number`; for learner 0.

        `ends_within` returns whether the epoch ends within so many steps of each learner.
        """

    def every(self, number: int) -> bool:
        """Return whether there is a cut there without a request; in lock-step."""


@dataclass(eq=False)
class WorkQueue:
    """Assignment of the batches of a training to this learner.

    `cuts` are the rounds before which learner 0 asked for cuts. Learner 0 has all of them, and in
    lock-step each learner has.
    """

    world: World
    rule: AssignmentRule
    plan: Rounds
    requests: Requests
    lost_batches: LostBatches | None = None  # if others train the batches that lost learners left
    cuts: list[int] = field(default_factory=list)
    first_cut: int = END  # the number of the first of them, once there is one
    _claims: ShardClaims | None = None  # claims in the epoch of the last round
    _drawn: list[int] = field(default_factory=list)  # the last two tickets
    _is_done: bool = False  # True if this sync group left the last rounds to the others
    stopped: bool = True  # True if `assign` ended before the last round for all
    _was_asked: bool = False  # True if one of this sync group was asked to leave before its last ticket
    leaves: bool = False  # True if this sync group leaves
    _epoch: int = -1  # epoch of the last round
    _last_cuts: Cuts | None = None  # cuts of the training, once its end is drawn

    def assign(self) -> Iterator[Assignment]:
        """Yield this learner's part of all batches, in steps, each to be trained."""
        size = self.rule.round_size(self.world.size)
        self._sync_group = SyncGroup(self.world, self.rule.group_size)
        rounds = self._in_order() if self.world.size == size else self._by_counter()
        while True:
            left, number, num_cuts, slots = next(rounds, ((), NONE, 0, ()))
            if left:
                yield from self._reassign(left)
                continue
            found = self.plan.round(number) if number != NONE else None
            if found is None:
                self.stopped = number == NONE and not self._is_done
                if number != NONE:
                    last = next(filter(None, map(self.plan.round, range(number - 1, -1, -1))), None)
                    self._last_cuts = Cuts(last.epoch, num_cuts) if last else None
                return
            self._epoch = found.epoch
            place, group_size = self.world.rank % size, self.rule.group_size
            batches = self.plan.batches(found.epoch, slots or found.slots)
            group = batches[place // group_size * group_size :][:group_size]
            own = batches[place] if place < len(batches) else None
            yield Assignment(found, own, group, number, Cuts(found.epoch, num_cuts))

    def next_round(self) -> tuple[int, int] | None:
        """Return the next round of the counter and the cuts before it; None at the end."""
        value = self.world.store.add(COUNTER, 0)
        return None if value >= END else (value % CUT, value // CUT)

    def cuts_between(self, first: int, last: int) -> list[int] | None:
        """Return requested `cuts` by number; None if a lost learner published none."""
        if not self.lost_batches:
            return self.cuts[first:last]
        keys = [_request_key(number) for number in range(first, last)]
        if keys and not self.world.store.check(keys):
            return None
        return [int(self.world.store.get(key)) for key in keys]

    def assign_lost_batches(self) -> Iterator[Assignment]:
        """Yield, after all of `assign` is trained, the batches that others leave.

        If this learner has no round of their epoch, it passes all cuts first.
        """
        if self.lost_batches and not self.leaves:
            for left in self.lost_batches.wait(self.stopped, self._sync_group):
                yield from self._reassign(left)

    def leave(self, examine: Callable[[int], LostLearner]) -> None:
        """Take this sync group, whose steps are recorded, from the members.

        All of it call this. `examine` returns what a learner has left.
        """

        def lose() -> None:
            members, group = self.world.members, self._group()
            assert members
            for rank in group:
                self.world.store.get(_recorded(rank))
            members.lose(self.world.store, *map(examine, group))

        self.world.store.set(_recorded(self.world.rank), "")
        self._sync_group.share(lose)

    def _group(self) -> range:
        return node_of(self.world.rank, self.rule.group_size)

    def _reassign(self, left: Sequence[LostBatch]) -> Iterator[Assignment]:
        """Yield steps of this sync group with these batches, one for each epoch.

        A step counts for the last of their rounds: the progress of all is right at the end.
        """
        in_rounds = [(self._round(number), number, BatchNumber(*batch)) for number, *batch in left]
        for _, same_epoch in itertools.groupby(in_rounds, lambda one: one[0].epoch):
            step = list(same_epoch)
            last, number, _ = max(step, key=lambda one: one[1])
            group = tuple(batch for *_, batch in step)
            member = self._sync_group.member
            cuts = self._last_cuts if last.epoch > self._epoch else None
            yield Assignment(last, group[member] if member < len(group) else None, group, number, cuts)

    def _round(self, number: int) -> Round:
        found = self.plan.round(number)
        assert found
        return found

    def _in_order(self) -> Iterator[Draw]:
        """Yield rounds 0, 1, 2, ... with the same cuts for all learners."""
        num_requested = 0  # requests of any learner that were met
        for number in itertools.count():
            if self.world.store is None:
                if self.requests.stop():
                    return
                if self.requests.every(number) or self._is_to_save(number, number):
                    self.cuts.append(number)
            else:
                if self.requests.every(number):
                    self.cuts.append(number)
                self._publish_round(number, num_requested)
                while what := self._request_before(number, num_requested):
                    num_requested += 1
                    if what == "stop":
                        return
                    self.cuts.append(number)
            yield (), number, len(self.cuts), ()

    def _publish_round(self, number: int, num_requested: int) -> None:
        """Publish the round, and then the request of this learner, if any.

        Each learner publishes its round before it looks for requests. One with a request publishes
        it before it reads the rounds of all. So no round that it does not see is assigned, however
        far learners run ahead.
        """
        store, rounds = self.world.store, [f"round/{rank}" for rank in range(self.world.size)]
        store.set(rounds[self.world.rank], str(number))
        saves = self.world.rank == 0 and self._is_to_save(number, number)
        what = "stop" if self.requests.stop() else "save" if saves else ""
        if what:
            store.compare_set(f"asked/{num_requested}", "", what)
            seen = [int(store.get(name)) for name in rounds if store.check([name])]
            store.compare_set(f"asked/{num_requested}/before", "", str(max(seen) + 1))

    def _request_before(self, number: int, num_requested: int) -> str:
        """Return the request that counts before round `number`, if any."""
        store, key = self.world.store, f"asked/{num_requested}"
        if not store.check([key]) or number < int(store.get(f"{key}/before")):
            return ""
        what: bytes = store.get(key)
        return what.decode()

    def _by_counter(self) -> Iterator[Draw]:
        """Yield the rounds that the first of this sync group takes, and slots claimed.

        Before each it yields the batches of lost learners that are known to be left.
        """
        store = self.world.store
        for count in itertools.count():
            if self.requests.stop():
                store.add(COUNTER, END)
            if self.requests.leave():
                store.set(_leaving(self.world.rank), "")
            if self.world.is_first and self._is_to_save(count, self._drawn[-1] if self._drawn else 0):
                num_cuts, number = divmod(store.add(COUNTER, CUT), CUT)
                self.first_cut = min(self.first_cut, num_cuts - 1)
                self.cuts.append(number)
                store.set(_request_key(num_cuts - 1), str(number))
            while True:
                left, value, slots = self._sync_group.share(self._draw)
                if not left:
                    break
                yield left, NONE, 0, ()
            self._is_done, self.leaves = value == DONE, value == LEAVE
            if value < 0 or value >= END:
                return
            yield (), value % CUT, value // CUT, slots

    def _draw(self) -> tuple[Sequence[LostBatch], int, Sequence[int]]:
        """Return batches of lost learners; if none is left, a ticket as _take_ticket.

        Together, because the store may be far from the others of the sync group.
        """
        left = self.lost_batches.claim(self.rule.group_size, self._epoch) if self.lost_batches else ()
        return (left, NONE, ()) if left else ((), *self._take_ticket())

    def _is_to_save(self, count: int, number: int) -> bool:
        """Return whether to cut before step `count`, round `number` being the last known."""
        num_groups = len(self.world.live) // self.rule.group_size

        def ends_within(num_steps: int) -> bool:
            now, then = self.plan.round(number), self.plan.round(number + num_steps * num_groups)
            return now is None or then is None or then.epoch > now.epoch

        return self.requests.save(count, ends_within)

    def _take_ticket(self) -> tuple[int, Sequence[int]]:
        """Return the counter's value and the slots claimed; DONE leaves the rest."""
        if self._is_leaving():
            return LEAVE, ()
        if self._would_be_last():
            return DONE, ()
        value = self.world.store.add(COUNTER, 1) - 1
        self._drawn = [*self._drawn[-1:], value % CUT]
        return value, self._claim(value % CUT) if value < END else ()

    def _is_leaving(self) -> bool:
        """Return whether this sync group leaves, a step after it was asked to.

        Others may be asked at the same time, as by a cluster that ends a job: if all are, all stop.
        """
        is_asked, self._was_asked = self._was_asked, self.requests.may_leave and self._are_leaving(any, self._group())
        if not is_asked:
            return False
        if not self._are_leaving(all, self.world.live):
            return True
        self.world.store.add(COUNTER, END)
        return False

    def _are_leaving(self, which: Callable[[Iterable[bool]], bool], ranks: Iterable[int]) -> bool:
        return which(self.world.store.check([_leaving(rank)]) for rank in ranks)

    def _would_be_last(self) -> bool:
        """Return whether the others would finish before this group's next round.

        At least one group goes to the end, whatever the last tickets are. None leaves before the
        last epoch: a group that has left passes no cut.
        """
        if len(self._drawn) < 2:
            return False
        num_groups = len(self.world.live) // self.rule.group_size
        before, last = self._drawn
        stop = stop_of_others(before, last, num_groups)
        left = map(self.plan.round, range(last, stop))
        if stop < 0 or self.plan.round(stop) or len({found.epoch for found in left if found}) > 1:
            return False
        return self.world.store.add(NUM_DONE, 1) < num_groups

    def _claim(self, number: int) -> Sequence[int]:
        """Claim the slots of the ticket `number`; none means the slots of the round."""
        found = self.plan.round(number)
        windows = self.plan.windows(found.epoch) if found else ()
        if not (found and windows):
            return ()
        if self._claims is None or self._claims.epoch != found.epoch:
            place = self.world.rank % self.world.size / self.world.size
            self._claims = ShardClaims(self.world.store, found.epoch, windows, place, self.rule.group_size)
        return [self._claims.claim(member) for member in range(len(found.slots))]


def _leaving(rank: int) -> str:
    """Return the key of a learner that was asked to leave."""
    return f"leaving/{rank}"


def _recorded(rank: int) -> str:
    """Return the key of a learner that leaves, and has recorded its last step."""
    return f"recorded/{rank}"


def _request_key(number: int) -> str:
    """Return the key of the round before a requested cut."""
    return f"cut/{number}/before"
