"""What strategies with parameter servers have in common: a learner, its servers, and the weights it computes on.

Servers hold no buffers: each learner keeps its own statistics, and their mean stands for all. With bf16 messages a
learner computes on the servers' weights rounded to bf16; those that stand for all are not rounded.

Of P parameters a learner keeps, beside its model: the gradient it sends, and with bf16 messages the weights received.
All servers together keep the weights, the state of the optimizer, a gradient, and the weights answered with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import zmq
from torch import Tensor

from asrtool.distributed.baselines.weight_server import PULL, Client, Server, Slice, split_evenly
from asrtool.distributed.launch.addresses import new_context
from asrtool.distributed.strategies.strategy import ConsensusMetrics, Strategy, StrategyContext
from asrtool.distributed.strategies.update import Update, trained_parameters
from asrtool.distributed.weights.buffers import OwnStatistics
from asrtool.distributed.weights.flat import FlatWeights, views_of
from asrtool.distributed.world import MESSAGES
from asrtool.errors import AsrtoolError


class Served(Strategy):
    """A learner, and the thread of a server beside it where its rank is below the number of servers."""

    def __init__(self, context: StrategyContext, make_server: Callable[[Slice, int, torch.dtype], Server]) -> None:
        self.task = context.task
        self.world = context.world
        self.clip_norm = context.clip_norm
        named_parameters = trained_parameters(context.model)
        self.optimizer = context.make_optimizer(named_parameters)  # carries the learning rate, no more
        self.flat = FlatWeights(context.model, with_buffers=False)
        self.statistics = OwnStatistics(context.model, context.world)
        self.message_type = MESSAGES[context.settings.message_type]
        self.rounds = self.message_type != torch.float32
        self.update = Update(self.flat.parameters, self.optimizer, context.clip_norm, loss_scale=context.loss_scale)
        self.gradients_P = torch.zeros(len(self.flat.weights_P), dtype=self.message_type)
        self.gradients = views_of(self.gradients_P, self.flat.sizes, self.flat.parameters)
        # Where the model is on the host and nothing is rounded, the very weights that it computes on.
        self.received_P = torch.zeros_like(self.gradients_P) if self.rounds else self.flat.weights_P.cpu()
        runs = split_evenly(self.flat.sizes, context.settings.num_servers)
        self.lengths = [sum(self.flat.sizes[run]) for run in runs]
        self.server: Server | None = None
        if self.world.rank < len(runs):
            run = runs[self.world.rank]
            kept = Slice(named_parameters[run], self.flat.sizes[run], context.make_optimizer)
            self.server = make_server(kept, self.world.size, self.message_type)
        self.context: zmq.Context[Any] | None = None
        self.num_answered = 0  # bytes that the server beside this learner had sent by the last step

    def start(self) -> None:
        self.context, address = new_context(), ""
        if self.server:
            part_P = self.flat.weights_P.split(self.lengths)[self.world.rank]
            address = self.server.start(self.context, self.world.address, part_P)
        self.client = Client(self.context, self.world.rank, self.world.gather(address)[: len(self.lengths)])

    def _fetch_gradients(self) -> None:
        """Make `gradients_P` those of the model."""
        for gradient, parameter in zip(self.gradients, self.flat.parameters, strict=True):
            gradient.zero_() if parameter.grad is None else gradient.copy_(parameter.grad)

    def _wait(self) -> None:
        try:
            self.client.wait()
        except ConnectionError:
            if self.server and self.server.error:
                raise self.server.error from None
            raise

    def _receive(self) -> int:
        """Take the weights answered with, and return how many steps, this learner's among them, were made since."""
        num_steps = self.client.receive(self.received_P.split(self.lengths))
        self._become(self.received_P)
        return num_steps

    def _become(self, weights_P: Tensor) -> None:
        if weights_P is not self.flat.weights_P:
            self.flat.weights_P.copy_(weights_P)

    def _num_answered(self) -> int:
        """Bytes that the server here has sent since the last call."""
        before, self.num_answered = self.num_answered, self.server.num_bytes if self.server else 0
        return self.num_answered - before

    def synchronise(self) -> ConsensusMetrics:
        """All take the weights after the last step of all; nothing is under way, since `step` waits."""
        self.world.barrier()
        self.client.order(PULL)
        self._wait()
        self.exact_P = torch.empty(len(self.received_P)) if self.rounds else self.received_P
        self.client.receive(self.exact_P.split(self.lengths))
        self._become(self.received_P.copy_(self.exact_P))
        self.statistics.synchronise()
        self.world.barrier()
        return ConsensusMetrics(0.0, None)

    @contextlib.contextmanager
    def consensus(self) -> Iterator[None]:
        with self.statistics.consensus():
            self._become(self.exact_P)
            try:
                yield
            finally:
                self._become(self.received_P)

    def load_state(self, learner: dict[str, Any], shared: dict[str, Any]) -> None:
        self.statistics.load_state(learner)
        if self.server:
            self.server.slice.load_state(learner["server"])

    def load_optimizer(self, learner: dict[str, Any], shared: dict[str, Any]) -> bool:
        """Those of all servers, or of none: where there were more or fewer, their slices were others."""
        state = learner.get("server")
        fits = self.server is None or (state is not None and self.server.slice.fits(state))
        if not all(self.world.gather(fits)):
            return False
        if self.server and state is not None:
            self.server.slice.load_state(state)
        return True

    def close(self) -> None:
        if self.server:
            self.server.close()
        if self.context:
            self.context.destroy(linger=0)


def check_number(context: StrategyContext) -> None:
    """AsrtoolError where there are to be more servers than learners or parameters."""
    num_parameters = len(trained_parameters(context.model))
    num_servers, most = context.settings.num_servers, min(context.world.size, num_parameters)
    if num_servers > most:
        raise AsrtoolError(
            f"{context.settings.section}.num_servers is {num_servers}, with {context.world.size} learners and a model "
            f"of {num_parameters} parameters",
            f"choose {most} at most: a server runs beside a learner and keeps whole parameters",
        )
