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
from collections.abc import Mapping
from dataclasses import dataclass

from asrtool.parent import fork_child, name_process


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

    This process is to have one thread. Signals to stop wait until `asrtool.parent.on_stop`. `ps` shows the learners as
    `learner R`.
    """
    learners: list[Forked] = []
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it, as some schedulers do, cannot wait for a child
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


def _begin(pipe: int) -> None:
    """Wait for the environment; exits where the launcher ends before."""
    with open(pipe, encoding="utf-8") as file:
        environment = file.read()
    if not environment:
        sys.exit(128 + signal.SIGTERM)
    os.environ.update(json.loads(environment))
