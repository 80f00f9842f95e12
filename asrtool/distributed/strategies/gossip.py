"""Asynchronous decentralised SGD (AD-PSGD): a learner averages with a partner.

W_{k+1} = W_k T_k - alpha g(Phi_k) (Lian et al. 2018): the matrix T_k mixes the weights of a learner
and its partner, and the learner's own gradient is never averaged. The partner of a step is the
right neighbour in a ring (Zhang et al., arXiv 2110.11199), or in `adpsgd-pairs` a passive learner.

A step, in the order of the code:

1. The optimizer changes the weights (LocalReplica.step).
2. `mix` adds what exchanges have pulled since the last step (view).
3. `begin` chooses the partner (topology) and begins an exchange with it (exchange), which runs in a
   thread while the next step computes.

If the model is on a GPU, weights and pulls are copied between it and the view (staging).

The partner answers in a thread of its own, while it computes. Partners are chosen among the
learners that train: a lost one is left out, and one that joined is included, as soon as this is
known.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from asrtool.distributed.launch.addresses import Endpoint, unreachable
from asrtool.distributed.members.members import TrainingEnded
from asrtool.distributed.strategies import topology
from asrtool.distributed.strategies.replica import LocalReplica, MixingRule
from asrtool.distributed.strategies.strategy import StepCost, Strategy, StrategyContext
from asrtool.distributed.transport import device
from asrtool.distributed.transport.device import clock_of
from asrtool.distributed.transport.event_log import Note, no_note
from asrtool.distributed.transport.exchange import POLL_MS, Address, Exchanger, fetch_weights
from asrtool.distributed.transport.sockets import ANSWER_TIMEOUT_S
from asrtool.distributed.transport.staging import GpuStaging, HostStaging
from asrtool.distributed.transport.view import Recorded, View
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.distributed.world import MESSAGE_TYPES, World
from asrtool.errors import AsrtoolError
from asrtool.settings import registry


@dataclass(eq=False)
class Gossip(MixingRule):
    """Mixing rule: an exchange with each step's partner while the next one computes.

    If the last exchange is still under way, a step skips its own.
    """

    asynchronous = True
    weight = topology.EDGE_WEIGHT  # weight of an exchange

    weights_P: Tensor
    world: World
    partner: topology.Partner
    message_type: str
    seed: int
    note: Note = no_note  # logs changes of the view, with ranks among all learners
    num_steps: int = 0
    num_bytes: int = 0  # sent by the last step
    num_skipped: int = 0  # exchanges not begun or refused, by the last step
    num_busy: int = 0
    exchanger: Exchanger | None = None

    def __post_init__(self) -> None:
        self.clock = clock_of(self.weights_P)

    def start(self) -> None:
        stream = device.side_stream(self.weights_P)
        self.view = View(self.weights_P.to("cpu", copy=bool(stream)), MESSAGE_TYPES[self.message_type])
        world = self.world
        if world.size > 1:
            self.exchanger = Exchanger(
                self.view,
                self.weight,
                world.address,
                world.rank,
                note=lambda what, learner: self.note(what, world.rank_of(learner)),
                is_live=lambda learner: learner in world.live,
            )
            if world.joins:
                self.exchanger.addresses = {learner: self._find(learner) for learner in world.live}
            else:
                self.exchanger.addresses = dict(enumerate(world.gather(self.exchanger.address)))
            if world.members:  # for those that join
                world.store.set(_key(world.rank), json.dumps(vars(self.exchanger.address)))
        self.staging = (
            GpuStaging(self.view, self.weights_P, self.exchanger, stream)
            if stream
            else HostStaging(self.view, self.exchanger, self.note)
        )

    def changing(self) -> contextlib.AbstractContextManager[object]:
        return self.staging.changing()

    def mix(self) -> StepCost:
        begin = self.clock.mark()
        staleness = self.staging.apply_pulls()
        self.num_steps += 1
        if self.exchanger is None:
            return StepCost()
        self.exchanger.num_steps = self.num_steps
        num_bytes, self.num_bytes = self.exchanger.num_bytes - self.num_bytes, self.exchanger.num_bytes
        before, self.num_skipped = self.num_skipped, self.num_busy + self.exchanger.num_refused
        (comm_s,) = self.clock.seconds((begin, self.clock.mark()))
        partners = [self.world.rank_of(learner) for learner in self.exchanger.take_partners()]
        return StepCost(comm_s, 0.0, num_bytes, staleness, partners, self.num_skipped - before)

    def begin(self) -> None:
        partner = self._partner()
        if self.exchanger is None or partner == self.world.rank:
            return
        if partner is None:  # on a GPU the pulls of others still have to reach the weights
            self.staging.begin(None)
            return
        if partner not in self.exchanger.addresses:
            self.exchanger.addresses[partner] = self._find(partner)
        self.num_busy += not self.staging.begin(partner)

    def _partner(self) -> int | None:
        """Choose the partner of this step among live learners; AsrtoolError for others."""
        live = self.world.live
        index = self.partner(len(live), self.num_steps, self.seed, live.index(self.world.rank))
        if index is not None and not (hasattr(index, "__index__") and index in range(len(live))):
            what = f"distributed.strategy: the partner of a learner is {index!r} at step {self.num_steps}"
            raise AsrtoolError(f"{what}, expected 0 to {len(live) - 1} or None", "correct the function of partners")
        return None if index is None else live[index]

    def finish(self) -> None:
        self.staging.wait()
        self.world.barrier()
        self.staging.settle()

    def record(self, cut: int) -> Recorded:
        self.staging.publish()
        return self.view.record(cut)

    def give_back(self, values_P: Tensor) -> None:
        self.view.give_back(values_P)

    def adopt(self) -> int | None:
        """Copy the weights of a random learner; if that one is lost, of another."""
        assert self.exchanger
        for learner, address in random.sample(sorted(self.exchanger.addresses.items()), len(self.exchanger.addresses)):
            num_steps = fetch_weights(address, self.weights_P, lambda num: self._is_live(learner, address, num))  # noqa: B023
            if num_steps is not None:
                self.num_steps = num_steps
                return learner
        raise TrainingEnded

    def _is_live(self, learner: int, address: Address, num_polls: int) -> bool:
        """Return whether `learner` still trains; AsrtoolError after too long a silence."""
        members = self.world.members
        assert members
        members.refresh(self.world.store)
        if learner not in members.live or members.closed:
            return False
        if num_polls * POLL_MS > 1000 * ANSWER_TIMEOUT_S:
            own = Endpoint(socket.gethostname(), self.world.address)
            raise unreachable(self.world.rank, own, address.remote, f"no answer for {ANSWER_TIMEOUT_S:g} s")
        return True

    def _find(self, learner: int) -> Address:
        """Read the address of a learner, which it has published before it trained."""
        return Address(**json.loads(self.world.store.get(_key(learner))))

    def join(self, cut: int) -> None:
        self.view.begin_from(self.weights_P.cpu(), cut)

    def state(self) -> dict[str, Any]:
        return {"num_steps": self.num_steps}

    def load_state(self, state: dict[str, Any], shared: dict[str, Any]) -> None:
        self.num_steps = state["num_steps"]

    def close(self) -> None:
        self.staging.close()
        if self.exchanger:
            self.exchanger.close()


def _key(learner: int) -> str:
    return f"address/{learner}"


class Pairs(Gossip):
    """Active learners begin exchanges and wait for them; passive ones answer."""

    weight = topology.PAIR_WEIGHT

    def mix(self) -> StepCost:
        begin = time.perf_counter()
        self.staging.wait()
        waited_s = time.perf_counter() - begin
        cost = super().mix()
        cost.wait_s = waited_s
        return cost


def adpsgd(context: StrategyContext) -> Strategy:
    """Make AD-PSGD on the ring of the settings; AsrtoolError if it gives no order."""
    ring = registry.load("ring", context.settings.ring)
    topology.check_ring(context.settings.ring, ring, context.world.size, context.seed)
    return _replica(context, Gossip, topology.ring_partner(ring))


def adpsgd_pairs(context: StrategyContext) -> Strategy:
    """Make AD-PSGD between active and passive learners."""
    return _replica(context, Pairs, topology.passive_partner)


def _replica(context: StrategyContext, rule: type[Gossip], partner: topology.Partner) -> Strategy:
    flat = FlatWeights(context.model)
    gossip = rule(flat.weights_P, context.world, partner, context.settings.message_type, context.seed, context.note)
    return LocalReplica(context, flat, gossip, AssignmentRule(), context.task)
