"""Hosts of a training: metrics, table, figure, and `asrtool watch`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import error_of, run_command
from report_work import write_lines, write_training

from asrtool.report.figures.training_figures import describe_training, figure_names
from asrtool.report.training import read_training
from asrtool.report.watch import format_progress
from asrtool.train.loop.host_rates import HostRates

STEP = {"wait_s": 0.5, "compute_s": 1.0, "comm_s": 0.25, "data_s": 0.25, "staleness": 2, "skipped": 1}


def _lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def add_steps(out: Path, rank: int, host: str, num: int, **changes: float) -> None:
    path = out / "learners" / f"{rank}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.writelines(json.dumps({**STEP, **changes, "host": host}) + "\n" for _ in range(num))


def test_rates_are_those_of_the_steps_since_the_last_call_by_host(tmp_path: Path) -> None:
    times = iter([0.0, 4.0, 14.0])
    add_steps(tmp_path, 0, "a", 3)  # before a restart
    rates = HostRates(tmp_path, 3, clock=lambda: next(times))
    add_steps(tmp_path, 0, "a", 4)
    add_steps(tmp_path, 1, "a", 4, staleness=0)
    add_steps(tmp_path, 3, "b", 2, wait_s=0.0)
    found = rates.take()
    assert list(found) == ["a", "b"]
    assert found["a"] == {
        "learners": 2, "steps_per_s": 2.0, "wait_fraction": 0.25, "staleness": 1.0, "skipped": 8, "lost": 0, "joined": 0
    }  # fmt: skip
    assert (found["b"]["steps_per_s"], found["b"]["wait_fraction"], found["b"]["joined"]) == (0.5, 0.0, 1)
    (tmp_path / "learners" / "1.lost").touch()
    add_steps(tmp_path, 0, "a", 5)
    found = rates.take()
    assert (found["a"]["steps_per_s"], found["a"]["learners"], found["a"]["lost"]) == (0.5, 1, 1)
    assert found["b"]["steps_per_s"] == 0


def test_a_resumed_training_counts_from_the_lengths_that_its_checkpoint_has(tmp_path: Path) -> None:
    add_steps(tmp_path, 0, "a", 2)
    kept = (tmp_path / "learners" / "0.jsonl").stat().st_size
    add_steps(tmp_path, 0, "a", 9)
    times = iter([0.0, 1.0])
    rates = HostRates(tmp_path, 2, [kept], clock=lambda: next(times))
    with open(tmp_path / "learners" / "0.jsonl", "r+b") as file:
        file.truncate(kept)
    add_steps(tmp_path, 0, "a", 3)
    add_steps(tmp_path, 1, "b", 1)
    with open(tmp_path / "learners" / "1.jsonl", "ab") as file:
        file.write(b'{"half a')
    assert {host: values["steps_per_s"] for host, values in rates.take().items()} == {"a": 3, "b": 1}


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """Finished training of three learners on two hosts, of which one was lost and one joined."""
    folder = tmp_path / "train"
    write_training(folder, num_learners=3)
    for rank, host in enumerate(["a", "a", "b"]):
        path = folder / f"learners/{rank}.jsonl"
        write_lines(path, [{**line, "host": host} for line in _lines(path)])
    lines = []
    for line in _lines(folder / "metrics.jsonl"):
        lines.append({"epoch": 1, "frames_per_s": 800.0, **line})
        for host, speed in (("a", 6.0), ("b", 2.5)) if line["kind"] == "train" else ():
            rates = {"learners": 1, "steps_per_s": speed, "wait_fraction": 0.25, "staleness": 1.0, "skipped": 3}
            lines.append({"kind": f"host/{host}", "step": line["step"], **rates, "lost": 1, "joined": 0})
    write_lines(folder / "metrics.jsonl", lines)
    final = json.loads((folder / "train.json").read_text())
    write_lines(folder / "train.json", [{**final, "lost": {"1": "was ended by SIGKILL"}, "joined": [2]}])
    return folder


def test_a_table_and_a_figure_show_what_each_host_did(train: Path) -> None:
    run = read_training(train)
    text = describe_training(run, "")
    assert "| a | 2 | 27 | 8.10 | 0.48 | 27 | 1 | 0 |" in text
    assert "| b | 1 | 13 | 3.90 | 2.00 | 13 | 0 | 1 |" in text
    assert "hosts.svg" in text
    assert run.host_rates["b"][:, 1].tolist() == [2.5, 2.5]


def test_one_host_has_neither(tmp_path: Path) -> None:
    write_training(tmp_path)
    run = read_training(tmp_path)
    assert "hosts" not in figure_names(run)
    assert "| host |" not in describe_training(run, "")


def test_watch_shows_the_newest_report_and_ends_with_the_training(train: Path) -> None:
    for folder in (train, train.parent):
        first, head, *hosts = run_command("watch", folder).output.splitlines()
        # a step of 100, 200 and 300 frames each quarter second
        known = "epoch 1, step 40, loss 2.0000, loss on dev 1.5000 after epoch 1, 2,400 frames/s of all learners"
        assert known in first
        assert first.endswith("finished")
        columns = "host learners steps per s wait fraction staleness skipped lost joined"
        assert " ".join(head.split()) == columns
        assert [line.split() for line in hosts] == [
            ["a", "1", "6", "0.25", "1", "3", "1", "0"],
            ["b", "1", "2.5", "0.25", "1", "3", "1", "0"],
        ]


def test_watch_counts_the_frames_of_learners_that_are_alive(train: Path) -> None:
    (train / "learners/0.lost").touch()
    assert " 2,000 frames/s of all learners" in format_progress(train)
    for path in (train / "learners/1.jsonl", train / "learners/2.jsonl"):
        first, *others = _lines(path)
        write_lines(path, [{**first, "begin": first["begin"] - 1000}, first, *others])  # before it was resumed
    assert " 2,000 frames/s of all learners" in format_progress(train)


def test_watch_of_a_running_training_says_how_old_its_last_step_is(train: Path) -> None:
    (train / "train.json").unlink()
    assert "s ago" in run_command("watch", train, "--once").output
    (train / "metrics.jsonl").unlink()  # before the first report, or learner 0 has no batch
    assert ": epoch 1, step 40, 2,400 frames/s of all learners, last step " in format_progress(train)
    for path in (train / "learners").iterdir():
        path.write_text("")
    assert "no learner has finished a step" in run_command("watch", train, "--once").output
    (train / "inputs.json").unlink()
    assert "no training has begun there" in str(error_of("watch", train, "--once"))
