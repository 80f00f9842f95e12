"""A recipe's command lines are read as click would read them, without data."""

from __future__ import annotations

import pytest

from asrtool.cli.line import find_entry
from asrtool.errors import AsrtoolError
from asrtool.recipe.source import Entry


def test_the_function_behind_a_command_is_found_beneath_its_decorators() -> None:
    line = "asrtool features /nowhere/manifests /nowhere/features --config /nowhere/config.toml"
    assert find_entry(line.split()) == Entry("asrtool.cli.data", "features")


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
    from asrtool.cli.main import cli

    monkeypatch.setattr(cli, "lazy", {"gone": ("asrtool.cli.gone:gone", "")})
    with pytest.raises(AsrtoolError, match=r"the command cannot be loaded: No module named 'asrtool\.cli\.gone'"):
        find_entry(["asrtool", "gone"])
