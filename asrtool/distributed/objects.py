"""Python objects of all learners, gathered in one collective where they are small.

torch's own `all_gather_object` gathers the lengths first. Each collective of eight learners that share two cores takes
13 ms, the two 28 ms, and a training ends by ten of them, one after another.
"""

from __future__ import annotations

import pickle
from typing import Any

import torch
import torch.distributed as collectives

ROOM = 8192  # bytes that the first collective has for an object; what is beyond them follows in a second one
LENGTH_BYTES = 8


def gather_objects(value: Any, size: int, group: collectives.ProcessGroup | None) -> list[Any]:
    """The values of all `size` learners of `group`, in their order there; each calls this."""
    pickled = pickle.dumps(value)
    own = len(pickled).to_bytes(LENGTH_BYTES, "little") + pickled
    first = _gather_bytes(own[:ROOM], ROOM, size, group)
    ends = [LENGTH_BYTES + int.from_bytes(of_one[:LENGTH_BYTES], "little") for of_one in first]
    beyond = max(ends) - ROOM
    rest = _gather_bytes(own[ROOM:], beyond, size, group) if beyond > 0 else [b""] * size
    return [pickle.loads((begin + more)[LENGTH_BYTES:end]) for begin, more, end in zip(first, rest, ends, strict=True)]


def _gather_bytes(own: bytes, room: int, size: int, group: collectives.ProcessGroup | None) -> list[bytes]:
    """Those of all learners, `room` of each; `own` may be fewer."""
    all_SB = torch.empty(size, room, dtype=torch.uint8)
    own_B = torch.frombuffer(bytearray(own.ljust(room, b"\0")), dtype=torch.uint8)
    collectives.all_gather(list(all_SB), own_B, group=group)
    return [of_one_B.numpy().tobytes() for of_one_B in all_SB]
