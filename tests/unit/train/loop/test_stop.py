"""What signals do to a training."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import signal
from asrtool.train.loop import stop
stop.REPEAT_S = {repeat_s}
try:
    with stop.Stop() as stop_:
        signal.raise_signal(signal.SIGTERM)
        print("first", stop_.requested, flush=True)
        signal.raise_signal(signal.{name})
        print("second", flush=True)
finally:
    print("closed", flush=True)
"""

IN_A_LINE = """
import io, logging, signal
from asrtool.train.loop import stop

class Terminal(io.RawIOBase):
    shown = b""

    def writable(self):
        return True

    def write(self, data):
        if not self.shown:
            signal.raise_signal(signal.SIGTERM)
        self.shown += data
        return len(data)

terminal = Terminal()
stream = io.TextIOWrapper(io.BufferedWriter(terminal), line_buffering=True)  # as standard error is
logging.basicConfig(stream=stream, format="%(message)s", level=logging.INFO)
signal.signal(signal.SIGTERM, lambda *_: None)
with stop.Stop() as stop_:
    logging.info("epoch 1")
    assert stop_.requested and stop_.requested
print(terminal.shown.decode(), end="")
"""


FAILING = """
import signal
from asrtool.train.loop.stop import Stop
with Stop():
    signal.raise_signal(signal.SIGTERM)
    raise ValueError("of a batch")
"""


def run(name: str, repeat_s: float) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", PROGRAM.format(name=name, repeat_s=repeat_s)]
    ended = subprocess.run(command, capture_output=True, text=True)
    return ended.returncode, ended.stdout.split()


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_later_signal_ends_the_process_at_once(name: str, code: int) -> None:
    assert run(name, repeat_s=0) == (code, ["first", "True"])


def test_signals_one_right_after_the_other_are_one() -> None:
    assert run("SIGTERM", repeat_s=60) == (-15, ["first", "True", "second"])


def test_an_error_is_reported_although_a_signal_has_come() -> None:
    ended = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.endswith("ValueError: of a batch\n")


def test_a_signal_in_the_middle_of_a_line_of_the_log_is_logged_in_the_next() -> None:
    ended = subprocess.run([sys.executable, "-c", IN_A_LINE], capture_output=True, text=True, check=True)
    assert ended.stdout == "epoch 1\nasked to stop (SIGTERM): saving a checkpoint\n"
    assert ended.stderr == ""
