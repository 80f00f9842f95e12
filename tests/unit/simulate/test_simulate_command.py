"""`asrtool simulate`: what it prints and writes, and what it takes from a training."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from asrtool.cli.main import cli
from asrtool.report.plot import plot_training
from asrtool.report.training import read_training
from asrtool.simulate.calibrate import settings_of
from asrtool.simulate.records import MAX_STEPS, shorten
from asrtool.simulate.scenario import load_scenario
from asrtool.train.records import record_of

SMALL = ("--set", "job.num_samples=8000", "--set", "job.batch=10")


def simulate(*words: str) -> str:
    done = CliRunner().invoke(cli, ["simulate", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_it_says_in_words_who_waits_for_whom() -> None:
    output = simulate(
        *SMALL,
        "--num-learners",
        "4",
        "--set",
        "slow.learners=3:3",
        "--strategy",
        "allreduce",
        "--strategy",
        "adpsgd-random",
    )
    assert "% of the time for learner 3" in output
    assert "4 learners: adpsgd-random takes" in output


def test_json_has_what_the_table_has() -> None:
    rows = json.loads(simulate(*SMALL, "--num-learners", "2,4", "--strategy", "allreduce", "--json"))
    assert [(row["strategy"], row["num_learners"]) for row in rows] == [("allreduce", 2), ("allreduce", 4)]
    for row in rows:
        assert sum(row["fractions"].values()) == pytest.approx(1)
        assert sum(row["learners"]["steps"]) == row["batches"] == 800


@pytest.mark.parametrize("numbers", ["4", "2,4"])
def test_it_draws(numbers: str, tmp_path: Path) -> None:
    path = tmp_path / "hours.svg"
    simulate(*SMALL, "--num-learners", numbers, "--plot", str(path))
    text = path.read_text(encoding="utf-8")
    assert "adpsgd-random" in text
    assert "hours" in text


def test_its_records_are_drawn_and_reported_as_those_of_a_training(tmp_path: Path) -> None:
    simulate(*SMALL, "--num-learners", "4", "--set", "slow.learners=0:2", "--out", str(tmp_path / "out"))
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert "adpsgd-random-4" in folders
    assert "single-4" not in folders
    run = read_training(tmp_path / "out" / "adpsgd-random-4")
    assert run.simulated
    assert run.num_steps == 800
    assert run.partners[0] == [1, 2, 3]
    assert run.learners[0]["compute_s"].mean() == pytest.approx(0.2)
    text = plot_training(tmp_path / "out" / "h-adpsgd-4", tmp_path / "plot").read_text(encoding="utf-8")
    assert "Simulated: nothing was trained" in text
    assert "timeline.svg" in text


def test_a_record_has_the_keys_of_one_of_a_training(tmp_path: Path) -> None:
    simulate(*SMALL, "--num-learners", "2", "--strategy", "allreduce", "--out", str(tmp_path))
    line = (tmp_path / "allreduce-2" / "learners" / "0.jsonl").read_text(encoding="utf-8").partition("\n")[0]
    tree = ast.parse(inspect.getsource(record_of))
    (written,) = (node for node in ast.walk(tree) if isinstance(node, ast.Dict))
    assert list(json.loads(line)) == [ast.literal_eval(key) for key in written.keys if key]


def test_of_a_long_training_the_beginning_is_written() -> None:
    scenario = load_scenario([], ["job.num_samples=1000000", "job.batch=1", "job.num_epochs=3"])
    part, fraction = shorten(scenario, 8)
    assert part.job.num_samples * part.job.num_epochs == MAX_STEPS
    assert fraction == pytest.approx(MAX_STEPS / 3e6)
    assert shorten(part, 8) == (part, 1.0)


def write_training(
    folder: Path, strategy: str, num_learners: int, steps: dict[str, float], compute_ms: float | None = None
) -> Path:
    """Of 20 equal steps a learner, half a second apart at the tenth, where it saves."""
    (folder / "learners").mkdir(parents=True)
    whole = {"staleness": 0, "bytes": 6_000_000, "partners": [], "skipped": 0, "loss": 1.0}
    step_s = sum(steps.values()) + 0.001
    for rank in range(num_learners):
        begins = [1e9 + (step + 1) * step_s + 0.5 * (step >= 10) for step in range(20)]
        lines = [{**steps, **whole, "step": n + 1, "samples": 8 * n + 8, "begin": at} for n, at in enumerate(begins)]
        (folder / "learners" / f"{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "metrics.jsonl").write_text("")
    settings = {"distributed": {"strategy": strategy}, "emulation": {"compute_ms": compute_ms}}
    (folder / "inputs.json").write_text(json.dumps({"settings": settings}))
    summary = {
        "num_epochs": 1,
        "num_samples": 20 * num_learners * 8,
        "num_parameters": 1_000_000,
        "checkpoints": [{}],
        "seconds": 9.0,
    }
    (folder / "train.json").write_text(json.dumps(summary))
    return folder


def test_settings_come_from_the_records_of_a_training(tmp_path: Path) -> None:
    steps = {"compute_s": 0.11, "comm_s": 0.002, "wait_s": 0.016, "data_s": 0.0}
    train = write_training(tmp_path / "train", "allreduce", 4, steps, compute_ms=100)
    scenario = load_scenario([], settings_of([tmp_path]))
    assert scenario.compute.cpu_ms == pytest.approx(10)
    assert scenario.compute.trace == str(train / "learners" / "1.jsonl")
    assert scenario.job.batch == 8
    assert scenario.job.num_samples == 640
    assert scenario.job.parameters_m == 1
    assert scenario.network.mix_ms == pytest.approx(2)
    assert scenario.network.node_gbit_per_s == pytest.approx(4 * 6e6 * 8 / 0.016 / 1e9)
    assert scenario.saving.checkpoint_s == pytest.approx(0.501, abs=2e-3)


def test_a_training_that_waited_for_data_is_bound_by_reading(tmp_path: Path) -> None:
    steps = {"compute_s": 0.05, "comm_s": 0.0, "wait_s": 0.0, "data_s": 0.05}
    train = write_training(tmp_path / "train", "none", 2, steps)
    assert load_scenario([], settings_of([train])).loading.ms == pytest.approx(101)


def test_learners_that_compute_on_the_same_cores_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    steps = {"compute_s": 0.199, "comm_s": 0.0, "wait_s": 0.0, "data_s": 0.0}
    train = write_training(tmp_path / "train", "none", 4, steps)
    summary = json.loads((train / "train.json").read_text(encoding="utf-8"))
    (train / "train.json").write_text(json.dumps({**summary, "device": "cpu", "num_threads": 2}))
    words = ("--from", str(train), "--strategy", "none", "--json", "--set", "saving.checkpoint_s=0")
    rows = json.loads(simulate(*words, "--num-learners", "1,2,4,8"))
    assert [row["batches"] / row["hours"] / 3600 for row in rows] == pytest.approx([10, 20, 20, 20], rel=0.02)


def test_what_a_training_took_is_what_is_predicted_for_the_same_learners(tmp_path: Path) -> None:
    steps = {"compute_s": 0.1, "comm_s": 0.0, "wait_s": 0.02, "data_s": 0.0}
    train = write_training(tmp_path / "train", "bmuf", 4, steps)
    rows = json.loads(
        simulate(
            "--from",
            str(train),
            "--strategy",
            "bmuf",
            "--json",
            "--set",
            "distributed.bmuf.block_steps=1",
            "--set",
            "network.learners_per_node=0",
            "--set",
            "saving.checkpoint_s=0",
        )
    )
    assert rows[0]["hours"] * 3600 / 20 == pytest.approx(0.121, rel=0.01)
    np.testing.assert_allclose(rows[0]["fractions"]["wait"], 0.02 / 0.121, rtol=0.02)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--scenario", "swb"], "did you mean swb2000-v100?"),
        (["--plot", "hours.txt"], "expected a name that ends with .svg"),
        (["--from", "/nowhere"], "name OUT of asrtool train"),
    ],
)
def test_a_mistake_of_the_command_gets_one_line(words: list[str], expected: str) -> None:
    with pytest.raises(Exception, match=expected):
        CliRunner().invoke(cli, ["simulate", *words], catch_exceptions=False)
