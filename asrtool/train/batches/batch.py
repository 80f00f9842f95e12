"""Batch of a training: model inputs, randomness, and saving of a bad one.

Letters in names: N utterances, T frames or words, F features of a frame, U targets of an utterance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from asrtool.errors import AsrtoolError
from asrtool.models.files.torch_file import write_torch

NUM_NAMED = 5  # utterances named in a message


@dataclass
class TrainingBatch:
    """Utterances ready for the model; for texts, sentences and words as frames."""

    ids: list[str]
    inputs_NT: np.ndarray  # frames (N, T, F), float32, or numbers of words (N, T), int64; padded with zeros
    input_lens_N: np.ndarray  # int64
    targets_NU: Tensor  # int64, padded with zeros
    target_lens_N: Tensor
    normaliser: int  # normaliser of the loss of the batch
    others_NT: np.ndarray | None = None  # second views of the utterances, as `inputs_NT`, if the objective needs two
    drawn: float = 0.0  # perf_counter when it was assigned
    draw_s: float = 0.0  # seconds that training waited for this assignment
    wait_s: float = 0.0  # seconds that it then waited for the batch
    torch_seed: int = 0  # seed of dropout in its step

    @property
    def frames(self) -> int:
        return int(self.input_lens_N.sum())

    @property
    def padded_frames(self) -> int:
        return int(np.prod(self.inputs_NT.shape[:2]))

    def rows(self, begin: int, end: int) -> TrainingBatch:
        """Return the utterances from `begin` to `end`, without needless padding."""
        rows = slice(begin, end)
        lens_N, target_lens_N = self.input_lens_N[rows], self.target_lens_N[rows]
        longest = int(lens_N.max())
        return dataclasses.replace(
            self,
            ids=self.ids[rows],
            inputs_NT=np.ascontiguousarray(self.inputs_NT[rows, :longest]),
            others_NT=None if self.others_NT is None else np.ascontiguousarray(self.others_NT[rows, :longest]),
            input_lens_N=lens_N,
            targets_NU=self.targets_NU[rows, : int(target_lens_N.max())],
            target_lens_N=target_lens_N,
        )


def pinned_NTF(shape: tuple[int, int, int]) -> np.ndarray:
    """Return float32 zeros in pinned memory, which a GPU copies while it computes."""
    return torch.zeros(shape, pin_memory=True).numpy()


Augment = Callable[[TrainingBatch, np.random.Generator], None]  # changes the inputs of a batch in place


def prepare_batch(batch: TrainingBatch, seed: int, number: int, augment: Augment | None) -> None:
    """Draw masks and dropout from the seed and the `number` of the batch.

    They are the same after a restart, and on any learner.
    """
    random = np.random.default_rng((seed, number))
    batch.torch_seed = int(random.integers(2**63))
    seed_torch(batch.torch_seed)
    if augment:
        augment(batch, random)


def seed_torch(seed: int) -> None:
    """Seed torch as `torch.manual_seed`, without half a millisecond for the stack."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def save_bad_batch(batch: TrainingBatch, step: int, what: str, out: Path, section: str) -> AsrtoolError:
    """Save `batch`, whose loss or gradient is NaN; return the error to raise.

    The hint names the `section` of the settings.
    """
    path = out / f"bad-batch-{step:08d}.pt"
    content = {
        "step": step,
        "ids": batch.ids,
        "targets_NU": batch.targets_NU,
        "inputs_NT": torch.from_numpy(batch.inputs_NT),
        "input_lens_N": torch.from_numpy(batch.input_lens_N),
    }
    if batch.others_NT is not None:
        content["others_NT"] = torch.from_numpy(batch.others_NT)
    write_torch(path, content)
    names = ", ".join(batch.ids[:NUM_NAMED]) + (", ..." if len(batch.ids) > NUM_NAMED else "")
    found = "" if np.isfinite(batch.inputs_NT).all() else "; its features are not finite"
    return AsrtoolError(
        f"step {step}: {what}{found}; the batch of {len(batch.ids)} utterances ({names}) is saved in {path}",
        f"remove bad utterances and make the features again, or lower {section}.peak_lr or {section}.clip_norm",
    )
