"""The two messages of an exchange in memory that learners of the same machine read and write in place.

A learner has one exchange of its own under way at a time, so it keeps memory for two messages: the snapshot it asks
with, and the answer. A neighbour that can map that memory reads the one and writes the other there, and nothing is
copied through a socket. The memory has no name in any folder: the system frees it with the last process that maps it.
"""

from __future__ import annotations

import contextlib
import os

import torch
from torch import Tensor


class Messages:
    """`asked_P` and `answer_P`, of the type of messages; `path` is where others find them, empty where they cannot."""

    def __init__(self, num_values: int, message_type: torch.dtype) -> None:
        self.path, self.file = "", -1
        if hasattr(os, "memfd_create"):  # Linux alone
            self.file = os.memfd_create("asrtool")
            self.path = _identified(f"/proc/{os.getpid()}/fd/{self.file}")
            self.asked_P, self.answer_P = _map(self.path, num_values, message_type)
        else:
            self.asked_P, self.answer_P = torch.zeros(2, num_values, dtype=message_type)

    def close(self) -> None:
        """Nobody maps them anew; the memory stays for those that have."""
        if self.path:
            os.close(self.file)
            self.path = ""


def map_messages(path: str, num_values: int, message_type: torch.dtype) -> tuple[Tensor, Tensor] | None:
    """`asked_P` and `answer_P` of another learner; None where this process cannot see them."""
    with contextlib.suppress(OSError, RuntimeError):  # torch raises the second
        return _map(path, num_values, message_type)
    return None


def is_there(path: str) -> bool:
    """Whether a learner still has messages at `path`, for others to map."""
    with contextlib.suppress(OSError):
        return _identified(path.rpartition(":")[0]) == path
    return False


def _map(path: str, num_values: int, message_type: torch.dtype) -> tuple[Tensor, Tensor]:
    file, _, _ = path.rpartition(":")
    if _identified(file) != path:  # processes of another container have other numbers
        raise FileNotFoundError(path)
    # It is zero, and takes no memory, where nothing was written.
    both_P = torch.from_file(file, shared=True, size=2 * num_values, dtype=message_type)
    return both_P[:num_values], both_P[num_values:]


def _identified(file: str) -> str:
    """`file` with what distinguishes it from another one of that name."""
    found = os.stat(file)
    return f"{file}:{found.st_dev}-{found.st_ino}"
