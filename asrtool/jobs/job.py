"""Submit a command that trains at the place that the settings choose."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.settings.config import Config
from asrtool.train.inputs import FINAL

NAME = "name"  # file that holds the name of the last job


@dataclass(frozen=True)
class TrainingJob:
    """A command line that trains in the folder `out`."""

    argv: Sequence[str]  # without `asrtool`
    out: Path
    survives: bool  # True if its learners train on without lost ones

    @property
    def folder(self) -> Path:
        """Folder of scripts and logs, beside `out`."""
        return job_folder(self.out)

    @property
    def job_argv(self) -> list[str]:
        """Command line of the job, which trains where it runs."""
        return ["asrtool", *self.argv, "--set", "launch.place=local"]


class Cluster(Protocol):
    """Cluster that runs a job: a place made of its settings and the job."""

    def text(self) -> str:
        """Return the text that `submit` submits, which users can submit as well."""

    def submit(self) -> str:
        """Submit the job and return its name."""

    def is_running(self, name: str) -> bool:
        """Return whether a job waits or runs."""

    def follow(self, name: str) -> None:
        """Copy the log of a job to standard error until the job has ended."""

    def describe_end(self, name: str) -> str:
        """Describe the end of a job."""

    def command_to_end(self, name: str) -> str:
        """Return the command line that ends a job."""


def job_folder(out: Path) -> Path:
    """Return the folder of scripts and logs of the jobs that make `out`."""
    return out.with_name(f"{out.name}.job")


def submit_and_follow(config: Config, out: Path, dry_run: bool) -> bool:
    """Run this process's command line at launch.place; return False if that is here.

    A job of this training that runs is followed, instead of submitting another one. A `dry_run` prints what would be
    submitted. Raises AsrtoolError as the cluster, if a `dry_run` has nothing to print, and if the job ends without a
    finished training.
    """
    place = config.launch.place
    if dry_run and place.name == "local":
        raise AsrtoolError("--dry-run: launch.place is local, where no job is submitted", "add --launch slurm")
    job = TrainingJob(without_launch_options(sys.argv[1:]), out, config.distributed.survives)
    cluster: Cluster | None = place.load()(place.settings, job)
    if cluster is None:
        return False
    if dry_run:
        print(cluster.text(), end="")
        return True
    last = job.folder / NAME
    name = last.read_text(encoding="utf-8") if last.exists() else ""
    if name and cluster.is_running(name):
        logging.info("job %s of this training runs: its log follows", name)
    else:
        name = cluster.submit()
        write_text(last, name)
        logging.info("submitted job %s, see %s", name, job.folder)
    try:
        cluster.follow(name)
    except (KeyboardInterrupt, SystemExit):
        how = cluster.command_to_end(name)
        logging.info("job %s continues: the same command follows it again, `%s` ends it", name, how)
        raise
    if not (job.out / FINAL).exists():
        what = f"job {name} ended ({cluster.describe_end(name)}) before the training, see {job.folder}"
        raise AsrtoolError(what, "run the same command again: it resumes")
    return True


def no_cluster(settings: Any, job: TrainingJob) -> None:
    """The place `local`, which leaves the training to the command."""


def without_launch_options(argv: Sequence[str]) -> list[str]:
    """Return a command line without the options that choose the place."""
    left, rest = [], iter(argv)
    for word in rest:
        if word == "--launch":
            next(rest, None)
        elif not (word.startswith("--launch=") or word == "--dry-run"):
            left.append(word)
    return left
