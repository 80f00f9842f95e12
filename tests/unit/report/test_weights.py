"""Error rates on dev over the weight of the language model."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_work import TUNING

from asrtool.errors import AsrtoolError
from asrtool.report.figures.figure import narrow_svg
from asrtool.report.rates import describe_weights, draw_weights, lowest, read_weights


def test_each_weight_has_the_least_rate_of_what_was_tried_with_it(tmp_path: Path) -> None:
    path = tmp_path / "tuning.tsv"
    path.write_text(TUNING + "graph\t0.1\t2\t80\t9.00\tno\nbeam\t0.4\t0\t80\t5.00\tyes\nbeam\t0.4\t1\t80\t6.00\tno\n")
    curves = read_weights(path)
    assert curves == {"graph": {0.1: 9.0, 0.3: 7.5, 0.5: 5.0, 0.8: 6.25}}  # beam and greedy have one weight or none
    assert list(curves["graph"]) == [0.1, 0.3, 0.5, 0.8]
    assert "graph: 5.00 % at 0.5, the lowest of 9.00 at 0.1, 7.50 at 0.3" in describe_weights(curves)
    assert lowest({0.5: 5.0, 0.3: 5.0, 0.8: 7.0}) == 0.3
    svg = narrow_svg(lambda figure: draw_weights(figure, curves), "x")
    assert ">LM weight</text>" in svg
    assert ">graph</text>" in svg


@pytest.mark.parametrize("text", ["", "method\tlm_weight\n", "method\twer\nbeam\t1\n", f"{TUNING}beam\t0.5\n"])
def test_a_table_without_weights_or_with_broken_lines(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tuning.tsv"
    path.write_text(text)
    if text == "method\tlm_weight\n":
        assert read_weights(path) == {}
        return
    with pytest.raises(AsrtoolError, match=r"tuning\.tsv: no table of tuning: .*; run stage decode again with --force"):
        read_weights(path)
