"""Run `asrtool ARGUMENTS` or a script, and write what it took to a file: CPU seconds and peak memory.

python benchmarks/usage.py REPORT asrtool prepare fisher CORPUS OUT
python benchmarks/usage.py REPORT benchmarks/index.py --learner FOLDER
"""

from __future__ import annotations

import atexit
import json
import resource
import runpy
import sys
import time
from pathlib import Path


def main() -> None:
    report, *command = sys.argv[1:]
    # What is registered first is called last, so the process pools have been waited for.
    atexit.register(write_report, Path(report), time.monotonic())
    sys.argv = command
    if command[0] == "asrtool":
        from asrtool.cli.main import main as run_command

        run_command()
    else:
        runpy.run_path(command[0], run_name="__main__")


def write_report(path: Path, begin: float) -> None:
    """Of this process and of its children that have ended: `maxrss` is of the largest of these."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    report = {
        "wall_s": time.monotonic() - begin,
        "cpu_s": own.ru_utime + own.ru_stime,
        "children_cpu_s": children.ru_utime + children.ru_stime,
        "peak_gib": peak_gib(),
        "children_peak_gib": children.ru_maxrss / 2**20,
    }
    path.write_text(json.dumps(report), encoding="utf-8")


def peak_gib() -> float:
    """Of this process; its own `maxrss` would have the memory of the process that started it as a floor."""
    rows = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmHWM")) / 2**20


if __name__ == "__main__":
    main()
