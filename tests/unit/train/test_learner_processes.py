"""The learners that tests share: one that hangs is shown, and spoils no later test."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import learners as learners_module
import pytest
from learners import Learners


def rank() -> int:
    return int(os.environ["RANK"])


def wait_in_vain(folder: Path) -> str:
    (folder / f"{rank()}.waits").touch()
    while not (folder / "end").exists():
        time.sleep(0.01)
    return "late"


def fail_or_wait(folder: Path) -> str:
    if rank() == 0:
        raise ValueError("this one")
    return wait_in_vain(folder)


def end_or_return() -> int:
    if rank() == 1:
        os._exit(3)
    return rank()


def test_a_learner_without_an_answer_is_shown_where_it_hangs(
    learners: Learners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = learners_module._answers

    def impatient(pipes: list[Connection]) -> dict[int, tuple[str, Any]]:
        while len(list(tmp_path.glob("*.waits"))) < len(pipes):
            time.sleep(0.01)
        return answers(pipes)

    monkeypatch.setattr(learners_module, "ANSWER_S", 0.1)
    monkeypatch.setattr(learners_module, "_answers", impatient)
    with pytest.raises(AssertionError) as error:
        learners.run(wait_in_vain, tmp_path, num=2)
    zero, one = str(error.value).split("learner 1 gives no answer:\n")
    assert zero.startswith("learner 0 gives no answer:\n")
    for stacks in (zero, one):
        assert stacks.count("in wait_in_vain\n") == 1


def test_after_a_failure_no_learner_answers_for_the_call_before(
    learners: Learners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learners_module, "FAILED_S", 0.1)
    with pytest.raises(AssertionError) as error:
        learners.run(fail_or_wait, tmp_path, num=3)
    failed, *silent = str(error.value).split(" gives no answer:\n")
    assert (failed.startswith("learner 0: Traceback"), "ValueError: this one" in failed, len(silent)) == (True, True, 2)
    (tmp_path / "end").touch()
    assert learners.run(rank) == [0, 1, 2, 3]


def test_a_learner_that_has_ended_is_replaced(learners: Learners) -> None:
    with pytest.raises(AssertionError, match="learner 1: it has ended"):
        learners.run(end_or_return, num=2)
    assert learners.run(rank) == [0, 1, 2, 3]
