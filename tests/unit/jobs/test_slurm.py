"""Trainings as jobs of Slurm: their scripts, and what becomes of them in a real Slurm of six nodes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import error_of
from rendezvous import ENDED_S, wait_until
from slurm_cluster import kill_node, needs_slurm, private_slurm
from toy_task import TOY_CONFIG, assert_trained_once, write_toy

from asrtool.errors import AsrtoolError
from asrtool.jobs import workers
from asrtool.jobs.job import TrainingJob, without_launch_options
from asrtool.jobs.slurm import format_script
from asrtool.settings.launch import Slurm

ASRTOOL = Path(sys.executable).with_name("asrtool")
ROOT = Path(__file__).resolve().parents[3]
ON_TWO_NODES = ("--launch", "slurm", "--set", "launch.slurm.nodes=2")
Start = Callable[..., subprocess.Popen[str]]


def test_a_partition_is_all_that_a_script_needs(tmp_path: Path) -> None:
    script = format_script(Slurm(partition="gpu"), TrainingJob(["train", "a b", "out"], tmp_path / "out", False))
    options = re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)
    assert options == [
        "--job-name=asrtool-out", "--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=1", "--partition=gpu",
        f"--output={tmp_path}/out.job/%j.log", "--open-mode=append", "--signal=TERM@120", "--requeue",
    ]  # fmt: skip
    assert f"srun --wait=0 --kill-on-bad-exit=0 {ASRTOOL} train 'a b' out --set launch.place=local\n" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0


def test_settings_become_options_of_sbatch_and_lines_before_the_command(tmp_path: Path) -> None:
    settings = Slurm(
        account="speech", time="24:00:00", nodes=4, gpus_per_node=8, cpus_per_learner=6, memory_per_cpu="4G",
        stop_before_s=300, options=("--constraint=v100",), setup=("module load cuda",),
    )  # fmt: skip
    script = format_script(settings, TrainingJob(["train"], tmp_path / "out", survives=True))
    options = ("nodes=4", "ntasks-per-node=8", "gpus-per-node=8", "cpus-per-task=6", "account=speech", "time=24:00:00")
    for option in (*options, "mem-per-cpu=4G", "signal=TERM@300", "no-kill", "constraint=v100"):
        assert f"#SBATCH --{option}\n" in script
    assert "\nmodule load cuda\nsrun --wait=0 --kill-on-bad-exit=0 --no-kill " in script


def test_the_job_gets_the_command_without_the_options_that_choose_the_place() -> None:
    words = ["train", "f", "--launch", "slurm", "--strategy", "bmuf", "--dry-run", "--launch=slurm"]
    assert without_launch_options(words) == ["train", "f", "--strategy", "bmuf"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dry-run"], "launch.place is local, where no job is submitted; add --launch slurm"),
        (["--launch", "slrm"], "unknown place 'slrm', expected one of local, slurm"),
        (["--launch", "slurm", "--set", "launch.slurm.nodes=0"], "launch.slurm.nodes is 0, expected 1 or more"),
    ],
)
def test_a_place_without_sense_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    assert message in str(error_of("train", "features", "tokenizer", tmp_path / "out", *words))
    assert not list(tmp_path.iterdir())


class EndingJobs:
    """Stand-in of a SLURMCluster: each job that Dask asks for ends before it is a worker."""

    def __init__(self) -> None:
        self.numbers = itertools.count(7)
        self.worker_spec, self.scheduler_info = {"asrtool-0": None}, {"workers": {}}
        self.workers = {"asrtool-0": SimpleNamespace(job_id="6")}

    def scale(self, num: int) -> None:
        assert (num, self.workers) == (1, {})
        self.workers = {"asrtool-0": SimpleNamespace(job_id=str(next(self.numbers)))}


def test_workers_that_end_again_and_again_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "POLL_S", 0)
    monkeypatch.setattr(workers, "LOOK_S", 0)
    monkeypatch.setattr(workers, "state_of", lambda _: "FAILED")
    with pytest.raises(
        AsrtoolError, match=rf"jobs 6, 7, 8, 9 of Slurm ended .*, see {tmp_path}; correct \[launch.slurm\]"
    ):
        workers.wait_for_worker(EndingJobs(), tmp_path)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `features` of some 430 batches in three epochs, and `tokenizer`."""
    root = write_toy(tmp_path_factory.mktemp("data"), 240, 6)
    config = TOY_CONFIG.replace("batch_s = 1.5", "batch_s = 0.9").replace("log_every_steps = 2", "log_every_steps = 20")
    (root / "toy.toml").write_text(config)
    return root


