"""Pipeline of one model over several devices (GPipe, Huang et al. 2019).

arXiv 1811.06965: all micro-batches go forward, then gradients come back. Forward uses a thread a device; autograd has
its own. Weights, gradients and optimizer are on the first device, as strategies expect; the others copy weights for a
batch.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel, Loss
from asrtool.models.encoders.stages import Carry, Part, split_evenly
from asrtool.models.precision import Precision, functional_call
from asrtool.train.batches.batch import TrainingBatch


class Stage(nn.Module):
    """Neighbouring parts of a model with numbers; the last stage has the objective."""

    def __init__(self, parts: Sequence[tuple[int, Part]], device: torch.device, objective: nn.Module | None) -> None:
        super().__init__()
        self.parts = parts
        self.device = device
        self.weighted = nn.ModuleList(module for _, part in parts for module in part.modules)
        self.objective = objective

    def forward(self, compute: Callable[[], None]) -> None:
        """Run `compute` with this device's copy of the weights."""
        compute()


class Pipeline:
    """Loss of a batch by stages on devices; gradients reach the model's weights."""

    def __init__(
        self, model: AcousticModel, devices: Sequence[torch.device], num_micro_batches: int, precision: Precision
    ) -> None:
        """Divide `model` over `devices`, one a stage; its weights are on the first.

        Raises AsrtoolError if the model has fewer parts with weights than there are devices.
        """
        self.model = model
        self.num_micro_batches = num_micro_batches
        self.precision = precision
        self.stages = make_stages(model, devices)
        # Threads of the host have one generator of random numbers: there they take turns.
        on_host = devices[0].type == "cpu"
        self.turn: contextlib.AbstractContextManager[object] = threading.Lock() if on_host else contextlib.nullcontext()

    def loss(self, batch: TrainingBatch) -> Loss:
        """Return the loss, its total on the first device; raises the error of a stage."""
        batches = list(micro_batches(batch, self.num_micro_batches))
        queues = [SimpleQueue[Any]() for _ in range(len(self.stages) + 1)]
        for micro_batch in batches:
            queues[0].put(self._begin(micro_batch))
        queues[0].put(None)
        all_ended = threading.Barrier(len(self.stages))
        with ThreadPoolExecutor(len(self.stages)) as threads:
            passes = [
                threads.submit(self._pass, stage, batches, *between, all_ended)
                for stage, between in zip(self.stages, itertools.pairwise(queues), strict=True)
            ]
        for ended in passes:
            ended.result()
        return add_losses(list(iter(queues[-1].get, None)), self.stages[0].device)

    def _begin(self, batch: TrainingBatch) -> Carry:
        device = self.stages[0].device
        feats_NTF = move(torch.from_numpy(batch.inputs_NT), device)
        feat_lens_N = move(torch.from_numpy(batch.input_lens_N), device)
        with self.precision.autocast():
            return self.model.inputs(feats_NTF, feat_lens_N), feat_lens_N

    def _pass(
        self,
        stage: Stage,
        batches: Sequence[TrainingBatch],
        inbox: SimpleQueue[Any],
        outbox: SimpleQueue[Any],
        all_ended: threading.Barrier,
    ) -> None:
        """Pass all micro-batches through a stage, in its thread.

        None ends a queue, also if a stage has failed. All threads leave autocast together, since leaving empties the
        shared cache of rounded weights, and rounding again would change the last bits.
        """
        state = dict(itertools.chain(stage.named_parameters(), stage.named_buffers()))

        def compute() -> None:
            for number, (carry, batch) in enumerate(zip(iter(inbox.get, None), batches, strict=False)):
                outbox.put(self._apply(stage, carry, batch, number))

        with contextlib.ExitStack() as inside:
            try:
                begin_thread(stage.device)
                moved = {name: move(values, stage.device) for name, values in state.items()}
                inside.enter_context(self.precision.autocast())
                functional_call(stage, moved, (compute,))
                with torch.no_grad():
                    for name, buffer in stage.named_buffers():
                        buffer.copy_(move(moved[name], self.stages[0].device))
            finally:
                outbox.put(None)
                all_ended.wait()

    def _apply(self, stage: Stage, carry: Carry, batch: TrainingBatch, number: int) -> Carry | Loss:
        """Return the output of a stage for micro-batch `number`.

        Each part draws from its own seed, so dropout does not depend on the stages.
        """
        carry = tuple(move(values, stage.device) for values in carry)
        for index, part in stage.parts:
            with self.turn:
                seed_device(stage.device, (batch.torch_seed, number, 1 + index))
                carry = part.run(*carry)
        if stage.objective is None:
            return carry
        lens_N = torch.from_numpy(batch.input_lens_N)
        targets = (move(batch.targets_NU, stage.device), move(batch.target_lens_N, stage.device))
        with self.turn:
            seed_device(stage.device, (batch.torch_seed, number, 0))
            return self.model.loss_of(carry, lens_N, *targets)


