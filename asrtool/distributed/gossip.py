"""Gossip: after each step a learner begins an exchange with its right neighbour, which takes place during the next."""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor

from asrtool.distributed.exchange import Exchanger
from asrtool.distributed.flat import MESSAGES
from asrtool.distributed.strategy import MixingRule, StepCost
from asrtool.distributed.topology import EDGE_WEIGHT, Ring, right_neighbour
from asrtool.distributed.view import Recorded, View
from asrtool.distributed.world import World, own_address


class Gossip(MixingRule):
    """Exchanges with the right neighbour of each step, one at a time, while the next step computes.

    A learner whose last exchange is still under way skips that of a step; both are counted.
    """

    asynchronous = True

    def __init__(self, weights_P: Tensor, world: World, ring: Ring, message_type: str, seed: int) -> None:
        self.weights_P = weights_P
        self.world = world
        self.ring = ring
        self.message_type = MESSAGES[message_type]
        self.seed = seed
        self.num_steps = 0
        self.num_bytes = 0
        self.num_skipped = 0  # exchanges not begun or refused, by the last step
        self.num_busy = 0
        self.exchanger: Exchanger | None = None

    def start(self) -> None:
        self.view = View(self.weights_P, self.message_type)
        if self.world.size > 1:
            self.exchanger = Exchanger(self.view, EDGE_WEIGHT, own_address(self.world))
            self.exchanger.addresses = dict(enumerate(self.world.gather(self.exchanger.address)))

    def mix(self) -> StepCost:
        begin = time.perf_counter()
        staleness = self.view.num_pulls
        self.view.update(self.weights_P)
        self.num_steps += 1
        if self.exchanger is None:
            return StepCost()
        before, self.num_bytes = self.num_bytes, self.exchanger.num_bytes
        skipped, self.num_skipped = self.num_skipped, self.num_busy + self.exchanger.num_refused
        return StepCost(
            time.perf_counter() - begin,
            0.0,
            self.num_bytes - before,
            staleness,
            partners=self.exchanger.take_partners(),
            num_skipped=self.num_skipped - skipped,
        )

    def begin(self) -> None:
        if self.exchanger:
            ring = self.ring(self.world.size, self.num_steps, self.seed)
            self.num_busy += not self.exchanger.begin(right_neighbour(ring, self.world.rank))

    def finish(self) -> None:
        self.world.barrier()  # fails at once where a learner has died, and then no answer is waited for
        if self.exchanger:
            self.exchanger.finish()
        self.world.barrier()
        self.view.update(self.weights_P)

    def record(self, cut: int) -> Recorded:
        return self.view.record(cut)

    def give_back(self, values_P: Tensor) -> None:
        self.view.give_back(values_P)

    def state(self) -> dict[str, Any]:
        return {"num_steps": self.num_steps}

    def load_state(self, state: dict[str, Any]) -> None:
        self.num_steps = state["num_steps"]

    def close(self) -> None:
        if self.exchanger:
            self.exchanger.close()
