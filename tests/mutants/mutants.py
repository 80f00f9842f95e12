"""Mutants: small faults of the code, each of which a test has to notice; `run.py` applies them one by one.

`ROOM.txt` has those of asrtool/ROOM, below the file that each changes:

    # asrtool/score/glm.py

    last-rule-wins: test_hub5.py
    - fitting.setdefault(position + len(rule.left), rule)
    + fitting[position + len(rule.left)] = rule

The text behind `- `, which the file has exactly once, is replaced by the text behind `+ `. The tests that fail then are
in tests/unit/ROOM, or begin with tests/; several are separated by `; `.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """`find`, which `file` has exactly once, becomes `replace`; then `tests` fail."""

    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]

    def apply(self, text: str) -> str:
        """Return the mutated `text` of `file`; ValueError if that does not have `find` once."""
        if (num := text.count(self.find)) != 1:
            raise ValueError(f"{self.name}: {self.file} has {num} times, not once: {self.find!r}")
        return text.replace(self.find, self.replace)


def read_mutants(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a room."""
    file = ""
    for block in path.read_text(encoding="utf-8").strip("\n").split("\n\n"):
        head, *lines = block.split("\n")
        if head.startswith("# "):
            file = head[2:]
            continue
        name, _, tests = head.partition(": ")
        find, replace = ("\n".join(line[2:] for line in lines if line.startswith(sign)) for sign in "-+")
        folder = f"tests/unit/{path.stem}/"
        paths = (test if test.startswith("tests/") else folder + test for test in tests.split("; "))
        yield Mutant(name, file, find, replace, tuple(paths))


BY_ROOM = {path.stem: tuple(read_mutants(path)) for path in sorted(Path(__file__).parent.glob("*.txt"))}
MUTANTS = tuple(mutant for mutants in BY_ROOM.values() for mutant in mutants)
