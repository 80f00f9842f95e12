"""The loop against steps written by hand, and what it does when something is wrong."""

from __future__ import annotations

import contextlib
import signal
import unittest.mock
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy_task import NUM_BINS, NUM_TOKENS, SETTINGS, assert_same_bits, last_weights, make_texts, write_set
from trainings import interrupted_at, metric_steps, metrics, summary

from asrtool.data.batches import Lengths, plan_epoch
from asrtool.data.storage.index import write_feature_settings
from asrtool.data.storage.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.acoustic import build_model
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.train.batches.plan import Place
from asrtool.train.checkpoints.checkpoint import load_checkpoint
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.checkpoints.coordinator import CheckpointCoordinator
from asrtool.train.loop.evaluation import Evaluation
from asrtool.train.loop.stop import Stopped
from asrtool.train.run import train
from asrtool.train.train import acoustic_job

PLAIN = (
    "model.lstm.dropout=0",
    "specaugment.num_freq_masks=0",
    "specaugment.num_time_masks=0",
    "train.save_every_steps=1",
    "train.keep_last=100",
    "train.clip_norm=0.5",
)


def test_three_steps_equal_those_written_by_hand(toy: Path, train_toy, tmp_path: Path) -> None:
    train_toy(tmp_path / "train", *PLAIN, "train.optimizer=sgd", "train.sgd.weight_decay=0.1")
    found = torch.load(tmp_path / "train" / "checkpoints" / "step-00000003.pt", weights_only=True)["weights"]

    torch.manual_seed(1)
    lstm = Choice.of("encoder", "lstm", num_layers=2, hidden_size=12, stack_frames=2, dropout=0.0)
    model = build_model(Model(encoder=lstm), NUM_BINS, NUM_TOKENS)
    decayed = [p for p in model.parameters() if p.ndim == 2]
    plain = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.0, momentum=0.9)
    reader = FeatureReader(toy / "features" / "train", "none")
    tokenizer = Tokenizer.load(toy / "tokenizer")
    samples = 0
    for batch in islice(plan_epoch(Lengths.of(reader.index), 150, seed=1, epoch=0), 3):
        feats = [torch.from_numpy(reader.read(i)) for i in batch.indices]
        tokens = [torch.tensor(tokenizer.encode(reader.index[i].text)) for i in batch.indices]
        token_lens = torch.tensor([len(ids) for ids in tokens])
        samples += len(feats)
        fraction = samples / (3 * 24)
        for group in optimizer.param_groups:
            fallen = (fraction - 0.15) / 0.85
            falling = 0.01 + 0.99 * (1 + np.cos(np.pi * fallen)) / 2
            group["lr"] = 0.02 * (fraction / 0.15 if fraction < 0.15 else falling)
        log_probs, lens = model(
            torch.nn.utils.rnn.pad_sequence(feats, batch_first=True), torch.tensor([len(f) for f in feats])
        )
        padded = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
        losses = torch.nn.functional.ctc_loss(log_probs.transpose(0, 1), padded, lens, token_lens, reduction="none")
        optimizer.zero_grad()
        (losses.sum() / token_lens.sum()).backward()
        norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
        for parameter in model.parameters():
            parameter.grad *= min(1.0, 0.5 / float(norm))
        optimizer.step()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-6)


def test_the_learning_rate_of_a_strategy_is_a_multiple_of_that_of_the_schedule(train_toy, tmp_path: Path) -> None:
    scaled = train_toy(tmp_path / "scaled", *PLAIN, "train.peak_lr=0.02", "distributed.lr_scale=0.5")
    assert_same_bits(scaled, train_toy(tmp_path / "plain", *PLAIN, "train.peak_lr=0.01"))


def test_a_small_model_learns_four_utterances_by_heart(toy: Path, tmp_path: Path) -> None:
    for name in ("train", "dev"):
        write_set(tmp_path / "features" / name, make_texts(4, seed=1), seed=1)
    write_feature_settings(tmp_path / "features", SETTINGS)
    sizes = ["model.lstm.num_layers=1", "model.lstm.hidden_size=32", "model.lstm.stack_frames=2"]
    training = ["train.num_epochs=150", "train.precision=fp32", "train.peak_lr=0.02", "train.num_threads=1"]
    overrides = [*PLAIN, *sizes, *training, "train.keep_last=1"]
    train(acoustic_job(tmp_path / "features", toy / "tokenizer", tmp_path / "train", load_config(overrides=overrides)))
    final = summary(tmp_path / "train")
    assert final["dev_loss"] < 0.02


