"""A learner and its supervisor: two processes, so that a launcher does not see a loss that other learners survive.

A launcher ends all its learners once one has failed. So the process that it starts forks: its child is the learner,
and it watches. When the child is killed, the supervisor leaves `learners/R.lost`, where the others look for it
(asrtool.distributed.members.heartbeat), and stays until none of them trains any more. The others write that
file as well, for a
learner that gave no sign of life for too long; its supervisor, where there still is one, then kills it, so that it
does not wake up later and train batches that others have got.

Needs no torch, and loads none before it forks; where a launcher has loaded it, no thread of it runs yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from asrtool.child_processes import STOPS, end_with, fork_child, on_stop
from asrtool.distributed.launch.environment import LOST
from asrtool.errors import AsrtoolError
from asrtool.files import write_text

POLL_S = 0.5
END_S = 60.0  # for a supervisor to end its learner
NONE = -1  # in place of a number, where a learner ended before it had one


def report_lost(out: Path, rank: int, why: str) -> None:
    """Leave word that learner `rank` of the training `out` is lost."""
    if not lost_path(out, rank).exists():
        write_text(lost_path(out, rank), json.dumps({"why": why}))


def report_node(out: Path, rank: int, node: Iterable[int]) -> None:
    """Leave word that with learner `rank` the others of its `node` are lost."""
    for other in node:
        if other != rank:
            report_lost(out, other, f"lost learner {rank} of its node")


def why_lost(out: Path, rank: int) -> str:
    """Why learner `rank` is lost; empty where nobody has left word that it is."""
    try:
        found: str = json.loads(lost_path(out, rank).read_bytes())["why"]
    except (OSError, ValueError):
        return ""
    return found


def forget_lost(out: Path, rank: int) -> None:
    """Before learner `rank` begins: what is there is of an earlier one."""
    for path in (lost_path(out, rank), _lock_path(out, rank)):
        path.unlink(missing_ok=True)


def lost_path(out: Path, rank: int) -> Path:
    """The file that says that learner `rank` is lost."""
    return out / "learners" / f"{rank}.lost"


@contextlib.contextmanager
def holding_lock(out: Path, rank: int) -> Iterator[None]:
    """Inside, supervisors see that learner `rank` trains in `out`; the system ends that with the process."""
    path = _lock_path(out, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        with contextlib.suppress(OSError):  # of a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH)
        yield
    path.unlink(missing_ok=True)


def supervise(out: Path, rank: int, final: Path, node: Sequence[int] = ()) -> None:
    """Return in a child, which is to be learner `rank` of a training in `out` that ends by writing `final`.

    In this process it never returns: it exits with the code of the child, or dies by the signal that ended it; where
    the child was killed and others have ended the training, with code 0. `node` are the learners that step together
    with it, and are lost with it. When the launcher is killed the learner is asked to stop, and all with it; where
    there are learners of other machines it is killed, and they survive that.
    """
    forget_lost(out, rank)
    launcher = os.getppid()
    end_with(launcher)
    child = fork_child()
    if child == 0:
        return
    on_stop(lambda number: _send(child, _signal_for_child(number, launcher)))
    code = _wait(out, rank, child)
    if _is_survived(out, rank, code, len(node) > 1):
        on_stop(signal.SIG_DFL)
        _report_end(out, rank, code)
        if code < 0:
            report_node(out, rank, node)
        while _is_any_training(out):
            time.sleep(POLL_S)
        code = 0 if final.exists() else code
    _exit(code)


def supervise_joining(out: Path, draw_number: Callable[[], int], final: Path) -> None:
    """Return in a child, which is to join a training in `out` as the learner that `draw_number` gives there.

    In this process it never returns: it exits with the code of the child, without waiting for the others where that was
    killed, since no launcher knows it; with 0 where the others ended the training first, by writing `final`. Asked to
    stop, the child leaves the others, which do not stop.
    """
    reading, writing = os.pipe()
    child = fork_child()
    if child == 0:
        os.close(reading)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # that of a terminal is for its supervisor
        rank = draw_number()
        forget_lost(out, rank)
        os.write(writing, str(rank).encode())
        os.close(writing)
        return
    os.close(writing)
    stopped: list[int] = []

    def leave(number: int) -> None:
        stopped.append(number)
        _send(child, signal.SIGKILL)

    on_stop(leave)
    with open(reading, "rb") as pipe:
        number = pipe.read()
    rank = int(number or NONE)
    code = _wait(out, rank, child)
    if rank != NONE and _is_survived(out, rank, code, in_node=False):
        _report_end(out, rank, code, "left" if stopped else "")
    _exit(128 + stopped[0] if stopped else 0 if code == LOST and final.exists() else code)


def _wait(out: Path, rank: int, child: int) -> int:
    """The exit code of `child`, which is killed where others take it for lost."""
    threading.Thread(target=_kill_when_lost, args=(out, rank, child), daemon=True).start()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _report_end(out: Path, rank: int, code: int, why: str = "") -> None:
    report_lost(
        out, rank, why or (f"was ended by {signal.Signals(-code).name}" if code < 0 else "lost the others of its node")
    )


def _is_survived(out: Path, rank: int, code: int, in_node: bool) -> bool:
    """Whether others may train without the child, which ended with `code`.

    They cannot where it had not begun. Where it was asked to stop, or ended by an error, they end as well: they would
    come to that error too. One that stepped together with others and lost them is lost with its node.
    """
    crashed = code < 0 and -code not in STOPS
    fenced = code == LOST and (in_node or lost_path(out, rank).exists())
    return _lock_path(out, rank).exists() and (crashed or fenced)


def _signal_for_child(number: int, launcher: int) -> int:
    is_lost = os.getppid() != launcher and os.environ.get("LOCAL_WORLD_SIZE") != os.environ.get("WORLD_SIZE")
    return signal.SIGKILL if is_lost else number


def _kill_when_lost(out: Path, rank: int, child: int) -> None:
    while not lost_path(out, rank).exists():
        time.sleep(POLL_S)
    _send(child, signal.SIGKILL)


def end_joined(out: Path, size: int) -> None:
    """Before learners start in `out`, of which there are `size`: end those that had joined earlier ones.

    AsrtoolError where one does not end.
    """
    until = time.monotonic() + END_S
    for path in (out / "learners").glob("*.lock"):
        if path.stem.isdecimal() and int(path.stem) >= size:
            report_lost(out, int(path.stem), "joined learners that are there no more")
            while _is_locked(path):
                if time.monotonic() > until:
                    raise AsrtoolError(f"{out}: learner {path.stem} of an earlier run still trains", "end its process")
                time.sleep(POLL_S)


def _is_any_training(out: Path) -> bool:
    return any(map(_is_locked, (out / "learners").glob("*.lock")))


def _is_locked(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _exit(code: int) -> None:
    """End as a process with this exit code did, by a signal where it is negative; without another core file."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _lock_path(out: Path, rank: int) -> Path:
    return out / "learners" / f"{rank}.lock"
