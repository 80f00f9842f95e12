"""Jobs of Slurm that compute features and decode, as workers of Dask."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError, require
from asrtool.jobs.job import job_folder
from asrtool.jobs.slurm import ENDED, state_of
from asrtool.settings.config import Config
from asrtool.settings.launch import Slurm
from asrtool.settings.schema import DASK

POLL_S, LOOK_S = 0.5, 5.0
MAX_LOST = 3  # jobs that may end before they become workers
LOCAL = "local"


@contextlib.contextmanager
def with_workers(config: Config, out: Path) -> Iterator[Config]:
    """Yield `config` with the executors that launch.place has, if it has workers.

    An executor that is named goes first. Logs of the jobs are in the folder OUT.job. Raises AsrtoolError as
    `slurm_workers`.
    """
    settings = config.launch.place.settings
    if not getattr(settings, "workers", 0) or {config.features.executor, config.decode.executor} != {LOCAL}:
        yield config
        return
    with slurm_workers(settings, job_folder(out)) as address:
        yield dataclasses.replace(
            config,
            features=dataclasses.replace(config.features, executor=f"{DASK}{address}"),
            decode=dataclasses.replace(config.decode, executor=f"{DASK}{address}"),
        )


@contextlib.contextmanager
def slurm_workers(settings: Slurm, logs: Path) -> Iterator[str]:
    """Yield the address of a Dask scheduler whose workers are jobs of Slurm.

    There are `settings.workers` at most, fewer for little work. A job that is killed is replaced. Waits for the first
    one, however long the queue is. Raises AsrtoolError if a package is missing or Slurm refuses the jobs.
    """
    require("dask_jobqueue", "launch.slurm.workers", "pip install 'asrtool[slurm]', or set launch.slurm.workers=0")
    from dask_jobqueue.slurm import SLURMCluster

    options: dict[str, Any] = {
        "queue": settings.partition or None,
        "account": settings.account or None,
        "walltime": settings.time or None,
        "job_mem": settings.memory_per_cpu or None,
        "job_extra_directives": [*settings.options, "--requeue"],
        "job_script_prologue": list(settings.setup),
        "job_directives_skip": [*([] if settings.memory_per_cpu else ["--mem"]), *([] if settings.time else ["-t "])],
        "log_directory": str(logs),
        "python": sys.executable,
        "worker_extra_args": ["--no-dashboard", "--memory-limit", "0"],
        "scheduler_options": {"dashboard_address": None},
    }
    logging.getLogger("distributed").setLevel(logging.WARNING)
    with SLURMCluster(cores=1, processes=1, memory="1GB", name="asrtool", **options) as cluster:
        cluster.adapt(minimum=1, maximum=settings.workers)
        wait_for_worker(cluster, logs)
        yield cluster.scheduler_address


def wait_for_worker(cluster: Any, logs: Path) -> None:
    """Wait for the first worker; replace jobs that end before it, unseen by Dask."""
    looked, lost, why = time.monotonic(), [], "Slurm has not found a place for the first job"
    while not cluster.scheduler_info["workers"]:
        time.sleep(POLL_S)
        if time.monotonic() - looked < LOOK_S:
            continue
        looked = time.monotonic()
        if ended := [name for name, job in cluster.workers.items() if state_of(job.job_id) in ENDED]:
            lost += [cluster.workers.pop(name).job_id for name in ended]
            why = f"job {lost[-1]} has ended, see {logs}"
            cluster.scale(len(cluster.worker_spec))
        if len(lost) > MAX_LOST:
            what = f"jobs {', '.join(lost)} of Slurm ended before they were workers, see {logs}"
            raise AsrtoolError(what, "correct [launch.slurm], for example setup and memory_per_cpu")
        if why:
            logging.info("no worker has begun yet: %s", why)
            why = ""
