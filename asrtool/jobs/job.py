"""Submit a command that trains at the place that the settings choose."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.settings.config import Config


@dataclass(frozen=True)
class TrainingJob:
    """A command line that trains in the folder `out`."""

    words: Sequence[str]  # of the command, without `asrtool`
    out: Path
    survives: bool  # whether its learners train on without lost ones
    dry_run: bool = False  # whether the place prints what it would submit, and submits nothing

    @property
    def folder(self) -> Path:
        """Folder of scripts and logs, beside `out`."""
        return job_folder(self.out)

    @property
    def words_there(self) -> list[str]:
        """The command line of the job, which trains where it runs."""
        return ["asrtool", *self.words, "--set", "launch.place=local"]


def job_folder(out: Path) -> Path:
    """Return the folder of scripts and logs of the jobs that make `out`."""
    return out.with_name(f"{out.name}.job")


def train_elsewhere(config: Config, out: Path, dry_run: bool) -> bool:
    """Run this process's command line at launch.place; return False if that is here.

    Raises AsrtoolError as that place, and if a `dry_run` has nothing to print.
    """
    place = config.launch.place
    if dry_run and place.name == "local":
        raise AsrtoolError("--dry-run: launch.place is local, where no job is submitted", "add --launch slurm")
    job = TrainingJob(words_of(sys.argv[1:]), out, config.distributed.survives, dry_run)
    found: bool = place.load()(place.settings, job)
    return found


def train_here(settings: Any, job: TrainingJob) -> bool:
    """The place `local`, which leaves the training to the command."""
    return False


def words_of(arguments: Sequence[str]) -> list[str]:
    """Return a command line without the options that choose the place."""
    left, words = [], iter(arguments)
    for word in words:
        if word == "--launch":
            next(words, None)
        elif not (word.startswith("--launch=") or word == "--dry-run"):
            left.append(word)
    return left
