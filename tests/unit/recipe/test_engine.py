"""Stages of a run: their order, states and outputs."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import pytest
import toy
from toy import states

from asrtool.errors import AsrtoolError
from asrtool.recipe.engine import run_stages
from asrtool.recipe.plan import first_section, format_commands, format_outcome, format_states
from asrtool.recipe.stage import Line, Stage
from asrtool.recipe.state import Run, read_marker, write_marker
from asrtool.settings.config import Config
from asrtool.settings.toml_files import load_config

ALL = range(3)


def with_settings(run: Run, *overrides: str) -> Run:
    return dataclasses.replace(run, config=load_config(overrides=overrides))


def add_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def test_all_stages_run_once_with_the_settings_they_declare_and_then_are_done(toy_run: Run) -> None:
    assert states(toy_run) == ["to do"] * 3
    assert run_stages(toy_run, ALL) == ["first", "second", "third"]
    assert states(toy_run) == ["done"] * 3
    assert run_stages(toy_run, ALL) == []
    assert run_stages(toy_run, range(1, 2), force=True) == ["second"]
    text = (toy_run.work / "config" / "second.toml").read_text()
    assert "[lm]" in text
    assert "[mini]" not in text
    assert load_config([toy_run.work / "config" / "second.toml"]) == Config()


def test_by_force_a_stage_that_resumes_begins_afresh_and_nothing_is_lost(tmp_path: Path, toy_root: Path) -> None:
    run = toy.make_run(tmp_path, [dataclasses.replace(toy.STAGES[0], resumes=True)])
    run_stages(run, range(1))
    (run.work / "a.txt").write_text("weeks of training")
    run_stages(run, range(1), force=True)
    assert (run.work / "a.txt.old-1").read_text() == "weeks of training"
    assert (run.work / "a.txt").read_text() != "weeks of training"


def test_settings_of_a_user_are_not_replaced(toy_run: Run) -> None:
    path = toy_run.work / "config" / "second.toml"
    path.parent.mkdir(parents=True)
    path.write_text("of a user")
    with pytest.raises(AsrtoolError, match=r"second\.toml: exists, and would be replaced although"):
        run_stages(toy_run, ALL)
    assert path.read_text() == "of a user"


def test_a_changed_setting_makes_exactly_the_stages_that_declare_it_stale(toy_run: Run) -> None:
    run_stages(toy_run, ALL)
    changed = with_settings(toy_run, "lm.order=4")
    assert states(changed) == ["done", "stale lm.order 3 -> 4", "stale after second"]
    assert states(with_settings(toy_run, "train.num_epochs=9")) == ["done"] * 3
    assert run_stages(changed, ALL) == ["second", "third"]


def test_an_input_that_is_changed_or_not_read_any_more_makes_a_stage_stale(toy_run: Run) -> None:
    run_stages(toy_run, ALL)
    stages = (toy.STAGES[0], dataclasses.replace(toy.STAGES[1], needs=()), toy.STAGES[2])
    changed = dataclasses.replace(toy_run, recipe=dataclasses.replace(toy_run.recipe, stages=stages))
    assert states(changed) == ["done", "stale a.txt is not read any more", "stale after second"]
    add_byte(toy_run.work / "b" / "all.txt")
    assert states(toy_run) == ["done", "stale b changed since", "stale b changed"]


def test_after_an_upstream_run_the_files_decide_what_follows(toy_run: Run) -> None:
    run_stages(toy_run, ALL)
    assert run_stages(toy_run, range(1), force=False) == []
    assert run_stages(toy_run, range(1), force=True) == ["first"]
    assert states(toy_run)[1:] == ["done", "done"]  # the file was written again, and holds the same
    add_byte(toy_run.work / "a.txt")
    assert states(toy_run)[1:] == ["stale a.txt changed", "stale after second"]


def test_a_need_that_no_run_made_names_the_stage_and_the_command(toy_run: Run) -> None:
    with pytest.raises(AsrtoolError) as caught:
        run_stages(toy_run, range(2, 3))
    assert str(caught.value) == (
        f"stage third needs {toy_run.work}/b, which stage second makes and has not yet;"
        f" run: asrtool run --work {toy_run.work} --stage second"
    )


def test_files_of_a_stage_that_broke_off_are_not_taken_for_finished(tmp_path: Path, toy_root: Path) -> None:
    broken = Stage("second", "Two.", makes=("b",), run=(Line("asrtool join {work}/b/x"), Line("asrtool fail {work}/b")))
    run = toy.make_run(tmp_path, [broken, toy.STAGES[2]])
    with pytest.raises(AsrtoolError, match="exit code 3"):
        run_stages(run, range(2))
    assert (run.work / "b").exists()
    assert states(run, range(2)) == ["to do failed", "to do"]
    with pytest.raises(AsrtoolError, match=r"stage second, which makes it, did not finish; run: .* --stage second"):
        run_stages(run, range(1, 2))


def test_a_stage_that_was_killed_or_whose_marker_is_cut_short_is_to_do(toy_run: Run) -> None:
    run_stages(toy_run, ALL)
    write_marker(toy_run.work, "second", {"finished": False})
    assert states(toy_run) == ["done", "to do was interrupted", "stale after second"]
    with pytest.raises(AsrtoolError, match=r"stage second, which makes it, did not finish"):
        run_stages(toy_run, range(2, 3), force=True)
    run_stages(toy_run, ALL)
    marker = toy_run.work / ".stages" / "second.json"
    marker.write_text(marker.read_text()[:50])
    assert states(toy_run) == ["done", "to do", "stale after second"]
    assert read_marker(toy_run.work, toy_run.recipe.stages[1].name) is None


def test_files_made_by_another_tool_are_taken_as_input(toy_run: Run) -> None:
    (toy_run.work / "b").mkdir(parents=True)
    (toy_run.work / "b" / "all.txt").write_text("mine")
    assert run_stages(toy_run, range(2, 3)) == ["third"]
    assert (toy_run.work / "c.txt").read_text() == "mine"


def test_a_failing_stage_names_its_log_and_the_command_to_resume(tmp_path: Path, toy_root: Path) -> None:
    failing = Stage("bad", "Fails.", makes=("x",), run=(Line("asrtool fail {work}/x"),))
    run = toy.make_run(tmp_path, [failing])
    with pytest.raises(AsrtoolError) as caught:
        run_stages(run, range(1))
    log = run.work / "logs" / "00-bad.log"
    assert str(caught.value) == (
        f"stage 0 bad failed with exit code 3, see above, or {log}; fix the cause, then:"
        f" asrtool run --work {run.work} --stage bad (--set KEY=VALUE changes a setting)"
    )
    assert "no such thing\n" in log.read_text()
    assert "exit code 3\n" in log.read_text()


def test_a_stage_that_makes_nothing_is_reported(tmp_path: Path, toy_root: Path) -> None:
    lying = Stage("liar", "Lies.", makes=("promised.txt",), run=(Line("asrtool join {work}/other.txt"),))
    run = toy.make_run(tmp_path, [lying])
    with pytest.raises(AsrtoolError, match=r"ended without an error but .*promised.txt is missing"):
        run_stages(run, range(1))
    assert states(run, range(1)) == ["to do failed"]


def test_the_log_holds_command_versions_start_end_and_exit_code(toy_run: Run) -> None:
    run_stages(toy_run, ALL)
    lines = (toy_run.work / "logs" / "01-second.log").read_text().splitlines()
    assert lines[0] == "# stage 1 second: Two."
    assert lines[1].startswith("# versions: python 3.")
    paths = [toy_run.work / name for name in ("b/all.txt", "a.txt", "config/second.toml")]
    assert lines[2] == f"# command: asrtool join {shlex.join(map(str, paths))}"
    assert lines[3].startswith("# start: 2")
    assert lines[4] == "joining 2 files"
    assert lines[5].endswith(", exit code 0")
    run_stages(toy_run, range(1, 2), force=True)
    assert (toy_run.work / "logs" / "01-second.log").read_text().count("# stage 1 second: Two.\n") == 2


def test_a_person_who_starts_in_the_middle_is_warned_of_stale_inputs(
    toy_run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run_stages(toy_run, ALL)
    changed = with_settings(toy_run, "lm.order=4")
    with caplog.at_level("INFO"):
        assert run_stages(changed, range(2, 3)) == []
    assert "stage second is stale (lm.order 3 -> 4); its files are used as they are" in caplog.text


def test_a_misspelled_command_is_reported_before_any_stage_runs(toy_run: Run) -> None:
    def find_entry(words: object) -> object:
        raise AsrtoolError("no such command")

    with pytest.raises(AsrtoolError, match="no such command"):
        run_stages(dataclasses.replace(toy_run, find_entry=find_entry), ALL)  # type: ignore[arg-type]
    assert not toy_run.work.exists()


# Printed states, command lines and outcomes


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
    stages = json.loads(format_states(toy_run, range(1, 2), as_json=True))["stages"]
    assert stages == [{"number": "1", "name": "second", "state": "stale", "why": "b changed since"}]


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
