"""Texts of the sources that a user may read, for tests that follow their advice.

Nothing is imported or run. Values that only a run has are in braces.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ERRORS = ("AsrtoolError", "OtherChannels")  # the class and its subclasses
# Pages, command lines of other programs, and settings of earlier versions.
NO_ADVICE = (
    "asrtool/report/page/",
    "asrtool/report/figures/",
    "asrtool/bundle/sherpa.py",
    "asrtool/settings/removed.py",
)


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield name and syntax tree of every module."""
    for folder in ("asrtool", "local", "utils"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_bytes(), str(path))


def texts() -> Iterator[tuple[str, str]]:
    """Yield place and every text of several words but docstrings; expressions of f-strings are in braces."""
    for name, tree in sources():
        if name.startswith(NO_ADVICE):
            continue
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
        inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(map(_shown, node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                text = node.value
            else:
                continue
            if " " in text.strip():
                yield f"{name}:{node.lineno}", text


def errors_without_advice() -> Iterator[str]:
    """Yield places where an AsrtoolError has no second argument, or an empty one."""
    for name, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
                starred = any(isinstance(argument, ast.Starred) for argument in node.args)
                last = node.args[-1] if node.args else None
                if not starred and (len(node.args) < 2 or (isinstance(last, ast.Constant) and not last.value)):
                    yield f"{name}:{node.lineno}"


def _shown(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    return "{" + ast.unparse(part.value).rpartition(".")[2] + "}"
