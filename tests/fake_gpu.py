"""A GPU that is memory of the host, but counts what is copied between both, and the strategies that take it for one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from unittest.mock import patch

import torch
from torch import Tensor

from asrtool.distributed import transfer


class CountedStream:
    """In the place of a SideStream. Copies wait until `free` is set."""

    def __init__(self) -> None:
        self.places: set[int] = set()  # addresses of pinned memory
        self.to_host = self.to_gpu = 0  # bytes copied
        self.free = threading.Event()
        self.free.set()

    def follow(self) -> None:
        pass

    def run(self, work: Callable[[], None]) -> None:
        work()

    def join(self) -> None:
        pass

    def copy(self, place: Tensor, values: Tensor) -> None:
        assert self.free.wait(60)
        pinned = {tensor.data_ptr() for tensor in (place, values)} & self.places
        assert len(pinned) == 1, "copies between the GPU and other memory than pinned would be waited for"
        assert place.dtype == values.dtype, "the GPU would convert them in memory of its own"
        if place.data_ptr() in pinned:
            self.to_host += place.nbytes
        else:
            self.to_gpu += place.nbytes
        place.copy_(values)

    def pinned(self, num_values: int) -> Tensor:
        memory = torch.full((num_values,), torch.nan)
        self.places.add(memory.data_ptr())
        return memory


@contextlib.contextmanager
def fake_gpu() -> Iterator[list[CountedStream]]:
    """Inside, weights are taken for those of a GPU; the streams that were made for them."""
    streams: list[CountedStream] = []

    def side_stream(values: Tensor) -> CountedStream:
        streams.append(CountedStream())
        return streams[-1]

    with patch.object(transfer, "side_stream", side_stream):
        yield streams
