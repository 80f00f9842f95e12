"""What comes with a name of a corpus lies in local/; asrtool finds it by the registry."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from asrtool.local.corpus import open_corpus
from asrtool.settings import registry

ROOT = Path(__file__).resolve().parents[3]
# The rules of scoring, a test set whose size the scorer knows, and the default recipe are called as a corpus is.
ALLOWED = {
    ("asrtool/__init__.py", "hub5"),  # the module that scores by the rules of that evaluation
    ("asrtool/score/sctk.py", "hub5"),
    ("asrtool/score/tables.py", "hub5"),
    ("asrtool/cli/options.py", "swbd"),
    ("asrtool/recipe/recipe.py", "swbd"),
    *(("asrtool/settings/values.py", f"own_{role}") for role in ("train", "dev", "test")),  # names of other toolkits
    *(("asrtool/cli/run.py", f"own_{role}") for role in ("train", "test")),  # the line to begin with one's own data
}


def texts(code: bytes) -> Iterator[str]:
    """All that is quoted in a module but for its docstrings."""
    tree = ast.parse(code)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_no_corpus_and_no_release_is_named_in_asrtool() -> None:
    corpora = [open_corpus(name) for name in registry.names("corpus")]
    names = {corpus.name for corpus in corpora} | {r.key for corpus in corpora for r in corpus.releases}
    looks_named = re.compile("|".join([*(names - {"own"}), "[\"']own[\"']"]).encode(), re.IGNORECASE)
    code = {path: path.read_bytes() for path in sorted((ROOT / "asrtool").rglob("*.py"))}
    found = {
        (str(path.relative_to(ROOT)), word)
        for path in code
        if looks_named.search(code[path])
        for text in texts(code[path])
        for word in re.findall(r"\w+", text.lower())
        if word in names - {"own"} or text == "own"
    }
    assert found == ALLOWED
