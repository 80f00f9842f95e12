"""How a learner exits."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from rendezvous import rendezvous_address
from warm import run_script

from asrtool.distributed.launch.environment import LOST

pytestmark = pytest.mark.slow

WAIT_S = 480  # bounds a hang, however slow the machine

FAILING = """
import signal
from asrtool.distributed.launch.learner import learner
try:
    with learner():
        raise ValueError("of a batch")
finally:
    signal.raise_signal(signal.SIGTERM)
"""


def test_a_learner_that_fails_reports_its_error_although_a_signal_to_stop_follows() -> None:
    """The others exit at once, and the launcher then stops all: it would take this one for stopped by a person."""
    with rendezvous_address() as place:
        environment = {**os.environ, **place, "RANK": "0", "WORLD_SIZE": "1"}
        ended = run_script(FAILING, WAIT_S, environment)
    assert ended.returncode == 1
    assert "ValueError: of a batch" in ended.stderr


TRAINING = """
import os, pathlib
import torch
from asrtool.distributed.strategies.allreduce import AveragedGradients
from asrtool.distributed.launch.learner import learner

class Task(torch.nn.Linear):
    def forward(self, batch):
        return super().forward(torch.ones(1, 2)).sum()

with learner() as world:
    AveragedGradients(Task(2, 2), world, torch.float32).start()
print(*sorted(path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for threads in /proc")
def test_no_thread_of_gloo_is_left_after_training_of_which_torch_says_nothing() -> None:
    """One that still frees a tensor when Python exits ends the process by SIGABRT."""
    with rendezvous_address() as place:
        command = [sys.executable, "-c", TRAINING]
        environments = [{**os.environ, **place, "RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        learners = [subprocess.Popen(command, env=one, **pipes) for one in environments]
        threads, warnings = zip(*(learner.communicate(timeout=WAIT_S) for learner in learners), strict=True)
    assert [learner.returncode for learner in learners] == [0, 0]
    assert not any("gloo" in names for names in threads), threads
    assert not any("Warning" in text for text in warnings), warnings


TAKEN_FOR_LOST = """
from asrtool.distributed.launch.learner import learner
from asrtool.distributed.members.members import LostLearner, Members
with learner() as world:
    world.members = Members(2)
    world.members.lose(world.store, LostLearner(0, "has given no sign of life for 20 s", 0))
    world.is_first
"""


def test_a_learner_that_the_others_took_for_lost_says_so_in_one_line() -> None:
    with rendezvous_address() as place:
        environment = {**os.environ, **place, "RANK": "0", "WORLD_SIZE": "1"}
        ended = run_script(TAKEN_FOR_LOST, WAIT_S, environment)
    assert ended.returncode == LOST
    expected = "WARNING:root:learner 0 exits: the others took it for lost: it has given no sign of life for 20 s"
    assert [line for line in ended.stderr.splitlines() if line] == [expected]
