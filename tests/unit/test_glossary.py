"""The glossary keeps to the tree: a term is easy to find, and so is its module."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def read_rows() -> list[tuple[str, ...]]:
    """Term, meaning and module of each row."""
    lines = (ROOT / "docs/guide/glossary.md").read_text(encoding="utf-8").splitlines()
    table = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines if line.startswith("|")]
    return table[2:]


def test_terms_are_in_order_each_with_one_line() -> None:
    terms = [term for term, _, _ in read_rows()]
    assert len(terms) > 40
    assert terms == sorted(set(terms))


def test_every_module_named_is_there() -> None:
    assert [module for _, _, module in read_rows() if not (ROOT / module.strip("`")).exists()] == []
