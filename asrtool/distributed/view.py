"""The gossip view: a learner's public weights, which others may exchange with at any time.

The learner computes on weights w that no exchange touches; beside them it keeps v, which exchanges and its own updates
change. In an exchange of weight b, learner i sends a snapshot s_i of its v; learner j takes s_j of its own, adds b (s_i
- s_j) to v_j, and answers with s_j; i adds b (s_j - s_i) to v_i. The two changes cancel, so the mean of all v moves by
the learners' own updates alone, however late messages are. No lock is held while a message travels, so no two learners
can wait for each other, and one that computes still answers.

Messages may be bf16: then both ends use the rounded snapshots, and the changes still cancel.

Of P parameters a learner keeps, beside its model: v and the base of the next update in float32; and for messages, in
their format, a snapshot sent and one answered with. A snapshot received is read in the memory of the message, for as
long as it is read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import torch
from torch import Tensor

CHUNK = 2**18  # values worked on at a time, so that what is read again is still in the cache


class View:
    """v and what is done to it, each under one short lock."""

    def __init__(self, weights_P: Tensor, message_type: torch.dtype) -> None:
        """`weights_P` is what the learner begins with, flat, float32."""
        self.v_P = weights_P.clone()
        self.base_P = weights_P.clone()
        self.message_type = message_type
        self.lock = threading.Lock()
        self.num_pulls = 0  # since the last update

    def snapshot(self, out_P: Tensor) -> None:
        """Round v into `out_P`, of the type of messages."""
        with self.lock:
            out_P.copy_(self.v_P)

    def pull(self, mine_P: Tensor, theirs_P: Tensor, weight: float) -> None:
        """v += weight (theirs - mine)."""
        with self.lock:
            self.num_pulls += 1
            for v, mine, theirs in _chunks(self.v_P, mine_P, theirs_P):
                _pull(v, mine, theirs, weight)

    def answer(self, theirs_P: Tensor, out_P: Tensor, weight: float) -> None:
        """Snapshot into `out_P` and pull towards `theirs_P`, in one step."""
        with self.lock:
            self.num_pulls += 1
            for v, out, theirs in _chunks(self.v_P, out_P, theirs_P):
                out.copy_(v)
                _pull(v, out, theirs, weight)

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


def _pull(v: Tensor, mine: Tensor, theirs: Tensor, weight: float) -> None:
    v.add_(theirs.float() - mine.float(), alpha=weight)


def _chunks(*tensors_P: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """The same CHUNK values of each of these flat tensors, then the next."""
    return zip(*(tensor_P.split(CHUNK) for tensor_P in tensors_P), strict=True)
