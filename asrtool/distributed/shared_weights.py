"""Weights in memory that all learners of a machine read and write, and what they are at cuts.

The first learner that comes to a cut copies the weights to further shared memory: a record. A learner that has not come
to it adds what its steps change to the record as well, until it has. So a record has the steps from before its cut and
none from behind it. A step is in the copy as a whole or not at all: steps hold a shared lock, copying an exclusive one.
The system frees both when a learner dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

import torch
from torch import Tensor

from asrtool.distributed.world import World


class SharedWeights:
    """`weights_P`, which begin as those of learner 0, and the records that are not settled."""

    def __init__(self, world: World, weights_P: Tensor) -> None:
        """All learners call this."""
        self.world = world
        file, path = _make_file(world)
        self.weights_P = _open_shared(path, len(weights_P), torch.float32)
        more_file, more_path = _make_file(world)
        self.steps_L, self.passed_L, self.newest_1 = _open_shared(more_path, 2 * world.size + 1, torch.int64).split(
            [world.size, world.size, 1]
        )
        self.lock = os.open(more_path, os.O_RDWR)  # each learner needs to have opened the file for itself
        if world.rank == 0:
            self.weights_P.copy_(weights_P)
        world.barrier()
        for number in (file, more_file):
            if number is not None:
                os.close(number)
        self._made: dict[int, int] = {}  # cut -> the file that this learner has made
        self._records: dict[int, Tensor] = {}  # by cut, that this learner has opened

    @contextlib.contextmanager
    def step(self) -> Iterator[list[Tensor]]:
        """Inside, nothing is recorded; gives the records that what is changed inside has to be added to as well."""
        with self._locked(fcntl.LOCK_SH):
            passed, newest = int(self.passed_L[self.world.rank]), int(self.newest_1)
            yield [self._record(cut) for cut in range(passed + 1, newest + 1)]

    def record(self, cut: int) -> Tensor | None:
        """This learner comes to `cut`; gives learner 0 the record, which is whole once `is_settled`."""
        with self._locked(fcntl.LOCK_EX):
            if self.newest_1 < cut:
                self._make(cut)
                self.newest_1.fill_(cut)
            found = self._record(cut) if self.world.rank == 0 else None
            self.passed_L[self.world.rank] = cut
        self._records.pop(cut, None)
        for old in [old for old in self._made if self.is_settled(old)]:
            os.close(self._made.pop(old))
        return found

    def is_settled(self, cut: int) -> bool:
        """Whether all learners have come to `cut`."""
        return bool((self.passed_L >= cut).all())

    def close(self) -> None:
        """Of the files that this learner has open."""
        for file in (self.lock, *self._made.values()):
            os.close(file)

    def _make(self, cut: int) -> None:
        self._made[cut] = os.memfd_create("asrtool")
        self.world.store.set(_key(cut), _path(self._made[cut]))
        self._record(cut).copy_(self.weights_P)

    def _record(self, cut: int) -> Tensor:
        if cut not in self._records:
            path = self.world.store.get(_key(cut)).decode()
            self._records[cut] = _open_shared(path, len(self.weights_P), torch.float32)
        return self._records[cut]

    @contextlib.contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        fcntl.flock(self.lock, kind)
        try:
            yield
        finally:
            fcntl.flock(self.lock, fcntl.LOCK_UN)


def _make_file(world: World) -> tuple[int | None, str]:
    """A file in memory that learner 0 makes and keeps open, and its path; all learners call this.

    It has no name in any folder, so the system frees it once the last of them exits, however it exits, and it may be
    larger than /dev/shm.
    """
    file = os.memfd_create("asrtool") if world.rank == 0 else None
    return file, world.gather("" if file is None else _path(file))[0]


def _open_shared(path: str, num_values: int, dtype: torch.dtype) -> Tensor:
    """Zeros, where no learner has written anything."""
    return torch.from_file(path, shared=True, size=num_values, dtype=dtype)


def _path(file: int) -> str:
    return f"/proc/{os.getpid()}/fd/{file}"


def _key(cut: int) -> str:
    return f"shared/{cut}"
