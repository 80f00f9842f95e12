"""A supervisor ends as its learner does, unless that is lost and others survive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from asrtool.distributed.launch.environment import LOST
from asrtool.distributed.members.supervisor import end_joined, holding_lock, report_lost, why_lost

WAIT_S = 240  # bounds a hang, however slow the machine
LEARNER = """
import os, signal, sys, time
from pathlib import Path
from asrtool.distributed.members.supervisor import supervise, holding_lock
out = Path({out!r})
supervise(out, 1, out / "train.json", {node})
assert "torch" not in sys.modules
signal.signal(signal.SIGTERM, lambda number, _: ((out / "ended").write_text("by a signal"), os._exit(77)))
with holding_lock(out, 1):
    (out / "began").write_text(str(os.getpid()))
    {act}
"""
WAITS = "time.sleep(600)"


def start(out: Path, act: str, node: Sequence[int] = (1,)) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", LEARNER.format(out=str(out), act=act, node=node)])


def wait_for(path: Path) -> None:
    until = time.monotonic() + WAIT_S
    while not path.exists() or not path.stat().st_size:
        assert time.monotonic() < until, f"no {path}"
        time.sleep(0.01)


def learner_of(out: Path) -> int:
    wait_for(out / "began")
    return int((out / "began").read_text())


@pytest.mark.parametrize(
    ("act", "code"),
    [
        ("pass", 0),
        ("sys.exit(1)", 1),
        (f"os._exit({LOST})", LOST),
        ("signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", -signal.SIGTERM),
    ],
)
def test_a_learner_that_ends_by_itself_or_is_stopped_ends_its_supervisor_alike(
    act: str, code: int, tmp_path: Path
) -> None:
    with holding_lock(tmp_path, 0):
        assert start(tmp_path, act).wait(WAIT_S) == code
    assert why_lost(tmp_path, 1) == ""


@pytest.mark.parametrize(("finished", "code"), [(True, 0), (False, -signal.SIGKILL)])
def test_a_supervisor_stays_while_others_train_and_ends_by_whether_they_finish(
    finished: bool, code: int, tmp_path: Path
) -> None:
    with holding_lock(tmp_path, 0):
        supervisor = start(tmp_path, WAITS)
        os.kill(learner_of(tmp_path), signal.SIGKILL)
        wait_for(tmp_path / "learners" / "1.lost")
        assert why_lost(tmp_path, 1) == "was ended by SIGKILL"
        time.sleep(1)
        assert supervisor.poll() is None
        if finished:
            (tmp_path / "train.json").touch()
    assert supervisor.wait(WAIT_S) == code


def test_a_learner_that_is_killed_before_it_trains_ends_its_supervisor(tmp_path: Path) -> None:
    with holding_lock(tmp_path, 0):
        killed = start(tmp_path, "os.unlink(out / 'learners' / '1.lock'); os.kill(os.getpid(), 9)")
        assert killed.wait(WAIT_S) == -signal.SIGKILL


def test_a_learner_that_the_others_took_for_lost_is_killed(tmp_path: Path) -> None:
    with holding_lock(tmp_path, 0):
        supervisor = start(tmp_path, WAITS)
        os.kill(learner_of(tmp_path), signal.SIGSTOP)
        report_lost(tmp_path, 1, "has given no sign of life for 20 s")
        (tmp_path / "train.json").touch()
        until = time.monotonic() + WAIT_S
        while Path(f"/proc/{learner_of(tmp_path)}").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
    assert supervisor.wait(WAIT_S) == 0
    assert why_lost(tmp_path, 1) == "has given no sign of life for 20 s"


def test_signals_reach_the_learner_and_a_supervisor_that_is_killed_ends_it(tmp_path: Path) -> None:
    supervisor = start(tmp_path, WAITS)
    learner_of(tmp_path)
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(WAIT_S) == 77

    for name in ("began", "ended"):
        (tmp_path / name).unlink()
    supervisor = start(tmp_path, WAITS)
    learner_of(tmp_path)
    supervisor.kill()
    supervisor.wait(WAIT_S)
    wait_for(tmp_path / "ended")


def test_word_of_an_earlier_learner_does_not_count(tmp_path: Path) -> None:
    report_lost(tmp_path, 1, "was ended by SIGKILL")
    assert start(tmp_path, "sys.exit(3)").wait(WAIT_S) == 3


@pytest.mark.parametrize(("act", "why"), [(WAITS, "was ended by SIGKILL"), (f"os._exit({LOST})", "lost the others")])
def test_a_learner_of_a_node_that_is_killed_or_loses_the_others_is_survived(act: str, why: str, tmp_path: Path) -> None:
    """One that is killed takes the others of its node with it."""
    with holding_lock(tmp_path, 3):
        supervisor = start(tmp_path, act, (0, 1, 2))
        learner = learner_of(tmp_path)
        if act == WAITS:
            os.kill(learner, signal.SIGKILL)
            for rank in (0, 2):
                wait_for(tmp_path / "learners" / f"{rank}.lost")
                assert why_lost(tmp_path, rank) == "lost learner 1 of its node"
        wait_for(tmp_path / "learners" / "1.lost")
        assert why_lost(tmp_path, 1).startswith(why)
        assert why_lost(tmp_path, 3) == ""
        (tmp_path / "train.json").touch()
    assert supervisor.wait(WAIT_S) == 0


LAUNCHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.parametrize(("size", "is_killed"), [("1", False), ("2", True)])
def test_with_its_launcher_a_learner_is_killed_where_others_survive_it_and_asked_to_stop_where_all_are_of_that(
    size: str, is_killed: bool, tmp_path: Path
) -> None:
    act = LEARNER.format(out=str(tmp_path), act=WAITS, node=(1,))
    environment = {**os.environ, "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": size}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, act], env=environment)
    learner_of(tmp_path)
    launcher.kill()
    launcher.wait(WAIT_S)
    if is_killed:
        wait_for(tmp_path / "learners" / "1.lost")
        assert why_lost(tmp_path, 1) == "was ended by SIGKILL"
    else:
        wait_for(tmp_path / "ended")
    assert (tmp_path / "ended").exists() != is_killed


JOINS = (
    LEARNER.replace("supervise(out, 1,", "supervise_joining(out, lambda: {draw},")
    .replace(", {node}", "")
    .replace("import supervise,", "import supervise_joining,")
)


def start_joining(out: Path, act: str, draw: str = "1") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", JOINS.format(out=str(out), act=act, draw=draw)])


def test_one_that_joined_is_lost_where_it_is_killed_and_nobody_waits_for_the_others(tmp_path: Path) -> None:
    with holding_lock(tmp_path, 0):
        supervisor = start_joining(tmp_path, WAITS)
        os.kill(learner_of(tmp_path), signal.SIGKILL)
        assert supervisor.wait(WAIT_S) == -signal.SIGKILL
    assert why_lost(tmp_path, 1) == "was ended by SIGKILL"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_joined_and_is_asked_to_stop_leaves_alone(number: int, tmp_path: Path) -> None:
    """The learner itself sees no signal at which all would stop."""
    supervisor = start_joining(tmp_path, WAITS)
    learner = learner_of(tmp_path)
    supervisor.send_signal(number)
    assert supervisor.wait(WAIT_S) == 128 + number
    assert why_lost(tmp_path, 1) == "left"
    assert not (tmp_path / "ended").exists()
    assert not Path(f"/proc/{learner}").exists()


@pytest.mark.parametrize(("finished", "code"), [(True, 0), (False, LOST)])
def test_one_that_lost_the_others_as_they_ended_the_training_has_no_error(
    finished: bool, code: int, tmp_path: Path
) -> None:
    if finished:
        (tmp_path / "train.json").touch()
    assert start_joining(tmp_path, f"os._exit({LOST})").wait(WAIT_S) == code


def test_one_that_gets_no_number_ends_as_it_does_and_leaves_no_word(tmp_path: Path) -> None:
    assert start_joining(tmp_path, WAITS, "sys.exit(3)").wait(WAIT_S) == 3
    assert not (tmp_path / "learners").exists()


def test_before_learners_start_again_those_that_had_joined_are_ended(tmp_path: Path) -> None:
    """Their numbers are behind those of the others."""
    joined = start_joining(tmp_path, WAITS)
    learner = learner_of(tmp_path)
    end_joined(tmp_path, 2)
    assert joined.poll() is None
    end_joined(tmp_path, 1)
    assert joined.wait(WAIT_S) == -signal.SIGKILL
    assert not Path(f"/proc/{learner}").exists()
