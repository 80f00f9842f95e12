"""The loop against steps written by hand, with every objective, and what it does when something is wrong."""

from __future__ import annotations

import math
import signal
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy_task import NUM_BINS, NUM_TOKENS, TOY_CONFIG, last_weights
from trainings import assert_same_training, dev_losses, interrupted_at, metric_steps, metrics, run_training, summary

from asrtool.data.batches import Lengths, plan_epoch
from asrtool.data.storage.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.acoustic import build_model
from asrtool.models.objectives.decision_tree import Tree
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.loop.evaluation import Evaluation

PLAIN = (
    "model.lstm.dropout=0",
    "specaugment.num_freq_masks=0",
    "specaugment.num_time_masks=0",
    "train.save_every_steps=1",
    "train.keep_last=100",
    "train.clip_norm=0.5",
)


def test_three_steps_equal_those_written_by_hand(toy: Path, train_toy, tmp_path: Path) -> None:
    """The rate of a strategy is a multiple of that of the schedule."""
    scaled = ("train.peak_lr=0.04", "distributed.lr_scale=0.5")
    train_toy(tmp_path / "train", *PLAIN, *scaled, "train.optimizer=sgd", "train.sgd.weight_decay=0.1")
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


def test_metrics_are_in_the_file_and_in_tensorboard(undisturbed) -> None:
    out = undisturbed()
    steps = metric_steps(out)
    num_steps = steps[-1][1]
    assert [step for kind, step in steps if kind == "train"] == list(range(2, num_steps + 1, 2))
    assert len([step for kind, step in steps if kind == "dev"]) == 3
    curves = EventAccumulator(str(out / "tensorboard")).Reload()
    entries = metrics(out)
    for name in ("loss", "grad_norm", "lr", "frames_per_s", "padding_fraction", "data_wait_fraction"):
        values = [entry[name] for entry in entries if entry["kind"] == "train"]
        assert [event.value for event in curves.Scalars(f"train/{name}")] == pytest.approx(values)
    dev = [entry["errors"] for entry in entries if entry["kind"] == "dev"]
    assert [event.value for event in curves.Scalars("dev/errors")] == pytest.approx(dev)
    assert all(0 <= errors <= 1 for errors in dev)
    tags = curves.Tags()
    assert {tag.split("/")[-1] for tag in tags["scalars"]}.isdisjoint({"epoch", "samples", "seconds", "hours"})
    assert "inputs/text_summary" in tags["tensors"]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_that_is_not_a_number_stops_training_and_saves_the_batch(
    train_toy, tmp_path, monkeypatch, bad: float
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


def test_ctrl_c_saves_a_checkpoint_that_training_resumes_from(train_toy, undisturbed, tmp_path: Path) -> None:
    """test_resume.py has the other objectives and encoders."""
    out = tmp_path / "train"
    with interrupted_at(0, 4):
        train_toy(out)
    # The batch that was read ahead is trained as well.
    assert max((out / "checkpoints").iterdir()).name == "step-00000006.pt"
    assert not (out / "train.json").exists()
    train_toy(out)
    assert_same_training(out, undisturbed())


def test_ctrl_c_during_evaluation_repeats_the_evaluation(train_toy, undisturbed, tmp_path: Path) -> None:
    out, together = tmp_path / "train", Evaluation.on_all_learners

    def interrupted(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return together(*args)

    with patch.object(Evaluation, "on_all_learners", interrupted), pytest.raises(KeyboardInterrupt):
        train_toy(out)
    train_toy(out)
    assert_same_training(out, undisturbed())


def test_a_checkpoint_is_written_while_all_evaluate(train_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def noting(kind: type, name: str) -> None:
        method = getattr(kind, name)

        def note(*args: Any, **more: Any) -> Any:
            events.append(name)
            return method(*args, **more)

        monkeypatch.setattr(kind, name, note)

    noting(Evaluation, "on_all_learners")
    noting(Checkpointer, "save")
    train_toy(tmp_path / "train", "train.num_epochs=2", "train.save_every_steps=0")
    assert events == ["save", "on_all_learners"] * 2


NUM_PROCESSES = 2  # of learners
SMALL = {
    "transducer": ("model.transducer.joint_size=8",),
    "attention": ("model.attention.hidden_size=12", "model.attention.attention_size=8", "model.attention.sampling=0.2"),
}

# In nats a token, after two epochs. An untrained model has ln 40 for each token or end by attention, and more
# with CTC beside it; by a transducer that for each of about three rows a token, less ln of the number of alignments.
# Frame targets are compared with a model without knowledge of the leaves.
LEARNED = {"transducer": 6.0, "attention": 0.8 * math.log(NUM_TOKENS), "frame-ce": 0, "lf-mmi": 0}


@pytest.mark.parametrize("objective", LEARNED)
def test_it_is_learned_by_two_learners(learners, toy, targets, tmp_path, objective: str) -> None:
    config, out = tmp_path / "toy.toml", tmp_path / "train"
    config.write_text(TOY_CONFIG.replace("num_epochs = 3", "num_epochs = 2"))
    overrides = [f"model.objective={objective}", *SMALL.get(objective, ()), "distributed.strategy=allreduce"]
    learners.run(run_training, toy, config, out, overrides, targets)
    losses = dev_losses(out)
    assert len(losses) == 2
    assert losses[-1] < (LEARNED[objective] or np.log(Tree.load(targets).num_leaves))


def test_the_views_are_compared(toy: Path, tmp_path: Path) -> None:
    """Their divergence is reported for each step, not for dev."""
    config = tmp_path / "toy.toml"
    config.write_text(TOY_CONFIG.replace("num_epochs = 3", "num_epochs = 1"))
    run_training(toy, config, tmp_path / "train", ["model.ctc.consistency=0.2", "train.log_every_steps=1"])
    lines = metrics(tmp_path / "train")
    found = [line["consistency"] for line in lines if line["kind"] == "train"]
    assert found
    assert min(found) > 0
    assert not any("consistency" in line for line in lines if line["kind"] == "dev")
