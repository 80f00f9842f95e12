"""An encoder as parts that are computed one after another, and which of them neighbouring devices compute."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn

Carry = tuple[Tensor, ...]  # what passes from one part to the next


class Part:
    """What is made of `run(*carry)`, by the weights of `modules`; the device is that of what it gets."""

    def __init__(self, run: Callable[..., Carry], *modules: nn.Module) -> None:
        self.run = run
        self.modules = modules

    def num_weights(self) -> int:
        """Of all its modules."""
        return sum(weight.numel() for module in self.modules for weight in module.parameters())


def run_parts(parts: Sequence[Part], *carry: Tensor) -> Carry:
    """What the last part gives; the first one gets `carry`."""
    for part in parts:
        carry = part.run(*carry)
    return carry


def split_evenly(sizes: Sequence[int], num: int) -> list[slice]:
    """`num` groups of neighbours, none of size 0, whose largest is as small as it can be.

    At least `num` of the `sizes` are more than 0.
    """

    @functools.cache
    def best(begin: int, num: int) -> tuple[float, tuple[int, ...]]:
        """The size of the largest of so many groups from `begin` on, and where each of them ends."""
        if num == 1:
            return _size(sizes[begin:]), (len(sizes),)
        return min(
            (max(_size(sizes[begin:end]), largest), (end, *ends))
            for end in range(begin + 1, len(sizes) - num + 2)
            for largest, ends in [best(end, num - 1)]
        )

    _, ends = best(0, num)
    return [slice(begin, end) for begin, end in zip((0, *ends), ends, strict=False)]


def _size(sizes: Sequence[int]) -> float:
    return sum(sizes) or math.inf
