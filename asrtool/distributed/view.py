"""The gossip view: a learner's public weights, which others may exchange with at any time.

The learner computes on weights w that no exchange touches; beside them it keeps v, which exchanges and its own updates
change. In an exchange of weight b, learner i sends a snapshot s_i of its v; learner j takes s_j of its own, adds b (s_i
- s_j) to v_j, and answers with s_j; i adds b (s_j - s_i) to v_i. The two changes cancel, so the mean of all v moves by
the learners' own updates alone, however late messages are. No lock is held while a message travels, so no two learners
can wait for each other, and one that computes still answers.

Messages may be bf16: then both ends use the rounded snapshots, and the changes still cancel.

A checkpoint is a consistent cut (Chandy and Lamport 1985): each learner records its v between two of its own steps,
and no exchange crosses the cut. One between a learner that has recorded and one that has not is refused. One that was
answered before the cut, with the answer still under way, changes what was recorded as well. So the mean of what all
have recorded has moved by exactly the updates before the cut, though no learner waited for another.

Of P parameters a learner keeps, beside its model: v and the base of the next update in float32, and v as recorded last;
and for messages, in their format, a snapshot sent and one answered with. A snapshot received is read in the memory of
the message, for as long as it is read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import torch
from torch import Tensor

CHUNK = 2**18  # values worked on at a time, so that what is read again is still in the cache


class Recorded:
    """v as it was at a cut."""

    def __init__(self, values_P: Tensor) -> None:
        self.values_P = values_P
        self.settled = threading.Event()  # set once no exchange from before the cut can change it any more


class View:
    """v and what is done to it, each under one short lock."""

    def __init__(self, weights_P: Tensor, message_type: torch.dtype) -> None:
        """`weights_P` is what the learner begins with, flat, float32."""
        self.v_P = weights_P.clone()
        self.base_P = weights_P.clone()
        self.message_type = message_type
        self.lock = threading.Lock()
        self.num_pulls = 0  # since the last update
        self.cut = 0  # the last one recorded
        self._asked_at: int | None = None  # the cut behind which the exchange under way was begun here
        self._open: list[Recorded] = []  # recorded while it was under way
        self._spare_P: Tensor | None = None

    def begin_from(self, weights_P: Tensor, cut: int) -> None:
        """Become `weights_P` behind `cut`, before the first exchange."""
        with self.lock:
            self.v_P.copy_(weights_P)
            self.base_P.copy_(weights_P)
            self.cut = cut

    def copy(self) -> Tensor:
        """v as it is now."""
        with self.lock:
            return self.v_P.clone()

    def ask(self, out_P: Tensor) -> int:
        """Begin an exchange: round v into `out_P`, of the type of messages. Returns the last cut, to be sent along."""
        with self.lock:
            out_P.copy_(self.v_P)
            self._asked_at = self.cut
            return self.cut

    def pull(self, mine_P: Tensor, theirs_P: Tensor, weight: float) -> None:
        """v += weight (theirs - mine), by the answer to what `ask` began."""
        with self.lock:
            self.num_pulls += 1
            for values_P in (self.v_P, *(recorded.values_P for recorded in self._open)):
                for v, mine, theirs in _chunks(values_P, mine_P, theirs_P):
                    _pull(v, mine, theirs, weight)
            self._end()

    def refused(self) -> None:
        """The exchange that `ask` began takes no place."""
        with self.lock:
            self._end()

    def answer(self, theirs_P: Tensor, out_P: Tensor, weight: float, cut: int) -> bool:
        """Snapshot into `out_P` and pull towards `theirs_P`, in one step; not across a cut: False, and nothing done."""
        with self.lock:
            if cut != self.cut:
                return False
            self.num_pulls += 1
            for v, out, theirs in _chunks(self.v_P, out_P, theirs_P):
                out.copy_(v)
                _pull(v, out, theirs, weight)
            return True

    def update(self, weights_P: Tensor) -> None:
        """Add what the learner changed since the last update, and load the result into its `weights_P`.

        Written as weights + (v - base), which leaves the weights as they are, bit for bit, where nobody exchanged.
        """
        with self.lock:
            for v, base, weights in _chunks(self.v_P, self.base_P, weights_P):
                weights += v.sub_(base)
                v.copy_(weights)
                base.copy_(weights)
            self.num_pulls = 0

    def collect(self, out_P: Tensor) -> int:
        """What exchanges have pulled since the last call, for the learner to add; returns how many there were.

        With `publish` this is an update in two halves, between which the learner computes on.
        """
        with self.lock:
            for v, base, out in _chunks(self.v_P, self.base_P, out_P):
                torch.sub(v, base, out=out)
                base.copy_(v)
            num_pulls, self.num_pulls = self.num_pulls, 0
            return num_pulls

    def publish(self, weights_P: Tensor) -> None:
        """`weights_P` is what the learner has, with all that was collected: v becomes that with the pulls since."""
        with self.lock:
            for v, base, weights in _chunks(self.v_P, self.base_P, weights_P):
                v.sub_(base).add_(weights)
                base.copy_(weights)

    def record(self, cut: int) -> Recorded:
        """v as it is now, for the checkpoint of `cut`, which every later exchange is behind."""
        with self.lock:
            spare_P, self._spare_P = self._spare_P, None
            recorded = Recorded(torch.empty_like(self.v_P) if spare_P is None else spare_P)
            recorded.values_P.copy_(self.v_P)
            self.cut = cut
            if self._asked_at is None:
                recorded.settled.set()
            else:
                self._open.append(recorded)
            return recorded

    def give_back(self, values_P: Tensor) -> None:
        """The memory of what was recorded serves the next one."""
        self._spare_P = values_P

    def _end(self) -> None:
        self._asked_at = None
        for recorded in self._open:
            recorded.settled.set()
        self._open.clear()


def _pull(v: Tensor, mine: Tensor, theirs: Tensor, weight: float) -> None:
    v.add_(theirs.float() - mine.float(), alpha=weight)


def _chunks(*tensors_P: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """The same CHUNK values of each of these flat tensors, then the next."""
    return zip(*(tensor_P.split(CHUNK) for tensor_P in tensors_P), strict=True)
