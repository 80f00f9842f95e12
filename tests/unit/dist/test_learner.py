"""How a learner ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

FAILING = """
import signal
from asrtool.dist.learner import learner
try:
    with learner():
        raise ValueError("of a batch")
finally:
    signal.raise_signal(signal.SIGTERM)
"""


def test_a_learner_that_fails_tells_its_error_although_it_is_told_to_stop_then() -> None:
    """Those it leaves end at once, and the launcher then stops all: it would take this one for stopped by a person."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    names = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-c", FAILING]
    ended = subprocess.run(command, env={**os.environ, **names}, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "ValueError: of a batch" in ended.stderr
