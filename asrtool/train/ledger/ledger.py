"""Ledger of a training: which batches are in the weights.

Asynchronous learners train the batches of an epoch in no order. So a checkpoint has a place, after its last batch,
and a list of earlier batches that are not in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from asrtool.distributed.work.work_queue import BatchNumber
from asrtool.train.checkpoints.checkpoint import Span, State


class Ledger:
    """Trained batches, starting from `state`."""

    def __init__(self, state: State) -> None:
        self._epoch, self._end = state.epoch, state.batch  # all before is trained or among the untrained ones
        self._untrained = list(state.untrained)
        self._origins = {origin.epoch: origin for origin in state.origins}

    def reach(self, state: State, trained: Iterable[Span]) -> State:
        """Return `state` with its place after learners have `trained` these as well.

        It has the origins of the epochs since the last call. Each batch is trained once.
        """
        self._origins |= {origin.epoch: origin for origin in state.origins}
        while self._epoch < state.epoch:
            ended, behind = self._origins[self._epoch], self._origins[self._epoch + 1]
            self._extend(ended.batch + behind.number - ended.number)
            self._epoch, self._end = self._epoch + 1, 0
        for span in joined(trained):
            self._add(span)
        self._untrained = joined(self._untrained)
        kept = {epoch for epoch, _, _ in self._untrained}
        self._origins = {epoch: self._origins[epoch] for epoch in sorted(kept | {self._epoch})}
        origins = [origin for epoch, origin in self._origins.items() if epoch in kept]
        return dataclasses.replace(state, batch=self._end, untrained=self._untrained, origins=origins)

    def _add(self, span: Span) -> None:
        epoch, first, end = span
        if epoch == self._epoch:
            self._extend(end)
        before = _num_batches(self._untrained)
        self._untrained = [left for one in self._untrained for left in _without(one, span)]
        assert before - _num_batches(self._untrained) == end - first, f"{span}: trained before, or not yet there"

    def _extend(self, end: int) -> None:
        if end > self._end:
            self._untrained.append((self._epoch, self._end, end))
            self._end = end


def note(spans: list[Span], batch: BatchNumber) -> None:
    """Add `batch` to `spans`; extend the last span if it is the next."""
    epoch, position = batch
    if spans and spans[-1][0] == epoch and spans[-1][2] == position:
        spans[-1] = (epoch, spans[-1][1], position + 1)
    else:
        spans.append((epoch, position, position + 1))


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return the same batches as few sorted spans, which do not overlap."""
    found: list[Span] = []
    for epoch, first, end in sorted(spans):
        if found and found[-1][0] == epoch and found[-1][2] == first:
            found[-1] = (epoch, found[-1][1], end)
        else:
            found.append((epoch, first, end))
    return found


def _without(span: Span, other: Span) -> Iterator[Span]:
    """Yield what is left of `span` without `other`."""
    epoch, first, end = span
    if epoch != other[0]:
        yield span
        return
    if first < (stop := min(end, other[1])):
        yield epoch, first, stop
    if (start := max(first, other[2])) < end:
        yield epoch, start, end


def _num_batches(spans: Iterable[Span]) -> int:
    return sum(end - first for _, first, end in spans)
