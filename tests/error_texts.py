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


def errors() -> Iterator[tuple[str, str, str]]:
    """Yield place, text and advice of every AsrtoolError that has both"""
    modules = dict(sources())
    constants = {
        node.targets[0].id: str(node.value.value)
        for tree in modules.values()
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for name, tree in modules.items():
        named = dict(constants)
        for node in _in_order(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                named[node.targets[0].id] = _text(node.value, named)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ERRORS and len(node.args) >= 2:
                yield f"{name}:{node.lineno}", *(_text(argument, named) for argument in node.args[-2:])
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "require":
                package, needed_by, hint = (_text(argument, named) for argument in node.args)
                yield f"{name}:{node.lineno}", f"{needed_by} needs the package {package}", hint


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes as they stand in the source."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _text(node: ast.expr, named: dict[str, str]) -> str:
    """Return the text of `node`, both of a choice, with braces around what only a run has."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_shown, node.values))
    if isinstance(node, ast.IfExp):
        return f"{_text(node.body, named)} / {_text(node.orelse, named)}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left, named) + _text(node.right, named)
    if isinstance(node, ast.Name) and node.id in named:
        return named[node.id]
    return "{" + ast.unparse(node) + "}"


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
