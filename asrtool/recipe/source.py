"""The code version of a command: a digest of the sources it can import.

Found without running anything: imports are read from the syntax tree, starting at the function of the command and
following this project's packages, imports inside functions included. Docstrings, comments and imports for type
annotations do not count, so that correcting one does not make a training stale. Neither do the modules in
NOT_IN_DIGESTS: they decide how a command is called and reported, not what it writes, and the settings themselves are
compared one by one.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import asrtool
from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.config import Config, chosen_components

ROOT = Path(asrtool.__file__).resolve().parents[1]
PACKAGES = ("asrtool",)
NOT_IN_DIGESTS = frozenset(
    {f"asrtool.settings.{name}" for name in ("config", "toml_files", "values", "registry", "removed", "schema")}
    | {f"asrtool.settings.{name}" for name in ("data", "lang", "models", "train", "distributed", "decode")}
    | {"asrtool.errors", "asrtool.files", "asrtool.log"}
    | {"asrtool.cli.command", "asrtool.cli.main", "asrtool.cli.options", "asrtool.recipe.source"}
)


def code_digests(entries: Iterable[str], modules: Iterable[str] = ()) -> dict[str, str]:
    """Return source file -> digest of all that commands and components can import.

    `entries` are functions of commands, ``package.module:function``; of their modules only what the functions refer to
    counts. `modules` belong to components chosen by name, which no import statement shows; imports of a custom module
    are followed in its own package. Raises AsrtoolError for an import of a module that does not exist.
    """
    digests: dict[str, str] = {}
    waiting = list(modules)
    functions: dict[str, set[str]] = {}
    for module, _, function in (entry.partition(":") for entry in entries):
        functions.setdefault(module, set()).add(function)
    for module in sorted(functions):
        parts = _reachable(_parse(module), functions[module])
        digests[_file_name(module)] = _digest(parts)
        waiting += _imports(module, parts)
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:  # most of hundreds of imports repeat a module, and finding its file is slow
            continue
        seen.add(module)
        name = _file_name(module)
        if module not in NOT_IN_DIGESTS and name not in digests:
            status = (ROOT / name).stat()
            digests[name], imported = _module(module, (status.st_size, status.st_mtime_ns))
            waiting += imported
    return digests


def chosen_modules(config: Config, names: Iterable[str]) -> list[str]:
    """Return the modules of components that `names` choose, and of their topology."""
    chosen = list(chosen_components(config, names))
    paths = [registry.path_of(part.kind, part.name) for part in chosen]
    paths += [part.settings.topology for part in chosen if getattr(part.settings, "topology", "")]
    return [path.partition(":")[0] for path in paths]


def code_of(entry: str, config: Config, sections: Iterable[str]) -> str:
    """Return one digest of all sources of the command and its chosen components.

    It does not depend on their folder.
    """
    digests = code_digests([entry], chosen_modules(config, sections))
    return hashlib.sha256(json.dumps(sorted(digests.values())).encode()).hexdigest()[:16]


@functools.cache  # stages share most modules; a source may change during a long run
def _module(module: str, version: tuple[int, int]) -> tuple[str, tuple[str, ...]]:
    tree = _parse(module)
    return _digest(tree.body), tuple(_imports(module, tree.body))


def _parse(module: str) -> ast.Module:
    """Return the syntax tree of `module`, without imports for type annotations."""
    path = ROOT / _file_name(module)
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise AsrtoolError(f"{path}: line {error.lineno}: {error.msg}", "fix the line") from error
    tree.body = [node for node in tree.body if not _is_for_types(node)]
    return tree


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _file_name(module: str) -> str:
    name = find_source(module)
    if name is None:
        raise AsrtoolError(f"module {module} does not exist under {ROOT}", "fix the import that names it")
    return name


def find_source(module: str) -> str | None:
    """Return the file of `module` relative to ROOT, or the whole path if custom."""
    if module.split(".")[0] not in PACKAGES:
        with contextlib.suppress(ModuleNotFoundError):  # its parent is no package
            found = importlib.util.find_spec(module)
            return found.origin if found else None
        return None
    stem = module.replace(".", "/")
    for name in (f"{stem}/__init__.py", f"{stem}.py"):
        if (ROOT / name).is_file():
            return name
    return None


def _imports(module: str, parts: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the modules of this project that `parts` import, and their packages."""
    for node in _statements(parts):
        for name in _imported(module, node):
            packages = name.split(".")
            holding = (".".join(packages[:length]) for length in range(1, len(packages) + 1))
            yield from (name for name in holding if packages[0] in PACKAGES or find_source(name))


def _statements(parts: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield `parts` and the statements in them; expressions are left out."""
    for part in parts:
        yield part
        for name in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from _statements(getattr(part, name, ()))


def _imported(module: str, node: ast.AST) -> list[str]:
    followed = (*PACKAGES, module.split(".")[0])
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.split(".")[0] in followed]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = _absolute(module, node)
    if base.split(".")[0] not in followed:
        return []
    # `from package import name` may name a module of the package or something defined in it.
    return [base, *(f"{base}.{alias.name}" for alias in node.names if find_source(f"{base}.{alias.name}"))]


def _absolute(module: str, node: ast.ImportFrom) -> str:
    """Return the module that an import of `module` names; custom ones may be relative."""
    if not node.level:
        return node.module or ""
    is_package = Path(_file_name(module)).name == "__init__.py"
    package = module if is_package else module.rpartition(".")[0]
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def _reachable(tree: ast.Module, functions: set[str]) -> list[ast.stmt]:
    """Return the statements that running `functions` needs."""
    definitions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    parts = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    waiting, seen = [*functions, *_names(parts)], set()
    while waiting:
        name = waiting.pop()
        if name in definitions and name not in seen:
            seen.add(name)
            waiting += _names([definitions[name]])
    return parts + [definitions[name] for name in sorted(seen)]


def _names(parts: Iterable[ast.stmt]) -> set[str]:
    """Return the names that `parts` use, without arguments, which hide definitions."""
    nodes = [node for part in parts for node in ast.walk(part)]
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return {node.id for node in nodes if isinstance(node, ast.Name)} - arguments


def _digest(parts: Sequence[ast.stmt]) -> str:
    digest = hashlib.sha256()
    for node in _statements(parts):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _is_text(node.body[0]):
            node.body = node.body[1:]
    for part in parts:
        if not _is_text(part):
            digest.update(ast.dump(part).encode())
    return digest.hexdigest()[:16]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
