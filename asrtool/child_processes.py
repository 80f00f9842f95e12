"""Child processes that end with their parent, and signals that stop both."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # prctl(2)
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def fork_child() -> int:
    """Fork; returns 0 in the child, which ends with this process.

    Here STOP_SIGNALS are blocked until `on_stop`.
    """
    sys.stdout.flush()
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # here, until it is known what to do with the child
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        end_with(parent)
    return child


def on_stop(act: Callable[[int], object] | signal.Handlers) -> None:
    """Set the handler of the signals that ask to stop, except ignored ones."""
    handler = (lambda number, _: act(number)) if callable(act) else act
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def ending_with_parent() -> Callable[[], None] | None:
    """Return a function for a child that has it ended when its parent is killed.

    If the parent is already gone, the child ends there. None if the kernel cannot do so. Called before the fork,
    since a child must load nothing after it.
    """
    ask, parent = _death_signal_setter(), os.getpid()
    if ask is None:
        return None

    def end() -> None:
        ask()
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return end


def end_with(parent: int) -> None:
    """End this process with `parent`, which started it; exits if it is already gone."""
    if ask := _death_signal_setter():
        ask()
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


def name_process(name: str) -> None:
    """Set the name of this process in `ps -o comm` and `top`, 15 characters at most."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


def _death_signal_setter() -> Callable[[], object] | None:
    """Return a function that requests SIGTERM when the parent is killed, or None."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
