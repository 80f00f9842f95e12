"""Plan of the batches of a training from its resumed state to its end.

Batches are numbered by rounds: a round has a batch for each learner of a sync group, or of all in lock-step. The last
round of an epoch may lack some, so that no round has batches of two epochs. Untrained batches before the place of a
checkpoint come first.

A slot is the position of a batch in the order of its epoch. Untrained batches have the slots before the place where
training resumed.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asrtool.distributed.work.work_queue import BatchNumber, Round
from asrtool.train.batches.source import BatchSource, Epoch, Planned
from asrtool.train.checkpoints.checkpoint import Origin, State

UNLIMITED = 2**62


@dataclass(frozen=True)
class Place:
    """A place between two batches of a training."""

    epoch: int  # epochs finished
    batch: int  # batches of this epoch before it, or untrained
    step: int  # batches of the training before it, without those untrained
    samples: int  # utterances of the training before it, likewise
    source: dict[str, Any]  # the source's state, to continue planning


class _Part:
    """Rest of an epoch from the round `first` on; `before` is its place."""

    def __init__(
        self, plan: Callable[[], Mapping[int, Epoch]], first: int, before: Place, left: Sequence[BatchNumber]
    ) -> None:
        """Take untrained batches of this or earlier epochs, and a function that plans."""
        self._plan = plan
        self._epochs: Mapping[int, Epoch] | None = None
        self._is_whole = False
        self.first = first
        self.before = before
        self.begin = before.batch - len(left)  # slot
        self._left = left
        self.windows: list[range] | None = None  # None before first use
        self._samples = [0, *itertools.accumulate(self.planned(batch).num_samples for batch in left)]

    @property
    def epochs(self) -> Mapping[int, Epoch]:
        """Return the plans of this epoch, and of earlier ones with batches in it."""
        if self._epochs is None:
            self._epochs = self._plan()
            if self._is_whole:
                self._epochs[self.before.epoch].extend(UNLIMITED)
        return self._epochs

    @property
    def epoch(self) -> Epoch:
        return self.epochs[self.before.epoch]

    def forget(self) -> None:
        """Free a plan that was known to its end; it is planned again if needed."""
        self._epochs, self._is_whole = None, True

    def batch(self, slot: int) -> BatchNumber:
        """Return the batch of a slot."""
        if slot < self.before.batch:
            return self._left[slot - self.begin]
        return BatchNumber(self.before.epoch, slot)

    def planned(self, batch: BatchNumber) -> Planned:
        """Return the plan of a known batch."""
        return self.epochs[batch.epoch].batch(batch.position)

    def window(self, slot: int) -> tuple[int, int] | None:
        """Return the epoch and window of a slot's batch; None without windows."""
        batch = self.batch(slot)
        window = self.planned(batch).window
        return None if window is None else (batch.epoch, window)

    def place(self, slot: int) -> Place:
        """Return the place before a known slot."""
        batch = max(slot, self.before.batch)
        samples = self._samples[min(slot - self.begin, len(self._left))]
        samples += self.epoch.num_samples(range(self.before.batch, batch))
        step = self.before.step + slot - self.begin
        return Place(self.before.epoch, batch, step, self.before.samples + samples, self.epoch.state(batch))