def make_stages(model: AcousticModel, devices: Sequence[torch.device]) -> list[Stage]:
    """Divide a model over devices by weights; AsrtoolError if that cannot be."""
    parts = list(enumerate(model.encoder.parts()))
    sizes = [*(part.num_weights() for _, part in parts), sum(weight.numel() for weight in model.objective.parameters())]
    most = sum(size > 0 for size in sizes)
    if len(devices) > most:
        what = f"train.pipeline_stages is {len(devices)}, but encoder and objective have {most} parts with weights"
        raise AsrtoolError(what, f"set it to {most} at most, or have `parts` of your encoder return more of them")
    cuts = split_evenly(sizes, len(devices))
    return [
        Stage(parts[cut], device, model.objective if cut.stop == len(sizes) else None)
        for cut, device in zip(cuts, devices, strict=True)
    ]


def choose_devices(first: torch.device, num_stages: int, num_learners: int) -> list[torch.device]:
    """Return the devices of a learner, the first stage on `first`.

    Without GPUs it is the host for all. Raises AsrtoolError if there are not enough GPUs.
    """
    if first.type == "cpu":
        return [first] * num_stages
    num_gpus, wanted = torch.cuda.device_count(), num_stages * num_learners
    if wanted > num_gpus:
        what = f"train.pipeline_stages is {num_stages}, with {num_learners} learners here that is {wanted} GPUs"
        raise AsrtoolError(f"{what}, but torch sees {num_gpus}", "choose fewer stages, or fewer learners")
    own = torch.cuda.current_device()  # the device with the learner's number
    return [torch.device("cuda", (own + stage * num_learners) % num_gpus) for stage in range(num_stages)]


def micro_batches(batch: TrainingBatch, num: int) -> Iterator[TrainingBatch]:
    """Yield `num` groups of neighbouring utterances, without needless padding.

    There are fewer if it has fewer utterances.
    """
    for rows in np.array_split(np.arange(len(batch.ids)), min(num, len(batch.ids))):
        yield batch.rows(int(rows[0]), int(rows[-1]) + 1)


def add_losses(losses: Sequence[Loss], device: torch.device) -> Loss:
    """Return the sum of losses, its total on `device`."""
    figures: dict[str, float] = {}
    for loss in losses:
        for name, value in loss.figures.items():
            figures[name] = figures.get(name, 0.0) + value
    total = move(torch.stack([loss.total for loss in losses]).sum(), device)
    return Loss(total, sum(loss.normaliser for loss in losses), figures)


def move(values: Tensor, device: torch.device) -> Tensor:
    """Copy `values` to `device` asynchronously; gradients go the other way."""
    return values.to(device, non_blocking=True)


def begin_thread(device: torch.device) -> None:
    """Set the device of a thread, which otherwise starts on the first GPU."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def seed_device(device: torch.device, seed: Sequence[int]) -> None:
    """Seed the generator of `device` only, by whole numbers."""
    number = int(np.random.default_rng(seed).integers(2**63))
    generator = torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator
    generator.manual_seed(number)
