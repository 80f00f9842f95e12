"""Checkpoints: those kept, damaged ones, completeness, and averages against NumPy."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch.distributed import HashStore
from toy_task import NUM_BINS, NUM_TOKENS
from trainings import DEEP_SPEECH, summary

from asrtool.distributed.strategies.strategy import Snapshot
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import load_model
from asrtool.train.average import average_checkpoints
from asrtool.train.checkpoints.checkpoint import (
    FORMAT,
    Saved,
    State,
    best_first,
    checkpoint_path,
    load_checkpoint,
    load_newest,
    remove_others,
    remove_unfinished,
    save_checkpoint,
    to_keep,
)
from asrtool.train.checkpoints.checkpointer import Background, Checkpointer

WEIGHTS = {"w": torch.arange(3.0)}


def save(directory: Path, *steps: int) -> None:
    for step in steps:
        saved = [Saved(step, 0.5)]
        state = State(step=step, epoch=2, seconds=1.5, saved=saved)
        save_checkpoint(directory, {"model": {}}, WEIGHTS, {"strategy": {}}, state)


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_line(tmp_path, caplog) -> None:
    save(tmp_path, 3, 6, 9)
    path = checkpoint_path(tmp_path, 9)
    path.write_bytes(path.read_bytes()[:-100])
    with caplog.at_level(logging.WARNING):
        found = load_newest(tmp_path)
    assert found is not None
    assert found[1].step == 6
    assert "step-00000009.pt: no checkpoint, or a damaged one" in caplog.text
    assert "going back to the checkpoint before" in caplog.text


def test_when_no_checkpoint_can_be_read_training_does_not_begin_again_by_itself(tmp_path: Path) -> None:
    directory = tmp_path / "train" / "checkpoints"
    save(directory, 3, 6)
    for path in directory.iterdir():
        path.write_bytes(b"nothing")
    with pytest.raises(AsrtoolError, match=r"none of 2 checkpoints can be read; move .*train away to train from"):
        load_newest(directory)


def test_a_checkpoint_of_a_later_format_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("asrtool.train.checkpoints.checkpoint.FORMAT", FORMAT + 1)
        save(tmp_path, 3)
    with pytest.raises(AsrtoolError, match="none of 1 checkpoints"):
        load_newest(tmp_path)


def test_what_was_half_written_at_a_step_that_is_never_saved_again_is_removed(tmp_path: Path) -> None:
    save(tmp_path, 3)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    (tmp_path / f".{process.pid}.tmp.step-00000002.learner-1.pt").write_bytes(b"half")
    (tmp_path / "step-00000006.learner-1.pt").write_bytes(b"of a checkpoint that never became whole")
    (tmp_path / "step-00000003.learner-1.pt").touch()
    remove_unfinished(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["step-00000003.learner-1.pt", "step-00000003.pt"]


def test_parts_of_a_checkpoint_that_is_being_written_stay() -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        save(directory, 3, 6, 9)
        for step in (3, 6, 9, 12):
            (directory / f"step-{step:08d}.learner-1.pt").touch()
        remove_others(directory, [Saved(step, None) for step in (3, 6, 9)])
        left = sorted(path.name for path in directory.glob("*.learner-1.pt"))
        assert left == [f"step-{step:08d}.learner-1.pt" for step in (6, 9, 12)]


def test_the_last_and_the_best_are_kept() -> None:
    losses = [None, 3.0, None, 1.0, None, 2.0, None]
    saved = [Saved(step, loss) for step, loss in enumerate(losses)]
    assert [entry.step for entry in to_keep(saved, keep_last=2, keep_best=2)] == [3, 5, 6]
    assert [entry.step for entry in to_keep(saved, keep_last=1, keep_best=0)] == [6]


@pytest.mark.parametrize("losses", [(0.5, math.nan, 0.3), (math.nan, 0.5, 0.3), (0.3, math.nan, math.nan)])
def test_what_is_no_number_is_never_among_the_best(losses: tuple[float, ...]) -> None:
    saved = [Saved(step, loss) for step, loss in enumerate(losses)]
    best = losses.index(0.3)
    assert best_first(saved)[0].step == best
    assert [entry.step for entry in to_keep([*saved, Saved(3, 0.9)], keep_last=1, keep_best=1)] == [best, 3]


@given(st.lists(st.none() | st.floats(0, 9), max_size=12), st.integers(1, 5), st.integers(0, 4))
def test_keeping_after_every_save_keeps_what_keeping_at_the_end_would(
    losses: list[float | None], keep_last: int, keep_best: int
) -> None:
    kept: list[Saved] = []
    for step, loss in enumerate(losses):
        kept = to_keep([*kept, Saved(step, loss)], keep_last, keep_best)
    assert kept == to_keep([Saved(step, loss) for step, loss in enumerate(losses)], keep_last, keep_best)


@pytest.mark.parametrize("ends_before", [False, True])
def test_the_file_that_makes_a_checkpoint_whole_is_there_once_the_parts_of_all_are(tmp_path, ends_before: bool) -> None:
    store, path, model = HashStore(), tmp_path / "step-00000005.pt", torch.nn.Linear(2, 1)
    strategy: Any = SimpleNamespace(take_snapshot=lambda _: Snapshot({}), consensus=nullcontext, ema=None)
    first, second, third = (Checkpointer(tmp_path, {}, World(rank, 3, 3, store)) for rank in range(3))
    for learner in (second, first):
        learner.save(model, strategy, State(step=5), Saved(5, None))
    while not list(tmp_path.glob(".*.step-00000005.pt")):
        time.sleep(0.001)
    time.sleep(0.3)
    assert not path.exists()
    if ends_before:
        first.closing.set()
    else:
        third.save(model, strategy, State(step=5), Saved(5, None))
    first.drain()
    assert path.exists() != ends_before
    assert not list(tmp_path.glob(".*.step-00000005.pt"))
    if not ends_before:
        assert load_checkpoint(path)[1] == State(step=5, mark="-5")
    for learner in (first, second, third):
        learner.close()


def test_what_a_function_raises_is_raised_by_the_next_look() -> None:
    background = Background("test")
    background.submit([].pop)
    with pytest.raises(IndexError):
        background.drain()
    background.close()


@pytest.mark.parametrize(("by", "num"), [("last", 3), ("best", 2), ("last", 9)])
def test_the_last_or_the_best_are_averaged_in_float64_and_too_few_of_them_are_reported(
    undisturbed, tmp_path, caplog, by: str, num: int
) -> None:
    """Statistics of batches as well; counters are those of the newest."""
    trained = undisturbed(*DEEP_SPEECH)
    saved = summary(trained)["checkpoints"]
    evaluated = sorted((entry for entry in saved if entry["dev_loss"] is not None), key=lambda entry: entry["dev_loss"])
    steps = [entry["step"] for entry in (saved[-num:] if by == "last" else evaluated[:num])]
    with caplog.at_level("INFO"):
        average_checkpoints(trained, tmp_path / "model.pt", by, num)
    few = f"averaging the {len(saved)} that are there, of 9 checkpoints wanted"
    assert (few in caplog.text) == (num == 9)
    paths = {step: trained / "checkpoints" / f"step-{step:08d}.pt" for step in steps}
    weights = {step: torch.load(path, weights_only=True)["weights"] for step, path in paths.items()}
    model, info = load_model(tmp_path / "model.pt")
    assert (info["features"]["cmvn"], info["features"]["sampling_rate_hz"]) == ("none", 8000)
    assert (info["num_features"], info["num_tokens"]) == (NUM_BINS, NUM_TOKENS)
    for name, weight in model.state_dict().items():
        mean = np.mean([weights[step][name].double().numpy() for step in steps], axis=0)
        newest = weights[max(steps)][name]
        expected = mean.astype(np.float32) if newest.is_floating_point() else newest.numpy()
        np.testing.assert_array_equal(weight.numpy(), expected, name)


def test_without_checkpoints_the_stage_to_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match="no checkpoint; run the train stage first"):
        average_checkpoints(tmp_path, tmp_path / "model.pt", "last", 3)
