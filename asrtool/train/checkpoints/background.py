"""Work beside the training: one thread, and the memory that it writes from."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

Content = TypeVar("Content")
NICE = 10  # steps of priority that a thread here is below the training: a core gives it a tenth where both want it


class Background:
    """Calls functions one by one in a thread; `check` and `drain` raise their errors."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name, initializer=_yield_to_training)
        self._pending: list[Future[None]] = []

    def submit(self, function: Callable[..., None], *args: Any) -> None:
        """Call `function` after the functions submitted before."""
        self._pending.append(self._executor.submit(function, *args))

    @property
    def busy(self) -> bool:
        """True if a call is running or waiting."""
        return any(not future.done() for future in self._pending)

    def check(self) -> None:
        """Raise the error of a call, if there was one."""
        done = [future for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if not future.done()]
        for future in done:
            future.result()

    def drain(self) -> None:
        """Wait until all calls have ended."""
        while self._pending:
            self._pending.pop(0).result()

    def close(self) -> None:
        """Drop waiting calls, and end the thread after the running one."""
        self._executor.shutdown(cancel_futures=True)


def _yield_to_training() -> None:
    """Lower the priority of this thread (on Linux)."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICE)


class Staging:
    """Copies of tensors that training changes, in memory that is used again."""

    def __init__(self) -> None:
        self._free: list[list[Tensor]] = []

    def copy(self, content: Content) -> tuple[Content, list[Tensor]]:
        """Return a copy of `content` on the host, and the memory it takes.

        `content` has tensors, numbers, texts, and lists and dicts of them.
        """
        memory = self._free.pop() if self._free else []
        used: list[Tensor] = []

        def copied(value: Any) -> Any:
            if isinstance(value, Tensor):
                place = memory[len(used)] if len(used) < len(memory) else None
                if place is None or place.shape != value.shape or place.dtype != value.dtype:
                    place = torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)
                used.append(place.copy_(value.detach()))
                return used[-1]
            if isinstance(value, dict):
                return type(value)((key, copied(item)) for key, item in value.items())
            return type(value)(map(copied, value)) if isinstance(value, list | tuple) else value

        return copied(content), used

    def give_back(self, memory: list[Tensor]) -> None:
        """Use `memory` for the next copy."""
        self._free.append(memory)
