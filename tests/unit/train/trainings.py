"""Trainings of the toy task in a test: how to begin and to stop them, and what they leave."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from learners import batches_trained, planned
from toy_task import NUM_BINS, NUM_TOKENS, SETTINGS, assert_same_bits, last_weights

from asrtool.distributed.work.lost_batches import LostBatches
from asrtool.distributed.work.work_queue import Assignment, AssignmentRule, WorkQueue
from asrtool.distributed.world import World
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.acoustic import build_model
from asrtool.settings import registry
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.settings.train import Shards
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.plan import Plan
from asrtool.train.batches.source import SourceContext
from asrtool.train.checkpoints.checkpoint import State, load_checkpoint
from asrtool.train.checkpoints.coordinator import LearnerRequests
from asrtool.train.job import Components, Job
from asrtool.train.loop import loop
from asrtool.train.loop.loop import Training
from asrtool.train.run import train as train_job
from asrtool.train.train import acoustic_job, build_components

STRATEGIES = [name for name in registry.names("strategy") if name != "single"]
LOCKSTEP = ["allreduce", "ps-sync", "adpsgd-d1", "bmuf", "h-adpsgd by adpsgd-d1"]
# With statistics of batches, which learners keep for themselves.
DEEP_SPEECH = ("model.encoder=deepspeech2", "model.deepspeech2.num_layers=1", "model.deepspeech2.hidden_size=8")
AHEAD = 6  # batches that others ask for at most before a learner is stopped, lest they end the training without it
TIMES = ("seconds", "frames_per_s")


def toy_job(toy: Path, out: Path, config: Path, overrides: Sequence[str] = (), **more: Any) -> Job:
    """The job of a training in `out` on the features and the tokenizer in `toy`."""
    return acoustic_job(toy / "features", toy / "tokenizer", out, load_config([config], overrides), **more)


def run_training(
    toy: Path, config: Path, out: Path, overrides: Sequence[str] = (), targets: Path | None = None
) -> None:
    """Train there, as a learner if the environment says that this process is one."""
    train_job(toy_job(toy, out, config, overrides, targets=targets))


def components_of(toy: Path, config: Path, *overrides: str, **more: Any) -> Components:
    """Sets, model and file info of a training on the features and the tokenizer in `toy`."""
    return build_components(toy / "features", toy / "tokenizer", load_config([config], overrides), **more)


def source_context(toy: Path, row_frames: int = 2, **changes: Any) -> SourceContext:
    """Return the arguments to open the shards of the toy task, for a model with this subsampling."""
    lstm = Choice.of("encoder", "lstm", num_layers=1, hidden_size=2, stack_frames=2)
    model = build_model(Model(encoder=lstm), NUM_BINS, NUM_TOKENS)
    model.encoder.subsampling = row_frames
    encode = Tokenizer.load(toy / "tokenizer").encode
    context = SourceContext(Shards(), toy / "features" / "train", SETTINGS, encode, model, 150, 1)
    return dataclasses.replace(context, **changes)


def batch_of(lens: Sequence[int], num_bins: int = 8) -> TrainingBatch:
    """Random features of utterances of these lengths, and some tokens of each."""
    random = np.random.default_rng(1)
    inputs_NT = np.zeros((len(lens), max(lens), num_bins), dtype=np.float32)
    for row, length in zip(inputs_NT, lens, strict=True):
        row[:length] = random.standard_normal((length, num_bins))
    target_lens_N = torch.tensor([1 + length % 4 for length in lens])
    targets_NU = torch.arange(1, 5).repeat(len(lens), 1)[:, : int(target_lens_N.max())]
    targets_NU = targets_NU * (targets_NU <= target_lens_N[:, None])
    names = [str(number) for number in range(len(lens))]
    normaliser = int(target_lens_N.sum())
    return TrainingBatch(names, inputs_NT, np.array(lens), targets_NU, target_lens_N, normaliser, torch_seed=7)


SMALL = ("h-adpsgd.node_size", "bmuf.block_steps", "ps-sync.num_servers", "ps-async.num_servers")


def named(name: str) -> tuple[str, ...]:
    """The settings of a strategy, which may be named with the rule between its nodes: h-adpsgd by RULE."""
    strategy, _, outer = name.partition(" by ")
    chosen = f"distributed.strategy={strategy}", f"distributed.h-adpsgd.outer={outer or 'adpsgd-random'}"
    return (*chosen, *(f"distributed.{key}=2" for key in SMALL))


def train_as_learner(
    toy: Path, config: Path, out: Path, overrides: tuple[str, ...], stop: tuple[int, int] | None
) -> None:
    """Be one of the learners; `stop` = (rank, times) sends that learner SIGTERM at its batch number `times`."""

    def make_queue(
        world: World, rule: AssignmentRule, plan: Plan, requests: LearnerRequests, lost_batches: LostBatches | None
    ) -> WorkQueue:
        num_asked, stop_requested = 0, requests.stop

        def requested() -> bool:
            nonlocal num_asked
            num_asked += 1
            if stop == (world.rank, num_asked):
                time.sleep(0.1)  # the others do what they can without this one
                if world.store:
                    world.store.set("stopped", "")
                signal.raise_signal(signal.SIGTERM)
            while stop and num_asked > stop[1] + AHEAD and not world.store.check(["stopped"]):
                time.sleep(0.001)
            return stop_requested()

        requests.stop = requested  # type: ignore[method-assign]
        return WorkQueue(world, rule, plan, requests, lost_batches)

    with patch.object(loop, "WorkQueue", make_queue):
        train_or_stop(toy, config, out, overrides, stop is not None)


def train_or_stop(toy: Path, config: Path, out: Path, overrides: tuple[str, ...], stops: bool) -> None:
    """Train to the end, or until SIGTERM if the training `stops`."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        run_training(toy, config, out, overrides)
        assert not stops
    except SystemExit:
        assert stops