class Plan:
    """Batches after a state, in rounds of `size`, untrained ones first.

    It reads the state once. Threads share it: one draws while another trains.
    """

    def __init__(self, source: BatchSource, num_epochs: int, size: int, state: State) -> None:
        self._lock = threading.RLock()
        self._source = source
        self._num_epochs = num_epochs
        self._size = size
        self._parts: list[_Part] = []
        self._origins = {origin.epoch: origin for origin in state.origins}
        begin = Place(state.epoch, state.batch, state.step, state.samples, state.source)
        left = [BatchNumber(epoch, i) for epoch, first, end in state.untrained for i in range(first, end)]
        own = Origin(begin.epoch, begin.batch, begin.step + len(left), begin.source)
        self._origins.setdefault(begin.epoch, own)
        ends = {epoch: end for epoch, _, end in state.untrained} | {begin.epoch: begin.batch}
        self._add(0, begin, left, ends)

    def round(self, number: int) -> Round | None:
        """Return the slots of a round; None after the last one."""
        with self._lock:
            part = self._part(number)
            if part is None:
                return None
            first = part.begin + (number - part.first) * self._size
            end = first + self._size
            return Round(part.before.epoch, range(first, min(end, self._extend(part, end))))

    def count(self, enough: int) -> int:
        """Return the number of batches of the first epoch; `enough` if it has more."""
        with self._lock:
            return min(enough, self._extend(self._parts[0], enough))

    def batches(self, epoch: int, slots: Sequence[int]) -> tuple[BatchNumber, ...]:
        """Return the batches of slots of `epoch`, which are then known."""
        with self._lock:
            part = self._find_epoch(epoch)
            self._extend(part, max(slots) + 1)
            return tuple(part.batch(slot) for slot in slots)

    def windows(self, epoch: int) -> Sequence[range]:
        """Return the slots of `epoch` by window; empty without windows."""
        with self._lock:
            part = self._find_epoch(epoch)
            if part.windows is None:
                part.windows = list(self._windows(part))
            return part.windows

    def place(self, epoch: int, slot: int) -> Place:
        """Return the place before a known slot in the order of `epoch`."""
        with self._lock:
            return self._find_epoch(epoch).place(slot)

    def place_of_round(self, number: int) -> Place | None:
        """Return the place before a round; for a first round, the end of the epoch before."""
        found = self.round(number)
        return self.place(found.epoch, found.slots.start) if found else None

    def end_of(self, epoch: int) -> Place:
        """Return the place after the last batch of `epoch`, which is known."""
        with self._lock:
            part = self._find_epoch(epoch)
            return part.place(self._extend(part, UNLIMITED))

    def borders(self, first: int, last: int) -> list[Place]:
        """Return the starts of the epochs from `first` to `last`."""
        with self._lock:
            return [self._find_epoch(epoch).before for epoch in range(first, last + 1)]

    def planned(self, epoch: int, batch: BatchNumber) -> Planned:
        """Return the plan of a batch in the order of `epoch`, which is then known."""
        with self._lock:
            part = self._find_epoch(epoch)
            if batch.epoch == epoch:
                self._extend(part, batch.position + 1)
            return part.planned(batch)

    def missing(self, trained: Collection[tuple[int, int]]) -> Iterator[tuple[int, BatchNumber]]:
        """Yield the batches not in `trained` with their rounds, after the plan's end."""
        num_trained = Counter(max(epoch, self.begin.epoch) for epoch, _ in trained)
        for part, following in itertools.pairwise(self._parts):
            num = following.before.step - part.before.step
            if num_trained[part.before.epoch] == num:  # an epoch that is forgotten is not planned again
                continue
            for place in range(num):
                if (batch := part.batch(part.begin + place)) not in trained:
                    yield part.first + place // self._size, batch

    def forget(self, epoch: int) -> None:
        """Free the plans before `epoch`; of these only lost batches are needed."""
        with self._lock:
            for part in self._parts[: self._parts.index(self._find_epoch(epoch))]:
                part.forget()

    def number(self, batch: BatchNumber) -> int:
        """Return the number of batches of the whole training before `batch`."""
        origin = self._origins[batch.epoch]
        return origin.number + batch.position - origin.batch

    @property
    def origins(self) -> list[Origin]:
        """States from which the known epochs are planned."""
        return list(self._origins.values())

    @property
    def begin(self) -> Place:
        """Place where training begins."""
        return self._parts[0].before

    @property
    def end(self) -> Place:
        """Place after the last batch; known once `round` has returned None."""
        part = self._parts[-1]
        return part.place(part.before.batch)

    def _part(self, number: int) -> _Part | None:
        for part in reversed(self._parts):
            if part.first <= number:
                break
        while True:
            slot = part.begin + (number - part.first) * self._size
            known = self._extend(part, slot + 1)
            if slot < known:
                return part
            if part.before.epoch == self._num_epochs:
                return None
            part = self._next(part, known)

    def _next(self, part: _Part, known: int) -> _Part:
        """Return the epoch after `part`, which ends before the slot `known`."""
        number = self._parts.index(part) + 1
        if number == len(self._parts):
            ended = part.place(known)
            before = Place(ended.epoch + 1, 0, ended.step, ended.samples, ended.source)
            origin = Origin(before.epoch, 0, self.number(BatchNumber(ended.epoch, known)), before.source)
            self._origins[before.epoch] = origin
            first = part.first + -(-(known - part.begin) // self._size)
            self._add(first, before, (), {before.epoch: 0})
            number = len(self._parts) - 1
        return self._parts[number]

    def _windows(self, part: _Part) -> Iterator[range]:
        slots = range(part.begin, self._extend(part, UNLIMITED))
        if part.window(slots.start) is None:
            return
        for _, window in itertools.groupby(slots, part.window):
            found = list(window)
            yield range(found[0], found[-1] + 1)

    def _add(self, first: int, before: Place, left: Sequence[BatchNumber], ends: Mapping[int, int]) -> None:
        """Add the epoch after `before`, with batches of the epochs in `ends`."""
        origins = {epoch: self._origins[epoch] for epoch in ends}
        plan = lambda: {epoch: self._plan(origins[epoch], end) for epoch, end in ends.items()}  # noqa: E731
        self._parts.append(_Part(plan, first, before, left))

    def _plan(self, origin: Origin, end: int) -> Epoch:
        """Return the epoch of `origin`, known up to `end`."""
        epoch = Epoch(self._source, origin.epoch, origin.batch, origin.source)
        epoch.extend(end)
        return epoch

    def _extend(self, part: _Part, end: int) -> int:
        """Return the number of known slots of a part, at least `end` unless it is shorter."""
        return part.before.batch if part.before.epoch == self._num_epochs else part.epoch.extend(end)

    def _find_epoch(self, epoch: int) -> _Part:
        """Return the part of `epoch`, which another learner may have reached first."""
        while self._parts[-1].before.epoch < epoch:
            part = self._parts[-1]
            self._next(part, self._extend(part, UNLIMITED))
        (found,) = (part for part in self._parts if part.before.epoch == epoch)
        return found
