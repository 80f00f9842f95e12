"""A training that is interrupted and resumed, of every objective and encoder: the same bits as in one go."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy_task import assert_same_bits, last_weights
from trainings import interrupted_at

from asrtool.settings.toml_files import load_config
from asrtool.train.checkpoints.checkpoint import load_checkpoint
from asrtool.train.run import train
from asrtool.train.train import acoustic_job

pytestmark = pytest.mark.slow

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
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_ends_in_the_same_bits(name: str, toy: Path, toy_config: Path, targets: Path, tmp_path: Path) -> None:
    config = load_config([toy_config], [*CASES[name], "train.num_epochs=2"])

    def run(out: str) -> dict[str, torch.Tensor]:
        train(acoustic_job(toy / "features", toy / "tokenizer", tmp_path / out, config, targets=targets))
        return last_weights(tmp_path / out)

    whole = run("whole")
    with interrupted_at(1, 2):
        run("resumed")
    newest = load_checkpoint(max((tmp_path / "resumed/checkpoints").glob("step-????????.pt")))[1]
    assert (newest.epoch, len(newest.dev_losses)) == (1, 1)
    assert newest.batch > 0
    assert_same_bits(run("resumed"), whole)
