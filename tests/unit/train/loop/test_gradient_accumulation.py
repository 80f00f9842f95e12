"""Batches in pieces: the same gradients, and memory that runs out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learners import batches_trained
from toy_task import assert_same_bits, last_weights
from trainings import batch_of, run_training

from asrtool.distributed.strategies.update import Update
from asrtool.errors import AsrtoolError
from asrtool.models.precision import is_out_of_memory
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.loop.gradient_accumulation import GradientAccumulation, split
from asrtool.train.loop.loss import LossModule

NUM_PROCESSES = 2  # of learners
SMALL = "train.max_batch_s=0.7"  # of batches of 1.5 s
PLAIN = [
    "model.lstm.dropout=0",
    "train.optimizer=sgd",
    "train.num_epochs=1",
    "train.clip_norm=1000",
    "train.peak_lr=0.002",
]
LIMIT = 80  # frames that fit memory in these tests


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(0, 200))
def test_pieces_have_each_utterance_once_in_order_and_no_more_padding_than_they_need(
    lens: list[int], max_frames: int
) -> None:
    batch = batch_of(lens)
    pieces = list(split(batch, max_frames))
    assert [name for piece in pieces for name in piece.ids] == batch.ids
    row = 0
    for piece in pieces:
        if max_frames:
            assert piece.padded_frames <= max_frames or len(piece.ids) == 1
        for own, length, targets, num in zip(
            piece.inputs_NT, piece.input_lens_N, piece.targets_NU, piece.target_lens_N, strict=True
        ):
            assert length == lens[row]
            np.testing.assert_array_equal(own[:length], batch.inputs_NT[row, :length])
            assert not own[length:].any()
            assert targets[:num].tolist() == batch.targets_NU[row, : batch.target_lens_N[row]].tolist()
            row += 1
        if len(pieces) > 1:
            assert piece.inputs_NT.shape[1] == piece.input_lens_N.max()
            assert piece.targets_NU.shape[1] == piece.target_lens_N.max()


def run(toy: Path, config: Path, out: Path, settings: Sequence[str]) -> int:
    """Train; if `out` is named so, with memory for LIMIT frames, of two learners at learner 1 alone. The pieces."""
    name, count = out.name, 0
    forward = LossModule.forward

    def limited(self: LossModule, batch: TrainingBatch | None) -> torch.Tensor:
        nonlocal count
        count += 1
        loss = forward(self, batch)
        if batch is not None and batch.padded_frames > LIMIT and "limited" in name and os.environ.get("RANK") != "0":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")
        return loss

    make = GradientAccumulation.__init__

    def probing(self: GradientAccumulation, *args: object, probes: bool) -> None:
        make(self, *args, probes="probing" in name)  # type: ignore[arg-type]

    with patch.object(LossModule, "forward", limited), patch.object(GradientAccumulation, "__init__", probing):
        run_training(toy, config, out, settings)
    return count


@pytest.fixture
def run_here(toy: Path, toy_config: Path, tmp_path: Path) -> Callable[..., dict[str, torch.Tensor]]:
    def run_there(name: str, *settings: str) -> dict[str, torch.Tensor]:
        run(toy, toy_config, tmp_path / name, [*PLAIN, *settings])
        return last_weights(tmp_path / name)

    return run_there


def assert_close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    for name, weight in one.items():
        torch.testing.assert_close(weight, other[name], atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("probes", [False, True])
def test_loss_and_figures_of_a_batch_are_those_of_all_its_pieces(probes: bool) -> None:
    """The batch may be a probe, after which learners exchange no gradients."""

    def task(piece: TrainingBatch | None) -> torch.Tensor:
        task.figures = {"utterances": float(len(piece.ids)), "frames": float(piece.frames)} if piece else {}
        return torch.full((), float(piece.frames) if piece else 0.0, requires_grad=True)

    strategy: Any = SimpleNamespace(task=task, update=SimpleNamespace(backward=lambda loss: loss.backward()))
    batch = batch_of([20, 15, 30, 9])
    computed = GradientAccumulation(task, 40, 10.0, probes).backward(strategy, batch, 3.0, lambda: None)  # type: ignore[arg-type]
    assert len(list(split(batch, 40))) > 1
    assert computed.nats.item() == 74.0
    assert computed.figures == {"utterances": 4.0, "frames": 74.0}


@pytest.mark.parametrize("strategy", ["allreduce", "ps-async"])
def test_learners_train_in_pieces_under_every_strategy(strategy: str, toy, toy_config, tmp_path, learners) -> None:
    settings = [*PLAIN, f"distributed.strategy={strategy}"]
    whole = learners.run(run, toy, toy_config, tmp_path / "whole", settings)
    pieces = learners.run(run, toy, toy_config, tmp_path / "pieces", [*settings, SMALL])
    assert sum(pieces) > sum(whole)
    assert batches_trained(tmp_path / "pieces") == batches_trained(tmp_path / "whole")
    if strategy == "allreduce":  # the other is not the same twice
        assert_close(last_weights(tmp_path / "pieces"), last_weights(tmp_path / "whole"))


def test_dropout_of_a_batch_that_is_computed_again_is_the_same(run_here, caplog) -> None:
    """The first batch does not fit; from then on all is as if the limit that was found had been set."""
    settings = ("model.lstm.dropout=0.3",)
    with caplog.at_level("INFO"):
        split_later = run_here("limited, probing", *settings)
    (found,) = re.findall(r"computing at most ([\d.]+) s of speech at once", caplog.text)
    assert float(found) <= LIMIT / 100
    assert_same_bits(split_later, run_here("whole", *settings, f"train.max_batch_s={found}"))


def test_what_a_failure_has_added_is_dropped(run_here) -> None:
    """Memory runs out in the backward pass of the second piece of a batch, once."""
    whole = run_here("whole", SMALL)
    backward, count = Update.backward, 0

    def failing(self: Update, loss: torch.Tensor) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")
        backward(self, loss)

    with patch.object(Update, "backward", failing):
        assert_close(run_here("probing", SMALL), whole)


def test_a_learner_whose_memory_runs_out_does_not_stop_the_others(toy, toy_config, tmp_path, learners) -> None:
    for name in ("whole", "limited, probing"):
        learners.run(run, toy, toy_config, tmp_path / name, [*PLAIN, "distributed.strategy=allreduce"])
    assert_close(last_weights(tmp_path / "limited, probing"), last_weights(tmp_path / "whole"))


@pytest.mark.parametrize(
    ("second", "is_larger"), [((12, 1000, 50), True), ((60, 200, 10), False), ((30, 200, 10), False),
                              ((12, 1000, 10), True), ((60, 200, 11), True), ((61, 200, 10), True)]
)  # fmt: skip
def test_a_batch_of_as_many_frames_but_longer_utterances_or_texts_is_a_probe(
    second: tuple[int, int, int], is_larger: bool
) -> None:
    """Memory of a transducer grows with frames by tokens, that of attention with frames by frames."""

    def batch(num: int, frames: int, tokens: int) -> TrainingBatch:
        lens, target_lens_N = np.full(num, frames), torch.full((num,), tokens)
        inputs_NT = np.ones((num, frames, 3), dtype=np.float32)
        names = [str(n) for n in range(num)]
        return TrainingBatch(names, inputs_NT, lens, torch.ones(num, tokens).long(), target_lens_N, num * tokens)

    class Limited(torch.nn.Module):
        """Model whose memory fits the first batch, by any measure."""

        figures: ClassVar[dict[str, float]] = {}
        weight = torch.nn.Parameter(torch.ones(()))

        def forward(self, piece: TrainingBatch | None) -> torch.Tensor:
            shape = piece and (*piece.inputs_NT.shape[:2], piece.targets_NU.shape[1])
            if is_larger and shape == second:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")
            return self.weight * (0 if piece is None else len(piece.ids))

    task = Limited()
    optimizer = torch.optim.SGD([task.weight], lr=0.1)
    strategy = SimpleNamespace(task=task, update=Update([task.weight], optimizer, 5.0), optimizer=optimizer)
    pieces = GradientAccumulation(task, 0, 10.0, probes=True)  # type: ignore[arg-type]
    pieces.backward(strategy, batch(60, 200, 10), 1.0, lambda: None)
    computed = pieces.backward(strategy, batch(*second), 1.0, lambda: None)
    assert float(computed.nats) == second[0]
    assert bool(pieces.max_frames) == is_larger


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
)
def test_what_torch_says_where_memory_runs_out(message: str) -> None:
    assert is_out_of_memory(RuntimeError(message))
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_without_a_probe_the_advice_leads_to_a_training_that_ends(run_here, tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match="do not fit memory") as error:
        run_here("limited")
    setting = re.findall(r"--set (train.max_batch_s=[\d.]+)", str(error.value.hint))
    while setting:
        try:
            run_here("limited", *setting)
            break
        except AsrtoolError as again:
            setting = re.findall(r"--set (train.max_batch_s=[\d.]+)", str(again.hint))
    assert (tmp_path / "limited/train.json").exists()
    assert not list(tmp_path.glob("*.old-*"))  # it was resumed


def test_an_utterance_that_alone_does_not_fit_ends_the_training(run_here) -> None:
    with patch("test_gradient_accumulation.LIMIT", 10), pytest.raises(AsrtoolError, match="do not fit memory") as error:
        run_here("limited, probing")
    assert "max_batch_s" not in str(error.value.hint)  # no smaller batch would help
    assert "data.max_duration_s" in str(error.value.hint)