@pytest.fixture
def start(data: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a command by Slurm on two nodes, by default one that trains in `tmp_path`/NAME/out."""
    with contextlib.ExitStack() as stack:

        def begin(name: str, *words: object) -> subprocess.Popen[str]:
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            if words[0] != "run":
                toy = (data / "features", data / "tokenizer", folder / "out", "--config", data / "toy.toml")
                words = ("train", *toy, *words)
            log = stack.enter_context(open(folder / "log", "a"))
            line = [str(word) for word in (ASRTOOL, *words, *ON_TWO_NODES, "--set", f"launch.slurm.partition={name}")]
            process = stack.enter_context(subprocess.Popen(line, stdout=log, stderr=log, text=True, cwd=ROOT))
            stack.callback(process.kill)
            return process

        yield begin


def wait_for(log: Path, text: str, times: int = 1) -> None:
    wait_until(lambda: log.exists() and log.read_text().count(text) >= times, lambda: log.exists() and log.read_text())


def signal_job(folder: Path, *options: str) -> None:
    """Send a signal to the job that trains in `folder`, or end it."""
    number = folder.with_name(f"{folder.name}.job") / "name"
    subprocess.run(["scancel", *options, number.read_text()], check=True)


def be_preempted(start: Start, folder: Path) -> None:
    process = start("spare", "--strategy", "allreduce", "--compute-ms", 50)
    wait_for(folder / "log", "epoch 1/3: loss on dev")
    other = ["sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"]
    subprocess.run(other, check=True, capture_output=True)
    wait_for(folder / "log", "asked to stop (SIGTERM): saving a checkpoint")
    assert process.wait(ENDED_S) == 0, (folder / "log").read_text()
    assert "resuming after step" in (folder / "log").read_text()
    assert assert_trained_once(folder / "out", 3 * 240)["num_learners"] == 2


def lose_a_node(slurm: Path, start: Start, folder: Path) -> None:
    """After a cancelled job, which the same command resumes. Nobody waits for the node, in the same job."""
    words = ("--strategy", "h-adpsgd", "--compute-ms", 200, "--set", "distributed.timeout_s=8", "--set")
    start_again = functools.partial(start, "mortal", *words, "launch.slurm.learners_per_node=2")
    process, log = start_again(), folder / "log"
    wait_for(log, "epoch 1/3: loss on dev")
    signal_job(folder / "out")
    assert process.wait(ENDED_S) == 1
    assert re.search(r"error: job \d+ ended .*CANCELLED.* before the training.*resumes", log.read_text())
    assert list((folder / "out" / "checkpoints").glob("step-????????.pt"))
    assert "Traceback" not in log.read_text()

    num_reports = log.read_text().count("frames/s")
    process = start_again()
    wait_for(log, "resuming after step")
    wait_for(log, "frames/s", num_reports + 1)
    kill_node(slurm, "n4")
    process.send_signal(signal.SIGINT)
    assert process.wait(ENDED_S) == 130
    assert "continues: the same command follows it again" in log.read_text()
    process = start_again()
    wait_for(log, "of this training runs: its log follows")
    assert process.wait(ENDED_S) == 0, log.read_text()
    assert set(assert_trained_once(folder / "out", 3 * 240)["lost"]) == {"2", "3"}  # type: ignore[call-overload]


def run_recipe(start: Start, folder: Path) -> None:
    """The first worker is killed before it has begun; the training reaches a time limit twice."""
    work, settings = folder / "work", ("launch.slurm.workers=2", "distributed.strategy=adpsgd-random")
    more = [word for one in (*settings, "decode.methods=greedy", "train.num_epochs=60") for word in ("--set", one)]
    process = start("main", "run", "--config", "ci", "--stop-stage", "score", "--work", work, *more)
    find_workers = ["squeue", "--noheader", "--partition=main", "--states=running", "--format=%i"]
    wait_until(lambda: subprocess.run(find_workers, capture_output=True).stdout)
    subprocess.run(["scancel", "--full", "--signal=KILL", "--partition=main", "--user", str(os.getuid())], check=True)
    name = work / "train.job" / "name"
    wait_until(name.exists)
    log = name.with_name(f"{name.read_text()}.log")
    for times in (1, 2):
        wait_for(log, "loss on dev", log.read_text().count("loss on dev") + 1 if log.exists() else 1)
        signal_job(work / "train", "--signal=USR2")
        wait_for(log, "resuming after step", times)
    assert process.wait(ENDED_S) == 0, (folder / "log").read_text()
    assert assert_trained_once(work / "train", 60 * 48)["num_learners"] == 2
    assert (work / "decode" / "hub5" / "greedy.ctm").exists()
    said = (work / "logs" / "02-features.log").read_text()
    assert re.search(r"no worker has begun yet: job \d+ has ended", said)
    assert len(said.splitlines()) < 16  # Dask says nothing of its own


@pytest.mark.slow
@needs_slurm
def test_trainings_and_a_recipe_go_on_whatever_ends_their_jobs(start: Start, tmp_path: Path) -> None:
    """All at the same time, since each waits for Slurm most of its own."""
    with private_slurm(tmp_path / "slurm") as slurm, ThreadPoolExecutor() as pool:
        cases = {"main": run_recipe, "mortal": functools.partial(lose_a_node, slurm), "spare": be_preempted}
        for one in [pool.submit(case, start, tmp_path / name) for name, case in cases.items()]:
            one.result()
