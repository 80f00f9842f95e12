"""A supervisor ends as its learner does, unless that is lost and others survive it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rendezvous import ENDED_S, wait_until
from torch._C._distributed_c10d import TCPStore

from asrtool.distributed.launch.environment import LOST
from asrtool.distributed.members.joining import rendezvous_path
from asrtool.distributed.members.supervisor import POLL_S, end_joined, holding_lock, report_lost, why_lost

LEARNER = """
import os, signal, sys, time
from pathlib import Path
from asrtool.distributed.members.supervisor import forget_lost, holding_lock, supervise, supervise_joining
out, kill = Path({out!r}), os.kill
os.kill = lambda process, number: ((out / "sent").touch(), kill(process, number))
{supervise}
assert "torch" not in sys.modules
signal.signal(signal.SIGTERM, lambda number, _: ((out / "ended").write_text("by a signal"), os._exit(77)))
with holding_lock(out, 1):
    (out / "began").write_text(str(os.getpid()))
    {act}
"""
WAITS = "time.sleep(600)"
KILLED = "was ended by SIGKILL"
LOSES = f"os._exit({LOST})"


def script(out: Path, act: str, node: tuple[int, ...] = (1,)) -> str:
    return LEARNER.format(out=str(out), act=act, supervise=f"supervise(out, 1, out / 'train.json', {node})")


def start(*args: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script(*args)])  # type: ignore[arg-type]


def start_joining(out: Path, act: str, draw: str = "1") -> subprocess.Popen[bytes]:
    supervise = f"supervise_joining(out, lambda: {draw}, out / 'train.json')"
    return subprocess.Popen([sys.executable, "-c", LEARNER.format(out=str(out), act=act, supervise=supervise)])


def learner_of(out: Path) -> int:
    began = out / "began"
    wait_until(lambda: began.exists() and began.stat().st_size)
    return int(began.read_text())


def has_ended(learner: int) -> bool:
    return not Path(f"/proc/{learner}").exists()


def test_a_report_of_the_learner_before_does_not_end_one_that_waits_for_the_others(tmp_path: Path) -> None:
    waits = "while not (out / 'go').exists(): time.sleep(0.01)"
    before = f"supervise(out, 1, out / 'train.json')\n(out / 'began').write_text(str(os.getpid()))\n{waits}"
    before += "\nforget_lost(out, 1)"  # as a learner does before it trains
    words = LEARNER.format(out=str(tmp_path), act="pass", supervise=before)
    with subprocess.Popen([sys.executable, "-c", words]) as process:
        learner_of(tmp_path)
        (tmp_path / "learners").mkdir(exist_ok=True)
        report_lost(tmp_path, 1, "has given no sign of life for 8 s")
        time.sleep(3 * POLL_S)  # in which its supervisor looks for reports
        (tmp_path / "go").touch()
        assert process.wait(ENDED_S) == 0


@pytest.mark.parametrize(
    ("act", "code"),
    [
        ("pass", 0),
        ("sys.exit(1)", 1),
        (LOSES, LOST),
        ("signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", -signal.SIGTERM),
        ("os.unlink(out / 'learners' / '1.lock'); os.kill(os.getpid(), 9)", -signal.SIGKILL),  # before it trains
    ],
)
def test_a_learner_that_ends_by_itself_or_is_stopped_ends_its_supervisor_alike(act: str, code: int, tmp_path) -> None:
    """A report of an earlier learner does not count."""
    report_lost(tmp_path, 1, KILLED)
    with holding_lock(tmp_path, 0):
        assert start(tmp_path, act).wait(ENDED_S) == code
    assert why_lost(tmp_path, 1) == ""


@pytest.mark.parametrize(
    ("act", "node", "finished", "code", "why"),
    [
        (WAITS, (1,), True, 0, KILLED),
        (WAITS, (0, 1, 2), False, -signal.SIGKILL, KILLED),
        (LOSES, (0, 1, 2), True, 0, "lost another learner of its node"),
    ],
)
def test_the_supervisor_of_a_lost_learner_stays_while_others_train_and_ends_by_whether_they_finish(
    act: str, node: tuple[int, ...], finished: bool, code: int, why: str, tmp_path
) -> None:
    """A learner that is killed takes the others of its node with it."""
    with holding_lock(tmp_path, 3):
        supervisor = start(tmp_path, act, node)
        learner = learner_of(tmp_path)
        if act == WAITS:
            os.kill(learner, signal.SIGKILL)
        others = [rank for rank in node if rank != 1 and act == WAITS]
        for rank in (1, *others):
            wait_until(lambda rank=rank: why_lost(tmp_path, rank))
        assert why_lost(tmp_path, 1) == why
        assert all(why_lost(tmp_path, rank) == "lost another learner of its node" for rank in others)
        assert why_lost(tmp_path, 3) == ""
        time.sleep(0.6)  # more than between two looks
        assert supervisor.poll() is None
        assert not (tmp_path / "sent").exists()  # to the number of the learner, which another process may have
        if finished:
            (tmp_path / "train.json").touch()
    assert supervisor.wait(ENDED_S) == code


def test_a_learner_that_the_others_took_for_lost_is_killed(tmp_path: Path) -> None:
    with holding_lock(tmp_path, 0):
        supervisor = start(tmp_path, WAITS)
        learner = learner_of(tmp_path)
        os.kill(learner, signal.SIGSTOP)
        report_lost(tmp_path, 1, "has given no sign of life for 20 s")
        (tmp_path / "train.json").touch()
        wait_until(lambda: has_ended(learner))
    assert supervisor.wait(ENDED_S) == 0
    assert why_lost(tmp_path, 1) == "has given no sign of life for 20 s"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 77), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_signal_reaches_the_learner_and_a_supervisor_that_is_killed_ends_it(number: int, code: int, tmp_path) -> None:
    supervisor = start(tmp_path, WAITS)
    learner_of(tmp_path)
    supervisor.send_signal(number)
    assert supervisor.wait(ENDED_S) == code
    wait_until((tmp_path / "ended").exists)


LAUNCHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.parametrize(("size", "is_killed"), [("1", False), ("2", True)])
def test_with_its_launcher_a_learner_is_killed_if_others_survive_it_else_asked_to_stop(
    size: str, is_killed: bool, tmp_path
) -> None:
    environment = {**os.environ, "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": size}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, script(tmp_path, WAITS)], env=environment)
    learner_of(tmp_path)
    launcher.kill()
    launcher.wait(ENDED_S)
    wait_until(lambda: why_lost(tmp_path, 1) if is_killed else (tmp_path / "ended").exists())
    assert why_lost(tmp_path, 1) == KILLED * is_killed
    assert (tmp_path / "ended").exists() != is_killed


@pytest.mark.parametrize(
    ("number", "code", "why"),
    [(signal.SIGTERM, 128 + signal.SIGTERM, "left"), (signal.SIGKILL, -signal.SIGKILL, KILLED)],
)
def test_one_that_joined_is_lost_alone_if_it_is_killed_or_asked_to_stop(
    number: int, code: int, why: str, tmp_path
) -> None:
    """The child gets no signal to stop all, and its supervisor waits for nobody."""
    with holding_lock(tmp_path, 0):
        supervisor = start_joining(tmp_path, WAITS)
        learner = learner_of(tmp_path)
        os.kill(learner if number == signal.SIGKILL else supervisor.pid, number)
        assert supervisor.wait(ENDED_S) == code
    assert why_lost(tmp_path, 1) == why
    assert not (tmp_path / "ended").exists()
    assert has_ended(learner)


@pytest.mark.parametrize(("finished", "code"), [(True, 0), (False, LOST)])
def test_one_that_lost_the_others_as_they_ended_the_training_has_no_error(finished: bool, code: int, tmp_path) -> None:
    """A learner that gets no number ends as it does, and is not reported."""
    assert start_joining(tmp_path, WAITS, "sys.exit(3)").wait(ENDED_S) == 3
    assert not (tmp_path / "learners").exists()
    if finished:
        (tmp_path / "train.json").touch()
    assert start_joining(tmp_path, LOSES).wait(ENDED_S) == code


def test_before_learners_start_again_those_that_had_joined_are_ended(tmp_path: Path) -> None:
    """The ranks of joined learners come after those of the others."""
    joined = start_joining(tmp_path, WAITS)
    learner = learner_of(tmp_path)
    end_joined(tmp_path, 2)
    assert joined.poll() is None
    end_joined(tmp_path, 1)
    assert joined.wait(ENDED_S) == -signal.SIGKILL
    assert has_ended(learner)


STORES = """
    from torch._C._distributed_c10d import TCPStore
    TCPStore("localhost", {port}, is_master=False).set("by", "learner 0")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_rendezvous_store_outlives_learner_0_and_ends_after_the_others(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    learner = script(tmp_path, STORES.format(port=port)).replace("out, 1", "out, 0")
    place = {"RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
    with holding_lock(tmp_path, 1):
        supervisor = subprocess.Popen([sys.executable, "-c", learner], env={**environment, **place})
        wait_until(lambda: why_lost(tmp_path, 0))
        assert TCPStore("localhost", port, is_master=False).get("by") == b"learner 0"
        assert supervisor.poll() is None
    assert supervisor.wait(ENDED_S) == -signal.SIGKILL
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("localhost", port))


RETURNS = "os._exit(0) if (out / 'drawn').exists() else "
BY_DRAWING = "supervise(out, 1, out / 'train.json', (1,), lambda: int((out / 'drawn').write_text('5')) + 4)"


@pytest.mark.parametrize(
    ("address", "listens", "act", "returns"),
    [
        ("0.0.0.0", True, WAITS, True),  # this host, by a name that is not a loopback address
        ("0.0.0.0", True, LOSES, True),
        ("0.0.0.0", False, WAITS, False),
        ("127.0.0.1", True, LOSES, False),  # on one host none is cut off
    ],
)
def test_one_that_was_cut_off_joins_if_the_others_train_on(
    address: str, listens: bool, act: str, returns: bool, tmp_path
) -> None:
    """The learner is killed by its supervisor, or exits by itself."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("", 0)))
        place = {"address": address, "port": listening.getsockname()[1]}
        rendezvous_path(tmp_path).write_text(json.dumps(place))
        if not listens:
            listening.close()
        text = LEARNER.format(out=str(tmp_path), act=RETURNS + act, supervise=BY_DRAWING)
        supervisor = subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.PIPE, text=True)
        learner_of(tmp_path)
        report_lost(tmp_path, 1, "has given no sign of life for 20 s")
        _, log = supervisor.communicate(timeout=ENDED_S)
    assert (tmp_path / "drawn").exists() == returns
    assert ("learner 1 was cut off from the others" in log) == returns
    assert supervisor.returncode == (0 if returns else LOST if act == LOSES else -signal.SIGKILL)
