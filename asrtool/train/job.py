"""Job of a training: folders, settings, model and data. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.settings.distributed import Distributed
from asrtool.settings.train import Optimisation
from asrtool.train.inputs import Inputs
from asrtool.train.loop.straggler import InjectionOptions

if TYPE_CHECKING:
    from asrtool.models.acoustic import AcousticModel
    from asrtool.train.batches.batch import Augment
    from asrtool.train.batches.source import BatchSource, DevSet
    from asrtool.train.checkpoints.checkpoint import State


@dataclass(frozen=True)
class Components:
    """Model, data and optimisation of a training; `info` is its model file's."""

    info: dict[str, Any]
    model: AcousticModel
    train_set: BatchSource
    dev_set: DevSet
    augment: Augment | None = None
    max_frames: int = 0  # frames computed at once, padding included; 0 is no limit
    frame_ms: float = 10.0


@dataclass(frozen=True)
class Job:
    """Folders and settings of a training."""

    out: Path
    inputs: Inputs
    optimisation: Optimisation
    distributed: Distributed
    build: Callable[[int], Components]  # number of learners -> model, drawn from the seed, and its data
    finish: Callable[[State], dict[str, Any]] = lambda _: {}  # at the end, before train.json, which gets the result
    injection: InjectionOptions = field(default_factory=InjectionOptions)
    code: str = ""  # digest of the code that trains
    profiles: bool = False  # torch's profiler records some steps
    logs_events: bool = False  # log the order of changes to weights in `out`
    num_stages: int = 1  # devices of a learner
    num_micro_batches: int = 1  # micro-batches of a batch, if there are several stages