def test_a_finished_training_reports_how_it_ended_and_is_left_as_it_is(train_toy, tmp_path: Path, caplog) -> None:
    out = tmp_path / "train"
    train_toy(out)
    final = summary(out)
    assert (final["num_epochs"], final["num_samples"], final["num_dropped"]) == (3, 72, 0)
    assert final["num_steps"] == final["checkpoints"][-1]["step"]
    assert final["dev_loss"] == final["checkpoints"][-1]["dev_loss"]
    assert final["num_parameters"] == sum(weight.numel() for weight in last_weights(out).values())
    on_disk = sorted(int(path.stem[5:]) for path in (out / "checkpoints").iterdir())
    assert [entry["step"] for entry in final["checkpoints"]] == on_disk
    before = {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    with caplog.at_level("INFO"):
        train_toy(out, "train.log_every_steps=9")
    assert "this training is finished" in caplog.text
    assert before == {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def test_metrics_are_in_the_file_and_in_tensorboard(train_toy, tmp_path: Path) -> None:
    out = tmp_path / "train"
    train_toy(out)
    steps = metric_steps(out)
    num_steps = steps[-1][1]
    assert [step for kind, step in steps if kind == "train"] == list(range(2, num_steps + 1, 2))
    assert len([step for kind, step in steps if kind == "dev"]) == 3
    curves = EventAccumulator(str(out / "tensorboard")).Reload()
    entries = metrics(out)
    for name in ("loss", "grad_norm", "lr", "frames_per_s", "padding_fraction", "data_wait_fraction"):
        values = [entry[name] for entry in entries if entry["kind"] == "train"]
        assert [event.value for event in curves.Scalars(f"train/{name}")] == pytest.approx(values)
    assert len(curves.Scalars("dev/loss")) == 3


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_that_is_not_a_number_stops_training_and_saves_the_batch(
    train_toy, tmp_path: Path, monkeypatch, bad: float
) -> None:
    read = FeatureReader.read

    def read_badly(self: FeatureReader, i: int) -> np.ndarray:
        feats_TF = read(self, i).copy()
        if self.index[i].id == "train-5":
            feats_TF[3] = bad
        return feats_TF

    monkeypatch.setattr(FeatureReader, "read", read_badly)
    out = tmp_path / "train"
    with pytest.raises(AsrtoolError) as error:
        train_toy(out, *PLAIN)
    message = str(error.value)
    (path,) = out.glob("bad-batch-*.pt")
    batch = torch.load(path, weights_only=True)
    assert str(path) in message
    assert f"step {batch['step']}: loss nan" in message
    assert "its features are not finite" in message
    assert "lower train.peak_lr" in message
    assert all(utterance_id in message for utterance_id in batch["ids"][:5])
    n = batch["ids"].index("train-5")
    assert not torch.isfinite(batch["inputs_NT"][n, 3]).any()
    assert batch["inputs_NT"].shape[1] == batch["input_lens_N"].max()
    assert len(batch["targets_NU"]) == len(batch["ids"])
    assert not (out / "train.json").exists()


COMPONENTS: dict[str, tuple[str, ...]] = {  # test_resume_objectives.py has the others
    "default": (),
    "lstm": ("model.lstm.bidirectional=false", "model.lstm.weight_drop=0.3", "model.lstm.sequence_dropout=true"),
    "ema": ("train.ema_decay=0.9", "train.save_every_steps=0"),
    "stages": ("train.pipeline_stages=3", "train.micro_batches=2"),
    "augment": ("augment.tempo=[0.9, 1.1]", "augment.band_prob=0.5"),
}


@pytest.mark.parametrize("name", COMPONENTS)
def test_ctrl_c_saves_a_checkpoint_that_training_resumes_from(
    train_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In the first epoch of two, so that those which end and begin come behind it."""
    overrides = (*COMPONENTS[name], "train.num_epochs=2")
    undisturbed = train_toy(tmp_path / "undisturbed", *overrides)
    out = tmp_path / "train"
    with interrupted_at(0, 4):
        train_toy(out, *overrides)
    # The batch that was read ahead is trained as well.
    assert max((out / "checkpoints").iterdir()).name == "step-00000006.pt"
    assert not (out / "train.json").exists()
    assert_same_bits(train_toy(out, *overrides), undisturbed)
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "undisturbed" / "checkpoints").iterdir())
    assert metric_steps(out) == metric_steps(tmp_path / "undisturbed")


def test_ctrl_c_during_evaluation_repeats_the_evaluation(train_toy, undisturbed, tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "train"
    end_epoch = CheckpointCoordinator._end_epoch

    def interrupted(self: CheckpointCoordinator, behind: Place) -> None:
        if self.state.epoch == 1:
            signal.raise_signal(signal.SIGINT)
        end_epoch(self, behind)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointCoordinator, "_end_epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_toy(out)
    assert_same_bits(train_toy(out), last_weights(undisturbed()))
    assert metric_steps(out) == metric_steps(undisturbed())


def test_the_codes_that_trained_are_recorded_in_their_order(toy: Path, toy_config: Path, tmp_path: Path) -> None:
    """A run that trains no step adds none, nor does one of the same code."""
    out, config = tmp_path / "train", load_config([toy_config])

    def run_until(num_epochs: int, code: str) -> list[str]:
        job = acoustic_job(toy / "features", toy / "tokenizer", out, config, code=code)
        end_epoch = CheckpointCoordinator._end_epoch

        def end_or_stop(self: CheckpointCoordinator, behind: Place) -> None:
            end_epoch(self, behind)
            if self.state.epoch == num_epochs:
                raise Stopped

        with unittest.mock.patch.object(CheckpointCoordinator, "_end_epoch", end_or_stop), contextlib.suppress(Stopped):
            train(job)
        codes: list[str] = load_checkpoint(max((out / "checkpoints").iterdir()))[1].code
        return codes

    assert run_until(1, "aaa") == ["aaa"]
    assert run_until(2, "aaa") == ["aaa"]
    assert run_until(3, "bbb") == ["aaa", "bbb"]
    assert not (out / "train.json").exists()
    train(acoustic_job(toy / "features", toy / "tokenizer", out, config, code="ccc"))
    assert summary(out)["code"] == ["aaa", "bbb"]


def test_a_checkpoint_is_written_while_all_evaluate(train_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def noting(kind: type, name: str) -> None:
        method = getattr(kind, name)

        def note(*args: Any, **more: Any) -> Any:
            events.append(name)
            return method(*args, **more)

        monkeypatch.setattr(kind, name, note)

    noting(Evaluation, "together")
    noting(Checkpointer, "save")
    train_toy(tmp_path / "train", "train.num_epochs=2", "train.save_every_steps=0")
    assert events == ["save", "together"] * 2
