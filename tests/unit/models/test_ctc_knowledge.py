"""Only the modules of CTC and the transducer name them, in all syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NAMES = re.compile(r"blank|ctc_|log_probs_[A-Z]|collapse", re.IGNORECASE)
WEIGHT = re.compile(r"ctc_weights?", re.IGNORECASE)  # of CTC beside a decoder with attention, as settings name it
# The objectives that have a blank, and the searches that sum over their paths.
OF_CTC = (
    "asrtool/models/objectives/ctc",
    "asrtool/models/objectives/topology.py",
    "asrtool/decode/search/beam.py",
)
OWNERS = (
    *OF_CTC,
    "asrtool/models/objectives/transducer",
    "asrtool/decode/search/transducer.py",
    "asrtool/decode/search/attention.py",
)


def names(path: Path) -> Iterator[str]:
    """All that is defined, read, called, passed or imported by name."""
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield value.rpartition(".")[2]


def test_nothing_but_such_objectives_and_their_searches_knows_of_blanks() -> None:
    wrong = []
    for path in sorted((ROOT / "asrtool").rglob("*.py")):
        place = str(path.relative_to(ROOT))
        if not place.startswith(OWNERS):
            wrong += [
                f"{place} names {name}" for name in names(path) if NAMES.search(name) and not WEIGHT.fullmatch(name)
            ]
    assert not wrong
