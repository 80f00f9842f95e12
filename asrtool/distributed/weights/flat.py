"""Weights of a model as one flat tensor, which learners exchange, and its buffers.

Buffers are values that a forward pass changes, such as batch normalisation's. Only those in the
`state_dict` of a model are exchanged. Each process computes the others for itself.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from asrtool.distributed.strategies.update import trained_parameters
from asrtool.distributed.world import World

NUM_RUNS, LEN_RUN = 64, 64  # in a sample of the weights
ALIGNMENT = 16  # float32 values; kernels may round otherwise at other alignments of 64 bytes


class FlatWeights:
    """Flat weights `weights_P`: P float32 values, trained parameters, then buffers.

    The first `num_weights` values are parameters, the others float buffers. Parameters and buffers
    of the model become views of `weights_P`, which lies on their device, so nothing is ever copied.
    """

    def __init__(self, model: nn.Module, slices: int = 1, with_buffers: bool = True) -> None:
        """Make P a multiple of `slices`."""
        self.slices = slices
        self.parameters = [parameter for _, parameter in trained_parameters(model)]
        self.buffers = float_buffers(model) if with_buffers else []
        tensors = self._tensors()
        for tensor in tensors:
            tensor.data = tensor.data.clone()  # one cut out of another has gaps, which a view would have as well
        self.sizes = [-(-tensor.numel() // ALIGNMENT) * ALIGNMENT for tensor in tensors]
        self.sizes[-1] += -sum(self.sizes) % slices
        self.num_weights = sum(self.sizes[: len(self.parameters)])
        weights_P = torch.zeros(sum(self.sizes), device=self.parameters[0].device)
        for view, tensor in zip(views_of(weights_P, self.sizes, tensors), tensors, strict=True):
            view.copy_(tensor.data)
        self.move(weights_P)

    def move(self, weights_P: Tensor) -> None:
        """Move the model to `weights_P`, of shape (P,), and take its values."""
        self.weights_P = weights_P
        tensors = self._tensors()
        self.views = views_of(weights_P, self.sizes, tensors)
        for tensor, view in zip(tensors, self.views, strict=True):
            tensor.data = view

    @contextlib.contextmanager
    def moved(self, weights_P: Tensor) -> Iterator[None]:
        """Move the model to `weights_P` inside the context."""
        own_P = self.weights_P
        self.move(weights_P)
        try:
            yield
        finally:  # a learner may be asked to stop while it evaluates
            self.move(own_P)

    def fetch_buffers(self) -> None:
        """Copy buffers whose tensor a module has replaced to `weights_P`."""
        for buffer, view in zip(self.buffers, self.views[len(self.parameters) :], strict=True):
            tensor = buffer.tensor
            if tensor.data_ptr() != view.data_ptr():
                view.copy_(tensor)
                tensor.data = view

    def sample(self, weights_P: Tensor) -> Tensor:
        """Sample runs of neighbours: single weights would each take a line of cache."""
        apart = min(self.num_weights, max(LEN_RUN, self.num_weights // NUM_RUNS))
        return weights_P.as_strided((self.num_weights // apart, min(LEN_RUN, apart)), (apart, 1)).double()

    def _tensors(self) -> list[Tensor]:
        return [*self.parameters, *(buffer.tensor for buffer in self.buffers)]


def views_of(flat_P: Tensor, sizes: Sequence[int], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Cut `flat_P` into slices of these `sizes`, each shaped as its tensor."""
    starts = itertools.accumulate(sizes, initial=int(flat_P.storage_offset()))
    # One operation each, not a cut and a change of shape: some strategies do it in every step.
    return [flat_P.as_strided(t.shape, t.stride(), start) for start, t in zip(starts, tensors, strict=False)]


def as_bytes(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous host tensor, to send or receive into."""
    return tensor.view(torch.uint8).numpy().data


@dataclass(frozen=True)
class Buffer:
    """A buffer by its owner and name, since a module may replace the tensor."""

    owner: nn.Module
    name: str

    @property
    def tensor(self) -> Tensor:
        """Current tensor."""
        tensor: Tensor = getattr(self.owner, self.name)
        return tensor


def buffers_of(model: nn.Module) -> list[Buffer]:
    """List the buffers in the `state_dict` of `model`, in its order."""
    saved = model.state_dict().keys()
    names = [key.rpartition(".") for key, _ in model.named_buffers() if key in saved]
    return [Buffer(model.get_submodule(owner), name) for owner, _, name in names]


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
        all_states = world.gather([tensor.tolist() for tensor in own])
        for tensor, values in zip(own, zip(*all_states, strict=True), strict=True):
            tensor.copy_(torch.tensor(values).amax(0))


def average_statistics(model: nn.Module, states: Sequence[Mapping[str, Any]]) -> None:
    """Give `model` the mean of `OwnStatistics.state` over learners, if they have any."""
    all_states = [state["buffers"] for state in states if "buffers" in state]
    if all_states:
        for buffer, values in zip(float_buffers(model), zip(*all_states, strict=True), strict=True):
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
        """Put the mean in the model inside the context, after `synchronise`."""
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
