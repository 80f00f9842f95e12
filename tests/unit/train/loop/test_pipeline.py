"""A model on several devices against the same on one. On a machine without GPUs all devices are the host."""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from toy_task import last_weights
from trainings import batch_of, run_training

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel, Encoder, Loss, build_model
from asrtool.models.encoders.stages import Part
from asrtool.models.precision import Precision
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.loop import pipeline as pipelines
from asrtool.train.loop.loss import batch_loss
from asrtool.train.loop.pipeline import Pipeline, choose_devices, micro_batches

NUM_PROCESSES = 2  # of learners
NUM_BINS, NUM_TOKENS = 8, 12
HOST = torch.device("cpu")
FP32 = Precision(HOST, "fp32")
TINY = {
    "lstm": {"num_layers": 3, "hidden_size": 10, "bottleneck_size": 6, "dropout": 0.0},
    "conformer": {"num_layers": 2, "num_heads": 2, "head_size": 4, "feed_forward_size": 12, "dropout": 0.0},
    "deepspeech2": {"num_layers": 2, "hidden_size": 6, "num_channels": 2, "dropout": 0.0},
}


OF_OBJECTIVE = {"attention": {"hidden_size": 8, "attention_size": 4, "kernel_size": 3, "dropout": 0.0}}


def model_of(encoder: str = "lstm", objective: str = "ctc", deltas: int = 0, **changed: Any) -> AcousticModel:
    torch.manual_seed(3)
    settings = Choice.of("encoder", encoder, **TINY[encoder] | changed)
    choice = Choice.of("objective", objective, **OF_OBJECTIVE.get(objective, {}))
    return build_model(Model(encoder=settings, objective=choice, deltas=deltas), NUM_BINS, NUM_TOKENS)


BATCH = batch_of([61, 60, 47, 40, 33])


def gradients(model: AcousticModel, loss: Tensor) -> dict[str, Tensor]:
    for weight in model.parameters():
        weight.grad = None
    loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def assert_equal_to_one_device(model: AcousticModel, found: Loss, expected: Loss, tolerance: float = 2e-6) -> None:
    """All gradients together within `tolerance` of their norm."""
    assert found.normaliser == expected.normaliser
    torch.testing.assert_close(found.total, expected.total, rtol=tolerance, atol=0)
    on_one = gradients(model, expected.total)
    several = gradients(model, found.total)
    assert several.keys() == on_one.keys()
    assert all(gradient.any() for gradient in on_one.values())
    one_P, several_P = (torch.cat([part.flatten() for part in parts.values()]) for parts in (on_one, several))
    assert float((several_P - one_P).norm() / one_P.norm()) < tolerance


@pytest.mark.parametrize(
    ("encoder", "objective", "num_stages", "num_micro_batches"),
    [("lstm", "transducer", 2, 9), ("lstm", "attention", 3, 2), ("conformer", "ctc", 2, 2), ("conformer", "ctc", 3, 9)],
)
def test_stages_equal_one_device(encoder: str, objective: str, num_stages: int, num_micro_batches: int) -> None:
    model = model_of(encoder, objective, deltas=1)
    found = Pipeline(model, [HOST] * num_stages, num_micro_batches, FP32).loss(BATCH)
    assert_equal_to_one_device(model, found, batch_loss(model, BATCH, FP32))


def test_batch_normalisation_sees_a_micro_batch_and_its_statistics_are_kept() -> None:
    """The expectation is one device that computes the same micro-batches one after another."""
    model = model_of("deepspeech2")
    one = copy.deepcopy(model)
    found = Pipeline(model, [HOST] * 2, 3, FP32).loss(BATCH)
    losses = [batch_loss(one, piece, FP32) for piece in micro_batches(BATCH, 3)]
    torch.testing.assert_close(found.total, sum(loss.total for loss in losses), rtol=1e-6, atol=0)
    for buffer, expected in zip(model.buffers(), one.buffers(), strict=True):
        torch.testing.assert_close(buffer, expected, rtol=1e-6, atol=1e-7)
    moved = [name for name, buffer in model.named_buffers() if "mean" in name and buffer.abs().max() > 0]
    assert len(moved) == 4


