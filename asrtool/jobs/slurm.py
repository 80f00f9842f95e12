"""Train as a job of Slurm: its script, its submission, and its log.

A job has a task of `srun` for each learner, without torchrun: learners of a strategy that survives losses then train
on when a node dies. The folder OUT.job has the script `job.sh`, the number of the last job in `name`, and the log
`NUMBER.log` of each.
"""

from __future__ import annotations

import logging
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.jobs.job import TrainingJob
from asrtool.settings.launch import Slurm
from asrtool.train.inputs import FINAL

POLL_S = 2.0
STOPPED = 143  # exit code of srun after SIGTERM, by which learners saved a checkpoint
# States of a job that has ended; empty: Slurm has forgotten it.
ENDED = ("", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")
SCRIPT = "job.sh"
SUBMITTED = re.compile(r"(\d+)(;.*)?\s*")

TEMPLATE = """\
#!/bin/bash
{directives}
# Made by asrtool. To change it: edit a copy, then `sbatch COPY`.
cd {folder}
{setup}
srun {options} {command}
code=$?
# Stopped by the time limit, not by scancel, which ends this script as well: the requeued job resumes it.
if [ $code -eq {stopped} ] && [ ! -e {final} ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
"""


@dataclass(frozen=True)
class SlurmCluster:
    """Slurm of this machine, for a job.

    Raises AsrtoolError if it is not there or refuses the job.
    """

    settings: Slurm
    job: TrainingJob

    def text(self) -> str:
        """Return the script of sbatch."""
        return format_script(self.settings, self.job)

    def submit(self) -> str:
        """Submit the script and return the number of the job."""
        if not shutil.which("sbatch"):
            raise AsrtoolError("launch.place is slurm, and there is no sbatch here", "run it where jobs are submitted")
        script = self.job.folder / SCRIPT
        script.parent.mkdir(parents=True, exist_ok=True)
        write_text(script, self.text())
        found = SUBMITTED.fullmatch(_slurm("sbatch", "--parsable", str(script)))
        assert found, "expected the number of the job"
        return found[1]

    def is_running(self, name: str) -> bool:
        """Return whether a job waits or runs."""
        return state_of(name) not in ENDED

    def follow(self, name: str) -> None:
        """Copy the log of a job to standard error until the job has ended."""
        log = self.job.folder / f"{name}.log"
        begin, state = log.stat().st_size if log.exists() else 0, ""
        while True:
            before, state = state, state_of(name)
            if state == "PENDING" != before:
                logging.info("job %s waits for its nodes", name)
            begin = _copy(log, begin)
            if state in ENDED:
                return
            time.sleep(POLL_S)

    def describe_end(self, name: str) -> str:
        """Describe the end of a job, as scontrol does."""
        done = subprocess.run(["scontrol", "show", "job", name], capture_output=True, text=True)
        found = dict(pair.partition("=")[::2] for pair in done.stdout.split())
        said = (f"{key} {found[key]}" for key in ("JobState", "Reason", "ExitCode") if key in found)
        return ", ".join(said) or "unknown"

    def command_to_end(self, name: str) -> str:
        """Return the command line that ends a job."""
        return f"scancel {name}"


def format_script(settings: Slurm, job: TrainingJob) -> str:
    """Return the script of the job."""
    options = [
        f"--job-name=asrtool-{job.out.name}",
        f"--nodes={settings.nodes}",
        f"--ntasks-per-node={settings.num_learners_per_node}",
        f"--cpus-per-task={settings.cpus_per_learner}",
        *([f"--gpus-per-node={settings.gpus_per_node}"] if settings.gpus_per_node else []),
        *_sbatch_options(settings),
        f"--output={job.folder.absolute()}/%j.log",
        "--open-mode=append",
        f"--signal=TERM@{settings.stop_before_s}",
        "--requeue",
        *(["--no-kill"] if job.survives else []),
        *settings.options,
    ]
    asrtool = Path(sys.executable).with_name("asrtool")  # of this Python, which the nodes need as well
    # Learners see for themselves that one is lost, and end or train on; srun would end them while they save.
    keeps = ["--wait=0", "--kill-on-bad-exit=0", *(["--no-kill"] if job.survives else [])]
    return TEMPLATE.format(
        directives="\n".join(f"#SBATCH {option}" for option in options),
        folder=shlex.quote(str(Path.cwd())),
        setup="\n".join(settings.setup),
        options=" ".join(keeps),
        command=shlex.join([str(asrtool), *job.job_argv[1:]]),
        stopped=STOPPED,
        final=shlex.quote(str(job.out.absolute() / FINAL)),
    )


def _sbatch_options(settings: Slurm) -> Iterator[str]:
    """Yield the options of sbatch for place and limits of a job."""
    values = {
        "partition": settings.partition,
        "account": settings.account,
        "time": settings.time,
        "mem-per-cpu": settings.memory_per_cpu,
    }
    return (f"--{name}={value}" for name, value in values.items() if value)


def _copy(log: Path, begin: int) -> int:
    if not log.exists():
        return begin
    with open(log, "rb") as file:
        file.seek(begin)
        while chunk := file.read(1 << 16):
            sys.stderr.buffer.write(chunk)
            begin += len(chunk)
    sys.stderr.flush()
    return begin


def state_of(number: str) -> str:
    """Return the state of a job as Slurm names it; '' if Slurm has forgotten it."""
    done = subprocess.run(
        ["squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T"], capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _slurm(*argv: str) -> str:
    """Return the output of a command of Slurm; AsrtoolError if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        message = done.stderr.strip().replace("\n", "; ")
        raise AsrtoolError(f"{argv[0]} failed: {message}", "correct [launch.slurm], see docs/how-to/slurm.md")
    return done.stdout
