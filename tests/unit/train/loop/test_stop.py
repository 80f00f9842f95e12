"""Signals to a training, an injected straggler, and a profile."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time

import pytest
from toy_task import assert_same_bits, last_weights
from trainings import json_lines, toy_job

from asrtool.train.loop.profile import NUM_STEPS, SKIPPED, WARM_UP
from asrtool.train.loop.straggler import InjectionOptions, StragglerInjection
from asrtool.train.run import train

PROGRAM = """
import signal
from asrtool.train.loop import stop
stop.REPEAT_S = {repeat_s}
try:
    with stop.Stop() as stop_:
        signal.raise_signal(signal.SIGTERM)
        print("first", stop_.requested, flush=True)
        signal.raise_signal(signal.{name})
        print("second", flush=True)
finally:
    print("closed", flush=True)
"""

IN_A_LINE = """
import io, logging, signal
from asrtool.train.loop import stop

class Terminal(io.RawIOBase):
    shown = b""

    def writable(self):
        return True

    def write(self, data):
        if not self.shown:
            signal.raise_signal(signal.SIGTERM)
        self.shown += data
        return len(data)

terminal = Terminal()
stream = io.TextIOWrapper(io.BufferedWriter(terminal), line_buffering=True)  # as standard error is
logging.basicConfig(stream=stream, format="%(message)s", level=logging.INFO)
signal.signal(signal.SIGTERM, lambda *_: None)
with stop.Stop() as stop_:
    logging.info("epoch 1")
    assert stop_.requested and stop_.requested
print(terminal.shown.decode(), end="")
"""


FAILING = """
import signal
from asrtool.train.loop.stop import Stop
with Stop():
    signal.raise_signal(signal.SIGTERM)
    raise ValueError("of a batch")
"""


def run(name: str, repeat_s: float) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", PROGRAM.format(name=name, repeat_s=repeat_s)]
    ended = subprocess.run(command, capture_output=True, text=True)
    return ended.returncode, ended.stdout.split()


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_later_signal_ends_the_process_at_once(name: str, code: int) -> None:
    assert run(name, repeat_s=0) == (code, ["first", "True"])


def test_signals_one_right_after_the_other_are_one() -> None:
    assert run("SIGTERM", repeat_s=60) == (-15, ["first", "True", "second"])


def test_an_error_is_reported_although_a_signal_has_come() -> None:
    ended = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.endswith("ValueError: of a batch\n")


def test_a_signal_in_the_middle_of_a_line_of_the_log_is_logged_in_the_next() -> None:
    ended = subprocess.run([sys.executable, "-c", IN_A_LINE], capture_output=True, text=True, check=True)
    assert ended.stdout == "epoch 1\nasked to stop (SIGTERM): saving a checkpoint\n"
    assert ended.stderr == ""


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that are slept, which pass at once."""
    seconds: list[float] = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


def test_a_slow_one_sleeps_so_that_a_step_takes_its_factor(slept: list[float]) -> None:
    """Before the first step only the forward pass is known; one long step makes only the next one long."""
    straggler = StragglerInjection(5.0)
    for compute_s in (2.0, 12.0, 2.0, 2.0):
        straggler.stretch(0.5)
        straggler.note(compute_s)
    assert slept == pytest.approx([2.0, 8.0, 48.0, 8.0], abs=0.01)


def test_only_emulated_compute_has_an_effect_on_the_weights() -> None:
    assert InjectionOptions({1: 10.0}).as_inputs() == InjectionOptions().as_inputs()
    assert InjectionOptions(compute_ms=5).as_inputs() != InjectionOptions().as_inputs()


def test_a_training_is_slowed_by_what_its_last_step_took(slept, toy, toy_config, tmp_path) -> None:
    out = tmp_path / "train"
    train(toy_job(toy, out, toy_config, ["train.num_epochs=1"], injection=InjectionOptions({0: 3.0})))
    assert len(slept) == len(json_lines(out / "learners" / "0.jsonl")) > 2
    assert min(slept) > 0


def test_a_profile_shows_the_operations_of_ten_steps_and_leaves_the_weights(
    toy, toy_config, undisturbed, tmp_path
) -> None:
    train(dataclasses.replace(toy_job(toy, tmp_path / "profiled", toy_config), profiles=True))
    assert_same_bits(last_weights(tmp_path / "profiled"), last_weights(undisturbed()))
    trace = json.loads((tmp_path / "profiled/profile/learner-0.json").read_text(encoding="utf-8"))
    steps = {event["name"] for event in trace["traceEvents"] if str(event.get("name")).startswith("ProfilerStep#")}
    first = SKIPPED + WARM_UP
    assert steps == {f"ProfilerStep#{number}" for number in range(first, first + NUM_STEPS)}
    table = (tmp_path / "profiled/profile/learner-0.txt").read_text(encoding="utf-8")
    assert "aten::_ctc_loss" in table
    assert "Self CPU" in table