def test_dropout_is_the_same_for_any_number_of_stages_and_other_for_each_micro_batch_and_layer(monkeypatch) -> None:
    monkeypatch.setitem(OF_OBJECTIVE["attention"], "dropout", 0.3)
    monkeypatch.setitem(OF_OBJECTIVE["attention"], "sampling", 0.5)
    model = model_of(objective="attention", dropout=0.4)
    found = [Pipeline(model, [HOST] * num, 2, FP32).loss(BATCH).total for num in (1, 2, 3, 4)]
    assert all(torch.equal(total, found[0]) for total in found)
    seeds = []
    with patch.object(pipelines, "seed_device", lambda device, seed: seeds.append(seed)):
        Pipeline(model, [HOST] * 2, 2, FP32).loss(BATCH)
    assert len(set(seeds)) == len(seeds) == 2 * (len(model.encoder.parts()) + 1)


def test_gradients_in_bf16_have_the_same_bits_whichever_stage_is_slower() -> None:
    """One stage or micro-batch ends while the other still computes."""
    model, bf16, found = model_of(), Precision(HOST, "bf16"), []
    bf16.prepare_process()
    for slow in (0, 1):
        pipeline = Pipeline(model, [HOST] * 2, 5, bf16)
        hook = pipeline.stages[slow].weighted[0].register_forward_pre_hook(lambda *_: time.sleep(0.01))
        found.append(gradients(model, pipeline.loss(BATCH).total))
        hook.remove()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


