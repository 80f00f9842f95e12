"""The message of an exchange in memory that learners of the same machine read and write in place.

A learner has one exchange of its own under way at a time, so it keeps memory for one message: the snapshot it asks
with, which the answer takes the place of. A neighbour that can map that memory reads and writes there, and nothing is
copied through a socket. The memory has no name in any folder: the system frees it with the last process that maps it.
"""

from __future__ import annotations

import contextlib
import os

import torch
from torch import Tensor


class Message:
    """`values_P`, of the type of messages; `path` is where others find them, empty where they cannot."""

    def __init__(self, num_values: int, message_type: torch.dtype) -> None:
        self.path, self.file = "", -1
        if hasattr(os, "memfd_create"):  # Linux alone
            self.file = os.memfd_create("asrtool")
            self.path = _identified(f"/proc/{os.getpid()}/fd/{self.file}")
            self.values_P = _map(self.path, num_values, message_type)
        else:
            self.values_P = torch.empty(num_values, dtype=message_type)
        self.values_P.zero_()  # takes the memory now, and not in the first steps

    def close(self) -> None:
        """Nobody maps it anew; the memory stays for those that have."""
        if self.path:
            os.close(self.file)
            self.path = ""


def map_message(path: str, num_values: int, message_type: torch.dtype) -> Tensor | None:
    """That of another learner; None where this process cannot see it."""
    with contextlib.suppress(OSError, RuntimeError):  # torch raises the second
        return _map(path, num_values, message_type)
    return None


def is_there(path: str) -> bool:
    """Whether a learner still has a message at `path`, for others to map."""
    with contextlib.suppress(OSError):
        return _identified(path.rpartition(":")[0]) == path
    return False


def _map(path: str, num_values: int, message_type: torch.dtype) -> Tensor:
    file, _, _ = path.rpartition(":")
    if _identified(file) != path:  # processes of another container have other numbers
        raise FileNotFoundError(path)
    return torch.from_file(file, shared=True, size=num_values, dtype=message_type)


def _identified(file: str) -> str:
    """`file` with what distinguishes it from another one of that name."""
    found = os.stat(file)
    return f"{file}:{found.st_dev}-{found.st_ino}"
