"""Scenarios: files and overrides, those that come with the toolkit, and mistakes in one line."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.scenario import SCENARIOS, Scenario, find, format_scenario, load_scenario
from asrtool.predict.simulate.simulate import compare


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_of_the_toolkit_can_be_simulated(name: str) -> None:
    scenario = load_scenario([find(name)], ["job.num_epochs=1", "job.num_samples=20000"])
    rows = compare(scenario)
    assert {row.outcome.num_learners for row in rows} == set(scenario.distributed.num_learners)
    assert all(row.outcome.seconds > 0 for row in rows)


def test_all_settings_are_printed_as_a_file_that_says_the_same(tmp_path: Path) -> None:
    scenario = load_scenario([], ["slow.learners=0:10", "distributed.h-adpsgd.outer=adpsgd-d1", "faults.join_h=1,2"])
    path = tmp_path / "mine.toml"
    path.write_text(format_scenario(scenario), encoding="utf-8")
    assert load_scenario([find(str(path))]) == scenario
    assert format_scenario(Scenario()).count("# ") > 40


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("network.gbit_per_s=0", "network.gbit_per_s is 0.0, expected more than 0"),
        ("distributed.num_learners=0", "distributed.num_learners is 0, expected 1 or more"),
        ("distributed.num_learners=12", "choose a number of learners that is a multiple of the node size"),
        ("distributed.h-adpsgd.node_size=3", "distributed.h-adpsgd.node_size = 3; choose one that divides"),
        ("distributed.ps-async.num_servers=9", "choose at most one server a learner"),
        ("network.gbit_per_sec=1", "did you mean network.gbit_per_s?"),
        ("netwrok.gbit_per_s=1", "did you mean network?"),
        ("slow.learners=8:10", "slow.learners names learner 8, but there are 8: 0 to 7"),
        ("slow.learners=0", "expected LEARNER:FACTOR, for example 0:10"),
        ("slow.learners=0:0", "expected a factor of more than 0"),
        ("faults.lost=x:1", "expected LEARNER:HOURS"),
        ("compute.spread=0.1", 'set compute.distribution = "lognormal"'),
        ("compute.distribution=normal", "expected one of constant, lognormal, exponential"),
        ("compute.fixed_ms=200", "choose one that is not above it"),
        ("compute.trace=/nowhere", "name a file with milliseconds, one a line"),
        ("published.hours=allreduce:8", "expected STRATEGY:LEARNERS:HOURS"),
        ("distributed.strategy=single", "choose another --strategy"),
        ("distributed.strategy=os:getcwd", "there is no model of how strategies of your own communicate"),
    ],
)
def test_a_mistake_gets_one_line_that_helps(override: str, expected: str) -> None:
    """Before any simulation, which takes minutes for a large one."""
    with patch("asrtool.predict.simulate.simulate.ThreadPoolExecutor"), pytest.raises(AsrtoolError) as caught:
        compare(load_scenario([], [override, "job.num_samples=2000"]))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trace_gives_the_times_of_steps_and_one_that_is_none_is_named(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    for text in ("12\nx\n", "0\n", ""):
        trace.write_text(text, encoding="utf-8")
        with pytest.raises(AsrtoolError, match="correct the trace"):
            compare(load_scenario([], [f"compute.trace={trace}"]))
    trace.write_text("100\n300\n", encoding="utf-8")
    settings = [f"compute.trace={trace}", "distributed.strategy=none", "job.num_samples=2048", "job.batch=1"]
    (row,) = compare(load_scenario([], settings))
    assert row.outcome.seconds == pytest.approx(256 * 0.2, rel=0.02)


def test_a_smaller_batch_takes_its_part_of_what_depends_on_it() -> None:
    settings = ["distributed.strategy=none", "distributed.num_learners=4", "compute.ms=100", "compute.batch=64"]
    settings += ["job.num_samples=6400"]
    halves = ["job.batch=32", "compute.fixed_ms=40"]
    (row,) = compare(load_scenario([], settings + halves))
    assert row.outcome.seconds == pytest.approx(50 * 0.07)
    (row,) = compare(load_scenario([], [*settings, "job.global_batch=128", "compute.fixed_ms=40"]))
    assert row.outcome.seconds == pytest.approx(50 * 0.07)
    (row,) = compare(load_scenario([], [*settings, "job.batch=64", "compute.samples_per_s=1280"]))
    assert row.outcome.seconds == pytest.approx(25 * 0.05)
