"""The weights of a model as one flat tensor on the host, which is what learners exchange."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

ALIGNMENT = 16  # float32 values; kernels may round otherwise at other alignments of 64 bytes


class FlatWeights:
    """`weights_P`: P float32 values, the parameters one after another.

    Where the model lies on the host its parameters become views of it, so that nothing is ever copied.
    """

    def __init__(self, model: nn.Module, parts: int = 1) -> None:
        """P is made a multiple of `parts`."""
        self.parameters = list(model.parameters())
        self.on_host = are_on_host(self.parameters)
        self.sizes = [-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in self.parameters]
        self.sizes[-1] += -sum(self.sizes) % parts
        weights_P = torch.zeros(sum(self.sizes), pin_memory=not self.on_host and torch.cuda.is_available())
        views = views_of(weights_P, self.sizes, self.parameters)
        torch._foreach_copy_(views, [parameter.data for parameter in self.parameters])
        self.move(weights_P)

    def move(self, weights_P: Tensor) -> None:
        """Lie in `weights_P`, of shape (P,), from now on. A model on the host then is what that holds."""
        self.weights_P = weights_P
        self.views = views_of(weights_P, self.sizes, self.parameters)
        if self.on_host:
            for parameter, view in zip(self.parameters, self.views, strict=True):
                parameter.data = view

    def fetch(self) -> Tensor:
        """`weights_P`, being what the model has now."""
        if not self.on_host:
            torch._foreach_copy_(self.views, [parameter.data for parameter in self.parameters])
        return self.weights_P

    def load(self) -> None:
        """Give the model what `weights_P` holds now."""
        if not self.on_host:
            torch._foreach_copy_([parameter.data for parameter in self.parameters], self.views)


def are_on_host(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether the host has them in its memory, and no GPU."""
    return all(parameter.device.type == "cpu" for parameter in parameters)


def views_of(flat_P: Tensor, sizes: Sequence[int], parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """StrategyContext of `flat_P` of these `sizes`, each cut and shaped as its parameter."""
    starts = itertools.accumulate(sizes, initial=int(flat_P.storage_offset()))
    # One operation each, not a cut and a change of shape: some strategies do it in every step.
    return [flat_P.as_strided(p.shape, p.stride(), start) for start, p in zip(starts, parameters, strict=False)]


def as_bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the host, to send from and receive into."""
    return tensor.view(torch.uint8).numpy().data
