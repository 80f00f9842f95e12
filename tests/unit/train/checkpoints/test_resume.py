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
from train_killed import train_killed_at_changes
from trainings import assert_same_training, interrupted_at, run_training, summary
from warm import run_apart

from asrtool.errors import AsrtoolError
from asrtool.train.checkpoints.checkpoint import load_checkpoint
from asrtool.train.optimisation import optimizer

pytestmark = pytest.mark.slow


def test_a_training_killed_at_any_change_to_its_files_ends_in_the_same_files(
    toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    toy_config.write_text(TOY_CONFIG.replace("num_epochs = 3", "num_epochs = 2"))  # and still it removes checkpoints
    run_apart(train_killed_at_changes, (toy, toy_config), tmp_path / "train")
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


DEEP_SPEECH = ("model.encoder=deepspeech2", "model.deepspeech2.hidden_size=6", "model.deepspeech2.num_layers=2")
CONFORMER = ("model.encoder=conformer", "model.conformer.num_layers=1", "model.conformer.head_size=4")
ATTENTION = ("model.objective=attention", "model.attention.hidden_size=12", "model.attention.attention_size=8",
             "model.attention.sampling=0.3", "model.attention.weight_drop=0.3")  # fmt: skip
CASES = {
    "transducer, averaged": ("model.objective=transducer", "model.transducer.joint_size=8", "train.ema_decay=0.9"),
    "transducer over a conformer": ("model.objective=transducer", *CONFORMER),
    "attention": ATTENTION,
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
    name: str, toy: Path, toy_config: Path, targets: Path, tmp_path: Path
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
