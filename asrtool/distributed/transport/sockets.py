"""ZeroMQ sockets of learners, and the wait for an answer.

All learners may be suspended together: by Ctrl-Z, or by a cluster that suspends jobs. After they
resume, more time has passed than any of them waited for another. So a wait consists of short ones,
and such a pause counts as one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import zmq

Value = TypeVar("Value")
ANSWER_TIMEOUT_S = 20.0  # a learner that has not answered for so long is dead
WAIT_S = 2.0  # a single wait
NUM_WAITS = round(ANSWER_TIMEOUT_S / WAIT_S)


def wait_for_answer(wait: Callable[[float], Value]) -> Value:
    """Return the first true value of `wait(seconds)`, else the last one."""
    for _ in range(NUM_WAITS - 1):
        if found := wait(WAIT_S):
            return found
    return wait(WAIT_S)


def new_context() -> zmq.Context[Any]:
    """Make a context whose sockets listen on IPv4 and IPv6 addresses."""
    context: zmq.Context[Any] = zmq.Context()
    context.setsockopt(zmq.IPV6, 1)
    return context


def url_of(address: str) -> str:
    """Return the ZeroMQ form of an IP address, without a port."""
    return f"tcp://[{address}]" if ":" in address else f"tcp://{address}"
