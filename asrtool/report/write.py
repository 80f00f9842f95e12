"""Write RESULTS.md, RESULTS.html and figures, of one or several experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import check_files, write_folder, write_text, writing
from asrtool.report.experiment import read_experiments
from asrtool.report.figures.training_figures import draw_figures
from asrtool.report.page.page import format_page
from asrtool.report.results import FIGURES, format_results
from asrtool.report.side_by_side import format_comparison


def write_report(
    works: Sequence[Path], num_clips: int, configs: Sequence[Path] = (), out: Path | None = None
) -> list[Path]:
    """Write the report of an experiment beside it, or of several to `out`.

    Returns the paths. Settings come from `configs`, or from the run. Raises AsrtoolError naming a missing file and its
    stage, and if `out` is one of the experiments; an earlier report then stays.
    """
    if out and out.resolve() in [work.resolve() for work in works]:
        raise AsrtoolError(f"{out}: is one of the experiments, whose own report would be lost", "name another folder")
    paths = [(out or works[0]) / name for name in ("RESULTS.md", "RESULTS.html")]
    check_files(*paths)
    experiments = read_experiments(works, configs)
    markdown = format_comparison(experiments) if out else format_results(experiments[0])
    page = format_page(experiments, num_clips)
    if not out:
        with write_folder(works[0] / FIGURES, "*.svg") as folder:
            draw_figures(experiments[0].learners, folder)
    with writing(*paths):
        for path, text in zip(paths, (markdown, page), strict=True):
            write_text(path, text)
    return paths
