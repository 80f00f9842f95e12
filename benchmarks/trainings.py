"""Run commands of asrtool for benchmarks, and read records of finished trainings."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from hosts import Host

LEARNERS_PER_HOST = 2
PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h
Record = Mapping[str, Any]  # a line of learners/R.jsonl


def python(*words: object) -> str:
    """Run Python and return its output; exit with its standard error if it fails."""
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def asrtool(*words: object) -> str:
    """Run a command of asrtool and return its standard output."""
    return python("-c", "from asrtool.cli.main import main; main()", *words)


@dataclass(frozen=True)
class Run:
    """Costs of a run of a command, and what it printed."""

    cpu_s: float  # of it and of all processes that it started
    peak_gib: float  # of the largest process; at least this one's
    began: float  # seconds since 1970
    text: str

    def found(self) -> dict[str, float | str]:
        """Return the JSON of its last line, {} where it has no JSON."""
        last = self.text.strip().rpartition("\n")[2]
        found: dict[str, float | str] = json.loads(last) if last.startswith("{") else {}
        return found


def run(command: Sequence[object], folder: Path) -> Run:
    """Run a command in a folder; exit with what it wrote if it fails."""
    # Processes of a fork server become children of this one when the command ends, so that their costs count.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    began = time.time()
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen([*map(str, command)], cwd=folder, stdout=out, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
    usages = [usage]
    with contextlib.suppress(ChildProcessError):
        while True:
            usages.append(os.wait4(-1, 0)[2])
    process.returncode = os.waitstatus_to_exitcode(status)  # Popen would wait once more
    if process.returncode:
        sys.exit(f"error: {' '.join(map(str, command))}\n{(folder / 'stderr').read_text(errors='replace')[-2000:]}")
    text = (folder / "stdout").read_text(encoding="utf-8", errors="replace")
    cpu_s = sum(one.ru_utime + one.ru_stime for one in usages)
    return Run(cpu_s, max(one.ru_maxrss for one in usages) / 2**20, began, text)


def options_of(settings: Iterable[str]) -> list[str]:
    """Return the command-line options that set `settings`, each KEY=VALUE."""
    return [word for setting in settings for word in ("--set", setting)]


@dataclass(frozen=True)
class Trainings:
    """Trainings of the model and data of a demo, each in a folder below `work`."""

    exp: Path
    work: Path
    settings: tuple[str, ...]
    hosts: Sequence[Host] = ()  # each with LEARNERS_PER_HOST; none is this machine

    def train(self, strategy: str, num_learners: int, *options: str, sets: Sequence[str] = ()) -> Path:
        """Run `asrtool train` unless it has finished; return its OUT."""
        name = "-".join([strategy, str(num_learners), *options, *sets]).translate({58: "_", 47: "_"})
        out = self.work / name
        if not (out / "train.json").exists():
            shutil.rmtree(out, ignore_errors=True)
            words = ["--strategy", strategy, "--num-learners", num_learners, *options]
            words += ["--config", self.exp / "config" / "train.toml", *options_of([*self.settings, *sets])]
            words = ["train", self.exp / "features", self.exp / "tokenizer", out, *words]
            if self.hosts and num_learners > 1:
                self._train_on_hosts(num_learners, words)
            else:
                asrtool(*words)
        return out

    def _train_on_hosts(self, num_learners: int, words: Sequence[object]) -> None:
        num_local = min(LEARNERS_PER_HOST, num_learners)
        num_hosts = num_learners // num_local
        launch = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--rdzv-backend=c10d"]
        launch += [f"--rdzv-endpoint={self.hosts[0].name}:29500", f"--nnodes={num_hosts}"]
        launch += [f"--nproc-per-node={num_local}", str(Path(sys.executable).with_name("asrtool")), *map(str, words)]
        with contextlib.ExitStack() as stack:
            running = [
                stack.enter_context(subprocess.Popen(host.command(launch), stderr=subprocess.PIPE, text=True))
                for host in self.hosts[:num_hosts]
            ]
            for process in running:
                _, log = process.communicate()
                if process.returncode:
                    sys.exit(log)


def records(out: Path) -> list[list[Record]]:
    """Return the steps of each learner."""
    paths = sorted(out.glob("learners/*.jsonl"), key=lambda path: int(path.stem))
    return [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in paths]


def end(step: Record) -> float:
    """Return when the step ended, in seconds since 1970."""
    return float(step["begin"] + step["compute_s"] + step["comm_s"] + step["wait_s"])


def final(out: Path) -> dict[str, Any]:
    """Read train.json."""
    found: dict[str, Any] = json.loads((out / "train.json").read_text(encoding="utf-8"))
    return found
