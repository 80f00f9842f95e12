"""Claims to the batches of an epoch by windows of shards.

The batches of a window are read from the same shards, so they go to the same learner. Each learner
of a sync group takes a window that no learner has, and its batches from the first on. After all are
taken, it helps with the one that has most left for few learners, from the last batch on.

A window has a counter in the store: the batches claimed from its front and its back, and its
learners. One `add` claims a batch; it fails if front and back have met, and the window is then
done. So no batch is claimed twice, and a learner needs no knowledge of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.distributed.distributed_c10d import Store

FRONT = 1  # added to the counter of a window, a claim to its next batch in front
BACK = 2**20  # to its last one
LEARNER = 2**40  # a learner more at this window


class ShardClaims:
    """Claims of a sync group to the slots of an epoch."""

    def __init__(self, store: Store, epoch: int, windows: Sequence[range], place: float, group_size: int) -> None:
        """Take the windows, and `place` (0 to 1), which chooses between equal windows."""
        self.epoch = epoch
        self._store = store
        self._windows = windows
        self._place = place
        self._left = list(range(len(windows)))  # windows with batches that others may have left
        self._next = 0  # window that no learner has, as far as known
        self._at: list[tuple[int, int] | None] = [None] * group_size  # the window of each, and from which end

    def claim(self, member: int) -> int:
        """Claim a free slot; there is one while fewer are claimed than exist."""
        at, more = self._at[member], 0
        while at is None or (slot := self._take(*at, more)) is None:
            at, more = self._new_window() or self._others_window(), LEARNER
        self._at[member] = at
        return slot

    def _take(self, window: int, end: int, more: int) -> int | None:
        slots = self._windows[window]
        num_front, num_back, _ = _parse(self._store.add(self._key(window), end + more))
        if num_front + num_back > len(slots):
            return None
        return slots[num_front - 1] if end == FRONT else slots[-num_back]

    def _new_window(self) -> tuple[int, int] | None:
        """Take a window that no learner has."""
        if self._next < len(self._windows):
            self._next = self._store.add(f"windows/{self.epoch}", 1) - 1
        if self._next >= len(self._windows):
            return None
        return self._next, FRONT

    def _others_window(self) -> tuple[int, int]:
        """Choose the window with most left for each of its learners and this one."""
        num_left: dict[int, float] = {}
        begin = int(self._place * len(self._left))
        for window in (*self._left[begin:], *self._left[:begin]):
            num_front, num_back, num_learners = _parse(self._store.add(self._key(window), 0))
            if (num := len(self._windows[window]) - num_front - num_back) > 0:
                num_left[window] = num / (1 + num_learners)
        assert num_left, f"more tickets than batches in epoch {self.epoch}"
        self._left = sorted(num_left)
        return max(num_left, key=num_left.__getitem__), BACK

    def _key(self, window: int) -> str:
        return f"windows/{self.epoch}/{window}"


def _parse(counter: int) -> tuple[int, int, int]:
    """Split a counter into the batches claimed in front, at the back, and learners."""
    return counter % BACK, counter % LEARNER // BACK, counter // LEARNER
