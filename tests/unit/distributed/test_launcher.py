"""Start and end of learners, forked by a launcher with their environment or started alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rendezvous import ENDED_S, rendezvous_address
from warm import run_script

from asrtool.distributed.launch.environment import LOST
from asrtool.distributed.launch.launcher import TASKS

LAUNCH = """
import json, os, signal, sys, time
from asrtool.distributed.launch import launcher
from asrtool.errors import AsrtoolError
launcher.SAVING_S = 1
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as under some schedulers
try:
    is_learner = launcher.launch_learners(2, lambda rank: ", untrained")
except AsrtoolError as error:
    sys.exit(f"error: {{error}}")
if is_learner:
    {act}
"""


STOPPED = "error: a learner was asked to stop; run the same command to resume\n"


@pytest.mark.parametrize(("ignored", "expected"), [(False, (1, STOPPED)), (True, (0, ""))])
def test_ctrl_c_while_a_learner_starts_ends_it_without_a_traceback(ignored: bool, expected: tuple[int, str]) -> None:
    """Unless it is to be ignored, as a shell has it for what runs in the background."""
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" if ignored else ""
    ended = run_script(ignore + LAUNCH.format(act="signal.raise_signal(signal.SIGINT)"), ENDED_S)
    assert (ended.returncode, ended.stderr) == expected


@pytest.mark.skipif(not TASKS.exists(), reason="looks at processes in /proc")
def test_a_learner_has_a_name_and_no_socket_of_its_launcher() -> None:
    """Otherwise a learner that joins might connect to it after the launcher is killed."""
    sockets = "sum(os.readlink(file.path).startswith('socket') for file in os.scandir('/proc/self/fd'))"
    act = f"own = {sockets}; os.write(1, f\"{{own}} {{open('/proc/self/comm').read()}}\".encode())"
    ended = run_script(f"import os\nbefore = {sockets}\n" + LAUNCH.format(act=act), ENDED_S)
    assert sorted(ended.stdout.splitlines()) == ["0 learner 0", "0 learner 1"], ended.stderr


def test_the_learner_that_failed_is_named_and_the_others_are_ended_also_where_they_do_not_stop() -> None:
    fails = 'os.environ["RANK"] == "1" and sys.exit(3)'
    ended = run_script(LAUNCH.format(act=f"signal.signal(15, signal.SIG_IGN); {fails}; time.sleep(600)"), ENDED_S)
    assert ended.stderr.startswith(f"error: learner 1 of 2 on {os.uname().nodename} ended with code 3, untrained")
    assert ended.returncode == 1


def test_a_launcher_that_has_begun_to_use_cuda_is_reported_by_learners() -> None:
    bad = LAUNCH.replace("\ntry:", "\nimport torch; torch.cuda._is_in_bad_fork = lambda: True\ntry:")
    ended = run_script(bad.format(act="pass"), ENDED_S)
    assert ended.stderr.count("error: CUDA was used before learners were forked") == 2
    assert "see its message above" in ended.stderr


ACT = """
    from asrtool.distributed.launch.learner import learner
    signal.signal(signal.SIGTERM, lambda *_: print("asked to stop", file=sys.stderr))
    try:
        with learner() as world:
            world.barrier()  # all are connected, else one that fails leaves the others before
            if {fails}:
                raise {error}("of a batch")
            time.sleep(600)
    except AsrtoolError as error:
        print(f"error: {{error}}", file=sys.stderr)
        sys.exit(AsrtoolError.exit_code)
