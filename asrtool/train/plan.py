"""The batches of a training from where it resumes to its end, one epoch after the other.

They are numbered by rounds: a round has a batch for each learner of a sync group, or of all in lock-step. The last
round of an epoch may lack some, so that no round has batches of two epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asrtool.train.source import BatchSource, Epoch, Planned

FAR = 2**62
NUM_KEPT = 3  # epochs, since learners that do not wait for one another may be in different ones


@dataclass(frozen=True)
class Place:
    """A place between two batches of a training."""

    epoch: int  # epochs finished
    batch: int  # batches of this epoch before it
    step: int  # batches of the training before it
    samples: int  # utterances of the training before it
    source: dict[str, Any]  # what the source needs to plan on


@dataclass(frozen=True)
class _Part:
    """The rest of an epoch, from its position `begin` and the round `first` on; `before` is the place of these."""

    epoch: Epoch
    first: int
    begin: int
    before: Place


class Plan:
    """The batches behind `begin`, as far as they are known; in rounds of `size` batches."""

    def __init__(self, source: BatchSource, num_epochs: int, size: int, begin: Place) -> None:
        self._source = source
        self._num_epochs = num_epochs
        self._size = size
        self._parts: list[_Part] = []
        self._add(0, begin)

    def batches(self, number: int) -> tuple[int, range] | None:
        """Epoch and positions of the batches of a round; None behind the last one.

        Rounds are asked for in about their order: those of epochs long before are forgotten.
        """
        part = self._part(number)
        if part is None:
            return None
        first = part.begin + (number - part.first) * self._size
        known = part.epoch.extend(first + self._size)
        return part.before.epoch, range(first, min(first + self._size, known))

    def place(self, epoch: int, position: int) -> Place:
        """The place before the batch at `position` of `epoch`, which is known."""
        part = self._of_epoch(epoch)
        samples = part.before.samples + part.epoch.num_samples(range(part.begin, position))
        step = part.before.step + position - part.begin
        return Place(epoch, position, step, samples, part.epoch.state(position))

    def place_of_round(self, number: int) -> Place | None:
        """The place before a round: where it is the first of an epoch, behind the end of the epoch before."""
        found = self.batches(number)
        return self.place(found[0], found[1].start) if found else None

    def end_of(self, epoch: int) -> Place:
        """Behind the last batch of `epoch`, which is known."""
        return self.place(epoch, self._of_epoch(epoch).epoch.extend(FAR))

    def borders(self, first: int, last: int) -> list[Place]:
        """Where the epochs from `first` on, up to `last`, begin."""
        return [self._of_epoch(epoch).before for epoch in range(first, last + 1)]

    def batch(self, epoch: int, position: int) -> Planned:
        """One that is known."""
        return self._of_epoch(epoch).epoch.batch(position)

    def normaliser(self, epoch: int, positions: range) -> int:
        """Of the loss of the batches at `positions`."""
        return self._of_epoch(epoch).epoch.normaliser(positions)

    @property
    def end(self) -> Place:
        """Behind the last batch; to be asked for once `batches` has returned None."""
        return self._parts[-1].before

    def _part(self, number: int) -> _Part | None:
        for part in reversed(self._parts):
            if part.first <= number:
                break
        while True:
            if part.before.epoch == self._num_epochs:
                return None
            position = part.begin + (number - part.first) * self._size
            known = part.epoch.extend(position + 1)
            if position < known:
                return part
            part = self._next(part, known)

    def _next(self, part: _Part, known: int) -> _Part:
        """The epoch behind `part`, which ends at its position `known`."""
        behind = self._parts.index(part) + 1
        if behind == len(self._parts):
            ended = self.place(part.before.epoch, known)
            num_rounds = -(-(known - part.begin) // self._size)
            begin = Place(ended.epoch + 1, 0, ended.step, ended.samples, ended.source)
            self._add(part.first + num_rounds, begin)
            behind = min(behind, len(self._parts) - 1)
        return self._parts[behind]

    def _add(self, first: int, begin: Place) -> None:
        epoch = Epoch(self._source, begin.epoch, begin.batch, begin.source)
        self._parts = [*self._parts[-NUM_KEPT + 1 :], _Part(epoch, first, begin.batch, begin)]

    def _of_epoch(self, epoch: int) -> _Part:
        """The part of `epoch`, which another learner may have come to first."""
        while self._parts[-1].before.epoch < epoch:
            part = self._parts[-1]
            self._next(part, part.epoch.extend(FAR))
        (found,) = (part for part in self._parts if part.before.epoch == epoch)
        return found
