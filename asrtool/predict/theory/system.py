"""A strategy in theory: replicas of the weights, their speeds and exchanges."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrtool.distributed.strategies.topology import EDGE_WEIGHT, PAIR_WEIGHT, check_ring
from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.schema import Choice

Floats = NDArray[np.float64]

ONE_COPY = ("single", "allreduce", "ps-sync")  # the same weights at all learners after each step
SHARED = ("ps-async", "hogwild")  # one set of weights, stepped on by each learner at its own time
RINGS = {"adpsgd-fixed": "fixed", "adpsgd-random": "random"}
MOST_LEARNERS = 1024  # matrices have that size squared
DRAWN_STEPS = 2000  # of a person's own ring, whose law is not known; of many learners fewer
DRAWN_VALUES = 2**22  # of their matrices


@dataclass(frozen=True)
class System:
    """Learners of a strategy; a step of learner i takes `slow[i]` times as long."""

    strategy: Choice
    num_learners: int
    slow: Mapping[int, float]
    seed: int = 1

    def __post_init__(self) -> None:
        """Raise AsrtoolError for a strategy without a theory or numbers that do not fit."""
        name = self.strategy.name
        if ":" in name:
            what = f"nothing is known of strategy {name}, one of your own"
            raise AsrtoolError(what, f"choose one of {', '.join(registry.names('strategy'))}")
        if self.num_learners > MOST_LEARNERS:
            what = f"--num-learners {self.num_learners}: matrices of so many do not fit"
            raise AsrtoolError(what, f"choose {MOST_LEARNERS} at most; what grows with the number shows before")
        if name == "single" and self.num_learners > 1:
            what = f"distributed.strategy is single, distributed.num_learners {self.num_learners}"
            raise AsrtoolError(what, "choose another strategy, for example --strategy allreduce, or --num-learners 1")
        for learner in self.slow:
            if learner >= self.num_learners:
                what = f"--slow {learner}: there are {self.num_learners} learners"
                raise AsrtoolError(what, f"choose 0 to {self.num_learners - 1}")
        if self.num_learners % self.node_size:
            what = f"distributed.h-adpsgd.node_size {self.node_size} does not divide {self.num_learners} learners"
            sizes = [str(n) for n in range(1, self.num_learners + 1) if self.num_learners % n == 0]
            raise AsrtoolError(what, f"choose one of {', '.join(sizes)}, or another --num-learners")
        if name == "adpsgd":
            check_ring(self.ring, registry.load("ring", self.ring), self.num_learners, self.seed)

    @property
    def name(self) -> str:
        return self.strategy.name

    @property
    def settings(self) -> Any:
        return self.strategy.settings

    @property
    def outer(self) -> str:
        """The strategy between replicas."""
        return str(self.settings.outer) if self.name == "h-adpsgd" else self.name

    @property
    def node_size(self) -> int:
        """Learners of a replica: of a node, whose gradients are averaged.

        By default all are one node.
        """
        return int(self.settings.node_size or self.num_learners) if self.name == "h-adpsgd" else 1

    @property
    def num_replicas(self) -> int:
        """N: sets of weights that may differ."""
        return 1 if self.outer in (*ONE_COPY, *SHARED) else self.num_learners // self.node_size

    @property
    def num_steppers(self) -> int:
        """Replicas that step independently: learners, or nodes."""
        return self.num_learners // self.node_size

    @property
    def ring(self) -> str:
        """Name of the ring on which replicas exchange, or an empty string."""
        return str(self.settings.ring) if self.name == "adpsgd" else RINGS.get(self.outer, "")

    @property
    def has_own_ring(self) -> bool:
        """Test if the ring is custom, with unknown probabilities."""
        return self.ring not in ("", "fixed", "random")

    @property
    def asynchronous(self) -> bool:
        """Test if a learner steps without waiting for others."""
        return bool(self.ring) or self.outer in (*SHARED, "adpsgd-pairs", "none")

    @property
    def speeds_N(self) -> Floats:
        """Steps in the time of one step at full speed; the slowest learner of a node."""
        factors_L = np.array([self.slow.get(learner, 1.0) for learner in range(self.num_learners)])
        speeds_N: Floats = 1 / factors_L.reshape(self.num_steppers, -1).max(axis=1)
        return speeds_N if self.asynchronous else np.full_like(speeds_N, speeds_N.min())

    @property
    def weight(self) -> float:
        """Fraction of the difference that both ends of an exchange move."""
        return PAIR_WEIGHT if self.outer == "adpsgd-pairs" else EDGE_WEIGHT

    def rings(self) -> list[list[int]]:
        """Order of the fixed ring, or orders of the first steps."""
        num_steps = 1 if self.ring == "fixed" else min(DRAWN_STEPS, max(16, DRAWN_VALUES // self.num_replicas**2))
        return [self.ring_at(step) for step in range(num_steps)]

    def ring_at(self, step: int) -> list[int]:
        """Return the ring order of one step."""
        return list(registry.load("ring", self.ring)(self.num_replicas, step, self.seed))

    @functools.cached_property
    def partners_NN(self) -> Floats:
        """[i, j]: the probability that replica i begins an exchange with replica j.

        Rows sum to 1, or to 0 if i begins none. A custom ring has the frequencies of its first steps.
        """
        num = self.num_replicas
        partners_NN = np.zeros((num, num))
        if num == 1 or self.outer not in ("adpsgd-pairs", *RINGS, "adpsgd"):
            return partners_NN
        if self.outer == "adpsgd-pairs":
            partners_NN[::2, 1::2] = 1 / (num // 2)
        elif self.ring == "random":
            partners_NN[:] = (1 - np.eye(num)) / (num - 1)
        else:
            orders = self.rings()
            for order in orders:
                partners_NN[order, np.roll(order, -1)] += 1 / len(orders)
        return partners_NN
