"""A learner made slower takes so many times longer a step, before others wait for it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from asrtool.settings.toml_files import load_config
from asrtool.train.loop.straggler import InjectionOptions, StragglerInjection
from asrtool.train.run import train
from asrtool.train.train import acoustic_job


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
    config = load_config([toy_config], ["train.num_epochs=1"])
    out = tmp_path / "train"
    train(acoustic_job(toy / "features", toy / "tokenizer", out, config, InjectionOptions({0: 3.0})))
    lines = (out / "learners" / "0.jsonl").read_text(encoding="utf-8").splitlines()
    took = [json.loads(line)["compute_s"] for line in lines]
    assert len(slept) == len(took) > 2
    assert slept[0] > 0
    backward_s = 0.0
    for seconds, compute_s in zip(slept, took, strict=True):
        forward_s = seconds / 2 - backward_s
        assert -1e-3 < forward_s < compute_s
        backward_s = compute_s - forward_s
