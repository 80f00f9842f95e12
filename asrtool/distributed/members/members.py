"""The members of a training: who trains, after learners were lost and others joined.

They are a list of changes in the store, to which any learner adds and which all read in the same order, so all know
the same members after the same number of changes. The last one is that the training ends: who is a member then ends
it, by collectives.
"""

from __future__ import annotations

import itertools
import json
import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store


class Ended(Exception):
    """The training ends, so no learner joins it any more."""


class TakenForLost(ConnectionError):
    """The others train without this learner."""


Left = tuple[int, int, int]  # a batch that is assigned again: round, epoch and position, each from 0


@dataclass(frozen=True)
class Loss:
    """A learner that is lost, and what it left: files that it wrote later do not count."""

    rank: int
    why: str
    record_bytes: int  # of its records, in whole lines
    left: Sequence[Left] = ()  # assigned to it and not trained
    num_rounds: int = 0  # those before the last one that was assigned to it, and this


def node_of(rank: int, size: int) -> range:
    """The learners of the super-learner of `size` that `rank` is in: they are lost together."""
    return range(rank - rank % size, rank - rank % size + size)


@dataclass(frozen=True)
class Survival:
    """Of a training in the folder `out` that survives the loss of learners: `examine` finds what one left there."""

    out: Path
    examine: Callable[[Path, int, str], Loss]  # of a folder, a rank and the reason
    node_size: int = 1  # learners of a super-learner


class Members:
    """Who trains, of `size` learners at first. `live` and the other attributes may be read by any thread."""

    def __init__(self, size: int, rank: int | None = None) -> None:
        """Learner `rank` logs who joins and who is lost while it is the first one."""
        self.size = size
        self._rank = rank
        self.live = tuple(range(size))  # in the order of their entries, so the first of those left is known to all
        self.joined: dict[int, int] = {}  # learner -> the last cut that it has no part in
        self.losses: dict[int, Loss] = {}
        self.again: list[Left] = []  # batches that are assigned again
        self.closed = False  # whether the training ends
        self._num_read = self._num_logged = 0
        self._lock = threading.Lock()

    def look(self, store: Store) -> None:
        """Take in the changes since the last call; one request where there are none."""
        with self._lock:
            while store.check([_key(self._num_read)]):
                self._take(json.loads(store.get(_key(self._num_read))))
                self._num_read += 1

    def lose(self, store: Store, *losses: Loss) -> None:
        """These learners, one or a whole node, are lost, unless they are already, or the training ends."""
        self._add(store, {"lost": [*map(vars, losses)]}, lambda: losses[0].rank in self.losses or self.closed)

    def join(self, store: Store, rank: int, cut: int) -> bool:
        """Learner `rank` trains as well, with a part in the cuts behind `cut`, unless the training ends: whether so."""
        self._add(store, {"joined": (rank, cut)}, lambda: rank in self.joined or self.closed)
        return rank in self.live

    def at(self, cut: int) -> tuple[int, ...]:
        """Those that train and have a part in `cut`."""
        return tuple(rank for rank in self.live if self.joined.get(rank, 0) < cut)

    @property
    def ever(self) -> Sequence[int]:
        """All that there have been."""
        return (*range(self.size), *self.joined)

    def deal_again(self, store: Store, left: Sequence[Left]) -> None:
        """Nobody has trained these, and none is in `again`; by the learner that ends the training."""
        self._add(store, {"again": left}, lambda: self.closed)

    def close(self, store: Store, live: tuple[int, ...]) -> bool:
        """The training ends, unless `live` are not the members any more: whether it does."""
        self._add(store, {"closed": True}, lambda: self.live != live or self.closed)
        return self.closed

    def _log(self) -> None:
        """The losses that are not in the log; one before it may have been lost before it wrote them."""
        if self._rank in self.live[:1]:
            for loss in list(self.losses.values())[self._num_logged :]:
                logging.warning("learner %d %s: %d train without it", loss.rank, loss.why, len(self.live))
            self._num_logged = len(self.losses)

    def _add(self, store: Store, change: dict[str, Any], is_vain: Callable[[], bool]) -> None:
        text = json.dumps({**change, "by": secrets.token_hex(8)})
        while True:
            self.look(store)
            number = self._num_read
            if is_vain():
                return
            if store.compare_set(_key(number), "", text).decode() == text:
                self.look(store)
                return

    def _take(self, change: dict[str, Any]) -> None:
        if "closed" in change:
            self.closed = True
        elif "again" in change:
            self.again += _left(change["again"])
        elif "joined" in change:
            rank, cut = change["joined"]
            self.joined[rank] = cut
            self.live += (rank,)
            if self._rank in self.live[:1]:
                logging.info("learner %d joined: %d train", rank, len(self.live))
        else:
            self._take_losses([Loss(**{**lost, "left": _left(lost["left"])}) for lost in change["lost"]])

    def _take_losses(self, found: Sequence[Loss]) -> None:
        losses = [loss for loss in found if loss.rank not in self.losses]  # two learners may report the same one
        self.losses |= {loss.rank: loss for loss in losses}
        self.again += itertools.chain(*(loss.left for loss in losses))
        self.live = tuple(rank for rank in self.live if rank not in self.losses)
        self._log()


def _left(found: Sequence[Sequence[int]]) -> list[Left]:
    return [(number, epoch, position) for number, epoch, position in found]


def _key(number: int) -> str:
    return f"change/{number}"
