"""How a learner starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from asrtool.distributed.launch import START


@pytest.mark.parametrize(("ignored", "code"), [(False, -signal.SIGINT), (True, 0)])
def test_ctrl_c_while_a_learner_starts_ends_it_without_a_traceback(ignored: bool, code: int) -> None:
    """Unless it is to be ignored, as a shell has it for what runs in the background."""
    interrupted = START.format(parent=os.getpid()).replace("main()", "signal.raise_signal(signal.SIGINT)")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else signal.getsignal(signal.SIGINT)
    try:
        ended = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ended.returncode, ended.stderr) == (code, "")
