"""However a training is ended, the same command resumes it and ends in the same bits."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_task import TOY_CONFIG, assert_same_bits, last_weights
from train_killed import train_killed
from train_killed_at_changes import train_killed_at_changes
from trainings import assert_same_training, summary
from warm import run_apart

from asrtool.errors import AsrtoolError
from asrtool.train.optimisation import optimizer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [1])
def test_a_training_killed_at_random_moments_ends_in_the_same_weights(
    toy: Path, toy_config: Path, tmp_path: Path, seed: int
) -> None:
    undisturbed, out = tmp_path / "undisturbed", tmp_path / "train"
    task = (toy / "features", toy / "tokenizer", toy_config)
    killed = run_apart(train_killed, task, undisturbed, out, seed)
    assert len(killed) >= 2
    assert_same_training(out, undisturbed)


def test_a_training_killed_at_any_change_to_its_files_ends_in_the_same_files(
    toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    toy_config.write_text(TOY_CONFIG.replace("num_epochs = 3", "num_epochs = 2"))  # and still it removes checkpoints
    run_apart(train_killed_at_changes, (toy / "features", toy / "tokenizer", toy_config), tmp_path / "train")
    *killed, undisturbed = sorted((tmp_path / "train").iterdir(), key=lambda out: int(out.name))
    num_checkpoints = len(list((undisturbed / "checkpoints").iterdir()))
    assert len(killed) > 2 * num_checkpoints
    for out in killed:
        assert_same_training(out, undisturbed)


def test_an_optimizer_of_other_groups_of_parameters_is_one_line(
    train_toy, undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shutil.copytree(undisturbed(), tmp_path / "train")
    (out / "train.json").unlink()
    max((out / "checkpoints").iterdir()).unlink()
    monkeypatch.setattr(optimizer, "decay_groups", lambda named, _: [{"params": [each for _, each in named]}])
    with pytest.raises(AsrtoolError, match=r"resuming after step .*: the optimizer is of an earlier asrtool.*; move"):
        train_toy(out)
    shutil.move(out, tmp_path / "aside")
    train_toy(out, "train.num_epochs=1")


def test_threads_and_precision_stay_as_they_were_when_training_began(train_toy, tmp_path: Path) -> None:
    out = tmp_path / "train"
    expected = train_toy(out)
    (out / "train.json").unlink()
    for path in sorted((out / "checkpoints").iterdir())[2:]:
        path.unlink()
    assert_same_bits(train_toy(out, "train.num_threads=0"), expected)
    assert summary(out)["num_threads"] == 1


def test_a_full_disk_is_reported_and_after_making_room_training_resumes(train_toy, undisturbed, tmp_path: Path) -> None:
    expected = last_weights(undisturbed())
    out = tmp_path / "train"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(AsrtoolError, match=r"step-00000003\.pt: cannot be written.*free some space"):
            train_toy(out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((out / "checkpoints").iterdir()) == []
    assert_same_bits(train_toy(out), expected)


WAITS = """
import time
from asrtool.cli.main import main
from asrtool.train.loop.loop import Training

step = Training.step

def step_or_wait(training, assignment, batch):
    while (training.job.out / "checkpoints").exists() and not training.stop.requested:
        time.sleep(0.01)
    return step(training, assignment, batch)

Training.step = step_or_wait
main()
"""


def test_sigterm_saves_a_checkpoint_and_exits_with_143(
    toy: Path, toy_config: Path, train_toy, undisturbed, tmp_path: Path
) -> None:
    """It comes after the first checkpoint, in a step that waits for it."""
    expected = last_weights(undisturbed())
    out = tmp_path / "train"
    command = [sys.executable, "-c", WAITS, "train", toy / "features", toy / "tokenizer", out, "--config", toy_config]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not (out / "checkpoints").exists():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "asked to stop (SIGTERM): saving a checkpoint" in log
    assert not (out / "train.json").exists()
    assert_same_bits(train_toy(out), expected)
