"""The command as a process that need not import torch: what tests use of `subprocess.Popen`, forked from a warm one."""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from warm import run_here, warm_context

CHUNK = 1 << 16  # bytes


class WarmCommand:
    """`asrtool` with `words` in `folder`, by which it and its learners are found; seconds sooner than a new Python.

    It has the environment of this process, and ends without a teardown of the interpreter.
    """

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        context = warm_context()
        self._errors, writing = context.Pipe(duplex=False)
        self._process = context.Process(target=_run_command, args=(words, folder, dict(os.environ), writing))
        self._process.start()
        writing.close()

    @property
    def pid(self) -> int:
        assert self._process.pid
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Negative the signal that ended it; None before the end."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        """TimeoutExpired after `timeout` seconds."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("asrtool", timeout)

    def communicate(self, timeout: float) -> tuple[None, str]:
        """What it and all its learners wrote to the standard error, once all have ended."""
        until, parts = time.monotonic() + timeout, []
        while not parts or parts[-1]:
            if not select.select([self._errors], [], [], max(until - time.monotonic(), 0))[0]:
                raise subprocess.TimeoutExpired("asrtool", timeout)
            parts.append(os.read(self._errors.fileno(), CHUNK))
        self.wait(timeout)
        return None, b"".join(parts).decode()

    def close(self) -> None:
        """End it, if it has not ended."""
        self.kill()
        self._process.join()
        self._errors.close()


def _run_command(words: Sequence[str], folder: Path, environment: Mapping[str, str], errors: Connection) -> None:
    os.dup2(errors.fileno(), sys.stderr.fileno())
    errors.close()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    code = run_here(words)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)
