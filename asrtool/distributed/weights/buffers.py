"""Buffers: values that a forward pass changes, such as batch normalisation's.

Only buffers in the `state_dict` of a model are exchanged. Each process computes the others for
itself.
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
    """A buffer by its owner and name, since a module may replace the tensor."""

    owner: nn.Module
    name: str

    @property
    def tensor(self) -> Tensor:
        """The tensor that is there now."""
        tensor: Tensor = getattr(self.owner, self.name)
        return tensor


def buffers_of(model: nn.Module) -> list[Buffer]:
    """List the buffers in the `state_dict` of `model`, in its order."""
    saved = model.state_dict().keys()
    places = [key.rpartition(".") for key, _ in model.named_buffers() if key in saved]
    return [Buffer(model.get_submodule(owner), name) for owner, _, name in places]


def float_buffers(model: nn.Module) -> list[Buffer]:
    """List the statistics, which are averaged as weights are."""
    return [buffer for buffer in buffers_of(model) if buffer.tensor.is_floating_point()]


def counters(model: nn.Module) -> list[Buffer]:
    """List the integer buffers, which have no mean; complex ones are constants."""
    buffers = [buffer for buffer in buffers_of(model) if not buffer.tensor.is_floating_point()]
    return [buffer for buffer in buffers if not buffer.tensor.is_complex()]


def synchronise_counters(model: nn.Module, world: World) -> None:
    """Set counters to the largest of any learner; all learners call this."""
    own = [counter.tensor for counter in counters(model)]
    if own and world.size > 1:
        of_all = world.gather([tensor.tolist() for tensor in own])
        for tensor, values in zip(own, zip(*of_all, strict=True), strict=True):
            tensor.copy_(torch.tensor(values).amax(0))


def average_statistics(model: nn.Module, states: Sequence[Mapping[str, Any]]) -> None:
    """Give `model` the mean of `OwnStatistics.state` over learners, if they have any."""
    of_all = [state["buffers"] for state in states if "buffers" in state]
    if of_all:
        for buffer, values in zip(float_buffers(model), zip(*of_all, strict=True), strict=True):
            buffer.tensor.copy_(torch.stack(values).mean(0))


class OwnStatistics:
    """Float buffers of a learner whose weights are exchanged without them.

    Their mean stands for all learners. A learner keeps its own from one synchronisation to the
    next, so an additional one changes no bit of its later computations.
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model = model
        self.world = world
        self.buffers = float_buffers(model)

    def synchronise(self) -> None:
        """Compute the mean; all learners call this."""
        synchronise_counters(self.model, self.world)
        if self.buffers:
            self.mean = self._copy()
            for tensor in self.mean:
                self.world.mean(tensor)

    @contextlib.contextmanager
    def consensus(self) -> Iterator[None]:
        """Put the mean in the model, inside; called after `synchronise`."""
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
        """Return the state for `load_state`."""
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
