"""How a learner exits."""

from __future__ import annotations

import os
import subprocess
import sys

from rendezvous import rendezvous_address

FAILING = """
import signal
from asrtool.distributed.learner import learner
try:
    with learner():
        raise ValueError("of a batch")
finally:
    signal.raise_signal(signal.SIGTERM)
"""


def test_a_learner_that_fails_reports_its_error_although_a_signal_to_stop_follows() -> None:
    """The others exit at once, and the launcher then stops all: it would take this one for stopped by a person."""
    command = [sys.executable, "-c", FAILING]
    with rendezvous_address() as place:
        environment = {**os.environ, **place, "RANK": "0", "WORLD_SIZE": "1"}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "ValueError: of a batch" in ended.stderr
