"""Replacing, inserting and dropping stages by name, as a recipe does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from asrtool.cli.run import find_entry
from asrtool.errors import AsrtoolError
from asrtool.recipe.check import check_recipe
from asrtool.recipe.edit import drop, insert, replace
from asrtool.recipe.recipe import load_recipe
from asrtool.recipe.stage import Stage
from asrtool.recipe.stages import COMMON

A, B, C = (Stage(name, "Why.", makes=(name,), run=()) for name in "abc")
NEW_B = Stage("b", "Another way.", makes=("b",), run=())
AN4 = Path(__file__).resolve().parents[3] / "recipes" / "an4"
START = """from asrtool.recipe.edit import drop, insert
from asrtool.recipe.stage import Line, Stage

ALIGN = Stage(
    name="align",
    why="Times of words show where a transcript is wrong.",
    needs=("average/model.pt", "features", "tokenizer"),
    makes=("align",),
    run=(Line("asrtool align {work}/average/model.pt {work}/features/dev {work}/tokenizer {work}/align"),),
)
CONFIG ="""


def test_stages_are_replaced_inserted_and_dropped_by_name() -> None:
    assert replace((A, B, C), NEW_B) == (A, NEW_B, C)
    assert insert((A, C), B, after="a") == (A, B, C)
    assert insert((A, B), C, after="b") == (A, B, C)
    assert drop((A, B, C), "c", "a") == (B,)
    assert drop((A, B, C)) == (A, B, C)


def test_an_unknown_stage_is_refused_with_the_nearest() -> None:
    unknown = Stage("trian", "Why.", makes=("x",), run=())
    message = r"^trian: no such stage; did you mean train\?$"
    with pytest.raises(AsrtoolError, match=message):
        replace(COMMON, unknown)
    with pytest.raises(AsrtoolError, match=message):
        insert(COMMON, A, after="trian")
    with pytest.raises(AsrtoolError, match=message):
        drop(COMMON, "lm", "trian")
    with pytest.raises(AsrtoolError, match=r"^insert: there is a stage b already; replace it"):
        insert((A, B), NEW_B, after="a")


def edit_recipe(folder: Path, stages: str) -> Path:
    """A recipe at `folder` like that of AN4, with `stages` in the place of the shared ones."""
    shutil.copytree(AN4 / "conf", folder / "conf")
    text = (AN4 / "recipe.py").read_text()
    assert text.count("*COMMON") == text.count("\nCONFIG =") == 1
    (folder / "recipe.py").write_text(text.replace("CONFIG =", START).replace("*COMMON", f"*{stages}"))
    return folder


def test_a_recipe_edits_the_shared_stages_and_every_link_holds(tmp_path: Path) -> None:
    folder = edit_recipe(tmp_path / "mine", 'insert(drop(COMMON, "report"), ALIGN, after="average")')
    recipe = load_recipe(folder)
    assert [stage.name for stage in recipe.stages[15:]] == ["train", "average", "align", "nnlm", "decode", "score"]
    assert check_recipe(recipe, find_entry).endswith("all links hold")


def test_an_unknown_stage_is_reported_with_the_line_of_the_recipe(tmp_path: Path) -> None:
    folder = edit_recipe(tmp_path / "mine", 'drop(COMMON, "nnml")')
    lines = (folder / "recipe.py").read_text().splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if "nnml" in text)
    with pytest.raises(AsrtoolError, match=rf"recipe\.py: line {line}: nnml: no such stage; did you mean nnlm\?"):
        load_recipe(folder)
