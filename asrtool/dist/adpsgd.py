"""Asynchronous decentralised SGD on a ring (Lian et al. 2018; rings of Zhang et al., arXiv 2110.11199).

W_{k+1} = W_k T_k - alpha g(Phi_k): every learner, once a step, averages with its right neighbour in the ring, by the
matrix T_k of the ring where all are equally fast, and subtracts its own gradient, which is never averaged.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from asrtool.config import Dist
from asrtool.dist.dealing import Dealing
from asrtool.dist.exchange import Exchanger
from asrtool.dist.flat import FlatWeights
from asrtool.dist.gossip import View
from asrtool.dist.strategy import Mixing, Parts, Replica, Spent, Strategy
from asrtool.dist.topology import EDGE_WEIGHT, RINGS, right_neighbour
from asrtool.dist.world import World, own_address

MESSAGES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Gossip(Mixing):
    """Exchanges with the right neighbour of each step, one at a time, while the next step computes."""

    def __init__(self, weights_P: Tensor, world: World, ring: str, settings: Dist, seed: int) -> None:
        self.weights_P = weights_P
        self.world = world
        self.ring = RINGS[ring]
        self.message_type = MESSAGES[settings.message_type]
        self.seed = seed
        self.num_steps = 0
        self.num_bytes = 0
        self.exchanger: Exchanger | None = None

    def start(self) -> None:
        self.view = View(self.weights_P, self.message_type)
        if self.world.size > 1:
            self.exchanger = Exchanger(self.view, EDGE_WEIGHT, own_address(self.world))
            self.exchanger.addresses = dict(enumerate(self.world.gather(self.exchanger.address)))

    def mix(self) -> Spent:
        begin = time.perf_counter()
        staleness = self.view.num_pulls
        self.view.update(self.weights_P)
        self.num_steps += 1
        if self.exchanger is None:
            return Spent()
        before, self.num_bytes = self.num_bytes, self.exchanger.num_bytes
        return Spent(time.perf_counter() - begin, 0.0, self.num_bytes - before, staleness)

    def begin(self) -> None:
        if self.exchanger:
            ring = self.ring(self.world.size, self.num_steps, self.seed)
            self.exchanger.begin(right_neighbour(ring, self.world.rank))

    def finish(self) -> None:
        self.world.barrier()  # fails at once where a learner has died, and then no answer is waited for
        if self.exchanger:
            self.exchanger.finish()
        self.world.barrier()
        self.view.update(self.weights_P)

    def state(self) -> dict[str, Any]:
        return {"num_steps": self.num_steps}

    def load_state(self, state: dict[str, Any]) -> None:
        self.num_steps = state["num_steps"]

    def close(self) -> None:
        if self.exchanger:
            self.exchanger.close()


def adpsgd(parts: Parts) -> Strategy:
    """The ring is named by the strategy: adpsgd-RING."""
    flat = FlatWeights(parts.model)
    ring = parts.name.removeprefix("adpsgd-")
    gossip = Gossip(flat.weights_P, parts.world, ring, parts.settings, parts.seed)
    return Replica(parts, flat, gossip, Dealing(), parts.task)