class Waiting(Encoder):
    """Two layers. The first with the second micro-batch and the second with the first wait for each other."""

    def __init__(self) -> None:
        super().__init__()
        self.subsampling, self.output_size = 1, NUM_BINS
        self.layers = nn.ModuleList(nn.Linear(NUM_BINS, NUM_BINS) for _ in range(2))
        self.barrier = threading.Barrier(2)
        self.counts = [0, 0]

    def parts(self) -> list[Part]:
        return [Part(self._first, self.layers[0]), Part(self._second, self.layers[1])]

    def forward(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        return self._second(*self._first(feats_NTF, feat_lens_N))

    def _first(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        return self._count(0, 2, self.layers[0](feats_NTF)), feat_lens_N

    def _second(self, feats_NTF: Tensor, feat_lens_N: Tensor) -> tuple[Tensor, Tensor]:
        return self._count(1, 1, self.layers[1](feats_NTF)), feat_lens_N

    def _count(self, layer: int, number: int, values: Tensor) -> Tensor:
        self.counts[layer] += 1
        if self.counts[layer] == number:
            self.barrier.wait(timeout=60)
        return values


def test_stages_compute_at_the_same_time() -> None:
    model = AcousticModel(Waiting(), type(model_of().objective)(None, NUM_BINS, NUM_TOKENS))
    pipeline = Pipeline(model, [HOST] * 3, 2, FP32)
    assert [[number for number, _ in stage.parts] for stage in pipeline.stages] == [[0], [1], []]
    pipeline.turn = contextlib.nullcontext()  # as on GPUs, of which each has random numbers of its own
    pipeline.loss(BATCH)
    assert model.encoder.counts == [2, 2]


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_what_a_stage_raises_ends_the_batch(stage: int) -> None:
    pipeline, calls = Pipeline(model_of(), [HOST] * 3, 2, FP32), itertools.count()

    def fail(*_: Any) -> None:
        if next(calls) == 1:
            raise RuntimeError("CUDA out of memory")

    pipeline.stages[stage].weighted[0].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        pipeline.loss(BATCH)
    assert pipeline.loss(BATCH).total.isfinite()


class Devices(TorchDispatchMode):
    """Emulated devices of tensors: no operation may mix them. All memory is of the host."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, torch.device] = {}
        self.kept: list[Tensor] = []  # so that no memory is used twice

    def place(self, tensor: Tensor) -> torch.device | None:
        return self.places.get(tensor.untyped_storage().data_ptr())

    def put(self, tensor: Tensor, device: torch.device | None) -> Tensor:
        self.kept.append(tensor)
        if device:
            self.places[tensor.untyped_storage().data_ptr()] = device
        return tensor

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        found = {place for tensor in given if tensor.ndim and (place := self.place(tensor))}
        if not given and kwargs.get("device") is None:
            found = {HOST}  # made without saying where
        assert len(found) < 2, f"{operation} of tensors on {found}"
        result = operation(*args, **kwargs)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.put(tensor, min(found, default=None, key=str))
        return result


class Moved(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor, devices: Devices, device: torch.device) -> Tensor:
        context.devices, context.source = devices, devices.place(values)
        return devices.put(values.clone(), device)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return context.devices.put(gradient.clone(), context.source), None, None


@pytest.mark.parametrize(
    ("encoder", "objective"), [*((encoder, "ctc") for encoder in sorted(TINY)), ("lstm", "attention")]
)
def test_each_stage_computes_with_what_is_on_its_device(encoder: str, objective: str, monkeypatch) -> None:
    gpus, devices, begun = [torch.device("cuda", number) for number in range(3)], Devices(), list[torch.device]()

    def move(values: Tensor, device: torch.device) -> Tensor:
        return values if devices.place(values) == device else Moved.apply(values, devices, device)

    def begin(device: torch.device) -> None:
        begun.append(device)
        devices.__enter__()  # as long as the thread lives

    monkeypatch.setattr(pipelines, "move", move)
    monkeypatch.setattr(pipelines, "seed_device", lambda *_: None)
    monkeypatch.setattr(pipelines, "begin_thread", begin)
    model = model_of(encoder, objective)
    before = [buffer.clone() for buffer in model.buffers()]
    for tensor in (*model.parameters(), *model.buffers()):
        devices.put(tensor, gpus[0])
    with devices:
        loss = Pipeline(model, gpus, 2, FP32).loss(BATCH)
        assert devices.place(loss.total) == gpus[0]
        found = gradients(model, loss.total)
    assert sorted(begun, key=str) == gpus
    assert {devices.place(gradient) for gradient in found.values()} == {gpus[0]}
    assert {place for place in devices.places.values() if place != HOST} == set(gpus)
    assert all(not torch.equal(*pair) for pair in zip(model.buffers(), before, strict=True))


def test_more_stages_than_parts_are_refused(train_toy, tmp_path: Path) -> None:
    what = "train.pipeline_stages is 4, but encoder and objective have 3 parts with weights; set it to 3 at most"
    with pytest.raises(AsrtoolError, match=what):
        train_toy(tmp_path / "train", "train.pipeline_stages=4")


@pytest.mark.parametrize(("num_learners", "num_gpus"), [(1, 1), (2, 3), (3, 5)])
def test_fewer_gpus_than_stages_of_all_learners_are_refused(num_learners: int, num_gpus: int) -> None:
    wanted = 2 * num_learners
    what = f"pipeline_stages is 2, with {num_learners} learners here that is {wanted} GPUs, .* sees {num_gpus}"
    with (
        patch.object(torch.cuda, "device_count", lambda: num_gpus),
        pytest.raises(AsrtoolError, match=what + "; choose fewer stages, or fewer learners"),
    ):
        choose_devices(torch.device("cuda"), 2, num_learners)


def test_learners_have_gpus_of_their_own() -> None:
    chosen = []
    for learner in range(2):
        with (
            patch.object(torch.cuda, "device_count", lambda: 6),
            patch.object(torch.cuda, "current_device", lambda learner=learner: learner),
        ):
            chosen.append(choose_devices(torch.device("cuda"), 3, 2))
    assert [device.index for devices in chosen for device in devices] == [0, 2, 4, 1, 3, 5]


PLAIN = ("model.lstm.dropout=0", "train.optimizer=sgd", "train.num_epochs=1", "train.peak_lr=0.002")
STAGES = ("train.pipeline_stages=2", "train.micro_batches=2")


def train_there(toy: Path, config: Path, out: Path, settings: list[str]) -> int:
    """The number of micro-batches that this learner computed."""
    count = 0

    def counted(batch: TrainingBatch, num: int) -> list[TrainingBatch]:
        nonlocal count
        pieces = list(micro_batches(batch, num))
        count += len(pieces)
        return pieces

    with patch.object(pipelines, "micro_batches", counted):
        run_training(toy, config, out, settings)
    return count


def test_learners_of_two_stages_end_with_the_weights_of_learners_of_one_device(
    toy, toy_config, tmp_path, learners
) -> None:
    settings = ["distributed.strategy=bmuf", *PLAIN]
    learners.run(train_there, toy, toy_config, tmp_path / "one", settings)
    counts = learners.run(train_there, toy, toy_config, tmp_path / "stages", [*settings, *STAGES])
    assert min(counts) >= 4
    one, stages = last_weights(tmp_path / "one"), last_weights(tmp_path / "stages")
    for name, weight in one.items():
        torch.testing.assert_close(stages[name], weight, rtol=0, atol=1e-6)
