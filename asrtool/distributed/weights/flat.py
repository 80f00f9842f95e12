"""Weights of a model as one flat tensor on its device, which learners exchange."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from asrtool.distributed.strategies.update import trained_parameters
from asrtool.distributed.weights.buffers import float_buffers

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

    def fetch_buffers(self) -> None:
        """Copy buffers to `weights_P` that a module has replaced by another tensor."""
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
