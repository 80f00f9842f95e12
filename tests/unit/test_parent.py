"""Processes that end with their parent."""

from __future__ import annotations

import subprocess
import sys

import pytest

STARTS_ONE_LATE = """
import os, subprocess, sys, time
from asrtool.child_processes import ending_with_parent
end, parent = ending_with_parent(), os.getpid()

def late():
    os.write(1, b"forked\\n")
    while os.getppid() == parent:
        time.sleep(0.01)
    end()

subprocess.run([sys.executable, "-c", "print('continued')"], preexec_fn=late)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends a child with its parent")
def test_a_child_whose_parent_is_killed_before_it_asks_to_end_with_it_ends_too() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_ONE_LATE], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "forked\n"
        parent.kill()
        assert parent.stdout.read() == ""
