"""Train as a job of Slurm: its script, its submission, and its log.

A job has a task of `srun` for each learner, without torchrun: learners of a strategy that survives losses then train
on when a node dies. The folder OUT.job has the script `job.sh`, the number of the last job in `number`, and the log
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
SCRIPT, NUMBER = "job.sh", "number"
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


def train_by_slurm(settings: Slurm, job: TrainingJob) -> bool:
    """Submit the training and follow its log to the end, or follow a job that runs.

    With `job.dry_run` print the script. Raises AsrtoolError if Slurm is not there or refuses the job, and if the job
    ends without a finished training.
    """
    script = format_script(settings, job)
    if job.dry_run:
        print(script, end="")
        return True
    if not shutil.which("sbatch"):
        raise AsrtoolError("launch.place is slurm, and there is no sbatch here", "run it where jobs are submitted")
    number = _running(job.folder)
    if number:
        logging.info("job %s of this training runs: its log follows", number)
    else:
        number = _submit(script, job.folder)
        logging.info("submitted job %s, see %s", number, job.folder)
    try:
        _follow(number, job.folder / f"{number}.log")
    except (KeyboardInterrupt, SystemExit):
        logging.info("job %s continues: the same command follows it again, `scancel %s` ends it", number, number)
        raise
    if not (job.out / FINAL).exists():
        what = f"job {number} ended ({_describe_end(number)}) before the training, see {job.folder / number}.log"
        raise AsrtoolError(what, "run the same command again: it resumes")
    return True


def format_script(settings: Slurm, job: TrainingJob) -> str:
    """Return the script of the job."""
    options = [
        f"--job-name=asrtool-{job.out.name}",
        f"--nodes={settings.nodes}",
        f"--ntasks-per-node={settings.num_tasks_per_node}",
        f"--cpus-per-task={settings.cpus_per_learner}",
        *([f"--gpus-per-node={settings.gpus_per_node}"] if settings.gpus_per_node else []),
        *_place(settings),
        f"--output={job.folder.absolute()}/%j.log",
        "--open-mode=append",
        f"--signal=TERM@{settings.stop_before_s}",
        "--requeue",
        *(["--no-kill"] if job.survives else []),
        *settings.options,
    ]
    # Learners see for themselves that one is lost, and end or train on; srun would end them while they save.
    keeps = ["--wait=0", "--kill-on-bad-exit=0", *(["--no-kill"] if job.survives else [])]
    return TEMPLATE.format(
        directives="\n".join(f"#SBATCH {option}" for option in options),
        folder=shlex.quote(str(Path.cwd())),
        setup="\n".join(settings.setup),
        options=" ".join(keeps),
        command=shlex.join([str(_executable()), *job.words_there[1:]]),
        stopped=STOPPED,
        final=shlex.quote(str(job.out.absolute() / FINAL)),
    )


def _place(settings: Slurm) -> Iterator[str]:
    """Yield the options of sbatch that say where a job runs, and for how long."""
    values = {
        "partition": settings.partition,
        "account": settings.account,
        "time": settings.time,
        "mem-per-cpu": settings.memory_per_cpu,
    }
    return (f"--{name}={value}" for name, value in values.items() if value)


def _executable() -> Path:
    """Return the command `asrtool` of this Python, which the nodes need as well."""
    return Path(sys.executable).with_name("asrtool")


def _submit(script: str, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / SCRIPT, script)
    found = SUBMITTED.fullmatch(_slurm("sbatch", "--parsable", str(folder / SCRIPT)))
    assert found, "expected the number of the job"
    write_text(folder / NUMBER, found[1])
    return found[1]


def _running(folder: Path) -> str:
    """Return the number of the last job if it waits or runs, else ''."""
    if not (folder / NUMBER).exists():
        return ""
    number = (folder / NUMBER).read_text(encoding="utf-8")
    return "" if _state(number) in ENDED else number


def _follow(number: str, log: Path) -> None:
    """Copy the log of a job to standard error until the job has ended."""
    begin, state = log.stat().st_size if log.exists() else 0, ""
    while True:
        before, state = state, _state(number)
        if state == "PENDING" != before:
            logging.info("job %s waits for its nodes", number)
        begin = _copy(log, begin)
        if state in ENDED:
            return
        time.sleep(POLL_S)


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


def _state(number: str) -> str:
    """Return the state of a job as Slurm names it; '' if Slurm has forgotten it."""
    done = subprocess.run(
        ["squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T"], capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _describe_end(number: str) -> str:
    done = subprocess.run(["scontrol", "show", "job", number], capture_output=True, text=True)
    found = dict(pair.partition("=")[::2] for pair in done.stdout.split())
    return (
        ", ".join(f"{name} {found[name]}" for name in ("JobState", "Reason", "ExitCode") if name in found) or "unknown"
    )


def _slurm(*words: str) -> str:
    """Return the output of a command of Slurm; AsrtoolError if it fails."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        message = done.stderr.strip().replace("\n", "; ")
        raise AsrtoolError(f"{words[0]} failed: {message}", "correct [launch.slurm], see docs/guide/slurm.md")
    return done.stdout
