"""Stop between two steps, so that the weights are consistent."""

from __future__ import annotations

import logging
import os
import signal
import time
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
REPEAT_S = 1.0  # a cluster signals all processes of a job, and the launcher passes its signal on


class Stopped(Exception):
    """Stop request to a learner; raised where stopping is safe."""


class Left(Exception):
    """Departure of this learner on a stop request, while the others train on."""


class EndsEarly(Exception):
    """Early stopping by dev losses; raised where stopping is safe."""


class Stop:
    """Context in which the first SIGINT or SIGTERM waits for `check`.

    A later one ends the process at once. On leaving, a signal is passed to the previous handler, unless an error is
    raised.
    """

    def __init__(self, leaves: bool = False) -> None:
        """Stop this learner alone if it `leaves`."""
        self.leaves = leaves
        self._received: int | None = None
        self._logged = False
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # a shell makes background jobs ignore Ctrl-C
                self._before[number] = signal.signal(number, self.receive)
        return self

    def receive(self, number: int, _: FrameType | None) -> None:
        """Handle a signal."""
        # Logs nothing: the signal may interrupt a log line, and its stream is not reentrant.
        if self._received is not None:
            if time.monotonic() - self._since >= REPEAT_S:
                os._exit(128 + number)  # an exception might leave a lock held, and closing files would wait for it
            return
        self._received, self._since = number, time.monotonic()

    @property
    def requested(self) -> bool:
        """True once a signal has arrived; the first time it is logged."""
        if self._received is not None and not self._logged:
            self._logged = True
            what = "leaving the others after two steps" if self.leaves else "saving a checkpoint"
            logging.info("asked to stop (%s): %s", signal.Signals(self._received).name, what)
        return self._received is not None

    def check(self) -> None:
        """Raise Stopped if a signal has arrived."""
        if self.requested:
            raise Stopped

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        # A launcher stops the other learners if one has failed.
        failed = kind is not None and not issubclass(kind, Stopped | Left)
        if not failed and self.requested and self._received is not None:
            signal.raise_signal(self._received)
