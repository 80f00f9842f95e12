"""Events that change the weights of learners, in order of virtual time.

The cluster model yields them, a real training can record them, and virtual learners follow them with true gradients.
Only the order matters to the weights. A step of a learner has these events, by strategy:

- in lock-step (single, allreduce, ps-sync, adpsgd-d1, bmuf, h-adpsgd by adpsgd-d1): Begin of each learner, then one
  Round of all
- gossip (adpsgd, adpsgd-fixed, adpsgd-random, adpsgd-pairs, none): Begin, update, take; an exchange adds send, then
  the answer of the partner, then receive in a later step. A send without an answer is a refused exchange.
- h-adpsgd on a ring: the same for each learner with its slice of the weights. Before the first update of a step all
  learners of the node Begin, and before the next Begin all take.
- ps-async: Begin, then a push to each server, which steps and answers at once
- hogwild: Begin, then update

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


class Change(NamedTuple):
    """A learner changes weights; `kind` as in the log of a training.

    - update: its optimizer updates its public weights v, or shared ones (hogwild)
    - take: it takes the pulls of exchanges: its weights w become v
    - send: it sends a snapshot s of its v to `other`
    - answer: it adds p = b (s - v) for the last snapshot of `other` to v, and sends p
    - receive: it subtracts the answer p of `other` from its v
    - push: server `other` steps by its gradient; the learner gets the weights of the server
    """

    at_s: float
    kind: str
    learner: int
    other: int = -1  # of update and take


class End(NamedTuple):
    """A learner's step ends, which began at `begin_s`; all as in its records.

    `staleness` is the cluster model's count; it also follows from the events.
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


Event = Begin | Round | Change | End
Emit = Callable[[Event], None]  # receives events in order
