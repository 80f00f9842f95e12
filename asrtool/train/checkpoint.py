"""Checkpoints: everything a training needs to go on as if it had never stopped.

`checkpoints/step-NNNNNNNN.pt` holds ``format``, ``info`` (as in a model file), ``weights``, ``optimizer`` and
``state``. The state of random generators is not among them: the randomness of a step is drawn from (seed, step).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.models.torch_file import read_torch, write_torch

FORMAT = 1
KEYS = ("format", "info", "weights", "optimizer", "state")


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is kept."""

    step: int
    dev_loss: float | None  # None between two epochs' ends


@dataclass
class State:
    """How far a training has come."""

    step: int = 0  # batches trained
    epoch: int = 0  # epochs finished
    batch: int = 0  # batches trained in this epoch
    samples: int = 0  # utterances trained
    frames: int = 0  # feature frames trained
    padded_frames: int = 0  # the same with padding
    seconds: float = 0.0  # spent in the loop, over all runs
    metrics_bytes: int = 0  # length of metrics.jsonl
    num_threads: int = 0  # of torch; with the precision it decides the last bits of the weights
    precision: str = "auto"
    saved: list[Saved] = field(default_factory=list)  # by step


def save_checkpoint(directory: Path, info: dict[str, Any], learner: dict[str, Any], state: State) -> None:
    """Write the checkpoint of `state.step`; `learner` is ``{"weights": ..., "optimizer": ...}``."""
    content = {"format": FORMAT, "info": info, **learner, "state": dataclasses.asdict(state)}
    write_torch(checkpoint_path(directory, state.step), content)


def load_checkpoint(path: Path) -> tuple[dict[str, Any], State]:
    """The content of a checkpoint, and its state; AsrtoolError when it is missing or damaged."""
    content = read_torch(path, "checkpoint", KEYS)
    if content["format"] != FORMAT:
        raise AsrtoolError(f"{path}: checkpoint of format {content['format']}, expected {FORMAT}", "train again")
    fields = dict(content["state"])
    return content, State(**{**fields, "saved": [Saved(**entry) for entry in fields["saved"]]})


def load_newest(directory: Path) -> tuple[dict[str, Any], State] | None:
    """The newest checkpoint that is whole, or None when there is none at all.

    What a damaged one held is trained again from the one before. Raises AsrtoolError when all are damaged.
    """
    paths = sorted(directory.glob("step-*.pt"), reverse=True)
    for path in paths:
        try:
            return load_checkpoint(path)
        except AsrtoolError as error:
            logging.warning("%s; going back to the checkpoint before", error.what)
    if paths:
        raise AsrtoolError(
            f"{directory}: none of {len(paths)} checkpoints can be read",
            f"move {directory.parent} away to train from the beginning",
        )
    return None


def remove_others(directory: Path, saved: Iterable[Saved]) -> None:
    """Remove the checkpoints that are not among `saved`."""
    kept = {checkpoint_path(directory, entry.step) for entry in saved}
    for path in set(directory.glob("step-*.pt")) - kept:
        path.unlink()


def to_keep(saved: list[Saved], keep_last: int, keep_best: int) -> list[Saved]:
    """Those of `saved` to keep: the last ones, and those with the lowest loss on dev."""
    kept = {entry.step: entry for entry in saved[-keep_last:] + best_first(saved)[:keep_best]}
    return [kept[step] for step in sorted(kept)]


def best_first(saved: Iterable[Saved]) -> list[Saved]:
    """Those evaluated, by loss on dev, the earlier first among equals."""
    evaluated = [(entry.dev_loss, entry.step, entry) for entry in saved if entry.dev_loss is not None]
    return [entry for _, _, entry in sorted(evaluated)]


def checkpoint_path(directory: Path, step: int) -> Path:
    return directory / f"step-{step:08d}.pt"
