"""Checkpoint: everything a training needs to resume as if it had never stopped.

`checkpoints/step-NNNNNNNN.pt` holds ``format``, ``info`` (as in a model file), ``weights`` (of all learners
together), ``state``, and ``part`` of learner 0; with a moving average, ``ema`` has its ``weights`` and
``num_updates``. The part of learner R is in `step-NNNNNNNN.learner-R.pt`, written before the file that completes the
checkpoint, with the same ``mark``: a kill may leave parts beside an older file of that step.

A part has ``learner`` (its own state), ``keeper`` (the learner with the shared state), and ``shared`` if that is
itself. Random generators have no state: randomness is drawn from the seed and the place in the training. The
checkpoint at the end of a training has no parts.

The weights of a checkpoint contain exactly the batches before its place, except ``untrained``.
`learners/R.jsonl` up to ``record_bytes`` has them by learner.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from asrtool.errors import AsrtoolError
from asrtool.files import remove_leftovers
from asrtool.models.files.torch_file import read_torch, write_torch

FORMAT = 5
KEYS = ("format", "info", "weights", "part", "state")
ALL = f"step-{8 * '[0-9]'}.pt"
LEARNERS = f"step-{8 * '[0-9]'}.learner-*.pt"
NUM_RESUMABLE = 2  # newest checkpoints whose learners are kept: one to resume from, one in case it is damaged


Span = tuple[int, int, int]  # batches of an epoch: its number, the first, and one past the last


@dataclass(frozen=True)
class Origin:
    """A place in an epoch from which its batches can be planned again."""

    epoch: int
    batch: int
    number: int  # batches before it in the plan of the whole training
    source: dict[str, Any]  # the source's state, to continue planning


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is kept."""

    step: int
    dev_loss: float | None  # None between two epochs' ends


@dataclass
class State:
    """Progress of a training of all learners, in a checkpoint."""

    step: int = 0  # batches trained; batches of lost learners may count before a restart, after it, or twice
    epoch: int = 0  # epochs finished
    batch: int = 0  # batches of this epoch that are trained or among `untrained`
    untrained: list[Span] = field(default_factory=list)  # batches before this place that are not in the weights
    origins: list[Origin] = field(default_factory=list)  # origins of the epochs with such batches
    samples: int = 0  # utterances trained
    frames: int = 0  # feature frames trained
    padded_frames: int = 0  # the same with padding
    rounds: int = 0  # steps of a learner, if all step together
    seconds: float = 0.0  # in the loop, over all runs
    num_threads: int = 0  # torch threads; with the precision they decide the last bits of the weights
    precision: str = "auto"
    learners: list[int] = field(default_factory=lambda: [0])  # ranks of learners that are not lost
    group_size: int = 0  # learners that average their gradients; 0 if unknown
    record_bytes: list[int] = field(default_factory=list)  # lengths of the files of the learners
    source: dict[str, Any] = field(default_factory=dict)  # the source's state, to continue planning
    code: list[str] = field(default_factory=list)  # digests of the code that trained, one run after the other
    mark: str = ""  # mark of this checkpoint in the files of all learners
    saved: list[Saved] = field(default_factory=list)  # by step
    dev_losses: list[tuple[int, float]] = field(default_factory=list)  # epochs that had ended, and the loss on dev then
    unevaluated: list[int] = field(default_factory=list)  # steps of those whose loss on dev is still to be computed

    @property
    def num_learners(self) -> int:
        return len(self.learners)


def save_checkpoint(
    directory: Path,
    info: dict[str, Any],
    weights: dict[str, Tensor],
    part: dict[str, Any] | None,
    state: State,
    before_rename: Callable[[], None] = lambda: None,
    ema: dict[str, Any] | None = None,
) -> None:
    """Write the checkpoint of `state.step`.

    The other parts exist once `before_rename` returns.
    """
    content = {"format": FORMAT, "info": info, "weights": weights, "part": part, "state": dataclasses.asdict(state)}
    content |= {"ema": ema} if ema else {}
    write_torch(checkpoint_path(directory, state.step), content, before_rename)


def save_part(directory: Path, step: int, rank: int, part: dict[str, Any]) -> None:
    """Write the part of learner `rank`."""
    write_torch(learner_path(checkpoint_path(directory, step), rank), part)


