"""Run a command of a stage as a child process; copy its output to the log."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from types import FrameType
from typing import BinaryIO

from asrtool.child_processes import ending_with_parent
from asrtool.log import is_quiet

# Modules are not searched in the current directory: a user's own `click.py` there would be taken for the package.
START = "import sys; sys.path[:1] == [''] and sys.path.pop(0); from asrtool.cli.main import main; main(is_stage=True)"
POLL_S = 0.2
WARNING = re.compile(rb"\S+ \S+ (WARNING|ERROR|CRITICAL) |error: ")  # start of a warning or error line


def run_logged(argv: Sequence[str], log: BinaryIO) -> int:
    """Run ``asrtool`` with `argv`; copy its output to standard error and `log`.

    On a terminal the command gets a terminal and shows its bars; the log has finished lines only. With ``--quiet``
    standard error gets warnings and errors only. Returns the exit code, 128 + n if signal n ended it. Ctrl-C, SIGTERM
    and SIGHUP are passed on; after the command has ended they take effect here.
    """
    with _Signals() as signals:
        read_end, write_end = _open_output()
        with os.fdopen(read_end, "rb", buffering=0):
            try:
                process = subprocess.Popen(
                    [sys.executable, "-c", START, *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=write_end,
                    stderr=write_end,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                    start_new_session=True,  # else Ctrl-C would reach it twice: from the terminal and from here
                    preexec_fn=ending_with_parent(),  # two runs must never write the same files
                )
            finally:
                os.close(write_end)
            signals.pass_on_to(process)
            try:
                _copy_output(process, read_end, log)
                return_code = process.wait()
            except BaseException:
                process.kill()
                process.wait()
                raise
    return return_code if return_code >= 0 else 128 - return_code


def _open_output() -> tuple[int, int]:
    """Return the ends of a pseudo-terminal if standard error is one, else of a pipe."""
    if not sys.stderr.isatty():
        return os.pipe()
    read_end, write_end = pty.openpty()
    size = os.get_terminal_size(sys.stderr.fileno())
    fcntl.ioctl(write_end, termios.TIOCSWINSZ, struct.pack("HHHH", size.lines or 24, size.columns or 80, 0, 0))
    attributes = termios.tcgetattr(write_end)
    attributes[1] &= ~termios.OPOST  # the real terminal turns line feeds into new lines
    termios.tcsetattr(write_end, termios.TCSANOW, attributes)
    return read_end, write_end


class _Signals:
    """Ctrl-C, SIGTERM and SIGHUP go to a command: a second one kills it.

    Signals wait until a command is given, and are raised here at the end.
    """

    def __enter__(self) -> _Signals:
        self.received: list[int] = []
        self.process: subprocess.Popen[bytes] | None = None
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        # nohup ignores SIGHUP
        self.before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
        for number in self.before:
            signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        if self.received and error is None:
            signal.raise_signal(self.received[0])

    def pass_on_to(self, process: subprocess.Popen[bytes]) -> None:
        """Send `process` all signals received so far, and further ones until the end."""
        self.process = process
        self._send()

    def _receive(self, number: int, _: FrameType | None) -> None:
        self.received.append(number)
        self._send()

    def _send(self) -> None:
        if self.process and self.received:
            self.process.send_signal(self.received[0] if len(self.received) == 1 else signal.SIGKILL)


def _copy_output(process: subprocess.Popen[bytes], read_end: int, log: BinaryIO) -> None:
    """Copy output until its end, or until the command ends and a child holds it open."""
    waiting = select.poll()  # select.select fails for descriptors from 1,024 on
    waiting.register(read_end, select.POLLIN)
    line = b""
    while True:
        ended = process.poll() is not None  # checked before reading, so that all output up to the end is read
        if not waiting.poll(1000 * POLL_S):
            if ended:
                break
            continue
        chunk = _read(read_end)
        if not chunk:
            break
        *lines, line = (line + chunk).split(b"\n")
        _show(
            b"".join(each + b"\n" for each in map(_last_state, lines) if WARNING.match(each)) if is_quiet() else chunk
        )
        log.writelines(_last_state(line) + b"\n" for line in lines)
        log.flush()
    if line:
        log.write(_last_state(line) + b"\n")


def _read(read_end: int) -> bytes:
    try:
        return os.read(read_end, 1 << 16)
    except OSError:  # a pseudo-terminal whose other end is closed
        return b""


def _show(chunk: bytes) -> None:
    # A terminal that is gone (a closed pipe) does not end the stage: the log continues.
    with contextlib.suppress(OSError):
        sys.stderr.buffer.write(chunk)
        sys.stderr.flush()


def _last_state(line: bytes) -> bytes:
    """Return the part of `line` that a terminal shows after carriage returns."""
    return line.rstrip(b"\r").rsplit(b"\r", 1)[-1]
