"""Texts of every AsrtoolError in the sources, so that tests can follow their advice.

Nothing is imported or run. The two arguments of each AsrtoolError are followed in the syntax trees: names to their
assignments, also in other modules, and calls of functions of this project to their results. Values that only a run has
are in braces.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("asrtool", "asrtool/local")
ERRORS = ("AsrtoolError", "OtherChannels")  # the class and its subclasses
MOST = 4  # texts of one argument that are listed
DEEPEST = 12  # names and calls that are followed from one argument


@dataclass(frozen=True)
class Fault:
    """One AsrtoolError of the sources, as the texts that its two parts can be."""

    module: str  # asrtool.data.storage.index
    line: int
    what: tuple[str, ...]
    advice: tuple[str, ...]


@dataclass
class Scope:
    """Scope for names: nested functions, then the module."""

    module: str
    functions: list[ast.FunctionDef] = field(default_factory=list)
    depth: int = 0

    def inside(self, function: ast.FunctionDef) -> Scope:
        """The scope of `function`, which is in this one."""
        return Scope(self.module, [*self.functions, function], self.depth)

    def deeper(self, module: str = "", *functions: ast.FunctionDef) -> Scope:
        """Return the scope one step further, in `module` if named."""
        return Scope(module or self.module, list(functions) if module else self.functions, self.depth + 1)


def find_faults() -> list[Fault]:
    """All of the sources, in the order of modules and lines."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [fault for module in modules for fault in faults_in(module)]


def faults_in(module: str) -> list[Fault]:
    """Return the faults of a module, except errors that pass on another one."""
    calls = _calls(tree_of(module), Scope(module))
    return [_fault(call, scope) for call, scope in calls if not _passes_on(call)]


@cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree of a module of this project."""
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_bytes(), str(file))


def _calls(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.Call, Scope]]:
    for child in ast.iter_child_nodes(node):
        inner = scope.inside(child) if isinstance(child, ast.FunctionDef) else scope
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id in ERRORS:
            yield child, inner
        yield from _calls(child, inner)


def _passes_on(call: ast.Call) -> bool:
    """Return whether the advice comes from another error (``error.hint``)."""
    advice = call.args[-1]
    if isinstance(advice, ast.Starred):
        return True
    return isinstance(advice, ast.Attribute) and advice.attr == "hint" and ast.unparse(advice.value) != "self"


def _fault(call: ast.Call, scope: Scope) -> Fault:
    what, *advice = [tuple(_shown(argument, scope)) for argument in call.args]
    return Fault(scope.module, call.lineno, what, advice[0] if advice else ())


def _texts(node: ast.AST, scope: Scope) -> list[str]:
    """The texts that an expression can be; none where no text of it is in the sources."""
    if scope.depth > DEEPEST:
        return []
    if isinstance(node, ast.Constant):
        return [] if node.value is None or isinstance(node.value, bool) else [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return _product([_shown(part, scope) for part in node.values])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _product([_shown(part, scope) for part in (node.left, node.right)])
    if isinstance(node, ast.IfExp):
        return _either([(node.body, scope), (node.orelse, scope)])
    if isinstance(node, ast.BoolOp):
        return [text for text in _either([(value, scope) for value in node.values]) if text]
    if isinstance(node, ast.Name):
        return _either(_values(node, scope))
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
        return _either([(value, scope.deeper()) for value in _attributes(node.attr, scope)])
    if isinstance(node, ast.Call) and (found := _function(node.func, scope)):
        function, where = found
        returned = [each.value for each in ast.walk(function) if isinstance(each, ast.Return) and each.value]
        return _either([(value, where.inside(function)) for value in sorted(returned, key=lambda each: each.lineno)])
    return []


def _either(values: list[tuple[ast.AST, Scope]]) -> list[str]:
    """The texts of all `values`; where some have none, what stands for these too."""
    known = any(_texts(*value) for value in values)
    return [text for value in values for text in _shown(*value)] if known else []


def _shown(part: ast.AST, scope: Scope) -> list[str]:
    """The texts of a part of a text, or what stands for it."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    return list(dict.fromkeys(_texts(value, scope.deeper()))) or ["{" + _name_of(value) + "}"]


def _product(parts: list[list[str]]) -> list[str]:
    combined = ["".join(texts) for texts in itertools.islice(itertools.product(*parts), MOST)]
    return list(dict.fromkeys(combined))


def _name_of(node: ast.AST) -> str:
    """A word for what a run fills in."""
    if isinstance(node, ast.Attribute):
        return node.attr
    called = {id(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and id(each) not in called]
    return names[-1] if names else "..."


def _values(node: ast.Name, scope: Scope) -> list[tuple[ast.AST, Scope]]:
    """Return what is assigned to a name in its scope, and where to read it."""
    name = node.id
    for place in range(len(scope.functions), 0, -1):
        function = scope.functions[place - 1]
        where = Scope(scope.module, scope.functions[:place], scope.depth + 1)
        if found := _last_assigned(name, function, node.lineno):
            return [(value, where) for value in found]
        if name in {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}:
            return []
    module = scope.module
    while module:
        if found := list(_assigned(name, tree_of(module).body)):
            return [(value, Scope(module, depth=scope.depth + 1)) for value in found]
        module = _imported_from(name, module)
    return []


def _last_assigned(name: str, function: ast.FunctionDef, line: int) -> list[ast.AST]:
    """Return what is assigned to `name` before `line`, from the last sure time on."""
    found: list[ast.AST] = []
    for value in sorted(_assigned(name, ast.walk(function)), key=lambda value: value.lineno, reverse=True):
        if value.lineno <= line:
            found.insert(0, value)
            blocks = [(begin, end) for begin, end in _blocks(function) if begin <= value.lineno <= end]
            if blocks and max(blocks)[1] >= line:
                break
    return found


def _blocks(function: ast.FunctionDef) -> Iterator[tuple[int, int]]:
    """The first and last line of each list of statements."""
    for node in ast.walk(function):
        for part in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, part, None), list) and block:
                yield block[0].lineno, block[-1].end_lineno


def _assigned(name: str, nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or node.value is None:
            continue
        for target in targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            yield from (part for one, part in pairs if isinstance(one, ast.Name) and one.id == name)


def _attributes(name: str, scope: Scope) -> list[ast.AST]:
    classes = [node for node in ast.walk(tree_of(scope.module)) if isinstance(node, ast.ClassDef)]
    return [value for each in classes for value in _assigned(name, each.body)]


def _function(called: ast.expr, scope: Scope) -> tuple[ast.FunctionDef, Scope] | None:
    """Return the definition of a called function of this project."""
    name = called.id if isinstance(called, ast.Name) else ""
    if isinstance(called, ast.Attribute) and ast.unparse(called.value) == "self":
        name = called.attr
    module = scope.module if name else ""
    while module:
        if name in (known := _functions(module)):
            return known[name], Scope(module, depth=scope.depth + 1)
        module = _imported_from(name, module)
    return None


@cache
def _functions(module: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree_of(module)) if isinstance(node, ast.FunctionDef)}


@cache
def _imported_from(name: str, module: str) -> str:
    """Return the module that `name` is imported from in `module`, or ''."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and name in {alias.asname or alias.name for alias in node.names}:
            module = str(node.module)
            return module if module.split(".")[0] in FOLDERS else ""
    return ""
