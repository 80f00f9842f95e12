"""Check docstrings and pages against docs/style.md: lines, sentences, first words and banned turns.

    python tests/style_check.py [FILE_OR_FOLDER ...]

Prints one line a fault and exits with 1 if there is any. Code blocks and tables of pages are not read.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FIRST_LINE = 80
MAX_PAGE_LINE = 100
MAX_WORDS = 35  # of a sentence
FRAGMENT = re.compile(r"(Of|That|Those|What|Where|Who|Whose|Which|How|By|As|The same|Whether|With|For|From|To|In) ")
BANNED = re.compile(
    r"\b(a person's own|is none|are none|is no number|are no numbers|no business of|there is word"
    r"|mend(s|ed)?|spelt|whoever|whomever|likewise|what .{1,30} is said|goes? to the nearer|that of|those of)\b"
)
ROOT = Path(__file__).resolve().parents[1]
DEFAULT = ("asrtool", "local", "utils", "recipes", "README.md", "CONTRIBUTING.md", "docs", "benchmarks")
GENERATED = {"docs/guide/settings.md"}


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of `text`; a blank line and the start of a list item also end one."""
    for block in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", text):
        yield from re.split(r"(?<=[.!?:;]) ", " ".join(block.split()))


def faults_of_text(text: str) -> Iterator[str]:
    for sentence in sentences(text):
        if (num := len(sentence.split())) > MAX_WORDS:
            yield f"sentence of {num} words: {sentence[:60]}..."
    if found := BANNED.search(" ".join(text.split())):
        yield f"banned turn: {found[0]}"


def faults_of_module(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if not (text := ast.get_docstring(node)):
            continue
        line = getattr(node, "lineno", 1)
        first = text.split("\n", 1)[0]
        if len(first) > MAX_FIRST_LINE:
            yield line, f"first line of a docstring has {len(first)} characters, {MAX_FIRST_LINE} at most"
        if FRAGMENT.match(first):
            yield line, f"docstring is a fragment: {first[:60]}"
        for fault in faults_of_text(re.sub(r"(?m)^ +asrtool .*$", "", text)):  # but for examples
            yield line, fault


def faults_of_page(path: Path) -> Iterator[tuple[int, str]]:
    prose, code = [], False
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        code ^= line.lstrip().startswith("```")
        if code or line.startswith("    ") or line.lstrip().startswith(("```", "|", "<", "[", "#", "!")):
            prose.append("")
            continue
        if len(line) > MAX_PAGE_LINE and "](" not in line:
            yield number, f"line has {len(line)} characters, {MAX_PAGE_LINE} at most"
        prose.append(line)
    for fault in faults_of_text("\n".join(prose)):
        yield 1, fault


def main(arguments: list[str]) -> int:
    num = 0
    for top in arguments or [str(ROOT / name) for name in DEFAULT]:
        paths = [Path(top)] if Path(top).is_file() else sorted(Path(top).rglob("*"))
        for path in paths:
            if path.suffix not in (".py", ".md") or str(path).endswith(tuple(GENERATED)) or "/exp" in str(path.parent):
                continue  # /exp*: work folders
            for line, fault in (faults_of_module if path.suffix == ".py" else faults_of_page)(path):
                print(f"{path}:{line}: {fault}")
                num += 1
    return 1 if num else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
