"""Stopping between two steps, so that the weights of a training that is told to stop are whole."""

from __future__ import annotations

import logging
import signal
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """This process, or another learner, was told to stop; raised where stopping is safe."""


class Stop:
    """While entered, the first SIGINT or SIGTERM waits for `check`; a second one acts at once.

    On leaving, a signal that came is given to the handler there was before.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # a shell lets its background jobs ignore Ctrl-C
                self._before[number] = signal.signal(number, self._receive)
        return self

    def _receive(self, number: int, _: FrameType | None) -> None:
        self._received = number
        logging.info("told to stop (%s): saving a checkpoint", signal.Signals(number).name)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def requested(self) -> bool:
        """Whether a signal has come."""
        return self._received is not None

    def check(self) -> None:
        """Raises Stopped when a signal has come."""
        if self.requested:
            raise Stopped

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._restore()
        if self._received is not None:
            signal.raise_signal(self._received)
