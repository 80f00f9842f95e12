"""Commands of a person's own, and of a recipe: what is found of a line without running it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import run_command, usage_error

from asrtool.cli.main import cli
from asrtool.cli.run import find_entry
from asrtool.errors import AsrtoolError
from asrtool.recipe.source import code_digests

COMMAND = '''
import click

@click.command()
@click.argument("name")
@click.option("--twice", is_flag=True)
def greet(name: str, twice: bool) -> None:
    """Greet NAME."""
    click.echo(f"hello {name}" * (1 + twice))

nothing = 3
'''


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("own") / "own_commands_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "greeting.py").write_text(COMMAND, encoding="utf-8")
    sys.path.insert(0, str(folder.parent))
    yield folder
    sys.path.remove(str(folder.parent))


def test_it_runs_with_its_own_options() -> None:
    assert run_command("own_commands_of_a_test.greeting:greet", "you", "--twice").output == "hello youhello you\n"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("own_commands_of_a_test.greeting:great", "has no attribute 'great'"),
        ("own_commands_of_a_test.gone:greet", "No module named"),
        ("own_commands_of_a_test.greeting:nothing", "is a int, expected a click command"),
    ],
)
def test_what_is_no_command_is_a_line(path: str, expected: str) -> None:
    assert expected in usage_error(path, "you")


def test_a_stage_may_call_it_and_its_source_counts(package: Path) -> None:
    words = ["asrtool", "own_commands_of_a_test.greeting:greet", "you"]
    before = code_digests([find_entry(words)])
    (package / "greeting.py").write_text(COMMAND.replace("hello", "good morning"), encoding="utf-8")
    after = code_digests([find_entry(words)])
    assert before != after
    assert [name for name in after if name.endswith("greeting.py")]


# Command lines of a recipe, read as click would read them, without data


def test_the_function_behind_a_command_is_found_beneath_its_decorators() -> None:
    line = "asrtool features /nowhere/manifests /nowhere/features --config /nowhere/config.toml"
    assert find_entry(line.split()) == "asrtool.cli.data:features"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("asrtool featurs a b", r"No such command 'featurs'. Did you mean 'features'\?"),
        ("asrtool", "Missing command"),
        ("asrtool features a b --confg x", "No such option.*--confg"),
        ("asrtool features a", "Missing argument"),
        ("asrtool features a b c", r"unexpected extra argument \(c\)"),
        ("asrtool run --work", "Option '--work' requires an argument"),
        ("bash local/prepare.sh", "a stage calls asrtool only"),
    ],
)
def test_what_click_would_refuse_is_reported_with_the_line(line: str, message: str) -> None:
    with pytest.raises(AsrtoolError, match=f"^{line}: .*{message}"):
        find_entry(line.split())


def test_a_command_whose_module_is_missing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "lazy", {"gone": ("asrtool.cli.gone:gone", "")})
    with pytest.raises(AsrtoolError, match=r"the command cannot be loaded: No module named 'asrtool\.cli\.gone'"):
        find_entry(["asrtool", "gone"])
