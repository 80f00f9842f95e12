"""Stages that a setting or a component turns on, and what the stages that recipes share depend on."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import toy

from asrtool.recipe.engine import run_stages
from asrtool.recipe.plan import format_commands, format_outcome, format_states, plan
from asrtool.recipe.stage import Line, Stage, number_stages
from asrtool.recipe.stages import COMMON, CORPUS, PREPARE
from asrtool.recipe.state import Run
from asrtool.settings.config import Config, select
from asrtool.settings.toml_files import load_config

FIRST, SECOND, THIRD = toy.STAGES
EXTRA = Stage(
    "extra",
    "More.",
    makes=("extra.txt",),
    run=(Line("asrtool join {work}/extra.txt {work}/a.txt"),),
    needs=("a.txt",),
    when="nnlm.enabled",
)
READER = replace(THIRD, needs=("b", "extra.txt"))
STAGES = (FIRST, EXTRA, SECOND, READER)
OFF, ON = Config(), load_config(overrides=["nnlm.enabled=true"])


def make_run(tmp_path: Path, config: Config) -> Run:
    return toy.make_run(tmp_path, STAGES, config)


def words(run: Run) -> list[str]:
    return [state.word for state in plan(run, range(4))]


def test_a_stage_that_is_off_is_left_out_and_nobody_waits_for_what_it_makes(tmp_path: Path, toy_root: Path) -> None:
    run = make_run(tmp_path, OFF)
    assert run_stages(run, range(4)) == ["first", "second", "third"]
    assert words(run) == ["done", "off", "done", "done"]
    assert not (run.work / "extra.txt").exists()


def test_force_does_not_turn_a_stage_on_and_it_is_not_reported_as_done(tmp_path: Path, toy_root: Path) -> None:
    run = make_run(tmp_path, OFF)
    assert run_stages(run, range(1, 2), force=True) == []
    assert "# 0b extra: off" in format_commands(run, range(4), force=True).splitlines()
    assert format_outcome(run, range(4), []) == "nothing to do, done: first, second, third; --force runs again"
    assert format_outcome(run, range(1, 2), []) == "nothing to do, off: extra (--set nnlm.enabled=true turns it on)"
    assert format_outcome(make_run(tmp_path, ON), range(1, 2), []).startswith("nothing to do, done: extra;")


def test_turning_a_stage_on_or_off_makes_those_stale_that_read_what_it_makes(tmp_path: Path, toy_root: Path) -> None:
    run_stages(make_run(tmp_path, OFF), range(4))
    assert words(make_run(tmp_path, ON)) == ["done", "to do", "done", "stale"]
    assert run_stages(make_run(tmp_path, ON), range(4)) == ["extra", "third"]
    assert words(make_run(tmp_path, ON)) == ["done"] * 4
    assert words(make_run(tmp_path, OFF)) == ["done", "off", "done", "stale"]


def test_the_numbers_of_other_stages_do_not_depend_on_it(tmp_path: Path, toy_root: Path) -> None:
    assert number_stages(STAGES) == ["0", "0b", "1", "2"]
    assert number_stages([STAGES[1], *STAGES[1:]]) == ["0a", "0b", "0", "1"]
    for config in (OFF, ON):
        lines = format_states(make_run(tmp_path, config), range(4)).splitlines()[1:]
        assert [line.split()[:2] for line in lines] == [
            ["0", "first"],
            ["0b", "extra"],
            ["1", "second"],
            ["2", "third"],
        ]
    run_stages(make_run(tmp_path, ON), range(4))
    logs = sorted(path.name for path in (tmp_path / "exp" / "logs").iterdir())
    assert logs == ["00-first.log", "00b-extra.log", "01-second.log", "02-third.log"]


# Stages that are on only where a component that is chosen needs them

LM = replace(EXTRA, name="lm", when="", optional=True)  # a name that settings of the searches have in `needs`
NEEDED = (FIRST, LM, SECOND, READER)
CHAIN = {"aligner", "targets", "hybrid", "realign"}  # that a hybrid model needs
CUTTING = {"cutter", "cut"}  # that long utterances need
BEFORE = {*CHAIN, "start"}  # that sequence training needs
GREEDY, BEAM = (load_config(overrides=[f"decode.methods={name}"]) for name in ("greedy", "beam"))


def test_a_stage_is_on_where_a_chosen_component_needs_it(tmp_path: Path, toy_root: Path) -> None:
    without = toy.make_run(tmp_path, NEEDED, GREEDY)
    assert run_stages(without, range(4)) == ["first", "second", "third"]
    assert words(without) == ["done", "off", "done", "done"]
    assert without.needs(READER) == ["b"]
    needing = toy.make_run(tmp_path, NEEDED, BEAM)
    assert needing.needs(READER) == ["b", "extra.txt"]
    assert words(needing) == ["done", "to do", "done", "stale"]
    assert run_stages(needing, range(4)) == ["lm", "third"]


@pytest.mark.parametrize(
    ("methods", "on"),
    [
        ("greedy", set()),
        ("beam", {"lang", "lm"}),
        ("greedy,graph", {"lang", "lm", "graph"}),
        ("graph,rescore", {"lang", "lm", "graph"}),
    ],
)
def test_the_searches_say_which_stages_they_need(methods: str, on: set[str], tmp_path: Path) -> None:
    run = toy.make_run(tmp_path, COMMON, load_config(overrides=[f"decode.methods={methods}"]))
    off = {stage.name for stage in COMMON if run.is_off(stage)}
    assert off == {"text", *CUTTING, "lang", "lm", "graph", "nnlm", *BEFORE} - on
    (decode,) = (stage for stage in COMMON if stage.name == "decode")
    assert {"lang", "lm", "graph"} & set(run.needs(decode)) == on


def test_a_hybrid_model_needs_its_chain_which_nothing_else_reads(tmp_path: Path) -> None:
    for objective, on in (("ctc", set()), ("frame-ce", CHAIN), ("lf-mmi", BEFORE)):
        overrides = [f"model.objective={objective}", "decode.methods=graph"]
        run = toy.make_run(tmp_path, COMMON, load_config(overrides=overrides))
        assert {stage.name for stage in COMMON if not run.is_off(stage)} & BEFORE == on
        for stage in COMMON:
            if stage.name in ("graph", "train"):
                assert ("realign" in run.needs(stage)) == bool(on)
            assert ("start" in run.needs(stage)) == (stage.name == "train" and "start" in on)


def test_a_component_of_a_persons_own_names_the_stages_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"needy_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "@dataclass(frozen=True)\n"
        "class Settings:\n"
        "    needs: ClassVar[tuple[str, ...]] = ('lang',)\n"
        "def adagrad(parameters, settings): ...\n"
        "adagrad.Settings = Settings\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    overrides = ["decode.methods=greedy", f"train.optimizer={module}:adagrad"]
    run = toy.make_run(tmp_path, COMMON, load_config(overrides=overrides))
    assert {stage.name for stage in COMMON if run.is_off(stage)} == {"text", *CUTTING, "lm", "graph", "nnlm", *BEFORE}


# Dependencies of the stages that recipes share


def stages_that_depend_on(override: str) -> set[str]:
    changed, default = load_config(overrides=[override]), load_config()
    stages = (CORPUS, PREPARE, *COMMON)
    return {stage.name for stage in stages if select(changed, stage.settings) != select(default, stage.settings)}


def test_a_changed_setting_changes_the_stages_that_it_reaches() -> None:
    mixed = stages_that_depend_on("data.mix=hours")
    assert mixed == {"cutter", "aligner", "hybrid", "start", "train", "report"}  # and prepares nothing again
    for override in ("data.train=an4", "data.max_duplicates=7", "data.uncertain=drop", "data.same_audio=drop"):
        assert "prepare" in stages_that_depend_on(override)
        assert "train" not in stages_that_depend_on(override)
    assert stages_that_depend_on("nnlm.precision=fp32") == {"nnlm", "decode", "report"}
    assert stages_that_depend_on("lm.extra_text=more.txt") == {"corpus", "text", "lang", "lm", "nnlm", "report"}
    assert {stage.name for stage in COMMON if "text" in stage.needs} == {"lang", "lm", "nnlm"}


def test_the_picture_of_the_manual_has_the_stages_of_today() -> None:
    script = Path(__file__).resolve().parents[3] / "docs" / "pipeline.py"
    drawn = runpy.run_path(str(script))["draw_pipeline"]()
    assert script.with_suffix(".svg").read_text(encoding="utf-8") == drawn, "run: python docs/pipeline.py"
