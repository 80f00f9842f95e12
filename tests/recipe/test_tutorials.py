"""The tutorials, typed word for word from an empty folder, and the notebook."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, read_blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TUTORIALS = ROOT / "docs" / "tutorials"
ADD = 'asrtool() { if [ "$1" = run ]; then command asrtool "$@" %s; else command asrtool "$@"; fi; }'


@pytest.fixture(autouse=True)
def _on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find asrtool and python as a reader does who has activated the environment."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)


def script_of(page: Path) -> str:
    """Return what a reader of `page` types and writes, as a script."""
    lines = ["set -e"]
    for block in read_blocks(page):
        if settings := block.marks.get("tests add"):
            lines.append(ADD % " ".join(settings.split()))
        if written := re.search(r"Write `(\S+)`", block.above):
            lines.append(f"cat > {written[1]} << 'END'\n{block.text}END")
        elif block.is_shell and "needs" not in block.marks:
            lines.append(block.text)
    return "\n".join(lines)


@pytest.mark.parametrize(
    "page", [page for page in sorted(TUTORIALS.glob("*.md")) if page.stem != "index"], ids=lambda page: page.stem
)
def test_a_tutorial_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    script = script_of(page)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    # Each file that the page names exists.
    (folder,) = tmp_path.iterdir()
    page_text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`([\w./-]+/[\w./-]+\.(?:html|svg|md|srt|fst))`", page_text):
        assert (folder / name).is_file(), name


def test_the_notebook_runs_and_its_recogniser_learns(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: make setup")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: make setup")
    notebook = nbformat.read(ROOT / "examples" / "first_hour.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    found = re.search(r"([\d.]+) % of 175 words are wrong", "".join(output.get("text", "") for output in outputs))
    assert found
    assert float(found[1]) < 10
    assert len([output for output in outputs if "image/png" in output.get("data", ())]) == 3
