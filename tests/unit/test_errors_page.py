"""The page of errors: it is made of the sources as they are, and follows what their errors are made of."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from asrtool import errors_page
from asrtool.config_file import load_config
from asrtool.errors import AsrtoolError
from asrtool.errors_page import Fault, find_faults, format_page
from asrtool.registry import load

PAGE = errors_page.ROOT / "docs" / "guide" / "errors.md"
HEAD = """
from asrtool.toy_advice import AGAIN, why
from asrtool.errors import AsrtoolError
LATER = "come " + "back"
"""
ADVICE = """
AGAIN = f"run {LAST} again"
LAST = "it"
def why(path):
    if path:
        return "no path"
    return f"{path}: empty"
"""


@pytest.fixture(scope="module")
def faults() -> list[Fault]:
    return find_faults()


def test_the_page_of_the_guide_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == format_page(), (
        "run: python -m asrtool.errors_page > docs/guide/errors.md"
    )


def test_every_error_has_advice(faults: list[Fault]) -> None:
    assert len(faults) > 300
    for fault in faults:
        texts = [re.sub(r"\{[^}]*\}", "", text).strip() for text in fault.advice]
        assert texts, f"{fault.module}:{fault.line}: give AsrtoolError a second argument, what to do next"
        assert all(texts), f"{fault.module}:{fault.line}: the advice is not found in the sources, write it in place"


@pytest.mark.parametrize(
    ("body", "what", "advice"),
    [
        ('raise AsrtoolError("a", "b")', ["a"], ["b"]),
        ('raise AsrtoolError(f"{path.name}: {len(path)}", LATER)', ["{name}: {path}"], ["come back"]),
        ("raise AsrtoolError(why(path), AGAIN)", ["no path", "{path}: empty"], ["run it again"]),
        ('found = "1"\n if path:\n  found = "2"\n raise AsrtoolError(f"x{found}", "b")', ["x1", "x2"], ["b"]),
        ('found = "1"\n found = "2"\n raise AsrtoolError(f"x{found}", "b")\n found = "3"', ["x2"], ["b"]),
        ('if path:\n  found = "1"\n else:\n  found = path\n raise AsrtoolError(found, "b")', ["1", "{path}"], ["b"]),
        ('what, hint = "1", "2"\n raise AsrtoolError(what, hint if path else "3")', ["1"], ["2", "3"]),
        ('raise AsrtoolError("a")', ["a"], []),
        ("raise AsrtoolError(f'{path} of {why.x}', path)", ["{path} of {x}"], ["{path}"]),
    ],
)
def test_what_an_error_is_made_of_is_followed(
    body: str, what: list[str], advice: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = faults_of(body, monkeypatch)
    assert (list(found.what), list(found.advice)) == (what, advice)


@pytest.mark.parametrize(
    "body", ['raise AsrtoolError(f"{path}: {error.what}", error.hint)', "raise AsrtoolError(*path)"]
)
def test_an_error_that_passes_on_another_one_is_no_line(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults_of(body, monkeypatch) == []


def faults_of(body: str, monkeypatch: pytest.MonkeyPatch) -> list[Fault]:
    """Of a function with this body."""
    texts = {"asrtool.toy": f"{HEAD}\ndef f(path):\n {body}\n", "asrtool.toy_advice": ADVICE}
    trees = {module: ast.parse(text) for module, text in texts.items()}
    for name in ("_functions", "_imported_from"):
        monkeypatch.setattr(errors_page, name, getattr(errors_page, name).__wrapped__)
    monkeypatch.setattr(errors_page, "tree_of", trees.__getitem__)
    return errors_page.faults_in("asrtool.toy")


@pytest.mark.parametrize(
    "fail",
    [
        lambda folder: load_config([folder / "none.toml"]),
        lambda folder: load_config([], ["lm.ordre=4"]),
        lambda folder: load_config([], ["lm.order=x"]),
        lambda folder: load("encoder", "none"),
        lambda folder: load("encoder", "none_of_these:Net"),
    ],
)
def test_an_error_that_is_raised_has_its_line(
    fail: Callable[[Path], object], faults: list[Fault], tmp_path: Path
) -> None:
    with pytest.raises(AsrtoolError) as caught:
        fail(tmp_path)
    patterns = [pattern_of(what) for fault in faults for what in fault.what if not re.fullmatch(r"\{[^}]*\}", what)]
    assert any(pattern.fullmatch(caught.value.what) for pattern in patterns), caught.value.what


def pattern_of(text: str) -> re.Pattern[str]:
    """What a run may make of a line of the page."""
    return re.compile(".*".join(map(re.escape, re.split(r"\{[^}]*\}", text))), re.DOTALL)
