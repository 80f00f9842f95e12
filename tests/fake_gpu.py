"""A GPU that is memory of the host, but counts what is copied between both, and the strategies that take it for one.

It does at once what it is given, and looks for what a GPU, which does it later, could do in another order: what one
stream writes, another may read or write only after `follow`, `join`, or a copy that the host has waited for.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from asrtool.distributed.transport import device

Use = tuple[int, int, bool]  # of memory: first address, first one behind it, whether it is written


def use_of(tensor: Tensor, written: bool) -> Use:
    values = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + values * tensor.element_size(), written


def clash(some: Iterable[Use], others: Iterable[Use]) -> bool:
    """Return whether operations of two streams, in the other order, may give other values."""
    return any(
        first < other_end and other_first < end and (written or other_written)
        for first, end, written in some
        for other_first, other_end, other_written in others
    )


class ComputingStream(TorchDispatchMode):
    """Context that records the operations of this thread, except those on a side stream."""

    def __init__(self) -> None:
        super().__init__()
        self.sides: list[CountedStream] = []
        self.given_to: CountedStream | None = None

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func.is_view:
            return result
        arguments = func._schema.arguments
        values = kwargs | {argument.name: value for argument, value in zip(arguments, args, strict=False)}
        written = [values.get(argument.name) for argument in arguments if argument.is_write]
        tensors = [(tensor, False) for tensor in tree_leaves((args, kwargs))]
        tensors += [(tensor, True) for tensor in tree_leaves((written, result))]
        self._note([(tensor, write) for tensor, write in tensors if isinstance(tensor, Tensor) and tensor.numel()])
        return result

    def _note(self, tensors: list[tuple[Tensor, bool]]) -> None:
        uses = {use_of(tensor, written) for tensor, written in tensors}
        if self.given_to:
            self.given_to.work_on(uses, [tensor for tensor, _ in tensors])
            return
        for side in self.sides:
            assert not clash(uses, side.unjoined), "the computing stream does not wait for what the side stream does"
            side.unfollowed |= uses


class CountedStream:
    """Replacement of SideStream. Copies wait until `free` is set."""

    def __init__(self, computing: ComputingStream) -> None:
        self.computing = computing
        computing.sides.append(self)
        self.unfollowed: set[Use] = set()  # by the computing stream since `follow`
        self.unjoined: set[Use] = set()  # by this one since `join`
        self.held: list[Tensor] = []  # of these, so that their memory is not given to others
        self.places: set[int] = set()  # addresses of pinned memory
        self.to_host = self.to_gpu = 0  # bytes copied
        self.free = threading.Event()
        self.free.set()

    def follow(self) -> None:
        self.unfollowed.clear()

    def run(self, work: Callable[[], None]) -> None:
        self.computing.given_to = self
        try:
            work()
        finally:
            self.computing.given_to = None

    def work_on(self, uses: set[Use], tensors: list[Tensor]) -> None:
        """`uses` of `tensors`, from now until `join`."""
        self._check(uses)
        self.unjoined |= uses
        self.held += tensors

    def join(self) -> None:
        self.unjoined.clear()
        self.held.clear()

    def copy(self, place: Tensor, values: Tensor) -> None:
        assert self.free.wait(60)
        pinned = {tensor.data_ptr() for tensor in (place, values)} & self.places
        assert len(pinned) == 1, "copies between the GPU and other memory than pinned would be waited for"
        assert place.dtype == values.dtype, "the GPU would convert them in memory of its own"
        if place.data_ptr() in pinned:
            self._check({use_of(values, False)})
            self.to_host += place.nbytes
        else:
            self._check({use_of(place, True)})
            self.to_gpu += place.nbytes
        place.copy_(values)

    def pinned(self, num_values: int) -> Tensor:
        memory = torch.full((num_values,), torch.nan)
        self.places.add(memory.data_ptr())
        return memory

    def _check(self, uses: set[Use]) -> None:
        # Iterates over a copy, since another thread adds to the computing stream.
        assert not clash(uses, self.unfollowed.copy()), "the side stream does not follow what was computed"


@contextlib.contextmanager
def fake_gpu() -> Iterator[list[CountedStream]]:
    """Take weights for those of a GPU inside the context; yield the streams made for them.

    The order is looked at in this thread alone.
    """
    computing = ComputingStream()
    with patch.object(device, "side_stream", lambda values: CountedStream(computing)), computing:
        yield computing.sides
