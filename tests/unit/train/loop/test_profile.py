"""The profile of a training."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from toy_task import assert_same_bits, last_weights
from trainings import toy_job

from asrtool.train.loop.profile import NUM_STEPS, SKIPPED, WARM_UP, profiling
from asrtool.train.run import train


def train_profiled(toy: Path, toy_config: Path, out: Path, *overrides: str) -> None:
    job = toy_job(toy, out, toy_config, overrides)
    train(dataclasses.replace(job, profiles=True))


def test_a_profile_shows_the_operations_of_ten_steps_and_leaves_the_weights(
    toy: Path, toy_config: Path, train_toy, tmp_path: Path
) -> None:
    train_profiled(toy, toy_config, tmp_path / "profiled")
    assert_same_bits(last_weights(tmp_path / "profiled"), train_toy(tmp_path / "plain"))
    trace = json.loads((tmp_path / "profiled/profile/learner-0.json").read_text(encoding="utf-8"))
    steps = {event["name"] for event in trace["traceEvents"] if str(event.get("name")).startswith("ProfilerStep#")}
    first = SKIPPED + WARM_UP
    assert steps == {f"ProfilerStep#{number}" for number in range(first, first + NUM_STEPS)}
    table = (tmp_path / "profiled/profile/learner-0.txt").read_text(encoding="utf-8")
    assert "aten::_ctc_loss" in table
    assert "Self CPU" in table


@pytest.mark.parametrize(("num_steps", "num_seen"), [(SKIPPED + WARM_UP + 3, 3), (SKIPPED + WARM_UP + 15, NUM_STEPS)])
def test_the_log_counts_the_steps_that_are_in_the_trace(
    num_steps: int, num_seen: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with profiling(tmp_path, 0) as step_ended:
        for _ in range(num_steps):
            torch.ones(3).sum()
            step_ended()
    trace = json.loads((tmp_path / "learner-0.json").read_text(encoding="utf-8"))["traceEvents"]
    steps = {event["name"] for event in trace if event.get("name", "").startswith("ProfilerStep#")}
    assert len(steps) in (num_seen, num_seen + 1)  # one has begun where the training ends before the tenth
    assert f"where the time of {num_seen} steps went" in caplog.text
