"""torchrun as processes that need not import torch: forked from a warm one, and so are all learners."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from hosts import Host
from warm import run_here, warm_context

from asrtool.child_processes import name_process

PR_SET_CHILD_SUBREAPER = 36  # prctl(2): a process whose parent has ended becomes a child of this one
REQUEST = 1 << 20  # bytes at most
POLL_S = 0.005


class WarmTorchrun:
    """What tests and `benchmarks/restarts.py` use of `subprocess.Popen`, for the words of a torchrun of `asrtool`.

    It works in the folder of the log, by which its learners are found, and on `host`.
    """

    def __init__(self, words: Sequence[str], stdout: TextIO, stderr: TextIO, host: Host | None = None) -> None:
        assert stdout is stderr
        args = (words[1:], stdout.name, dict(os.environ), host)
        self._process = warm_context().Process(target=_run_torchrun, args=args)
        self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float) -> None:
        """TimeoutExpired after `timeout` seconds."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("torchrun", timeout)

    def kill(self) -> None:
        self._process.kill()

    def __enter__(self) -> WarmTorchrun:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.join()


def _run_torchrun(words: Sequence[str], log: str, environment: Mapping[str, str], host: Host | None) -> None:
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

    with open(log, "a") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    os.chdir(Path(log).parent)
    if host:
        host.enter()
    os.environ.clear()
    os.environ.update(environment)
    starter = Starter()  # before torchrun has threads, which a fork does not copy
    SubprocessHandler._popen = lambda _, args, env: starter.start(args[1:], env)
    code = 0
    try:
        run.main(words)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


class Started:
    """A learner, a child of this process; what torch uses of `subprocess.Popen`."""

    def __init__(self, process: int) -> None:
        self.pid = process
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            process, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if process else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("asrtool", timeout or 0.0)
            time.sleep(POLL_S)
        return code


class Starter:
    """A process without threads that forks learners, which become children of the one that made it."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        parent = os.getpid()
        self._asking, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self._asking.close()  # so that this process ends with its parent
            _fork_learners(answering, parent)
        answering.close()

    def start(self, words: Sequence[str], environment: Mapping[str, str]) -> Started:
        """A learner that runs `asrtool` with `words` in a session of its own."""
        self._asking.send(json.dumps([words, environment]).encode())
        return Started(int(self._asking.recv(REQUEST)))


def _fork_learners(answering: socket.socket, parent: int) -> None:
    """One for each request, until the other end is closed."""
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while request := answering.recv(REQUEST):
        between = os.fork()
        if between == 0:
            if os.fork() == 0:
                _be_learner(answering, parent, *json.loads(request))
            os._exit(0)
        os.waitpid(between, 0)
    os._exit(0)


def _be_learner(answering: socket.socket, parent: int, words: Sequence[str], environment: Mapping[str, str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()  # as torchrun has it, which sends signals to the group
    while os.getppid() != parent:
        time.sleep(0.001)
    name_process(f"learner {environment['RANK']}")
    os.environ.clear()
    os.environ.update(environment)
    answering.send(str(os.getpid()).encode())
    answering.close()
    code = run_here(words)
    sys.stderr.flush()
    os._exit(code)
