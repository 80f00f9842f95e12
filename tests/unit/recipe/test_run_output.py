"""Printed states, command lines and outcome of a run."""

from __future__ import annotations

import shlex

from asrtool.recipe.engine import run_stages
from asrtool.recipe.plan import first_section, format_commands, format_outcome, format_states
from asrtool.recipe.state import Run


def test_states_are_one_line_a_stage_with_the_reason(toy_run: Run) -> None:
    run_stages(toy_run, range(3))
    (toy_run.work / "b" / "all.txt").unlink()
    (toy_run.work / "c.txt").unlink()
    assert format_states(toy_run, range(3)).splitlines() == [
        f"recipe {toy_run.recipe.folder}, work {toy_run.work}",
        " 0 first        done",
        " 1 second       stale  b changed since",
        " 2 third        stale  c.txt missing",
    ]


def test_command_lines_and_the_outcome_name_what_runs(toy_run: Run) -> None:
    run_stages(toy_run, range(2))
    work = toy_run.work
    assert format_commands(toy_run, range(3), force=False).splitlines() == [
        "# 0 first: done",
        "# 1 second: done",
        "# 2 third: Three.",
        shlex.join(["asrtool", "join", f"{work}/c.txt", f"{work}/b/all.txt"]),
    ]
    first = shlex.join(["asrtool", "join", f"{work}/a.txt", f"{work}/config/first.toml"])
    assert first in format_commands(toy_run, range(3), force=True)
    assert format_outcome(toy_run, range(3), ["first", "second"]) == "ran first, second"
    assert format_outcome(toy_run, range(1, 2), []) == "nothing to do, done: second; --force runs again"


def test_the_section_above_the_second_heading_is_shown() -> None:
    tables = "On one:\n\n| set | WER |\n|---|---|\n| one | 9.1 |\n\nOn two:\n\n| set | WER |"
    assert first_section(f"# Results\n\n{tables}\n\n## How to get them again\n\n| other |\n") == tables
    assert first_section("nothing") == "nothing"
