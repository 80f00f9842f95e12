"""Allowed imports between modules, by the syntax trees of all sources."""

from __future__ import annotations

import ast
import graphlib
import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALL = [
    path for folder in ("asrtool", "asrtool/local", "asrtool/utils") for path in sorted((ROOT / folder).rglob("*.py"))
]
BOTTOM = {"compiled", "errors", "log", "files", "child_processes", "url", "version"}
PARTS = {"data", "lang", "models", "score", "distributed"}
# room -> rooms of asrtool it may import besides itself, the settings and the bottom
MAY_IMPORT = {
    "cli": {*PARTS, "train", "decode", "report", "recipe", "bundle", "transcribe", "predict", "api", "jobs"},
    "api": {"bundle", "transcribe", "data", "decode", "lang", "models"},  # what a Python program imports
    "bundle": {*PARTS, "decode"},
    "transcribe": {*PARTS, "decode", "bundle"},
    "predict": {*PARTS, "train", "decode", "report", "recipe"},
    "jobs": {"train"},
    "train": PARTS,
    "decode": PARTS,
    "report": {*PARTS, "train", "decode", "predict"},
    "recipe": set(),
    **{part: set() for part in sorted(PARTS)},
    "models": {"score"},  # the distance of a guess from the targets
    "settings": set(),
}
LATE = [
    ("asrtool.lang.tokenizer", "asrtool.lang.phones")
]  # a base that opens a file of the derived class, in a function
# heavy dependency, or folder of corpora -> where it may be imported, as path prefixes
OWNERS = {
    "click": ("asrtool/cli/", "asrtool/local/"),
    "lhotse": ("asrtool/data/", "asrtool/local/"),
    "sentencepiece": ("asrtool/lang/",),
    "kaldifst": ("asrtool/lang/", "asrtool/decode/"),
    "kaldilm": ("asrtool/lang/", "asrtool/decode/"),
    "kaldi_decoder": ("asrtool/lang/", "asrtool/decode/"),
    "zmq": ("asrtool/distributed/",),
    "boto3": ("asrtool/data/",),
    "matplotlib": ("asrtool/report/",),
    "jinja2": ("asrtool/report/",),
    "onnx": ("asrtool/bundle/",),
    "onnxruntime": ("asrtool/models/files/onnx_file.py",),
    "numba": ("asrtool/compiled.py",),
    "k2": ("asrtool/lang/", "asrtool/decode/", "asrtool/models/"),
    # [paths] has the keys of the releases of the corpora
    "asrtool.local": ("asrtool/api.py", "asrtool/cli/", "asrtool/settings/toml_files.py", "asrtool/local/"),
    "asrtool.utils": ("asrtool/cli/", "asrtool/local/", "asrtool/utils/"),
}


def imports(path: Path, for_types: bool = True) -> Iterator[str]:
    """Dotted names that `path` imports anywhere, if wanted also for types only; `from a import b` gives a.b."""
    tree = ast.parse(path.read_bytes(), str(path))
    if not for_types:
        tree.body = [node for node in tree.body if not is_type_checking(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield the place of a file, relative to ROOT, with each name that it imports."""
    for path in sorted(paths):
        yield from ((path.relative_to(ROOT).as_posix(), name) for name in imports(path))


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def room(path: Path) -> str:
    """data for asrtool/data/storage/x.py, files for asrtool/files.py."""
    return path.relative_to(ROOT / "asrtool").with_suffix("").parts[0]


def test_rooms_import_in_one_direction() -> None:
    wrong = []
    for path in sorted((ROOT / "asrtool").rglob("*.py")):
        own = room(path)
        allowed = {own, *BOTTOM}
        if own not in {*BOTTOM, "__init__"}:
            allowed |= {"settings", *MAY_IMPORT[own]}
        for name in imports(path, for_types=own != "__init__"):
            parts = name.split(".")
            known = len(parts) == 1 or parts[1] in allowed
            elsewhere = parts[1:2] in (["local"], ["utils"])  # tested below
            if parts[0] == "asrtool" and not (known or elsewhere):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_what_composes_the_settings_of_the_rooms_stays_short() -> None:
    """The needs of a component or a room are declared beside its settings."""
    assert len((ROOT / "asrtool" / "settings" / "config.py").read_text(encoding="utf-8").splitlines()) < 155


def test_no_modules_import_each_other_in_a_cycle() -> None:
    files = {str(path.relative_to(ROOT).with_suffix("")).replace("/", "."): path for path in ALL}
    graph = {}
    for module, path in files.items():
        names = list(imports(path, for_types=False))
        names += [name.rpartition(".")[0] for name in names]  # what `from module import name` names
        graph[module] = {name for name in names if name in files and name != module}
    for base, derived in LATE:
        graph[base].remove(derived)
    assert len(graph) > 100
    try:
        list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_every_room_has_its_place_in_the_order() -> None:
    rooms = {path.name for path in (ROOT / "asrtool").iterdir() if (path / "__init__.py").is_file()}
    assert rooms <= MAY_IMPORT.keys() | {"local", "utils"}


def test_utils_need_neither_asrtool_nor_anything_beyond_numpy() -> None:
    beyond = {*OWNERS, "asrtool", "torch", "scipy", "soundfile"}
    found = imports_of((ROOT / "utils").rglob("*.py"))
    assert [f"{place} imports {name}" for place, name in found if name.split(".")[0] in beyond] == []


def test_each_heavy_dependency_and_what_knows_a_corpus_has_one_owner() -> None:
    wrong = []
    for place, name in imports_of(ALL):
        package, *rest = name.split(".")
        owners = OWNERS.get(package) or OWNERS.get(".".join([package, *rest[:1]]))
        if owners and not place.startswith(owners):
            wrong.append(f"{place} imports {name}")
    assert not wrong


def test_command_line_modules_import_click_and_the_bottom_layer_only_at_the_top() -> None:
    wrong = []
    for path in sorted((ROOT / "asrtool" / "cli").glob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            heavy = [name for name in modules if name.split(".")[0] in {*OWNERS, "torch", "numpy"} - {"click"}]
            heavy += [name for name in modules if name.startswith("asrtool.local")]
            wrong += [f"{path.name} imports {name}" for name in heavy]
    assert not wrong


def test_recipes_reach_the_rest_through_command_lines_only() -> None:
    found = imports_of((ROOT / "recipes").glob("*/*.py"))
    allowed = ("__future__.annotations", "asrtool.recipe.")
    assert [f"{place} imports {name}" for place, name in found if not name.startswith(allowed)] == []


def test_recipes_cannot_be_imported() -> None:
    with pytest.raises(ImportError, match="asrtool run --recipe"):
        importlib.import_module("recipes")


def test_the_map_of_a_room_has_all_that_is_in_it() -> None:
    for path in ALL:
        if path.name == "__init__.py" and path.parent != ROOT / "asrtool":
            inside = [*path.parent.glob("[!_]*.py"), *(other.parent for other in path.parent.glob("*/__init__.py"))]
            named = re.findall(r"\w+", path.read_text(encoding="utf-8"))
            assert not inside or {other.stem for other in inside} <= {*named}, path
