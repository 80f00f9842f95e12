"""Buffers: what a forward pass changes beside the weights, such as the statistics of batch normalisation.

Only those that the `state_dict` of a model has are exchanged. The others are computed by every process for itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from asrtool.distributed.world import World


@dataclass(frozen=True)
class Buffer:
    """A buffer by its place, since a module may put another tensor there at any time."""

    owner: nn.Module
    name: str

    @property
    def tensor(self) -> Tensor:
        """What is there now."""
        tensor: Tensor = getattr(self.owner, self.name)
        return tensor


def buffers_of(model: nn.Module) -> list[Buffer]:
    """Those of the `state_dict` of `model`, in its order."""
    saved = model.state_dict().keys()
    places = [key.rpartition(".") for key, _ in model.named_buffers() if key in saved]
    return [Buffer(model.get_submodule(owner), name) for owner, _, name in places]


def float_buffers(model: nn.Module) -> list[Buffer]:
    """Statistics, which are averaged as weights are."""
    return [buffer for buffer in buffers_of(model) if buffer.tensor.is_floating_point()]


def counters(model: nn.Module) -> list[Buffer]:
    """Buffers of whole numbers, which have no mean. Complex ones are constants, and have no order either."""
    buffers = [buffer for buffer in buffers_of(model) if not buffer.tensor.is_floating_point()]
    return [buffer for buffer in buffers if not buffer.tensor.is_complex()]


def synchronise_counters(model: nn.Module, world: World) -> None:
    """Counters become the largest of any learner. All learners call this; without counters nothing is sent."""
    own = [counter.tensor for counter in counters(model)]
    if own and world.size > 1:
        of_all = world.gather([tensor.tolist() for tensor in own])
        for tensor, values in zip(own, zip(*of_all, strict=True), strict=True):
            tensor.copy_(torch.tensor(values).amax(0))


def average_statistics(model: nn.Module, states: Sequence[Mapping[str, Any]]) -> None:
    """Give `model` the mean of what `OwnStatistics.state` of each learner has; nothing where they have none."""
    of_all = [state["buffers"] for state in states if "buffers" in state]
    if of_all:
        for buffer, values in zip(float_buffers(model), zip(*of_all, strict=True), strict=True):
            buffer.tensor.copy_(torch.stack(values).mean(0))


class OwnStatistics:
    """The float buffers of a learner whose weights are exchanged without them; the mean stands for all learners.

    A learner keeps its own from one synchronisation to the next, so that an additional one changes no bit of what it
    computes later.
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model = model
        self.world = world
        self.buffers = float_buffers(model)

    def synchronise(self) -> None:
        """All learners call this."""
        synchronise_counters(self.model, self.world)
        if self.buffers:
            self.mean = self._copy()
            for tensor in self.mean:
                self.world.mean(tensor)

    @contextlib.contextmanager
    def consensus(self) -> Iterator[None]:
        """After `synchronise`: inside, the model holds the mean."""
        if not self.buffers:
            yield
            return
        own = self._copy()
        self._become(self.mean)
        try:
            yield
        finally:
            self._become(own)

    def state(self) -> dict[str, Any]:
        """What `load_state` needs."""
        return {"buffers": self._copy()} if self.buffers else {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        if self.buffers:
            self._become(state["buffers"])

    def _copy(self) -> list[Tensor]:
        return [buffer.tensor.clone(memory_format=torch.contiguous_format) for buffer in self.buffers]

    def _become(self, values: Sequence[Tensor]) -> None:
        for buffer, value in zip(self.buffers, values, strict=True):
            buffer.tensor.copy_(value)
