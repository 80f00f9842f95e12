"""What a person may ask of steps: a learner that takes so many times longer, and a profile."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest
import torch
from toy_task import assert_same_bits, last_weights
from trainings import json_lines, toy_job

from asrtool.train.loop.profile import NUM_STEPS, SKIPPED, WARM_UP, profiling
from asrtool.train.loop.straggler import InjectionOptions, StragglerInjection
from asrtool.train.run import train


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that are slept, which pass at once."""
    seconds: list[float] = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


def test_a_slow_one_sleeps_so_that_a_step_takes_its_factor(slept: list[float]) -> None:
    """Of the first step the forward pass alone is known; steps of 2 s then sleep 8 s of their 10."""
    straggler = StragglerInjection(5.0)
    straggler.stretch(0.5)
    assert slept == [2.0]
    straggler.note(2.0)
    straggler.stretch(0.5)
    assert slept == pytest.approx([2.0, 8.0], abs=0.01)


def test_one_long_step_makes_the_next_one_long_and_no_other(slept: list[float]) -> None:
    straggler = StragglerInjection(5.0)
    for compute_s in (2.0, 12.0, 2.0, 2.0):
        straggler.stretch(0.5)
        straggler.note(compute_s)
    assert slept == pytest.approx([2.0, 8.0, 48.0, 8.0], abs=0.01)


def test_only_emulated_compute_has_an_effect_on_the_weights() -> None:
    assert InjectionOptions({1: 10.0}).as_inputs() == InjectionOptions().as_inputs()
    assert InjectionOptions(compute_ms=5).as_inputs() != InjectionOptions().as_inputs()


def test_a_training_is_slowed_by_what_its_last_step_took(
    slept: list[float], toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    out = tmp_path / "train"
    train(toy_job(toy, out, toy_config, ["train.num_epochs=1"], injection=InjectionOptions({0: 3.0})))
    took = [line["compute_s"] for line in json_lines(out / "learners" / "0.jsonl")]
    assert len(slept) == len(took) > 2
    assert slept[0] > 0
    backward_s = 0.0
    for seconds, compute_s in zip(slept, took, strict=True):
        forward_s = seconds / 2 - backward_s
        assert -1e-3 < forward_s < compute_s
        backward_s = compute_s - forward_s


def test_a_profile_shows_the_operations_of_ten_steps_and_leaves_the_weights(
    toy: Path, toy_config: Path, train_toy, tmp_path: Path
) -> None:
    train(dataclasses.replace(toy_job(toy, tmp_path / "profiled", toy_config), profiles=True))
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
    assert f"time by operation of {num_seen} steps" in caplog.text
