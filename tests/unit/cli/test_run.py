"""`asrtool run` on the recipes of this checkout, without running a stage."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from asrtool.cli.main import cli
from asrtool.errors import AsrtoolError

ROOT = Path(__file__).resolve().parents[3]
RECIPES = sorted(path.parent.name for path in ROOT.glob("recipes/*/recipe.py"))


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["run", *words], catch_exceptions=False)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_link_of_every_recipe_holds(recipe: str) -> None:
    assert run("--recipe", recipe, "--check").output.endswith("all links hold\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--config", "minni"), r"^minni: no such configuration in .*/conf; did you mean mini\?$"),
        (("--config", "ci", "--set", "lm.ordre=4"), r"unknown key lm\.ordre; did you mean lm\.order\?$"),
        (("--set", "average.num=9", "--set", "train.keep_last=5"), r"^average\.num is 9 but train\.keep_last is 5"),
        (("--executor", "slurm"), r"^features\.executor is 'slurm', expected local or dask:ADDRESS of a scheduler"),
        (("--set", "lm=4"), r"^--set lm=4: expected section\.key=value"),
        (("--stage", "trian"), r"^trian: no such stage; did you mean train\?$"),
    ],
)
def test_a_check_reads_the_rest_of_its_command_line(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(AsrtoolError, match=message):
        run("--check", *words)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_new_work_directory_has_everything_to_do(recipe: str, tmp_path: Path) -> None:
    first, *lines = run("--recipe", recipe, "--list", "--work", str(tmp_path)).output.splitlines()
    assert first == f"recipe {ROOT / 'recipes' / recipe}, work {tmp_path}"
    states = {line.split()[1]: line.split(maxsplit=2)[2] for line in lines}
    assert (states.pop("nnlm"), states.pop("text")) == ("off", "off")
    before = ("aligner", "targets", "hybrid", "realign", "start")
    assert [states.pop(name) for name in (*before, "cutter", "cut")] == ["off"] * 7
    assert states.pop("check", "to do") == "to do"  # of one's own data alone
    assert list(states.values()) == ["to do"] * 12
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_shows_the_lines_of_a_stage(tmp_path: Path) -> None:
    words = ["--dry-run", "--stage", "prepare", "--stop-stage", "1", "--work", str(tmp_path / "exp")]
    lines = run(*words).output.splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["all", "split", "same-audio"]
    words = ["prepare", "same-audio", f"{tmp_path}/exp/manifests"]
    assert lines[-1] == shlex.join(["asrtool", *words, "--config", f"{tmp_path}/exp/config/prepare.toml"])
    assert not (tmp_path / "exp").exists()


def test_listing_loads_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys; from click.testing import CliRunner; from asrtool.cli.main import cli\n"
        "for words in (['--list', '--work', sys.argv[1]], ['--check']):\n"
        "    assert CliRunner().invoke(cli, ['run', *words]).exit_code == 0, words\n"
        "loaded = [name for name in ('torch', 'lhotse', 'numpy') if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True)


def test_there_is_one_run_sh() -> None:
    links = {path.parent.name: path for path in ROOT.glob("recipes/*/run.sh")}
    assert sorted(links) == RECIPES
    assert {path.resolve() for path in links.values()} == {ROOT / "recipes" / "run.sh"}


@pytest.mark.parametrize("recipe", RECIPES)
def test_run_sh_runs_its_own_recipe_from_anywhere(recipe: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    finished = subprocess.run(
        [ROOT / "recipes" / recipe / "run.sh", "--list", "--stage", "2", "--stop-stage", "3", "--work", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.splitlines() == [
        f"recipe {ROOT / 'recipes' / recipe}, work {tmp_path}",
        " 2 features     to do",
        " 3 tokenizer    to do",
    ]


def test_what_is_no_work_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch()
    for work, fault in (
        ("", "--work is empty, expected a folder"),
        (tmp_path / "loop", "loop: no folder, Too many levels of symbolic links"),
        (tmp_path / "file", "file: no folder, it is a file"),
        (tmp_path / "file" / "in", "in: no folder, Not a directory"),
    ):
        with pytest.raises(AsrtoolError, match=fault):
            run("--list", "--work", str(work))
