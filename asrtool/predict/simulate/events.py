"""Log of a simulation: events in virtual time, and sums over each learner's steps.

The cluster model yields them, a real training can record them, and virtual learners follow them with true gradients.
A step of a learner has these events, by strategy; only their order matters to the weights:

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
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asrtool.distributed.strategies.strategy import StepCost

PARTS = ("compute_s", "comm_s", "wait_s", "data_s", "between_s")
COUNTS = ("steps", "bytes", "staleness", "exchanges", "skipped")
SUMS = (*PARTS, "blamed_s", *COUNTS)
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class Begin(NamedTuple):
    """Begin of a batch's gradient at the current weights of a learner.

    `number` is the round from the work queue, which the learning rate follows. `epoch` and `position` of the batch
    count from 0; `position` is None if the last round of an epoch has none left.
    """

    at_s: float
    learner: int
    number: int
    epoch: int
    position: int | None


class Round(NamedTuple):
    """End of a step of all learners together, by the strategy's rule."""

    at_s: float


class Change(NamedTuple):
    """Change of weights by a learner; `kind` as in the log of a training.

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
    other: int = -1  # other learner of update and take


class End(NamedTuple):
    """End of a learner's step from `begin_s` on; fields as in its records.

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


@dataclass
class Outcome:
    """Result of a simulation; arrays have an entry for each learner, also joined ones.

    The parts of a learner's time add up to `seconds`: its steps, and `between_s`, when it starts, saves, evaluates,
    stands still after a loss, and waits at the end.
    """

    strategy: str
    num_learners: int  # learners at the start
    num_batches: int  # batches of the whole training, each once
    batch: float  # samples of each
    seconds: float = 0.0  # from the start of the command to its end
    num_losses: int = 0  # losses of learners
    num_repeated: int = 0  # batches trained once more after a loss
    num_joined: int = 0
    compute_s: Floats = field(init=False)
    comm_s: Floats = field(init=False)
    wait_s: Floats = field(init=False)  # for other learners, and for messages
    data_s: Floats = field(init=False)
    between_s: Floats = field(init=False)
    blamed_s: Floats = field(init=False)  # time that others waited for this learner, summed
    steps: Counts = field(init=False)
    bytes: Counts = field(init=False)
    staleness: Counts = field(init=False)  # summed
    exchanges: Counts = field(init=False)
    skipped: Counts = field(init=False)

    def __post_init__(self) -> None:
        for name in SUMS:
            setattr(self, name, np.zeros(self.num_learners, dtype=np.int64 if name in COUNTS else np.float64))

    @property
    def samples_per_s(self) -> float:
        """Samples a second of all learners, over the whole training."""
        return self.num_batches * self.batch / self.seconds

    @property
    def mean_staleness(self) -> float:
        """Mean staleness of a step."""
        return float(self.staleness.sum() / max(1, self.steps.sum()))

    def fraction(self, part: str) -> float:
        """Return the fraction that a part has of the time of all learners."""
        return float(getattr(self, part).sum()) / (self.seconds * len(self.steps))

    def blame(self) -> tuple[int, float]:
        """Find the learner that others waited for most.

        Returns the learner and the fraction of the time of all learners that was spent on it.
        """
        learner = int(self.blamed_s.argmax())
        return learner, float(self.blamed_s[learner]) / (self.seconds * len(self.steps))
