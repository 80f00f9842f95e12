"""Progress: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterable

import pytest

from asrtool import log
from asrtool.log import progress


def on_a_terminal(code: str) -> str:
    """Return the standard error of `code` on a terminal."""
    shown, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 80, 0, 0))
    process = subprocess.Popen([sys.executable, "-c", code], stderr=terminal)
    os.close(terminal)
    chunks = []
    try:
        while chunk := os.read(shown, 65536):
            chunks.append(chunk)
    except OSError:  # the other end is closed
        pass
    os.close(shown)
    assert process.wait() == 0
    return b"".join(chunks).decode()


@pytest.mark.parametrize(
    ("items", "total", "line"),
    [
        ([3, 1, 2], None, "reading: 3/3 files, "),
        ([], None, "reading: 0/0 files"),
        (iter([3, 1]), None, "reading: 2 files, "),
        (iter([3]), 5, "reading: 1/5 files"),
    ],
)
def test_items_pass_through_and_the_last_line_counts_them(
    items: Iterable[int], total: int | None, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        passed = list(progress(items, "reading", total, unit="file"))
    assert passed == [3, 1, 2][: len(passed)]
    assert [text[: len(line)] for text in caplog.messages] == [line]


def test_lines_show_rate_and_time_left(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(0, 100, 6))
    monkeypatch.setattr(log.time, "monotonic", lambda: float(next(seconds)))
    with caplog.at_level("INFO"):
        list(progress(range(4), "reading", unit="file"))
    assert caplog.messages == [
        "reading: 2/4 files, 0.2 files/s, 12 s left",
        "reading: 4/4 files, 0.2 files/s",
        "reading: 4/4 files, 0.1 files/s",
    ]


def test_items_that_are_unlike_count_by_their_amount(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three pieces of 40 s have speech; after the last one there is none."""
    seconds = iter(range(0, 100, 10))
    monkeypatch.setattr(log.time, "monotonic", lambda: float(next(seconds)))
    ends_s = [9.6, 20.0, 30.0]
    with caplog.at_level("INFO"):
        list(progress(iter("abc"), "hearing", 40, "second", lambda done: ends_s[done - 1]))
        list(progress(iter("abc"), "hearing", None, "second", lambda done: ends_s[done - 1]))
    assert caplog.messages[:2] == [
        "hearing: 10/40 seconds, 1.0 seconds/s, 32 s left",
        "hearing: 20/40 seconds, 1.0 seconds/s, 20 s left",
    ]
    assert caplog.messages[3] == "hearing: 40/40 seconds, 1.0 seconds/s"
    assert caplog.messages[-1] == "hearing: 30 seconds, 0.8 seconds/s"


SHOW_BAR = """
import logging
from asrtool.log import progress, setup_logging
setup_logging(logging.{})
list(progress(range(3), 'reading', unit='file'))
"""


SLOW = """
import time
def slow():
    for number in range(3):
        time.sleep(0.2)
        yield number
"""


def test_a_terminal_shows_a_bar() -> None:
    shown = on_a_terminal(SHOW_BAR.format("INFO"))
    assert "\rreading: " in shown
    assert "0/3 [" in shown


def test_the_bar_moves_by_the_amount() -> None:
    code = SHOW_BAR.format("INFO").replace("unit='file'", "total=40, unit='second', measure=lambda done: 12.4 * done")
    assert "0/40 [" in on_a_terminal(code)
    assert "12/40 [" in on_a_terminal(code.replace("range(3)", "slow()").replace("list(", SLOW + "list(", 1))


def test_a_log_of_warnings_alone_shows_no_bar() -> None:
    assert "reading" not in on_a_terminal(SHOW_BAR.format("WARNING"))


def test_a_log_line_does_not_tear_the_bar() -> None:
    code = (
        "import logging; from asrtool.log import progress, setup_logging; setup_logging()\n"
        "for i in progress(range(3), 'reading', unit='file'): logging.info('number %d', i)"
    )
    lines = on_a_terminal(code).split("\r\n")
    for i in range(3):
        # the line begins at the left margin: the bar before it has been cleared
        assert lines[i].rsplit("\r", 1)[-1].endswith(f" INFO number {i}")
        assert "reading" not in lines[i].rsplit("\r", 1)[-1]


def test_log_lines_carry_time_and_level() -> None:
    code = "import logging; from asrtool.log import setup_logging; setup_logging(); logging.info('ready')"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    date, _, level, text = finished.stderr.split()
    assert (len(date), level, text) == (10, "INFO", "ready")
