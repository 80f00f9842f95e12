"""Members of a training: the learners that train, after losses and joins.

The store holds a list of changes, to which any learner adds and which all read in the same order.
So all learners have the same members after the same number of changes. The last change is the end of the
training: the members at that time end it together, by collectives.
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


class TrainingEnded(Exception):
    """Error of a learner that joins while the training ends."""


class TakenForLost(ConnectionError):
    """Error of a learner that the others take for lost."""


LEFT = "left"  # reason of the loss of a learner that was stopped after all its batches
LostBatch = tuple[int, int, int]  # round, epoch and position, each from 0, of a batch that a lost learner had


@dataclass(frozen=True)
class LostLearner:
    """A lost learner and its records so far: files that it wrote later do not count."""

    rank: int
    why: str
    record_bytes: int  # length of its records, in whole lines
    untrained: Sequence[LostBatch] = ()  # assigned to it and not trained
    num_rounds: int = 0  # up to the last one that was assigned to it


def node_of(rank: int, size: int) -> range:
    """Return the learners of the super-learner of `rank`, which are lost together."""
    return range(rank - rank % size, rank - rank % size + size)


def learner_file(out: Path, rank: int, kind: str) -> Path:
    """Return a file of a learner in the training `out`: jsonl, assigned, lost, lock."""
    return out / "learners" / f"{rank}.{kind}"


@dataclass(frozen=True)
class Survival:
    """A training in the folder `out` that survives the loss of learners."""

    out: Path
    examine: Callable[[Path, int, str], LostLearner]  # a folder, a rank and the reason -> what is left there
    node_size: int = 1  # learners of a super-learner


class Members:
    """Members of a training, `size` at first. Any thread may read the attributes.

    So what threads iterate over is replaced and never changed.
    """

    def __init__(self, size: int, rank: int | None = None) -> None:
        """Take the `rank` of this learner, which logs changes if it is the first one."""
        self.size = size
        self._rank = rank
        self.live = tuple(range(size))  # in the order of their entries, so the first of those left is known to all
        self.joined: dict[int, int] = {}  # learner -> the last cut before it joined
        self.losses: dict[int, LostLearner] = {}
        self.lost_batches: list[LostBatch] = []  # to be assigned again
        self.closed = False  # True once the training ends
        self._num_read = self._num_logged = 0
        self._lock = threading.Lock()

    def refresh(self, store: Store) -> None:
        """Read the changes since the last call, by one request if nothing changed."""
        with self._lock:
            while store.check([_key(self._num_read)]):
                self._apply(json.loads(store.get(_key(self._num_read))))
                self._num_read += 1

    def lose(self, store: Store, *losses: LostLearner) -> None:
        """Add the loss of one learner or of a node, unless known or at the end."""
        self._add(store, {"lost": [*map(vars, losses)]}, lambda: losses[0].rank in self.losses or self.closed)

    def join(self, store: Store, rank: int, cut: int) -> bool:
        """Add learner `rank`, with a part in the cuts after `cut`; False at the end."""
        self._add(store, {"joined": (rank, cut)}, lambda: rank in self.joined or self.closed)
        return rank in self.live

    def at(self, cut: int) -> tuple[int, ...]:
        """Return the learners that train and have a part in `cut`."""
        return tuple(rank for rank in self.live if self.joined.get(rank, 0) < cut)

    @property
    def all_ranks(self) -> Sequence[int]:
        """All learners of the training, lost ones too."""
        return (*range(self.size), *self.joined)

    def reassign(self, store: Store, missing: Sequence[LostBatch]) -> None:
        """Add batches that no learner has; for the learner that ends the training."""
        self._add(store, {"again": missing}, lambda: self.closed)

    def close(self, store: Store, live: tuple[int, ...]) -> bool:
        """End the training unless the members have changed; return whether it ends."""
        self._add(store, {"closed": True}, lambda: self.live != live or self.closed)
        return self.closed

    def _add(self, store: Store, change: dict[str, Any], is_moot: Callable[[], bool]) -> None:
        text = json.dumps({**change, "by": secrets.token_hex(8)})
        while True:
            self.refresh(store)
            number = self._num_read
            if is_moot():
                return
            if store.compare_set(_key(number), "", text).decode() == text:
                self.refresh(store)
                return

    def _apply(self, change: dict[str, Any]) -> None:
        if "closed" in change:
            self.closed = True
        elif "again" in change:
            self.lost_batches += _batches(change["again"])
        elif "joined" in change:
            rank, cut = change["joined"]
            self.joined = {**self.joined, rank: cut}
            self.live += (rank,)
            if self._rank in self.live[:1]:
                logging.info("learner %d joined: %d train", rank, len(self.live))
        else:
            found = [LostLearner(**{**lost, "untrained": _batches(lost["untrained"])}) for lost in change["lost"]]
            losses = [loss for loss in found if loss.rank not in self.losses]  # two learners may report the same one
            self.losses = {**self.losses, **{loss.rank: loss for loss in losses}}
            self.lost_batches += itertools.chain(*(loss.untrained for loss in losses))
            self.live = tuple(rank for rank in self.live if rank not in self.losses)
            if self._rank in self.live[:1]:  # log also those that an earlier first learner did not
                for loss in list(self.losses.values())[self._num_logged :]:
                    verb = "trains" if len(self.live) == 1 else "train"
                    logging.warning("learner %d %s: %d %s without it", loss.rank, loss.why, len(self.live), verb)
                self._num_logged = len(self.losses)


def _batches(found: Sequence[Sequence[int]]) -> list[LostBatch]:
    return [(number, epoch, position) for number, epoch, position in found]


def _key(number: int) -> str:
    return f"change/{number}"
