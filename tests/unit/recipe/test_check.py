"""Every kind of broken link is found without data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from asrtool.errors import AsrtoolError
from asrtool.recipe.check import check_recipe
from asrtool.recipe.recipe import Recipe
from asrtool.recipe.stage import Line, Stage

FIRST = Stage("first", "One.", makes=("a",), run=(Line("asrtool lm {work}/a --config {config}"),), settings=("lm",))
SECOND = Stage("second", "Two.", needs=("a/x.txt",), makes=("b",), run=(Line("asrtool lm {work}/a/x.txt {work}/b"),))


def find_entry(words: Sequence[str]) -> str:
    if words[1] != "lm":
        raise AsrtoolError(f"no command {words[1]}")
    return "asrtool.cli.main:main"


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


def calling(line: str) -> Stage:
    return Stage("first", "One.", makes=("a",), run=(Line(line),))


def test_a_sound_recipe_holds(folder: Path) -> None:
    summary = check_recipe(Recipe(folder, "mini", (FIRST, SECOND)), find_entry)
    assert summary == f"{folder}: 2 stages, 1 configuration, all links hold"


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([calling("asrtool ml {work}/a")], ["stage first: no command ml"]),
        ([SECOND, FIRST], ["stage second: needs a/x.txt, which no earlier stage makes"]),
        (
            [calling("asrtool lm {work}/b")],
            ["stage first: b is neither in needs nor in makes, in: asrtool lm {work}/b"],
        ),
        ([calling("asrtool lm {nj}")], ["stage first: unknown placeholder {nj} in: asrtool lm {nj}"]),
        ([calling("asrtool lm 'a")], ["stage first: No closing quotation"]),
        (
            [dataclasses.replace(calling("asrtool lm {work}/a"), settings=("ml", "lm.ordre"))],
            [
                "stage first: unknown settings 'ml'",
                "stage first: unknown settings 'lm.ordre'",
                "stage first: settings and {config} go together: a stage has both or neither",
            ],
        ),
        (
            [dataclasses.replace(FIRST, when="nnlm.seed")],
            ["stage first: when is 'nnlm.seed', expected a true/false setting or a list"],
        ),
        ([FIRST, FIRST], ["stage first: 2 stages have this name", "a: 2 stages make it"]),
        ([Stage("idle", "None.", makes=(), run=(Line("asrtool lm"),))], ["stage idle: makes nothing"]),
        (
            [dataclasses.replace(FIRST, audio_of=("manifest",))],
            ["stage first: audio_of has manifest, which is in neither needs nor makes"],
        ),
    ],
)
def test_broken_links_are_found(folder: Path, stages: list[Stage], expected: list[str]) -> None:
    assert broken(folder, *stages) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[lm]\nordre = 2\n", "unknown key lm.ordre; did you mean lm.order?"),
        ("[average]\nnum = 9\n[train]\nkeep_last = 5\n", "average.num is 9 but train.keep_last is 5; "),
    ],
)
def test_broken_configurations_are_found(folder: Path, text: str, expected: str) -> None:
    (folder / "conf" / "large.toml").write_text(text)
    (line,) = broken(folder, FIRST, SECOND)
    assert line.startswith(f"{folder}/conf/large.toml: {expected}")


def test_a_default_configuration_must_exist(folder: Path) -> None:
    assert broken(folder, FIRST, default_config="maxi") == ["CONFIG is 'maxi', but there is no conf/maxi.toml"]
