"""Events that change the weights of learners, in order of virtual time.

The cluster model yields them, a real training can record them, and virtual learners follow them with true gradients.
Only the order matters to the weights. A step of a learner has these events, by strategy:

- in lock-step (single, allreduce, ps-sync, adpsgd-d1, bmuf, h-adpsgd by adpsgd-d1): Begin of each learner, then one
  Round of all
- gossip (adpsgd, adpsgd-fixed, adpsgd-random, adpsgd-pairs, none): Begin, Update, Take; an exchange adds Send, then
  the partner's Answer, then Receive in a later step. A Send without an Answer is a refused exchange.
- h-adpsgd on a ring: the same for each learner with its slice of the weights. Before the first Update of a step all
  learners of the node Begin, and before the next Begin all Take.
- ps-async: Begin, then a Push to each server, which steps and answers at once
- hogwild: Begin, then Update

Each step ends with an End, which has the content of records and changes no weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from asrtool.distributed.strategies.strategy import StepCost


class Begin(NamedTuple):
    """A learner begins the gradient of a batch at its current weights.

    `number` is the round from the work queue, which the learning rate follows. `epoch` and `position` of the batch
    count from 0; `position` is None if the last round of an epoch has none left.
    """

    at_s: float
    learner: int
    number: int
    epoch: int
    position: int | None


class Round(NamedTuple):
    """All learners, each with a batch, end the step together by the strategy's rule."""

    at_s: float


class Update(NamedTuple):
    """A learner's optimizer updates its public weights v, or shared ones (hogwild)."""

    at_s: float
    learner: int


class Take(NamedTuple):
    """A learner takes the pulls of exchanges: its weights w become v."""

    at_s: float
    learner: int


class Send(NamedTuple):
    """A learner sends a snapshot s of its v to `partner`."""

    at_s: float
    learner: int
    partner: int


class Answer(NamedTuple):
    """A learner adds p = b (s - v) for the partner's last snapshot to v, and sends p."""

    at_s: float
    learner: int
    partner: int


class Receive(NamedTuple):
    """A learner subtracts the answer p of `partner` from its v."""

    at_s: float
    learner: int
    partner: int


class Push(NamedTuple):
    """`server` steps by a learner's gradient; the learner gets the server's weights."""

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

    @property
    def cost(self) -> StepCost:
        """Cost of communication, as records have it."""
        return StepCost(self.comm_s, self.wait_s, self.num_bytes, self.staleness, self.partners, self.num_skipped)


Event = Begin | Round | Update | Take | Send | Answer | Receive | Push | End
Emit = Callable[[Event], None]  # gets them one after the other
