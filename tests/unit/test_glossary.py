"""The glossary is short and in order, and other documents use its terms."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "guide" / "glossary.md"


def read_terms() -> list[str]:
    """Return the first cell of each row."""
    lines = GLOSSARY.read_text(encoding="utf-8").splitlines()
    return [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]


def test_terms_are_few_and_in_order() -> None:
    terms = read_terms()
    assert 20 < len(terms) <= 40
    assert terms == sorted(set(terms))


def test_another_page_uses_every_term() -> None:
    folders = (ROOT / "docs", ROOT / "docs" / "guide", ROOT / "docs" / "how-to")
    pages = [ROOT / "README.md", *(page for folder in folders for page in folder.glob("*.md"))]
    text = " ".join(page.read_text(encoding="utf-8") for page in pages if page != GLOSSARY)
    text = re.sub(r"\s+", " ", text).lower()
    assert [term for term in read_terms() if term not in text] == []
