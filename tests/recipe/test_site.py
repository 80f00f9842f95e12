"""The manual as a site: Sphinx builds it without a warning, and a browser shows and searches it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from chromium import Chromium, chromium

from asrtool.cli.main import COMMANDS

pytestmark = pytest.mark.slow
pytest.importorskip("sphinx", reason="Sphinx is not installed: make setup")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    sphinx = [sys.executable, "-m", "sphinx", "-qW", "--keep-going", "-c", "docs", "-d", str(out / "doctrees")]
    subprocess.run([*sphinx, ".", str(out / "html")], check=True, cwd=ROOT)
    return out / "html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


def test_every_command_is_on_the_page_of_commands(site: Path) -> None:
    page = (site / "docs" / "reference" / "commands.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f'id="asrtool-{name}"' not in page] == []


def test_errors_are_listed_with_advice(site: Path) -> None:
    page = (site / "docs" / "reference" / "errors.html").read_text(encoding="utf-8")
    assert page.count("<li><p><strong>") > 500
    assert "{setting} needs the package k2</strong>: use .venv-k2/bin/asrtool" in page


def test_strategies_have_time_lines_with_a_text(site: Path) -> None:
    page = (site / "docs" / "guide" / "distributed.html").read_text(encoding="utf-8")
    waits = dict(re.findall(r'aria-label="time line of four learners under ([\w-]+): \d+ steps a second; (.*?)"', page))
    assert len(waits) == 8
    assert waits["adpsgd-random"] == "nobody waits" != waits["allreduce"]


def test_no_page_is_wider_than_a_phone(site: Path, browser: Chromium) -> None:
    for page in sorted({*site.rglob("*.html")} - {site / "index.html"}):
        browser.open(page, width=400)
        width = browser.evaluate("document.documentElement.scrollWidth")
        assert width <= 400, f"{page}: {width} pixels"


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("add a new corpus", "docs/how-to/new-corpus.html"),
        ("adpsgd-random", "docs/guide/distributed.html"),
        ("bf16", "docs/guide/training.html"),
        ("change the tokenizer", "docs/guide/language.html"),
        ("checkpoint files", "docs/guide/training.html"),
        ("exit code", "docs/how-to/scripts.html"),
        ("export to ONNX", "docs/how-to/export.html"),
        ("multi-GPU", "docs/how-to/several-gpus.html"),
        ("new learning strategy", "docs/how-to/new-strategy.html"),
        ("NIST rules", "docs/how-to/score.html"),
        ("OOM", "docs/how-to/memory.html"),
        ("own data", "docs/guide/corpora.html"),
        ("own data in other languages", "docs/how-to/languages.html"),
        ("resume a stopped training", "docs/how-to/resume.html"),
        ("score only", "docs/how-to/score.html"),
        ("several GPUs", "docs/how-to/several-gpus.html"),
        ("significance", "docs/how-to/compare.html"),
        ("stereo recordings", "docs/how-to/transcribe.html"),
        ("straggler", "docs/tutorials/straggler.html"),
        ("streaming", "docs/how-to/streaming.html"),
        ("use German", "docs/how-to/languages.html"),
        ("word timings", "docs/how-to/align.html"),
    ],
)
def test_the_search_finds_a_page_among_the_first_five(site: Path, browser: Chromium, words: str, page: str) -> None:
    # Returns once the page is there: an expression that runs while a page goes away is an error.
    browser.call("Page.navigate", url=f"{(site / 'search.html').as_uri()}?q={quote(words)}")
    browser.wait_for("document.querySelector('.search-summary')?.innerText.startsWith('Search finished')")
    links = browser.evaluate("[...document.querySelectorAll('#search-results li a')].map(link => link.href)")
    assert page in str(links[:5])