@contextlib.contextmanager
def interrupted_at(epoch: int, batch: int) -> Iterator[None]:
    """Ctrl-C in the step of this batch, both numbers from 0; the training inside ends by it."""
    step = Training.step

    def interrupted(self: Training, assignment: Assignment, *args: Any) -> Any:
        if assignment.batch == (epoch, batch):
            signal.raise_signal(signal.SIGINT)
        return step(self, assignment, *args)

    with patch.object(Training, "step", interrupted), pytest.raises(KeyboardInterrupt):
        yield


def summary(out: Path) -> dict[str, Any]:
    """The content of train.json."""
    found: dict[str, Any] = json.loads((out / "train.json").read_text(encoding="utf-8"))
    return found


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def metrics(out: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, all or of a kind."""
    return [line for line in json_lines(out / "metrics.jsonl") if kind in (None, line["kind"])]


def dev_losses(out: Path) -> list[float]:
    return [line["loss"] for line in metrics(out, "dev")]


def metric_steps(out: Path) -> list[tuple[str, int]]:
    return [(line["kind"], line["step"]) for line in metrics(out)]


def recorded_before(out: Path, state: State) -> list[tuple[int, int]]:
    """Epoch and batch of the steps of all learners that are in a checkpoint, by the lengths of their records."""
    parts = [
        (out / "learners" / f"{rank}.jsonl").read_bytes()[:length] for rank, length in enumerate(state.record_bytes)
    ]
    found = [json.loads(line) for part in parts for line in part.splitlines()]
    return [(line["epoch"], line["batch"]) for line in found]


def assert_recorded_once(out: Path, toy: Path, config: Path) -> list[State]:
    """Each batch was trained once, and each checkpoint has those before it but those it names; their states."""
    of_all = planned(toy, config)
    assert batches_trained(out) == of_all
    states = [load_checkpoint(path)[1] for path in sorted((out / "checkpoints").glob("step-????????.pt"))]
    for state in states:
        untrained = {(epoch + 1, i) for epoch, first, end in state.untrained for i in range(first, end)}
        before = {batch for batch in of_all if batch < (state.epoch + 1, state.batch)}
        assert sorted(recorded_before(out, state)) == sorted(before - untrained)
    return states


def assert_same_training(out: Path, undisturbed: Path) -> None:
    """Everything that training wrote is the same but for times and the files of TensorBoard, one a run."""
    assert_same_bits(last_weights(out), last_weights(undisturbed))
    assert metric_steps(out) == metric_steps(undisturbed)
    assert _file_names(out) == _file_names(undisturbed)
    assert {**summary(out), **dict.fromkeys(TIMES)} == {**summary(undisturbed), **dict.fromkeys(TIMES)}


def _file_names(out: Path) -> list[Path]:
    names = [path.relative_to(out) for path in sorted(out.rglob("*"))]
    return [name for name in names if name.parts[0] != "tensorboard"]
