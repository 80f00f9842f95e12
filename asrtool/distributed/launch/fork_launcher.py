"""Learners forked from a launcher: they wait for their environment, which a launcher knows only later.

An agent that knows it has threads and sockets, which a child must not inherit: connections of learners that are copied
to others stay open when the launcher is killed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from asrtool.child_processes import fork_child, name_process
from asrtool.errors import AsrtoolError

TASKS = Path("/proc/self/task")  # the threads of this process, on Linux
ENDED_S = 5.0  # within which the kernel forgets a thread that has been joined
POLL_S = 0.01


@dataclass
class Forked:
    """A learner, as its launcher has it."""

    process: int
    pipe: int  # from which it reads its environment
    code: int | None = None  # once it has ended: exit code, or negative the signal that ended it

    def begin(self, environment: Mapping[str, str]) -> None:
        """Have it train; nothing where it has ended."""
        with contextlib.suppress(BrokenPipeError), open(self.pipe, "w", encoding="utf-8") as pipe:
            json.dump(dict(environment), pipe)

    def has_ended(self) -> bool:
        """Whether it has; `code` is known then."""
        if self.code is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if process else None
        return self.code is not None

    def send(self, number: int) -> None:
        """A signal, where it has not ended."""
        if not self.has_ended():
            os.kill(self.process, number)


def fork_learners(num: int) -> list[Forked]:
    """Fork `num` processes, which end with this one; none are returned in these, once each has its environment.

    Signals to stop wait until `asrtool.child_processes.on_stop`. `ps` shows the learners as `learner R`.
    AsrtoolError where this
    process has further threads.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it, as some schedulers do, cannot wait for a child
    _check_threads()
    learners: list[Forked] = []
    gc.freeze()  # else a collection in a learner would write to, and so copy, all pages that it shares with others
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # Ctrl-C before it trains ends a learner without a word; the launcher reports it.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for rank in range(num):
        reading, writing = os.pipe()
        process = fork_child()
        if process == 0:
            name_process(f"learner {rank}")
            for other in (writing, *(learner.pipe for learner in learners)):
                os.close(other)
            _begin(reading)
            return []
        os.close(reading)
        learners.append(Forked(process, writing))
    return learners


def _check_threads() -> None:
    """AsrtoolError where there are others: a learner would not have them, and wait for ever for what they hold."""
    found = [_describe(thread) for thread in threading.enumerate() if thread is not threading.current_thread()]
    if not found and (num := _count_native()):
        found = [f"{num} of OpenMP or another library"]
    if found:
        raise AsrtoolError(
            f"learners were to be forked, which copies no threads, and there are some: {', '.join(found)}; expected "
            "that no module starts one when it is imported",
            "have your own components start threads, and compute, in a function, or start learners by torchrun",
        )


def _describe(thread: threading.Thread) -> str:
    """Its name, and the file that it runs where that is in Python."""
    frame = sys._current_frames().get(thread.ident or 0)
    files = [inner.f_code.co_filename for inner, _ in traceback.walk_stack(frame)] if frame else []
    own = [file for file in files if file != threading.__file__]
    return f"{thread.name} of {own[-1]}" if own else thread.name


def _count_native() -> int:
    """Threads that are left beside this one after a fork, before which libraries such as OpenBLAS end theirs."""
    if not TASKS.exists() or _count_others() == 0:
        return 0
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    until = time.monotonic() + ENDED_S
    while _count_others() and time.monotonic() < until:
        time.sleep(POLL_S)
    return _count_others()


def _count_others() -> int:
    return len(os.listdir(TASKS)) - 1


def _begin(pipe: int) -> None:
    """Wait for the environment; exits where the launcher ends before."""
    with open(pipe, encoding="utf-8") as file:
        environment = file.read()
    if not environment:
        sys.exit(128 + signal.SIGTERM)
    os.environ.update(json.loads(environment))
