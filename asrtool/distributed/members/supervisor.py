"""Supervisor of a learner: it hides from a launcher a loss that others survive.

A launcher ends all its learners once one has failed. So the process that it starts forks: its child
is the learner, and it watches. If the child is killed, the supervisor writes `learners/R.lost`,
where the others look for it (members.heartbeat), and stays until none of them trains any more. That of
learner 0 serves the rendezvous store, unless torchrun does, so that learner 0 may be lost.

The others also write that file, for a learner that gave no sign of life for too long. Its
supervisor, if there still is one, then kills it, so that it does not wake up later and train
batches that others have got. If the host of the learner was cut off from the others, the supervisor
waits until the store answers, and forks another learner, which joins them.

Loads no torch before it forks; if a launcher has loaded it, no thread of it runs yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from asrtool.child_processes import STOP_SIGNALS, end_with, fork_child, on_stop
from asrtool.distributed.launch.environment import LOST, SERVED, serves_store
from asrtool.distributed.members.joining import reach_store
from asrtool.distributed.members.members import LEFT, learner_file
from asrtool.errors import AsrtoolError
from asrtool.files import read_object, write_text

POLL_S = 0.5
WATCH_S = 0.1  # while the learner trains
END_S = 60.0  # for a supervisor to end its learner
RETURN_S = 300.0  # for a host that was cut off to reach the store again
NUM_RETURNS = 10  # most returns of a learner
NODE_LOST = "lost another learner of its node"
NONE = -1  # in place of a number, if a learner ended before it had one


def report_lost(out: Path, rank: int, why: str) -> None:
    """Report that learner `rank` of the training `out` is lost."""
    if not learner_file(out, rank, "lost").exists():
        write_text(learner_file(out, rank, "lost"), json.dumps({"why": why}))


def report_node(out: Path, rank: int, node: Iterable[int]) -> None:
    """Report that with learner `rank` the others of its `node` are lost."""
    for other in node:
        if other != rank:
            report_lost(out, other, NODE_LOST)


def why_lost(out: Path, rank: int) -> str:
    """Return the reason of the loss of learner `rank`; empty if none is reported."""
    return str(read_object(learner_file(out, rank, "lost")).get("why", ""))


def forget_lost(out: Path, rank: int) -> None:
    """Remove the files of an earlier learner `rank`, before it begins."""
    for path in (learner_file(out, rank, "lost"), learner_file(out, rank, "lock")):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def holding_lock(out: Path, rank: int) -> Iterator[None]:
    """Show supervisors that learner `rank` trains, until the process ends."""
    path = learner_file(out, rank, "lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH)
        yield
    path.unlink(missing_ok=True)


def supervise(
    out: Path, rank: int, final: Path, node: Sequence[int] = (), draw_number: Callable[[], int] | None = None
) -> None:
    """Return in a child, which is to be learner `rank` of a training in `out`.

    In this process it never returns: it exits with the code of the child, or dies by the signal
    that ended it. If the child was killed and others have ended the training, by writing `final`,
    it exits with 0. `node` are the learners that step together with it, and are lost with it. If
    the launcher is killed the learner is asked to stop, and all with it; with learners of other
    machines it is killed, and they survive that. With `draw_number` it may return in another child
    later, as `supervise_joining` does, if the learner was cut off from the others.
    """
    forget_lost(out, rank)
    launcher, serves = os.getppid(), serves_store()
    end_with(launcher)
    child = fork_child()
    if child == 0:
        if serves:
            os.environ[SERVED] = "1"
        return
    on_stop(lambda number: _send(child, _signal_for_child(number, launcher)))
    store = _serve(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])) if serves else None
    code = _wait(out, rank, child)
    if draw_number and not serves and _can_return(out, rank, code, final):
        supervise_joining(out, draw_number, final, stays=True)
        return
    has_left = store is not None and why_lost(out, rank) == LEFT  # the others need its store
    if why := LEFT if has_left else _survivable_end(out, rank, code, len(node) > 1):
        on_stop(signal.SIG_DFL)
        report_lost(out, rank, why)
        if code < 0:
            report_node(out, rank, node)
        code = _stay(out, final, code)
    _exit(code)


def serve_rendezvous(port: int) -> None:
    """Serve the rendezvous store in a child, until this process ends.

    That is to be its only child so far. AsrtoolError in the child if the port is taken.
    """
    if fork_child() == 0:
        on_stop(signal.SIG_DFL)
        store = _serve("localhost", port)
        while store:
            signal.pause()


def _serve(host: str, port: int) -> object:
    """Serve the rendezvous store until the result is deleted.

    AsrtoolError if the port is taken.
    """
    from torch._C._distributed_c10d import TCPStore

    try:
        return TCPStore(host, port, is_master=True, wait_for_workers=False)
    except RuntimeError as error:
        what = f"cannot serve the rendezvous store at {host}:{port}: {error}".splitlines()[0]
        raise AsrtoolError(what, "let MASTER_PORT be a free port of the host of learner 0") from error


def supervise_joining(
    out: Path, draw_number: Callable[[], int], final: Path, stays: bool = False, num_returns: int = NUM_RETURNS
) -> None:
    """Return in a child, which is to join a training in `out`.

    `draw_number` gives it its number there. In this process it never returns: it exits with the
    code of the child. If the child was killed, it waits for the others only if it `stays` for a
    launcher. It exits with 0 if the others ended the training first, by writing `final`. If it is
    asked to stop, the child leaves the others, which train on. It returns in another child, so many
    times, if the child was cut off from the others.
    """
    reading, writing = os.pipe()
    child = fork_child()
    if child == 0:
        os.close(reading)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of a terminal is for its supervisor
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
    if num_returns and not stopped and _can_return(out, rank, code, final):
        supervise_joining(out, draw_number, final, stays, num_returns - 1)
        return
    why = _survivable_end(out, rank, code, in_node=False)
    if stopped and learner_file(out, rank, "lock").exists():  # the child may have got the signal as well
        why = LEFT
    if why:
        report_lost(out, rank, why)
    if stays and not stopped and (why or rank == NONE):
        code = _stay(out, final, code)
    _exit(128 + stopped[0] if stopped else 0 if code == LOST and final.exists() else code)


def _can_return(out: Path, rank: int, code: int, final: Path) -> bool:
    """Return whether others train without learner `rank`, which ended with `code`.

    Waits until their store is reached, and until they have reported the learner as lost.
    """
    seems_lost = code == LOST or (code == -signal.SIGKILL and learner_file(out, rank, "lost").exists())
    if final.exists() or not (seems_lost and learner_file(out, rank, "lock").exists()):
        return False
    on_stop(signal.SIG_DFL)
    until = time.monotonic() + RETURN_S
    while time.monotonic() < until:
        try:
            reach_store(out)
            if learner_file(out, rank, "lost").exists():
                logging.warning("learner %d was cut off from the others: another one joins them in its place", rank)
                return True
        except (ConnectionRefusedError, FileNotFoundError):  # they have ended
            return False
        except OSError:
            pass
        time.sleep(POLL_S)
    return False


def _stay(out: Path, final: Path, code: int) -> int:
    """Wait until no learner trains; return 0 if the training has ended, else `code`."""
    while any(map(_is_locked, (out / "learners").glob("*.lock"))):
        time.sleep(POLL_S)
    return 0 if final.exists() else code


def _wait(out: Path, rank: int, child: int) -> int:
    """Return the exit code of `child`, which is killed if others take it for lost.

    Only if it trains: before, they may report the learner in whose place it is.
    """
    looked = time.monotonic()
    while True:
        # Not a wait in the kernel: a signal that comes right before that would wait as well.
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - looked >= POLL_S:
            looked = time.monotonic()
            if learner_file(out, rank, "lock").exists() and why_lost(out, rank) not in ("", LEFT):
                _send(child, signal.SIGKILL)
        time.sleep(WATCH_S)


def _survivable_end(out: Path, rank: int, code: int, in_node: bool) -> str:
    """Return the end of the child by `code` if others may train on; else ''.

    They cannot if it had not begun. If it was asked to stop, or ended by an error, they end as
    well: the same error would come to them. A child that lost another of its node is lost with the
    node, whichever supervisor notices first.
    """
    if not learner_file(out, rank, "lock").exists():
        return ""
    if code < 0 and -code not in STOP_SIGNALS:
        return f"was ended by {signal.Signals(-code).name}"
    return NODE_LOST if code == LOST and (in_node or learner_file(out, rank, "lost").exists()) else ""


def _signal_for_child(number: int, launcher: int) -> int:
    is_lost = os.getppid() != launcher and os.environ.get("LOCAL_WORLD_SIZE") != os.environ.get("WORLD_SIZE")
    return signal.SIGKILL if is_lost else number


def end_joined(out: Path, size: int) -> None:
    """End the learners that joined an earlier run; AsrtoolError if one does not end."""
    until = time.monotonic() + END_S
    for path in (out / "learners").glob("*.lock"):
        if path.stem.isdecimal() and int(path.stem) >= size:
            report_lost(out, int(path.stem), "joined an earlier run, which has ended")
            while _is_locked(path):
                if time.monotonic() > until:
                    raise AsrtoolError(f"{out}: learner {path.stem} of an earlier run still trains", "end its process")
                time.sleep(POLL_S)


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
    """End with an exit code, or by a signal if negative; no other core file."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    sys.exit(code)
