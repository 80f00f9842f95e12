"""ShardClaims to the batches of an epoch by windows: those that are read from the same shards go to the same learner.

Each learner of a sync group takes a window that nobody has, and its batches from the first on. Once all are taken, it
helps with one where much is left for few, from the last batch on, to its end. A window has a counter in the store: so
many batches are claimed from its front, so many from its back, by so many learners. One `add` claims a batch; it fails
where front and back have met, and then that window is through. So no batch is claimed twice, and who claims needs to
know nothing of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.distributed.distributed_c10d import Store

FRONT = 1  # added to the counter of a window, a claim to its next batch in front
BACK = 2**20  # to its last one
LEARNER = 2**40  # a learner more at this window


class ShardClaims:
    """Those of a sync group to the slots of an epoch."""

    def __init__(self, store: Store, epoch: int, windows: Sequence[range], place: float, group_size: int) -> None:
        """Between equal windows of others, `place` (0 to 1) says which: each group comes from another side."""
        self.epoch = epoch
        self._store = store
        self._windows = windows
        self._place = place
        self._left = list(range(len(windows)))  # where others may have left some
        self._next = 0  # that nobody has, as far as is known
        self._at: list[tuple[int, int] | None] = [None] * group_size  # the window of each, and from which end

    def claim(self, member: int) -> int:
        """A slot that nobody else has. There is one if all groups together have claimed fewer than there are."""
        while True:
            at = self._at[member]
            slot = None if at is None else self._take(*at)
            if slot is not None:
                return slot
            self._at[member] = self._own() or self._of_others()

    def _take(self, window: int, end: int) -> int | None:
        slots = self._windows[window]
        num_front, num_back, _ = _parse(self._store.add(self._key(window), end))
        if num_front + num_back > len(slots):
            return None
        return slots[num_front - 1] if end == FRONT else slots[-num_back]

    def _own(self) -> tuple[int, int] | None:
        """A window that nobody has."""
        if self._next < len(self._windows):
            self._next = self._store.add(f"windows/{self.epoch}", 1) - 1
        if self._next >= len(self._windows):
            return None
        self._store.add(self._key(self._next), LEARNER)
        return self._next, FRONT

    def _of_others(self) -> tuple[int, int]:
        """The window with most left for each learner that is there, this one counted."""
        num_left: dict[int, float] = {}
        begin = int(self._place * len(self._left))
        for window in (*self._left[begin:], *self._left[:begin]):
            num_front, num_back, num_learners = _parse(self._store.add(self._key(window), 0))
            if (num := len(self._windows[window]) - num_front - num_back) > 0:
                num_left[window] = num / (1 + num_learners)
        assert num_left, f"more tickets than batches in epoch {self.epoch}"
        self._left = sorted(num_left)
        window = max(num_left, key=num_left.__getitem__)
        self._store.add(self._key(window), LEARNER)
        return window, BACK

    def _key(self, window: int) -> str:
        return f"windows/{self.epoch}/{window}"


def _parse(counter: int) -> tuple[int, int, int]:
    """How many batches are claimed from the front and from the back of a window, and by how many learners."""
    return counter % BACK, counter % LEARNER // BACK, counter // LEARNER
