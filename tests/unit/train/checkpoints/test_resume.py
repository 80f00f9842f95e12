"""However a training is ended, the same command resumes it and ends in the same bits."""

from __future__ import annotations

import functools
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_task import TOY_CONFIG, assert_same_bits, last_weights
from trainings import assert_same_training, interrupted_at, run_training, summary
from warm import run_apart

from asrtool.errors import AsrtoolError
from asrtool.train.checkpoints.checkpoint import load_checkpoint
from asrtool.train.optimisation import optimizer

pytestmark = pytest.mark.slow


def test_a_training_killed_at_any_change_to_its_files_ends_in_the_same_files(toy, toy_config, tmp_path) -> None:
    """One that ends early, at a rate that falls; it has a moving average, and removes checkpoints."""
    text = TOY_CONFIG.replace("num_epochs = 3", 'num_epochs = 9\nearly_stop = 1\nschedule = "plateau"\nema_decay = 0.8')
    toy_config.write_text(text.replace("0.02", "3.0") + "\n[train.plateau]\npatience = 1\nwarmup_fraction = 0\n")
    run_apart(train_killed_at_changes, (toy, toy_config), tmp_path / "train")
    *killed, undisturbed = sorted((tmp_path / "train").iterdir(), key=lambda out: int(out.name))
    num_checkpoints = len(list((undisturbed / "checkpoints").iterdir()))
    assert len(killed) > 2 * num_checkpoints
    assert summary(undisturbed)["stopped_early"]
    for out in killed:
        assert_same_training(out, undisturbed)


def test_an_optimizer_of_other_groups_of_parameters_is_one_line(train_toy, undisturbed, tmp_path, monkeypatch) -> None:
    out = shutil.copytree(undisturbed(), tmp_path / "train")
    (out / "train.json").unlink()
    max((out / "checkpoints").iterdir()).unlink()
    monkeypatch.setattr(optimizer, "decay_groups", lambda named, _: [{"params": [each for _, each in named]}])
    with pytest.raises(AsrtoolError, match=r"resuming after step .*: the optimizer is of an earlier asrtool.*; move"):
        train_toy(out)
    shutil.move(out, tmp_path / "aside")
    train_toy(out, "train.num_epochs=1")


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


def test_sigterm_saves_a_checkpoint_and_exits_with_143(toy, toy_config, train_toy, undisturbed, tmp_path) -> None:
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


DEEP_SPEECH = ("model.encoder=deepspeech2", "model.deepspeech2.hidden_size=6", "model.deepspeech2.num_layers=2")
CONFORMER = ("model.encoder=conformer", "model.conformer.num_layers=1", "model.conformer.head_size=4")
ATTENTION = ("model.objective=attention", "model.attention.hidden_size=12", "model.attention.attention_size=8",
             "model.attention.sampling=0.3", "model.attention.weight_drop=0.3")  # fmt: skip
CASES = {
    "transducer over a conformer, averaged": ("model.objective=transducer", *CONFORMER, "train.ema_decay=0.9"),
    "attention over a pipeline of Deep Speech 2": (*ATTENTION, *DEEP_SPEECH, "train.pipeline_stages=2"),
    "frame-ce, pieces, sequence noise": (
        "model.objective=frame-ce", "model.frame-ce.piece_frames=8", "train.sequence_noise=0.5",
    ),
    "lf-mmi": ("model.objective=lf-mmi",),
    "Deep Speech 2 one way, fp16": (*DEEP_SPEECH, "model.deepspeech2.bidirectional=false", "train.precision=fp16"),
    "two views by convolutions, plateau": (
        "model.ctc.consistency=0.2", "train.schedule=plateau", "model.lstm.conv_channels=4", "train.max_batch_s=0.8",
        "model.lstm.bidirectional=false", "model.lstm.weight_drop=0.3", "model.lstm.sequence_dropout=true",
        "augment.tempo=[0.9, 1.1]", "augment.band_prob=0.5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_interrupted_and_resumed_any_objective_and_encoder_ends_in_the_same_bits(
    name: str, toy, toy_config, targets, tmp_path
) -> None:
    def run(out: Path) -> None:
        run_training(toy, toy_config, out, [*CASES[name], "train.num_epochs=2"], targets=targets)

    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    run(whole)
    with interrupted_at(1, 2):
        run(resumed)
    newest = load_checkpoint(max((resumed / "checkpoints").glob("step-????????.pt")))[1]
    assert (newest.epoch, len(newest.dev_losses)) == (1, 1)
    assert newest.batch > 0
    run(resumed)
    assert_same_bits(last_weights(resumed), last_weights(whole))


CHANGES = ("os.rename", "os.remove")
Train = tuple[Path, Path]  # the toy task, configuration


def attempt(train: Train, out: Path, die: Callable[[], None]) -> bool:
    """Train in a child that calls `die` first; whether it came to the end."""
    child = os.fork()
    if child == 0:
        try:
            die()
            run_training(*train, out)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def die_before_change(number: int) -> None:
    """Kill this process before the `number`-th file that it renames or removes."""
    left = number

    def count(event: str, _: object) -> None:
        nonlocal left
        if event in CHANGES:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def train_killed_at_changes(train: Train, outs: Path) -> None:
    """The N-th training, in `outs`/N, dies before it renames or removes a file for the N-th time.

    It is then resumed to its end. The last one, for which N is more than there are changes, is not disturbed.
    """
    for number in itertools.count(1):
        out = outs / str(number)
        if attempt(train, out, functools.partial(die_before_change, number)):
            return
        assert attempt(train, out, lambda: None)