def load_part(path: Path, rank: int, mark: str) -> dict[str, Any]:
    """Load the part of learner `rank`, not 0, of the checkpoint `path` with `mark`.

    Raises AsrtoolError if it is missing, damaged or of another checkpoint.
    """
    own = learner_path(path, rank)
    part = read_torch(own, "checkpoint", ("learner",))
    if part.get("mark", "") != mark:
        raise AsrtoolError(f"{own}: of another checkpoint than {path.name}", "resume from the one before")
    return part


def load_checkpoint(path: Path) -> tuple[dict[str, Any], State]:
    """Load a checkpoint and its state; AsrtoolError if it is missing or damaged."""
    content = read_torch(path, "checkpoint", KEYS)
    if content["format"] != FORMAT:
        raise AsrtoolError(f"{path}: checkpoint of format {content['format']}, expected {FORMAT}", "train again")
    return content, state_of(content["state"])


def final_weights(content: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights to evaluate and export: the moving average if there is one."""
    weights: dict[str, Tensor] = (content.get("ema") or content)["weights"]
    return weights


def state_of(fields: Mapping[str, Any]) -> State:
    """Build a state from the fields of a checkpoint or of JSON."""
    state = State(**fields)
    state.saved = [Saved(**entry) for entry in fields["saved"]]
    state.origins = [Origin(**entry) for entry in fields["origins"]]
    state.dev_losses = [(epochs, loss) for epochs, loss in fields.get("dev_losses", ())]
    state.untrained = [(epoch, first, end) for epoch, first, end in fields["untrained"]]
    return state


def load_newest(
    directory: Path, load: Callable[[Path], tuple[dict[str, Any], State]] = load_checkpoint
) -> tuple[dict[str, Any], State] | None:
    """Load the newest whole checkpoint; None without any.

    The steps of a damaged one are trained again. Raises AsrtoolError if all are damaged.
    """
    paths = sorted(directory.glob(ALL), reverse=True)
    for path in paths:
        try:
            return load(path)
        except AsrtoolError as error:
            logging.warning("%s; going back to the checkpoint before", error.what)
    if paths:
        raise AsrtoolError(
            f"{directory}: none of {len(paths)} checkpoints can be read",
            f"move {directory.parent} away to train from the beginning",
        )
    return None


def remove_others(directory: Path, saved: Iterable[Saved]) -> None:
    """Remove checkpoints not in `saved`, and old parts of learners.

    Parts of a later step stay: that checkpoint is being written.
    """
    kept = {checkpoint_path(directory, entry.step) for entry in saved}
    for path in set(directory.glob(ALL)) - kept:
        path.unlink()
    resumable = {path.stem for path in sorted(kept)[-NUM_RESUMABLE:]}
    newest = max(resumable, default="")
    for path in directory.glob(LEARNERS):
        step = path.name.split(".")[0]
        if step not in resumable and step <= newest:
            path.unlink()


def remove_unfinished(directory: Path) -> None:
    """Remove the files of killed processes of an unfinished checkpoint.

    No process may be writing one.
    """
    if not directory.exists():
        return
    remove_leftovers(directory)
    whole = {path.stem for path in directory.glob(ALL)}
    for path in directory.glob(LEARNERS):
        if path.name.split(".")[0] not in whole:
            path.unlink()


def to_keep(saved: list[Saved], keep_last: int, keep_best: int, unevaluated: Collection[int] = ()) -> list[Saved]:
    """Return the checkpoints to keep: last, best on dev, and unevaluated."""
    waiting = [entry for entry in saved if entry.step in unevaluated]
    kept = {entry.step: entry for entry in saved[-keep_last:] + best_first(saved)[:keep_best] + waiting}
    return [kept[step] for step in sorted(kept)]


def best_first(saved: Iterable[Saved]) -> list[Saved]:
    """Sort evaluated checkpoints by dev loss, earlier first, NaN last."""
    evaluated = [(entry.dev_loss, entry.step, entry) for entry in saved if entry.dev_loss is not None]
    return [entry for _, _, entry in sorted(evaluated, key=lambda one: (math.isnan(one[0]), *one[:2]))]


def checkpoint_path(directory: Path, step: int) -> Path:
    return directory / f"step-{step:08d}.pt"


def learner_path(path: Path, rank: int) -> Path:
    """Return the file of learner `rank` beside the checkpoint `path`."""
    return path.with_name(f"{path.stem}.learner-{rank}.pt")
