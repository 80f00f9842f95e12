"""The weights of a model as one flat tensor on the host, which is what learners exchange."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from asrtool.distributed.buffers import float_buffers

MESSAGES = {"fp32": torch.float32, "bf16": torch.bfloat16}  # what weights and gradients travel as, by `message_type`
NUM_RUNS, LEN_RUN = 64, 64  # of a sample of the weights
ALIGNMENT = 16  # float32 values; kernels may round otherwise at other alignments of 64 bytes


class FlatWeights:
    """`weights_P`: P float32 values, the parameters one after another, then the float buffers.

    The first `num_weights` values are those of parameters. Where the model lies on the host its parameters and buffers
    become views of `weights_P`, so that nothing is ever copied.
    """

    def __init__(self, model: nn.Module, slices: int = 1, with_buffers: bool = True) -> None:
        """P is made a multiple of `slices`."""
        self.slices = slices
        self.parameters = list(model.parameters())
        self.buffers = float_buffers(model) if with_buffers else []
        self.on_host = are_on_host(self.parameters)
        tensors = self._tensors()
        for tensor in tensors:
            tensor.data = tensor.data.clone()  # one cut out of another has gaps, which a view would have as well
        self.sizes = [-(-tensor.numel() // ALIGNMENT) * ALIGNMENT for tensor in tensors]
        self.sizes[-1] += -sum(self.sizes) % slices
        self.num_weights = sum(self.sizes[: len(self.parameters)])
        weights_P = torch.zeros(sum(self.sizes), pin_memory=not self.on_host and torch.cuda.is_available())
        torch._foreach_copy_(views_of(weights_P, self.sizes, tensors), [tensor.data for tensor in tensors])
        self.move(weights_P)

    def move(self, weights_P: Tensor) -> None:
        """Lie in `weights_P`, of shape (P,), from now on. A model on the host then is what that holds."""
        self.weights_P = weights_P
        tensors = self._tensors()
        self.views = views_of(weights_P, self.sizes, tensors)
        if self.on_host:
            for tensor, view in zip(tensors, self.views, strict=True):
                tensor.data = view

    def fetch(self) -> Tensor:
        """`weights_P`, being what the model has now."""
        if not self.on_host:
            views = self.views[: len(self.parameters)]
            torch._foreach_copy_(views, [parameter.data for parameter in self.parameters])
        self.fetch_buffers()
        return self.weights_P

    def fetch_buffers(self) -> None:
        """The same for buffers alone. On the host only those are copied that a module has replaced."""
        for buffer, view in zip(self.buffers, self.views[len(self.parameters) :], strict=True):
            tensor = buffer.tensor
            if tensor.data_ptr() != view.data_ptr():
                view.copy_(tensor)
                if self.on_host:
                    tensor.data = view

    def load(self) -> None:
        """Give the model what `weights_P` holds now."""
        if not self.on_host:
            torch._foreach_copy_([tensor.data for tensor in self._tensors()], self.views)

    def sample(self, weights_P: Tensor) -> Tensor:
        """Runs of neighbouring weights: single ones would each take a line of the cache, at every step."""
        apart = min(self.num_weights, max(LEN_RUN, self.num_weights // NUM_RUNS))
        return weights_P.as_strided((self.num_weights // apart, min(LEN_RUN, apart)), (apart, 1)).double()

    def _tensors(self) -> list[Tensor]:
        return [*self.parameters, *(buffer.tensor for buffer in self.buffers)]


def are_on_host(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether the host has them in its memory, and no GPU."""
    return all(parameter.device.type == "cpu" for parameter in parameters)


def views_of(flat_P: Tensor, sizes: Sequence[int], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Slices of `flat_P` of these `sizes`, each cut and shaped as its tensor."""
    starts = itertools.accumulate(sizes, initial=int(flat_P.storage_offset()))
    # One operation each, not a cut and a change of shape: some strategies do it in every step.
    return [flat_P.as_strided(t.shape, t.stride(), start) for start, t in zip(starts, tensors, strict=False)]


def as_bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the host, to send from and receive into."""
    return tensor.view(torch.uint8).numpy().data
