"""Every kind of broken link is found without data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from asrtool.errors import AsrtoolError
from asrtool.recipe.check import check_recipe
from asrtool.recipe.recipe import Recipe
from asrtool.recipe.source import Entry
from asrtool.recipe.stage import Line, Stage

FIRST = Stage("first", "One.", makes=("a",), run=(Line("asrtool lm {work}/a --config {config}"),), settings=("lm",))
SECOND = Stage("second", "Two.", needs=("a/x.txt",), makes=("b",), run=(Line("asrtool lm {work}/a/x.txt {work}/b"),))


def find_entry(words: Sequence[str]) -> Entry:
    if words[1] != "lm":
        raise AsrtoolError(f"no command {words[1]}")
    return Entry("asrtool.cli.main", "main")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "mini.toml").write_text("[lm]\norder = 2\n")
    return tmp_path


def broken(folder: Path, *stages: Stage, default_config: str = "mini") -> list[str]:
    with pytest.raises(AsrtoolError) as caught:
        check_recipe(Recipe(folder, default_config, stages), find_entry)
    assert "recipe.py" in caught.value.hint
    first, *lines = caught.value.what.split("\n  ")
    assert first.startswith(f"{folder}: {len(lines)} broken link")
    return lines


def test_a_sound_recipe_holds(folder: Path) -> None:
    assert check_recipe(Recipe(folder, "mini", (FIRST, SECOND)), find_entry) == (
        f"{folder}: 2 stages, 1 configuration, all links hold"
    )


def test_a_misspelled_command(folder: Path) -> None:
    stage = Stage("first", "One.", makes=("a",), run=(Line("asrtool ml {work}/a"),))
    assert broken(folder, stage) == ["stage first: no command ml"]


def test_a_need_that_is_never_made_or_made_later(folder: Path) -> None:
    assert broken(folder, SECOND, FIRST) == ["stage second: needs a/x.txt, which no earlier stage makes"]


def test_a_path_that_a_line_reads_undeclared(folder: Path) -> None:
    stage = Stage("third", "Three.", makes=("c",), run=(Line("asrtool lm {work}/b {work}/c"),))
    assert broken(folder, stage) == [
        "stage third: b is neither in needs nor in makes, in: asrtool lm {work}/b {work}/c"
    ]


def test_an_unknown_configuration_key(folder: Path) -> None:
    (folder / "conf" / "large.toml").write_text("[lm]\nordre = 2\n")
    assert broken(folder, FIRST, SECOND) == [f"{folder}/conf/large.toml: unknown key lm.ordre; did you mean lm.order?"]


def test_settings_that_do_not_go_together(folder: Path) -> None:
    (folder / "conf" / "large.toml").write_text("[average]\nnum = 9\n[train]\nkeep_last = 5\n")
    (line,) = broken(folder, FIRST)
    assert line.startswith(f"{folder}/conf/large.toml: average.num is 9 but train.keep_last is 5; ")


def test_a_default_configuration_that_is_not_there(folder: Path) -> None:
    assert broken(folder, FIRST, default_config="maxi") == ["CONFIG is 'maxi', but there is no conf/maxi.toml"]


def test_an_unknown_placeholder(folder: Path) -> None:
    stage = Stage("first", "One.", makes=("a",), run=(Line("asrtool lm {work}/a {nj}"),))
    assert broken(folder, stage) == ["stage first: unknown placeholder {nj} in: asrtool lm {work}/a {nj}"]


def test_an_unknown_section_and_settings_that_reach_no_command(folder: Path) -> None:
    stage = Stage("first", "One.", makes=("a",), run=(Line("asrtool lm {work}/a"),), settings=("ml", "lm.ordre"))
    assert broken(folder, stage) == [
        "stage first: unknown settings 'ml'",
        "stage first: unknown settings 'lm.ordre'",
        "stage first: settings and {config} go together: a stage has both or neither",
    ]


def test_a_name_or_an_output_used_twice(folder: Path) -> None:
    assert broken(folder, FIRST, FIRST) == ["stage first: 2 stages have this name", "a: 2 stages make it"]


def test_a_stage_that_makes_nothing(folder: Path) -> None:
    assert broken(folder, Stage("idle", "None.", makes=(), run=(Line("asrtool lm"),))) == ["stage idle: makes nothing"]


def test_a_quotation_mark_that_is_not_closed(folder: Path) -> None:
    stage = Stage("first", "One.", makes=("a",), run=(Line("asrtool lm '{work}/a"),))
    assert "stage first: No closing quotation" in broken(folder, stage)


def test_audio_of_a_folder_that_the_stage_does_not_know(folder: Path) -> None:
    stage = dataclasses.replace(FIRST, audio_of=("manifest",))
    assert broken(folder, stage) == ["stage first: audio_of has manifest, which is in neither needs nor makes"]
