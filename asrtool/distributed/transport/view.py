"""Gossip view: the public weights of a learner, which others exchange with.

The learner computes on weights w that no exchange touches. Beside them it keeps d, what exchanges
have pulled since its last update, and adds d to w between two steps. Its public weights are v = w +
d.

In an exchange of weight b, learner i sends a snapshot s of its v. Learner j computes the pull p = b
(s - v_j), adds it to d_j, and answers with p; i subtracts p from d_i. The two changes cancel. So
the mean of all v moves by the learners' own updates alone, however late messages are.

No lock is held while a message travels, so no two learners can wait for each other, and a learner
answers while it computes. While an optimizer changes w, an answer waits for it.

Messages may be bf16. Then j compares what both would send, and both ends use the rounded pull, so
the changes still cancel.

A checkpoint is a consistent cut (Chandy and Lamport 1985): each learner records its v between two
of its own steps, and no exchange crosses the cut. An exchange between a learner that has recorded
and one that has not is refused. If an exchange was answered before the cut and the answer is still
under way, it also changes the recorded v when it arrives. So the mean of all recorded v has moved
by exactly the updates before the cut, though no learner waited for another.

Of P parameters a learner keeps, beside its model: d and the last recorded v, in float32 (for a
model on a GPU also w on the host), and one message, in the format of messages. The pull takes the
place of the snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import torch
from torch import Tensor

CHUNK = 2**18  # values at a time, so that they are still in the cache when read again


class Recorded:
    """Record of the public weights v at a cut."""

    def __init__(self, values_P: Tensor) -> None:
        self.values_P = values_P
        self.settled = threading.Event()  # set once no exchange from before the cut can change it any more


class View:
    """Public weights v and all operations on them, each under one short lock."""

    def __init__(self, weights_P: Tensor, message_type: torch.dtype) -> None:
        """Take the weights w on the host, flat, float32.

        An optimizer holds `lock` while it changes parameters. Float buffers, which a forward pass
        changes, are read as they are.
        """
        self.weights_P = weights_P
        self.pulls_P = torch.zeros_like(weights_P)  # d; without meaning if there are none
        self.num_pulls = 0  # in it
        self.message_type = message_type
        self.lock = threading.RLock()  # reentrant: a caller may hold it to note a change
        self.cut = 0  # the last one recorded
        self.is_exchanging = False  # an exchange begun here is under way
        self._open: list[Recorded] = []  # recorded while it was under way
        self._spare_P: Tensor | None = None

    def begin_from(self, weights_P: Tensor, cut: int) -> None:
        """Start from `weights_P` after `cut`, before the first exchange."""
        with self.lock:
            self.weights_P.copy_(weights_P)
            self.cut = cut

    def copy(self) -> Tensor:
        """Copy v as it is now."""
        with self.lock:
            return self._read(torch.empty_like(self.weights_P))

    def ask(self, message_P: Tensor) -> int:
        """Begin an exchange: round v into `message_P`; return the last cut, to send along."""
        with self.lock:
            self._read(message_P)
            self.is_exchanging = True
            return self.cut

    def answer(self, message_P: Tensor, weight: float, cut: int) -> bool:
        """Pull towards the snapshot, which becomes the pull; False across a cut."""
        with self.lock:
            if cut != self.cut:
                return False
            for weights, pulls, message in chunks_of(self.weights_P, self.pulls_P, message_P):
                own = weights + pulls if self.num_pulls else weights
                pull = message.float()  # the same tensor if messages are float32
                message.copy_(pull.sub_(own.to(message.dtype)).mul_(weight))
                self._add(pulls, message.float(), 1)
            self.num_pulls += 1
            return True

    def pull(self, message_P: Tensor) -> None:
        """Move against the pull in `message_P`, the answer to `ask`."""
        with self.lock:
            for pulls, message in chunks_of(self.pulls_P, message_P):
                self._add(pulls, message.float(), -1)
            self.num_pulls += 1
            for recorded in self._open:
                recorded.values_P.sub_(message_P)
            self._end()

    def refused(self) -> None:
        """End the exchange that `ask` began: it does not take place."""
        with self.lock:
            self._end()

    def update(self) -> int:
        """Add to w the pulls of exchanges since the last call; return their number.

        Without any exchange w stays as it is, bit for bit.
        """
        with self.lock:
            if self.num_pulls:
                self.weights_P += self.pulls_P
            return self._taken()

    def collect(self, out_P: Tensor) -> int:
        """Do the same as `update`, and copy the pulls to `out_P`.

        The caller adds that to its weights. With `publish` this is an update in two halves, between
        which the learner computes on.
        """
        with self.lock:
            if self.num_pulls:
                self.weights_P += out_P.copy_(self.pulls_P)
            else:
                out_P.zero_()
            return self._taken()

    def publish(self, weights_P: Tensor) -> None:
        """Set w to `weights_P`: the weights computed on, with all that was collected."""
        with self.lock:
            self.weights_P.copy_(weights_P)

    def record(self, cut: int) -> Recorded:
        """Record v for the checkpoint of `cut`, which every later exchange comes after."""
        with self.lock:
            spare_P, self._spare_P = self._spare_P, None
            recorded = Recorded(torch.empty_like(self.weights_P) if spare_P is None else spare_P)
            self._read(recorded.values_P)
            self.cut = cut
            if self.is_exchanging:
                self._open.append(recorded)
            else:
                recorded.settled.set()
            return recorded

    def give_back(self, values_P: Tensor) -> None:
        """Reuse the memory of a record for the next one."""
        self._spare_P = values_P

    def _read(self, out_P: Tensor) -> Tensor:
        if not self.num_pulls:
            return out_P.copy_(self.weights_P)
        for out, weights, pulls in chunks_of(out_P, self.weights_P, self.pulls_P):
            out.copy_(weights + pulls)
        return out_P

    def _add(self, pulls: Tensor, pull: Tensor, sign: int) -> None:
        """Add to a chunk of d. The first pull overwrites the old chunk."""
        if self.num_pulls:
            pulls.add_(pull, alpha=sign)
        else:
            torch.mul(pull, sign, out=pulls)

    def _taken(self) -> int:
        num_pulls, self.num_pulls = self.num_pulls, 0
        return num_pulls

    def _end(self) -> None:
        self.is_exchanging = False
        for recorded in self._open:
            recorded.settled.set()
        self._open.clear()


def chunks_of(*tensors_P: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """Split flat tensors into chunks of CHUNK values, and yield them together."""
    return zip(*(tensor_P.split(CHUNK) for tensor_P in tensors_P), strict=True)
