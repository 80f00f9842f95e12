"""The wheel built from this checkout and installed without it: it brings the recipes, and runs those of a person."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
# Folders of installed packages, without those of .pth files, such as a checkout of asrtool.
DEPENDENCIES = [entry for entry in sys.path if entry.endswith("-packages")]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
# Several commands of a Python that need not import everything for each.
COMMANDS = """
import json, sys
from click.testing import CliRunner
from asrtool.cli.main import cli
answers = [CliRunner().invoke(cli, words, catch_exceptions=False) for words in json.loads(sys.argv[1])]
print(json.dumps([[answer.exit_code, answer.output] for answer in answers]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy, as setuptools leaves files in the folder and takes up old ones."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "asrtool", source / "asrtool", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in FILES:
        shutil.copy(ROOT / name, source)
    without = shutil.ignore_patterns("__pycache__", "exp*", "paths.toml")
    shutil.copytree(ROOT / "recipes", source / "recipes", ignore=without, symlinks=True)
    (source / "recipes" / "swbd" / "paths.toml").write_text("[paths]\n")
    (source / "recipes" / "swbd" / "exp" / "conf").mkdir(parents=True)
    for name in ("recipe.py", "conf/lm.toml"):
        (source / "recipes" / "swbd" / "exp" / name).touch()
    words = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", out, source]
    run(*words)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the packages of the wheel, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    run(*PIP, "install", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def run(*words: str | Path, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return the output of the command with more environment variables."""
    env = {**os.environ, **(environment or {})}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def python(installed: Path, cwd: Path, *words: str | Path) -> str:
    """Return the output for `words` of a Python that has the wheel and no checkout."""
    path = os.pathsep.join(map(str, [installed, *DEPENDENCIES]))
    return run(sys.executable, "-S", *words, cwd=cwd, environment={"PYTHONPATH": path})


def asrtool(installed: Path, cwd: Path, *words: str) -> list[str]:
    """The lines that `asrtool` of the wheel prints."""
    return python(installed, cwd, installed / "bin" / "asrtool", *words).splitlines()


def commands(installed: Path, cwd: Path, *lines: Sequence[str]) -> list[list[str]]:
    """The lines that each of several commands prints, all in one Python."""
    answers = json.loads(python(installed, cwd, "-c", COMMANDS, json.dumps(lines)))
    assert not any(code for code, _ in answers), answers
    return [output.splitlines() for _, output in answers]


def version(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def test_the_wheel_holds_all_code_and_recipes_and_nothing_of_a_site(wheel: Path) -> None:
    recipes = [*ROOT.glob("recipes/*/recipe.py"), *ROOT.glob("recipes/*/conf/**/*.toml"), ROOT / "recipes/__init__.py"]
    expected = {f"asrtool/{path.relative_to(ROOT)}" for path in recipes}
    folders = [ROOT / name for name in ("asrtool", "asrtool/local", "asrtool/utils")]
    code = [path for folder in folders for path in folder.rglob("*") if path.suffix == ".py"]
    scenarios = (ROOT / "asrtool" / "predict" / "simulate" / "scenarios").glob("*.toml")
    expected |= {path.relative_to(ROOT).as_posix() for path in (*code, *scenarios)}
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert {name for name in names if name.endswith((".py", ".toml", ".sh"))} == expected
    assert "asrtool/py.typed" in names
    assert {name.split("/")[0] for name in names} == {"asrtool", f"asrtool-{version(wheel)}.dist-info"}


def test_the_wheel_has_its_licence_and_the_notice_of_others(wheel: Path) -> None:
    info = f"asrtool-{version(wheel)}.dist-info"
    with zipfile.ZipFile(wheel) as files:
        about, text, notice = (
            files.read(f"{info}/{name}") for name in ("METADATA", "licenses/LICENSE", "licenses/NOTICE")
        )
    assert text.split()[:4] == [b"Apache", b"License", b"Version", b"2.0,"]
    metadata = email.message_from_bytes(about)
    assert metadata["License"] == "Apache-2.0"
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert "torch>=2.4" in required
    assert notice == (ROOT / "NOTICE").read_bytes()


def test_installed_recipes_are_listed_and_checked_from_anywhere(installed: Path, tmp_path: Path) -> None:
    recipes = {"swbd": ["--recipe", "swbd"], "an4": ["--recipe", "an4"], "own": ["--recipe", "own"]}
    words = [["run", *named, option] for named in recipes.values() for option in ("--list", "--check")]
    answers = iter(commands(installed, tmp_path, *words))
    for recipe in recipes:
        folder = installed / "asrtool" / "recipes" / recipe
        first, *stages = next(answers)
        assert first == f"recipe {folder}, work {tmp_path / 'exp' / recipe}"
        assert stages[0] == " 0 corpus       to do"
        (checked,) = next(answers)
        assert checked.startswith(f"{folder}: ")
        assert checked.endswith(" all links hold")
    assert list(tmp_path.iterdir()) == []


def test_a_project_with_packages_called_local_and_utils_runs_the_recipe(installed: Path, tmp_path: Path) -> None:
    """Both are importable before what is installed, and are not what the stages import."""
    for name in ("local", "utils"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('of the project')")
    words = ["run", "--config", "ci", "--stop-stage", "graph"]
    for setting in ("mini.train_hours=0.02", "mini.test_minutes=0.5", "tokenizer.vocab_size=40"):
        words += ["--set", setting]
    path = os.pathsep.join(map(str, [tmp_path, installed, *DEPENDENCIES]))
    run(sys.executable, "-S", installed / "bin" / "asrtool", *words, cwd=tmp_path, environment={"PYTHONPATH": path})
    assert (tmp_path / "exp" / "swbd" / "graph").is_dir()


def test_a_recipe_of_ones_own_is_run_from_its_folder(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(installed / "asrtool" / "recipes" / "own", folder)
    (folder / "conf" / "own.toml").rename(folder / "conf" / "mine.toml")
    text = (folder / "recipe.py").read_text()
    (folder / "recipe.py").write_text(text.replace('"own"', '"mine"', 1))
    assert asrtool(installed, folder, "run", "--list")[0] == f"recipe {folder}, work {folder / 'exp'}"
    (checked,) = asrtool(installed, tmp_path, "run", "--recipe", "mine", "--check")
    assert re.match(rf"{re.escape(str(folder))}: \d+ stages, 1 configuration, all links hold", checked)
