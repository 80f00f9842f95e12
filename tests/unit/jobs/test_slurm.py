"""Trainings as jobs of Slurm: their scripts, and what becomes of them in a real Slurm of three nodes."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rendezvous import ENDED_S
from slurm_cluster import kill_node, needs_slurm, private_slurm
from tones import write_corpus
from toy_task import TOY_CONFIG, assert_trained_once, write_toy

from asrtool.cli.main import cli
from asrtool.jobs.job import TrainingJob, words_of
from asrtool.jobs.slurm import format_script
from asrtool.settings.launch import Slurm

ASRTOOL = Path(sys.executable).with_name("asrtool")
NODES = ("--launch", "slurm", "--set", "launch.slurm.nodes=2", "--set")
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
    assert words_of(words) == ["train", "f", "--strategy", "bmuf"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dry-run"], "launch.place is local, where no job is submitted; add --launch slurm"),
        (["--launch", "slrm"], "unknown place 'slrm', expected one of local, slurm"),
        (["--launch", "slurm", "--set", "launch.slurm.nodes=0"], "launch.slurm.nodes is 0, expected 1 or more"),
    ],
)
def test_a_place_without_sense_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["train", "features", "tokenizer", str(tmp_path / "out"), *words])
    assert message in str(done.exception)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with private_slurm(tmp_path_factory.mktemp("slurm"), 3) as folder:
        yield folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `features` of some 430 batches in three epochs, and `tokenizer`."""
    root = write_toy(tmp_path_factory.mktemp("data"), 240, 6)
    config = TOY_CONFIG.replace("batch_s = 1.5", "batch_s = 0.9").replace("log_every_steps = 2", "log_every_steps = 20")
    (root / "toy.toml").write_text(config)
    return root


@pytest.fixture
def start(slurm: Path, data: Path, tmp_path: Path) -> Iterator[Start]:
    """Start the command of a training in a folder below `tmp_path` by Slurm, on two nodes."""
    with contextlib.ExitStack() as stack:

        def begin(name: str, strategy: str, num_learners_per_node: int, compute_ms: int) -> subprocess.Popen[str]:
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            words = [ASRTOOL, "train", data / "features", data / "tokenizer", folder / "out", "--config"]
            words += [data / "toy.toml", *NODES, f"launch.slurm.learners_per_node={num_learners_per_node}"]
            words += ["--strategy", strategy, "--compute-ms", compute_ms]
            log = stack.enter_context(open(folder / "log", "a"))
            process = stack.enter_context(subprocess.Popen([*map(str, words)], stderr=log, text=True, cwd=folder))
            stack.callback(process.kill)
            return process

        yield begin
        subprocess.run(["scancel", "--user", str(os.getuid())])


def wait_for(folder: Path, text: str, times: int = 1) -> None:
    until = time.monotonic() + ENDED_S
    while (folder / "log").read_text().count(text) < times:
        assert time.monotonic() < until, (folder / "log").read_text()
        time.sleep(0.2)


def number_of(folder: Path) -> str:
    return (folder / "out.job" / "name").read_text()


@pytest.mark.slow
@needs_slurm
def test_a_signal_of_the_time_limit_saves_and_the_job_goes_on_by_itself(start: Start, tmp_path: Path) -> None:
    """As Slurm sends it to the tasks, and not to the script. Both jobs have the same nodes at the same time."""
    signals = {"allreduce": "SIGTERM", "adpsgd-random": "SIGUSR1"}
    processes = {name: start(name, name, 1, 50) for name in signals}
    for name, signal_name in signals.items():
        wait_for(tmp_path / name, "epoch 1/3: loss on dev")
        subprocess.run(["scancel", f"--signal={signal_name}", number_of(tmp_path / name)], check=True)
    for name, process in processes.items():
        wait_for(tmp_path / name, "asked to stop (SIGTERM): saving a checkpoint")
        assert process.wait(ENDED_S) == 0, (tmp_path / name / "log").read_text()
        assert "resuming after step" in (tmp_path / name / "log").read_text()
        assert assert_trained_once(tmp_path / name / "out", 3 * 240)["num_learners"] == 2


@pytest.mark.slow
@needs_slurm
def test_a_cancelled_job_resumes_by_the_same_command_and_goes_on_without_a_node_that_dies(
    start: Start, slurm: Path, tmp_path: Path
) -> None:
    """Nobody waits for the node; its batches go to the others, in the same job, which a command follows again."""
    start_again = functools.partial(start, "training", "h-adpsgd", 2, 200)
    process, folder = start_again(), tmp_path / "training"
    wait_for(folder, "epoch 1/3: loss on dev")
    subprocess.run(["scancel", number_of(folder)], check=True)
    assert process.wait(ENDED_S) == 1
    assert re.search(r"error: job \d+ ended .*CANCELLED.* before the training.*resumes", (folder / "log").read_text())
    assert list((folder / "out" / "checkpoints").glob("step-????????.pt"))
    assert "Traceback" not in (folder / "log").read_text()

    num_reports = (folder / "log").read_text().count("frames/s")
    process = start_again()
    wait_for(folder, "resuming after step")
    wait_for(folder, "frames/s", num_reports + 1)
    nodes = subprocess.run(["squeue", "-h", "-o", "%N"], capture_output=True, text=True).stdout
    kill_node(slurm, f"n{re.findall(r'[0-9]', nodes)[-1]}")
    process.send_signal(signal.SIGINT)
    assert process.wait(ENDED_S) == 130
    assert "continues: the same command follows it again" in (folder / "log").read_text()
    process = start_again()
    wait_for(folder, "of this training runs: its log follows")
    assert process.wait(ENDED_S) == 0, (folder / "log").read_text()
    assert set(assert_trained_once(folder / "out", 3 * 240)["lost"]) == {"2", "3"}  # type: ignore[call-overload]


@pytest.mark.slow
@needs_slurm
def test_workers_that_are_jobs_compute_the_same_features(slurm: Path, tmp_path: Path) -> None:
    manifests = write_corpus(tmp_path, train=2)
    settings = ["--set", "features.speeds=[1.0]", "--set", "features.num_jobs=1", "--set", "features.shard_cuts=6"]
    for name, more in (("here", []), ("there", ["--launch", "slurm", "--set", "launch.slurm.workers=2"])):
        words = [ASRTOOL, "features", manifests, tmp_path / name, *settings, *more]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=tmp_path, timeout=ENDED_S)
        assert done.returncode == 0, done.stderr
    assert read_files(tmp_path / "there") == read_files(tmp_path / "here")
    assert len(done.stderr.splitlines()) < 12  # Dask says nothing of its own
    assert list((tmp_path / "there.job").iterdir())  # logs of the jobs


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
