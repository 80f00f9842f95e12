"""Gossip: after each step a learner begins an exchange with a partner, which takes place during the next.

Partners are of the learners that train: one that is lost is left out, and one that joins is among them, from the step
on at which this is known.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import socket
from typing import Any

from torch import Tensor

from asrtool.distributed.launch.addresses import Place, unreached
from asrtool.distributed.members.members import Ended
from asrtool.distributed.members.timeout import TIMEOUT_S
from asrtool.distributed.strategies.replica import MixingRule
from asrtool.distributed.strategies.strategy import StepCost
from asrtool.distributed.strategies.topology import EDGE_WEIGHT, Partner
from asrtool.distributed.transport import copy_stream
from asrtool.distributed.transport.clock import clock_of
from asrtool.distributed.transport.event_log import Note, no_note
from asrtool.distributed.transport.exchange import LOOK_MS, Address, Exchanger, fetch
from asrtool.distributed.transport.staging import GpuSwap, HostSwap
from asrtool.distributed.transport.view import Recorded, View
from asrtool.distributed.world import MESSAGES, World


class Gossip(MixingRule):
    """Exchanges with the partner of each step, one at a time, while the next step computes.

    A learner whose last exchange is still under way skips that of a step; both are counted.
    """

    asynchronous = True
    weight = EDGE_WEIGHT  # of an exchange

    def __init__(
        self,
        weights_P: Tensor,
        world: World,
        partner: Partner,
        message_type: str,
        seed: int,
        note: Note = no_note,
    ) -> None:
        """What happens to the view gets a `note`, with the ranks among all learners."""
        self.weights_P = weights_P
        self.note = note
        self.clock = clock_of(weights_P)
        self.world = world
        self.partner = partner
        self.message_type = MESSAGES[message_type]
        self.seed = seed
        self.num_steps = 0
        self.num_bytes = 0
        self.num_skipped = 0  # exchanges not begun or refused, by the last step
        self.num_busy = 0
        self.exchanger: Exchanger | None = None

    def start(self) -> None:
        stream = copy_stream.side_stream(self.weights_P)
        self.view = View(self.weights_P.to("cpu", copy=bool(stream)), self.message_type)
        if self.world.size > 1:
            self.exchanger = Exchanger(self.view, self.weight, self.world.address)
            self.exchanger.addresses = (
                {learner: self._find(learner) for learner in self.world.live}
                if self.world.joins
                else dict(enumerate(self.world.gather(self.exchanger.address)))
            )
            self.exchanger.is_live = lambda learner: learner in self.world.live
            self.exchanger.rank = self.world.rank
            self.exchanger.note = lambda what, learner: self.note(what, self.world.rank_of(learner))
            if self.world.members:  # for those that join
                self.world.store.set(_key(self.world.rank), json.dumps(vars(self.exchanger.address)))
        self.swap = (
            GpuSwap(self.view, self.weights_P, self.exchanger, stream)
            if stream
            else HostSwap(self.view, self.exchanger, self.note)
        )

    def _find(self, learner: int) -> Address:
        """Where a learner answers, which it has said before it was among those that train."""
        return Address(**json.loads(self.world.store.get(_key(learner))))

    def adopt(self) -> int | None:
        """A copy of what another has, drawn at random; another one where that is lost."""
        assert self.exchanger
        for learner, address in random.sample(sorted(self.exchanger.addresses.items()), len(self.exchanger.addresses)):
            num_steps = fetch(address, self.weights_P, functools.partial(self._is_there, learner, address))
            if num_steps is not None:
                self.num_steps = num_steps
                return learner
        raise Ended

    def _is_there(self, learner: int, address: Address, num_looks: int) -> bool:
        """Whether it still trains; AsrtoolError if it has not answered so often as one that is reached would have."""
        members = self.world.members
        assert members
        members.look(self.world.store)
        if learner not in members.live or members.closed:
            return False
        if num_looks * LOOK_MS > 1000 * TIMEOUT_S:
            own = Place(socket.gethostname(), self.world.address)
            raise unreached(self.world.rank, own, address.remote, f"no answer for {TIMEOUT_S:g} s")
        return True

    def join(self, cut: int) -> None:
        self.view.begin_from(self.weights_P.cpu(), cut)

    def changing(self) -> contextlib.AbstractContextManager[object]:
        return self.swap.changing()

    def mix(self) -> StepCost:
        begin = self.clock.mark()
        staleness = self.swap.swap()
        self.num_steps += 1
        if self.exchanger is None:
            return StepCost()
        self.exchanger.num_steps = self.num_steps
        before, self.num_bytes = self.num_bytes, self.exchanger.num_bytes
        skipped, self.num_skipped = self.num_skipped, self.num_busy + self.exchanger.num_refused
        (comm_s,) = self.clock.seconds((begin, self.clock.mark()))
        return StepCost(
            comm_s,
            0.0,
            self.num_bytes - before,
            staleness,
            partners=[self.world.rank_of(learner) for learner in self.exchanger.take_partners()],
            num_skipped=self.num_skipped - skipped,
        )

    def begin(self) -> None:
        partner = self._partner()
        if self.exchanger is None or partner == self.world.rank:
            return
        if partner is None:  # on a GPU, what others exchange with this learner's view has to come to its weights
            self.swap.begin(None)
            return
        if partner not in self.exchanger.addresses:
            self.exchanger.addresses[partner] = self._find(partner)
        self.num_busy += not self.swap.begin(partner)

    def _partner(self) -> int | None:
        """That of this step, as if the learners that are live were all, numbered in their order."""
        live = self.world.live
        place = self.partner(len(live), self.num_steps, self.seed, live.index(self.world.rank))
        return None if place is None else live[place]

    def finish(self) -> None:
        self.swap.drain()
        self.world.barrier()
        self.swap.settle()

    def record(self, cut: int) -> Recorded:
        self.swap.publish()
        return self.view.record(cut)

    def give_back(self, values_P: Tensor) -> None:
        self.view.give_back(values_P)

    def state(self) -> dict[str, Any]:
        return {"num_steps": self.num_steps}

    def load_state(self, state: dict[str, Any], shared: dict[str, Any]) -> None:
        self.num_steps = state["num_steps"]

    def close(self) -> None:
        self.swap.close()
        if self.exchanger:
            self.exchanger.close()


def _key(learner: int) -> str:
    """The key of the address of `learner`."""
    return f"address/{learner}"
