"""One command of a stage as a subprocess: its output goes to the terminal and to the log file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import BinaryIO

from asrtool.parent import ending_with_parent

# Modules are not searched in the current directory: a person's own `local` or `utils` there would be taken for ours.
START = "import sys; sys.path[:1] == [''] and sys.path.pop(0); from asrtool.cli.main import main; main()"
POLL_S = 0.2


def run_logged(words: Sequence[str], log: BinaryIO) -> int:
    """Run ``asrtool`` with the arguments `words`, copying its output to standard error and to `log`.

    On a terminal the command sees a terminal, so that it shows its bars; the log holds finished lines only. Returns the
    exit code, 128 + n when signal n ended it. Ctrl-C, SIGTERM and SIGHUP are passed on; once the command has ended they
    take effect here.
    """
    read_end, write_end = _open_output()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", START, *words],
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # else Ctrl-C would reach it twice: from the terminal and from here
            preexec_fn=ending_with_parent(),  # two runs must never write the same files
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    with os.fdopen(read_end, "rb", buffering=0), _passing_signals_on(process):
        try:
            _copy_output(process, read_end, log)
            return_code = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
    return return_code if return_code >= 0 else 128 - return_code


def _open_output() -> tuple[int, int]:
    """Read end and write end of a pseudo-terminal when standard error is a terminal, else of a pipe."""
    if not sys.stderr.isatty():
        return os.pipe()
    read_end, write_end = pty.openpty()
    size = os.get_terminal_size(sys.stderr.fileno())
    fcntl.ioctl(write_end, termios.TIOCSWINSZ, struct.pack("HHHH", size.lines or 24, size.columns or 80, 0, 0))
    attributes = termios.tcgetattr(write_end)
    attributes[1] &= ~termios.OPOST  # the real terminal turns line feeds into new lines
    termios.tcsetattr(write_end, termios.TCSANOW, attributes)
    return read_end, write_end


@contextlib.contextmanager
def _passing_signals_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Send the signals that would end this process to `process` (a second one kills it); raise them here at the end."""
    received: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        received.append(number)
        process.send_signal(number if len(received) == 1 else signal.SIGKILL)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    heeded = [number for number, handler in before.items() if handler != signal.SIG_IGN]  # nohup ignores SIGHUP
    for number in heeded:
        signal.signal(number, pass_on)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])
    if received:
        signal.raise_signal(received[0])


def _copy_output(process: subprocess.Popen[bytes], read_end: int, log: BinaryIO) -> None:
    """Copy until the end of the output, or until the command has ended and only a left-over child holds it open."""
    line = b""
    while True:
        ready, _, _ = select.select([read_end], [], [], POLL_S)
        if not ready:
            if process.poll() is not None:
                break
            continue
        chunk = _read(read_end)
        if not chunk:
            break
        _show(chunk)
        *lines, line = (line + chunk).split(b"\n")
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
    # A terminal that is gone (a closed pipe) does not end the stage: the log goes on.
    with contextlib.suppress(OSError):
        sys.stderr.buffer.write(chunk)
        sys.stderr.flush()


def _last_state(line: bytes) -> bytes:
    """What a terminal shows of `line` in the end: a progress bar returns to its start again and again."""
    return line.rstrip(b"\r").rsplit(b"\r", 1)[-1]
