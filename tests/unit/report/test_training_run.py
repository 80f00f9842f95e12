"""A training read into arrays, and what is drawn of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_work import write_training

from asrtool.errors import AsrtoolError
from asrtool.report.figures.draw_training import MAX_POINTS, smooth, step_spans, time_fractions, timeline_windows
from asrtool.report.figures.figure import BETWEEN, PARTS
from asrtool.report.training import STEP, read_training


@pytest.fixture
def train(tmp_path: Path) -> Path:
    write_training(tmp_path)
    return tmp_path


def test_steps_times_and_synchronisations_are_read_as_they_were_written(train: Path) -> None:
    run = read_training(train)
    assert list(run.learners) == [0, 1]
    assert run.learners[1]["step"].tolist() == list(range(2, 41, 2))
    assert run.all_steps()["step"].tolist() == list(range(1, 41))
    assert (run.num_steps, run.strategy, run.finished, run.emulated) == (40, "adpsgd-random", True, False)
    # 40 of the 80 utterances took 3.75 of the 5 s
    assert run.seconds_at(np.array([0.0, 20, 40, 60, 80])) == pytest.approx([0, 1.875, 3.75, 4.375, 5])
    assert run.consensus[:, :2].tolist() == [[40, 0.01], [80, 0.001]]  # by utterances
    assert np.isnan(run.consensus[0, 2])
    assert run.consensus[1, 2] == 1e-7
    assert run.differ


def test_a_loss_that_is_nan_is_not_the_best(train: Path) -> None:
    dev = np.array([[1, np.nan], [2, 3.0], [3, 2.0], [4, 2.0]])
    assert dataclasses.replace(read_training(train), dev=dev).best == 2


def test_a_training_without_other_learners_has_nothing_to_agree_on(tmp_path: Path) -> None:
    write_training(tmp_path, num_learners=1)
    run = read_training(tmp_path)
    assert run.consensus.shape == (0, 3)
    assert not run.differ


def test_a_training_under_way_is_read_as_far_as_it_is(train: Path) -> None:
    (train / "train.json").unlink()
    with open(train / "learners/1.jsonl", "a") as file:
        file.write('{"epoch": 1, "ba')
    run = read_training(train)
    assert not run.finished
    assert run.seconds == 5
    assert run.num_steps == 40


def test_a_learner_0_without_a_batch_leaves_the_time_to_the_summary(train: Path) -> None:
    (train / "learners/0.jsonl").write_text("")
    (train / "metrics.jsonl").write_text("")
    run = read_training(train)
    assert run.seconds_at(np.array([40.0])) == pytest.approx([2.5])
    assert time_fractions(run, 0) == {**dict.fromkeys(PARTS, 0.0), BETWEEN: 1.0}


def test_a_folder_without_a_training_or_without_a_step_is_reported(train: Path) -> None:
    for path in (train / "learners").iterdir():
        path.write_text("")
    with pytest.raises(AsrtoolError, match="no learner has finished a step"):
        read_training(train)
    for path in (train / "learners").iterdir():
        path.unlink()
    with pytest.raises(AsrtoolError, match=r"learners: no steps of learners.*run stage train again with --force"):
        read_training(train)
    with pytest.raises(AsrtoolError, match=r"inputs\.json is missing; run stage train first"):
        read_training(train / "learners")


@pytest.mark.parametrize(
    ("line", "message"),
    [("{broken", r"0\.jsonl: line 21: broken JSON"), ('{"step": 1}', r"0\.jsonl: a line is no step"), ("3", "no step")],
)
def test_a_line_that_is_no_record_is_reported(train: Path, line: str, message: str) -> None:
    with open(train / "learners/0.jsonl", "a") as file:
        file.write(f"{line}\n")
    with pytest.raises(AsrtoolError, match=message):
        read_training(train)


def test_fractions_of_the_time_sum_to_one_also_of_steps_longer_than_the_training(train: Path) -> None:
    (train / "train.json").write_text(json.dumps({"seconds": 6.25}))
    expected = {"compute": 0.4, "wait": 0.2, "comm": 0.1, "data": 0.1, BETWEEN: 0.2}
    assert time_fractions(read_training(train), 1) == pytest.approx(expected)
    (train / "train.json").write_text(json.dumps({"seconds": 1.0}))
    assert time_fractions(read_training(train), 0)[BETWEEN] == pytest.approx(0)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=3000))
def test_smoothing_keeps_the_mean_and_the_order(losses: list[float]) -> None:
    steps = np.zeros(len(losses), STEP)
    steps["loss"] = losses
    steps["samples"] = np.arange(len(losses)) * 8
    samples, loss = smooth(steps)
    assert 1 <= len(samples) == len(loss) <= MAX_POINTS
    assert (np.diff(samples) > 0).all()
    begins = np.arange(len(loss)) * len(losses) // len(loss)
    expected = [np.mean(part) for part in np.split(np.array(losses), begins[1:])]
    assert loss == pytest.approx(expected, abs=1e-9)


@given(st.floats(0, 6), st.floats(0.01, 6))
def test_spans_of_a_window_fill_it_as_a_learner_without_pauses_does(begin: float, length: float) -> None:
    steps = np.zeros(20, STEP)
    steps["begin"] = 0.0625 + 0.25 * np.arange(20)
    for part, seconds in (("data", 0.0625), ("compute", 0.125), ("comm", 0.0625)):
        steps[f"{part}_s"] = seconds
    spans = np.concatenate(list(step_spans(steps, begin, begin + length).values()))
    assert np.sum(spans[:, 1] - spans[:, 0]) == pytest.approx(max(0, min(begin + length, 5) - begin))
    assert ((begin <= spans[:, 0]) & (spans[:, 1] <= begin + length)).all()
    ordered = spans[np.argsort(spans[:, 0])]
    assert ordered[1:, 0] == pytest.approx(ordered[:-1, 1])


@pytest.mark.parametrize(
    ("num_learners", "num_steps", "end", "middle"),
    [(2, 400, 12 * 0.25, (100 * 0.25, 112 * 0.25)), (1, 3, 0.75, (0.25, 0.75))],  # a short one to its end
)
def test_a_training_is_drawn_by_its_first_steps_and_those_in_the_middle(
    num_learners: int, num_steps: int, end: float, middle: tuple[float, float], tmp_path: Path
) -> None:
    write_training(tmp_path, num_learners, num_steps)
    windows = np.array(timeline_windows(read_training(tmp_path)))
    assert windows - 1e9 == pytest.approx(np.array([(0, end), middle]))


def test_many_learners_make_no_larger_drawing(tmp_path: Path) -> None:
    write_training(tmp_path, num_learners=64, num_steps=64 * 30)
    run = read_training(tmp_path)
    assert list(run.learners) == list(range(64))  # by their numbers
    begin, end = timeline_windows(run)[0]
    begins = run.all_steps()["begin"]
    assert 350 <= ((begins >= begin) & (begins < end)).sum() <= 450