"""


# In the last case learner 0 then fails because learner 1 has left.
@pytest.mark.parametrize(
    ("fails", "error"),
    [
        ("world.rank == 1", "AsrtoolError"),
        ("True", "AsrtoolError"),
        ("world.rank == 1", "KeyError"),
        ("True", "KeyError"),
        ('world.rank == 1 or not world.store.wait(["error"])', "(AsrtoolError if world.rank else AttributeError)"),
    ],
)
def test_an_error_of_one_learner_or_the_same_of_all_is_printed_once_and_ends_all_at_once(fails, error) -> None:
    """After an AsrtoolError, the same command would fail again."""
    ended = run_script(LAUNCH.format(act=ACT.format(fails=fails, error=error)), ENDED_S)
    assert ended.returncode == 1
    assert ended.stderr.count("of a batch") == 1
    if error != "KeyError":
        assert ended.stderr == "error: of a batch\n"
    else:
        assert "ended with code 1, untrained; see its message above, then run the same command" in ended.stderr
    assert "asked to stop" not in ended.stderr


def test_a_learner_that_is_not_connected_because_another_one_has_failed_prints_nothing() -> None:
    connects = """
    from asrtool.distributed.launch import learner as module
    def connect(world):
        if world.rank == 0:
            world.store.wait(["error"])
            raise RuntimeError("connectFullMesh failed")
    module.init_collectives = connect"""
    act = ACT.format(fails="world.rank == 1", error="AsrtoolError").replace("world.barrier()", "pass")
    ended = run_script(LAUNCH.format(act=connects + act), ENDED_S)
    assert (ended.returncode, ended.stderr) == (1, "error: of a batch\n")


def launch_after(code: str, tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A launch by a process that has imported a module of this `code`; each of two learners writes a word."""
    (tmp_path / "own_component.py").write_text(code)
    script = LAUNCH.replace("\ntry:", "\nimport own_component\ntry:").format(act='os.write(1, b"trains ")')
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}", **variables}
    if not variables:
        return run_script(script, ENDED_S, environment)
    return subprocess.run(  # libraries read them when they are loaded
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=ENDED_S
    )


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (
            "import threading\ndef watch(): threading.Event().wait()\n"
            "threading.Thread(target=watch, name='watcher', daemon=True).start()",
            r"watcher of \S+/own_component\.py; expected",
        ),
        pytest.param(
            "from asrtool.distributed.launch import launcher\nlauncher.JOINED_S = 0.1\n"  # these do not end
            "import torch\ntorch.set_num_threads(2)\ntorch.ones(10**6).exp()",
            r"\d+ of OpenMP or another library; expected",
            marks=pytest.mark.skipif(not TASKS.exists(), reason="counts threads in /proc"),
        ),
    ],
)
def test_a_launcher_with_threads_that_a_fork_does_not_copy_is_refused(code: str, found: str, tmp_path: Path) -> None:
    """A learner would wait for what they hold."""
    ended = launch_after(code, tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.match(rf"error: cannot fork learners: this process already has threads: {found}", ended.stderr), ended
    assert "or start learners by torchrun" in ended.stderr


@pytest.mark.slow
def test_threads_that_a_library_ends_at_a_fork_are_no_reason_to_refuse(tmp_path: Path) -> None:
    """OpenBLAS of numpy has such threads on a machine of several cores."""
    code = "import numpy as np\nmatrix_NN = np.ones((500, 500))\nmatrix_NN @ matrix_NN"
    ended = launch_after(code, tmp_path, OMP_NUM_THREADS="2")
    assert (ended.returncode, ended.stdout) == (0, "trains trains "), ended.stderr


def run_learner(script: str) -> subprocess.CompletedProcess[str]:
    """Run a single learner."""
    with rendezvous_address() as place:
        return run_script(script, ENDED_S, {**os.environ, **place, "RANK": "0", "WORLD_SIZE": "1"})


FAILING = """
import signal
from asrtool.distributed.launch.learner import learner
try:
    with learner():
        raise ValueError("of a batch")
finally:
    signal.raise_signal(signal.SIGTERM)
"""


@pytest.mark.slow
def test_a_learner_that_fails_reports_its_error_although_a_signal_to_stop_follows() -> None:
    """The others exit at once, and the launcher then stops all: it would take this one for stopped by a person."""
    ended = run_learner(FAILING)
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


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for threads in /proc")
def test_no_thread_of_gloo_is_left_after_training_of_which_torch_says_nothing() -> None:
    """A thread that still frees a tensor when Python exits ends the process by SIGABRT."""
    with rendezvous_address() as place:
        command = [sys.executable, "-c", TRAINING]
        environments = [{**os.environ, **place, "RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        learners = [subprocess.Popen(command, env=one, **pipes) for one in environments]
        threads, warnings = zip(*(learner.communicate(timeout=ENDED_S) for learner in learners), strict=True)
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


@pytest.mark.slow
def test_a_learner_that_the_others_took_for_lost_says_so_in_one_line() -> None:
    ended = run_learner(TAKEN_FOR_LOST)
    assert ended.returncode == LOST
    expected = "WARNING:root:learner 0 exits: the others took it for lost: it has given no sign of life for 20 s"
    assert [line for line in ended.stderr.splitlines() if line] == [expected]
