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

MARKDOWN, PAGE = "RESULTS.md", "RESULTS.html"


def write_report(work: Path, configs: Sequence[Path], num_clips: int) -> list[Path]:
    """Write RESULTS.md, RESULTS.html and report/; return the first two paths.

    Settings come from `configs`, or from the run. Raises AsrtoolError naming a missing file and its stage; an earlier
    report then stays.
    """
    check_files(*_paths(work))
    (experiment,) = read_experiments([work], configs)
    markdown, page = format_results(experiment), format_page([experiment], num_clips)
    with write_folder(work / FIGURES, "*.svg") as folder:
        draw_figures(experiment.learners, folder)
    return _write(work, markdown, page)


def write_side_by_side(works: Sequence[Path], out: Path, num_clips: int) -> list[Path]:
    """Write RESULTS.md and RESULTS.html of experiments to `out`; return the paths.

    Raises AsrtoolError as write_report, and if `out` is one of them.
    """
    if out.resolve() in [work.resolve() for work in works]:
        raise AsrtoolError(f"{out}: is one of the experiments, whose own report would be lost", "name another folder")
    check_files(*_paths(out))
    experiments = read_experiments(works)
    return _write(out, format_comparison(experiments), format_page(experiments, num_clips))


def _write(folder: Path, markdown: str, page: str) -> list[Path]:
    paths = _paths(folder)
    with writing(*paths):
        for path, text in zip(paths, (markdown, page), strict=True):
            write_text(path, text)
    return paths


def _paths(folder: Path) -> list[Path]:
    return [folder / MARKDOWN, folder / PAGE]
