"""What happens to the weights of learners, in order of virtual time.

The cluster model yields these events, a real training can record them, and virtual learners follow them: they compute
the true gradients and change the true weights, in just this order. Times do not matter to the weights, their order
does. Events of one time come in the order in which they take place.

A step of learner i has these events, by strategy:

- in lock-step (single, allreduce, ps-sync, adpsgd-d1, bmuf, h-adpsgd by adpsgd-d1): Begin of each learner, then one
  Round of all;
- gossip (adpsgd, adpsgd-fixed, adpsgd-random, adpsgd-pairs, none): Begin, Update, Take; then, where it begins an
  exchange, Send, which its partner follows with Answer, and it, during a later step, with Receive. Update and Take may
  be one after the other or have answers between them. A Send without an Answer is an exchange refused: nothing comes of
  it;
- h-adpsgd on a ring: the same for each learner, whose exchanges are of its slice of the weights. Before the first
  Update of a step there is a Begin of all learners of the node, and before the next Begin a Take of all;
- ps-async: Begin, then a Push to each server, which steps on it and answers at once;
- hogwild: Begin, then Update.

Each step ends with an End, which has what the records of learners say; it changes no weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Begin(NamedTuple):
    """A learner begins the gradient of a batch, at its weights as they are.

    `number` is that of the round that the work queue has given it: the learning rate follows it. `epoch` and `position`
    are those of the batch, from 0 on; `position` is None where the last round of an epoch has none left for it.
    """

    at_s: float
    learner: int
    number: int
    epoch: int
    position: int | None


class Round(NamedTuple):
    """All learners, each of which has begun a batch, end the step together, by the rule of the strategy."""

    at_s: float


class Update(NamedTuple):
    """The update of a learner's optimizer is in its public weights v, or in those that all share (hogwild)."""

    at_s: float
    learner: int


class Take(NamedTuple):
    """A learner takes what exchanges have pulled: its own weights w become v, and the next gradient is theirs."""

    at_s: float
    learner: int


class Send(NamedTuple):
    """A learner takes a snapshot s of its v for an exchange with `partner`, and sends it."""

    at_s: float
    learner: int
    partner: int


class Answer(NamedTuple):
    """A learner finds p = b (s - v) of the snapshot s that `partner` sent last, adds p to its v, and answers with p."""

    at_s: float
    learner: int
    partner: int


class Receive(NamedTuple):
    """A learner has the answer p of `partner` to what it sent last, and subtracts p from its v."""

    at_s: float
    learner: int
    partner: int


class Push(NamedTuple):
    """`server` makes the step of a learner's gradient, and the learner gets the weights of that server as they are."""

    at_s: float
    learner: int
    server: int


class End(NamedTuple):
    """A learner's step ends, which began at `begin_s`; all as in its records.

    `staleness` is what the cluster model has counted; who follows the events may find it from them.
    """

    at_s: float
    learner: int
    begin_s: float
    compute_s: float
    comm_s: float = 0.0
    wait_s: float = 0.0
    data_s: float = 0.0
    num_bytes: int = 0
    partners: tuple[int, ...] = ()
    num_skipped: int = 0
    staleness: int = 0


Event = Begin | Round | Update | Take | Send | Answer | Receive | Push | End
Emit = Callable[[Event], None]  # gets them one after the other
