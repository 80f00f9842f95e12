"""`asrtool sweep`: a toy recipe that recognises each fold as well as a setting says."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from asrtool.cli.main import cli
from asrtool.errors import AsrtoolError
from asrtool.settings.toml_files import load_config

NUM_SENTENCES = 30
RECIPE = """
from asrtool.recipe.stage import Line, Stage

CONFIG = "toy"


def stage(name, makes, *settings, needs=()):
    line = Line(f"asrtool toy_commands:{name} {{work}}/{makes} {{config}}")
    return Stage(name, "Why.", needs=needs, makes=(makes,), run=(line,), settings=settings)


STAGES = (
    stage("prepare", "manifests", "data"),
    stage("score", "score", "data.dev_fold", "lm.order", "decode.methods", needs=("manifests",)),
)
"""
COMMANDS = f'''
from pathlib import Path

import click

from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.errors import AsrtoolError
from asrtool.score.output import write_score
from asrtool.score.wer import score_wer
from asrtool.settings.toml_files import load_config


@click.command()
@click.argument("out", type=Path)
@click.argument("config", type=Path)
def prepare(out, config):
    if load_config([config]).data.dev_fold == 2:
        raise AsrtoolError("two folds only")
    out.mkdir()
    write_sets(out, Sets((EvaluationSet("hub5", "Hub5", {{}}),)))


@click.command()
@click.argument("out", type=Path)
@click.argument("config", type=Path)
def score(out, config):
    """A sentence of 10 words has an error in fold 0, an order of 1 adds one in fold 1."""
    settings = load_config([config])
    num_wrong = 1 if settings.data.dev_fold == 0 else max(0, 2 - settings.lm.order)
    texts = ["a b c d e f g h i j\\n"] * {NUM_SENTENCES}
    wrong = [" ".join(["x"] * num_wrong + text.split()[num_wrong:]) + "\\n" for text in texts]
    for name, lines in ("ref", texts), ("hyp", wrong):
        out.parent.joinpath(name).write_text("".join(lines))
    for method in settings.decode.methods:
        write_score(score_wer(out.parent / "ref", out.parent / "hyp"), out / "dev" / method.name, out.parent / "hyp")
'''


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "toy"
    (folder / "conf").mkdir(parents=True)
    (folder / "recipe.py").write_text(RECIPE)
    (folder / "conf" / "toy.toml").write_text(
        '[decode]\nmethods = ["greedy"]\n[lm]\norder = 2\n[data]\ntest = ["own"]\n'
    )
    (tmp_path / "toy_commands.py").write_text(COMMANDS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    monkeypatch.chdir(tmp_path)
    return folder


def sweep(recipe: Path, *words: str) -> Result:
    words = ("sweep", "--recipe", str(recipe), "--work", "sweep", *words)
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def test_errors_of_all_folds_are_pooled_and_tested_against_the_recipe_as_it_is(recipe: Path) -> None:
    words = ("--folds", "2", "--try", "lm.order=1", "--try", 'train.seed=7 decode.methods=["greedy", "graph"]')
    first, _, *rows = sweep(recipe, *words).stdout.splitlines()
    assert first.startswith("| B | method | words | WER % | A - B |")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells[0] == ["A", "greedy", "600", "5.00", "", "", "", ""]
    assert cells[1][:5] == ["lm.order=1", "greedy", "600", "10.00", "-5.00"]
    assert cells[1][6:] == ["< 0.001", "A is better"]
    name = "train.seed=7_decode.methods=_greedy_,_graph_"
    assert [row[:5] for row in cells[2:]] == [
        [name, "graph", "600", "5.00", ""],
        [name, "greedy", "600", "5.00", "+0.00"],
    ]
    assert {load_config([path]).data.test for path in Path("sweep").glob("*/*/config/prepare.toml")} == {()}
    made = Path("sweep/A/fold1/hyp").stat().st_mtime_ns
    assert sweep(recipe, *words, "--try", "lm.order=3").stdout.splitlines()[2:5] == rows[:3]
    assert Path("sweep/A/fold1/hyp").stat().st_mtime_ns == made


def test_a_fold_that_cannot_be_made_is_reported_before_any_training(recipe: Path) -> None:
    line = shlex.join(["asrtool", "sweep", "--recipe", str(recipe), "--try", "lm.order=1 train.seed=7"])
    again = re.escape(f"fix the cause, then: {line} --folds 3 --work sweep (--set")
    with pytest.raises(AsrtoolError, match=rf"stage 0 prepare failed .*; {again}"):
        sweep(recipe, "--try", "lm.order=1 train.seed=7")
    assert not list(Path("sweep").glob("*/*/score"))


@pytest.mark.parametrize(
    ("tries", "message"),
    [(("lm.order=1", "lm.order=1"), "is given twice"), (("lm.ordre=1",), "unknown key lm.ordre")],
)
def test_a_wrong_try_is_reported_before_any_stage(tries: tuple[str, ...], message: str, recipe: Path) -> None:
    words = [word for text in tries for word in ("--try", text)]
    try:
        text = sweep(recipe, *words).output
    except AsrtoolError as error:
        text = str(error)
    assert message in text
    assert not Path("sweep").exists()
