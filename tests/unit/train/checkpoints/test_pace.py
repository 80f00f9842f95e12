"""Checkpoints by time are for resuming alone: what counts, and so what is averaged, follows from steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from learners import Learners
from toy_task import TOY_CONFIG
from trainings import toy_job

from asrtool.settings.train import Train
from asrtool.train.checkpoints import coordinator as pace_module
from asrtool.train.checkpoints.checkpoint import State, checkpoint_path, load_checkpoint
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.checkpoints.coordinator import Pace
from asrtool.train.loop.stop import Stop
from asrtool.train.run import train as train_job

MINUTE = "train.save_every_minutes=1"


class Clock:
    """At each look a minute has passed."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += 61
        return self.now_s


def never(num_steps: int) -> bool:
    return False


def test_steps_are_counted_from_the_last_checkpoint_by_steps_whatever_was_saved_by_time() -> None:
    def due(minutes: float) -> list[int]:
        with patch.object(pace_module, "time", Clock()):
            pace = Pace(Train(save_every_steps=4, save_every_minutes=minutes), 0, False, Stop(), lambda: False)
            granted = [number for number in range(20) if pace.save(number, never)]
        assert len(granted) == len(pace.by_steps)
        return [number for number, by_steps in zip(granted, pace.by_steps, strict=True) if by_steps]

    assert due(minutes=1) == due(minutes=0) == [4, 8, 12, 16]
    with patch.object(pace_module, "time", Clock()):
        pace = Pace(Train(save_every_steps=0, save_every_minutes=1), 0, False, Stop(), lambda: False)
        assert all(pace.save(number, never) for number in range(5))
    assert pace.by_steps == [False] * 5


def test_that_of_an_epoch_takes_the_place_of_one_that_steps_ask_for_shortly_before() -> None:
    pace = Pace(Train(save_every_steps=20), 0, False, Stop(), lambda: False)
    ends = (22, 45, 100)  # of epochs: 2 steps behind 20, then 5 behind 40
    granted = [
        number
        for number in range(1, 100)
        if pace.save(number, lambda num_steps, number=number: any(number < end <= number + num_steps for end in ends))
    ]
    assert granted == [40, 60, 80]
    assert pace.by_steps == [True] * 3


def save_by_the_minute(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> list[int]:
    """Train, where a minute passes between any two looks at the clock; the steps saved, by learner 0."""
    saved: list[int] = []
    write_whole = Checkpointer.write_whole

    def noted(self: Checkpointer, weights: Any, part: Any, state: State, *more: Any, **named: Any) -> None:
        write_whole(self, weights, part, state, *more, **named)
        step = state.step
        saved.append(step)
        assert checkpoint_path(self.directory, step).exists()

    never_busy = patch.object(Checkpointer, "busy", False)  # else a slow disk leaves some out
    with patch.object(pace_module, "time", Clock()), patch.object(Checkpointer, "write_whole", noted), never_busy:
        train_job(toy_job(toy, out, config, overrides))
    return saved


def steps_of(out: Path) -> list[int]:
    return [int(path.stem.removeprefix("step-")) for path in sorted((out / "checkpoints").glob("step-????????.pt"))]


def test_those_kept_are_the_same_with_and_without_checkpoints_by_time(
    toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    without = save_by_the_minute(toy, toy_config, tmp_path / "without", ())
    assert sorted(steps_of(tmp_path / "without")) == sorted(without)[-len(steps_of(tmp_path / "without")) :]
    every = save_by_the_minute(toy, toy_config, tmp_path / "every", (MINUTE,))
    assert len(every) > len(without)
    assert set(without) <= set(every)
    assert steps_of(tmp_path / "every") == steps_of(tmp_path / "without")


@pytest.mark.parametrize("strategy", ["none", "ps-async"])
def test_those_by_time_of_learners_that_wait_for_nobody_are_not_kept(toy: Path, tmp_path: Path, strategy: str) -> None:
    config = tmp_path / "toy.toml"
    config.write_text(TOY_CONFIG.replace("batch_s = 1.5", "batch_s = 0.9"))
    overrides = (MINUTE, "train.save_every_steps=0", f"distributed.strategy={strategy}")
    learners = Learners(2)
    try:
        first, _ = learners.run(save_by_the_minute, toy, config, tmp_path / "out", overrides)
    finally:
        learners.close()
    ends = [step for step in first if load_epoch_end(tmp_path / "out", step)]
    assert steps_of(tmp_path / "out") == ends
    assert len(ends) == 3


def load_epoch_end(out: Path, step: int) -> bool:
    """Whether a checkpoint is there, and behind the last batch of an epoch."""
    path = checkpoint_path(out / "checkpoints", step)
    return path.exists() and load_checkpoint(path)[1].batch == 0
