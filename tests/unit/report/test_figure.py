"""Figures as a page holds them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from run_files import write_training

from asrtool.report.figures.figure import COLOURS, MAX_NAME, narrow_svg, short
from asrtool.report.figures.training_figures import FIGURES
from asrtool.report.training import read_training


@pytest.fixture(scope="module")
def svgs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    train = tmp_path_factory.mktemp("train")
    write_training(train, num_learners=2)
    run = read_training(train)

    def draw(name: str, figure: Any) -> None:
        FIGURES[name][1](figure, run=run)

    return [narrow_svg(lambda figure, name=name: draw(name, figure), f"p{name}") for name in FIGURES]


def test_a_figure_asks_for_nothing_and_has_the_colours_of_the_page(svgs: list[str]) -> None:
    text = "".join(svgs)
    for part in ("://", "<style", "<metadata", "<!--", "font-family", "#000000"):
        assert part not in text
    assert not any(colour.lower() in text.lower() for colour in COLOURS)
    assert {"currentColor", "var(--blue)", "var(--orange)"} <= set(re.findall(r"currentColor|var\(--\w+\)", text))


def test_identifiers_are_referred_to_and_unlike_those_of_other_figures(svgs: list[str]) -> None:
    ids = [name for svg in svgs for name in re.findall(r' id="([^"]*)"', svg)]
    assert len(ids) > 5
    assert len(set(ids)) == len(ids)
    used = {name for svg in svgs for name in re.findall(r'(?:url\(|href=")#([^)"]+)', svg)}
    assert used == set(ids)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a$x$\\frac", "a$x$\\frac"),
        ("_hidden", " _hidden"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("x" * 50 + "end", f"...{'x' * (MAX_NAME - 6)}end"),
    ],
)
def test_any_name_can_stand_in_a_legend(name: str, shown: str) -> None:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([1, 2], label=short(name))
        axes.legend()

    assert f">{shown}</text>" in narrow_svg(draw, "x")
