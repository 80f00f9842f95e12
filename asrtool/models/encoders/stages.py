"""Encoder as parts that are computed in turn, and their division over devices."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn

Carry = tuple[Tensor, ...]  # tensors passed from one part to the next


class Part:
    """Part of an encoder: `run(*carry)` by the weights of `modules`.

    It runs on the device of its input.
    """

    def __init__(self, run: Callable[..., Carry], *modules: nn.Module) -> None:
        self.run = run
        self.modules = modules

    def num_weights(self) -> int:
        """Return the number of weights in all its modules."""
        return sum(weight.numel() for module in self.modules for weight in module.parameters())


def run_parts(parts: Sequence[Part], *carry: Tensor) -> Carry:
    """Run all parts in turn on `carry`; return the output of the last."""
    for part in parts:
        carry = part.run(*carry)
    return carry


def split_evenly(sizes: Sequence[int], num: int) -> list[slice]:
    """Return `num` groups of neighbours whose largest is as small as possible.

    No group has size 0; at least `num` of the `sizes` must be more than 0.
    """

    @functools.cache
    def best(begin: int, num: int) -> tuple[float, tuple[int, ...]]:
        """Return the largest size of `num` groups from `begin` on, and their ends."""
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
