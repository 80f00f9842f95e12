"""A Dask scheduler and two workers as processes of this machine, for tests."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from warm import start_script

ROOT = Path(__file__).resolve().parents[1]
DASK = "import sys; from dask.__main__ import main; sys.argv = {words}; main()"

DISTRIBUTED = importlib.util.find_spec("distributed")  # without a file it is but the folder tests/unit/distributed

needs_dask = pytest.mark.skipif(
    DISTRIBUTED is None or DISTRIBUTED.origin is None,
    reason="distributed is not installed: pip install 'asrtool[dask]'",
)


@dataclass(frozen=True)
class Cluster:
    """A scheduler and workers, as processes of this machine."""

    address: str
    processes: Sequence[ForkServerProcess]


@contextlib.contextmanager
def running_cluster(folder: Path, threads: int = 1) -> Iterator[Cluster]:
    """Have both workers until the end."""
    from distributed import Client

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"}
    options = ["--no-dashboard", "--local-directory", str(folder), "--no-nanny", "--nthreads", str(threads)]
    commands = [["scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]]
    commands += [["worker", address, *options]] * 2
    null = [Path(os.devnull)] * 2
    processes = [start_script(DASK.format(words=["dask", *words]), null, env) for words in commands]
    try:
        with Client(address, timeout=120, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
        yield Cluster(address, processes)
    finally:
        for process in reversed(processes):
            process.kill()
            process.join()
