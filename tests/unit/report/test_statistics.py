"""Histograms and counts of a set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from report_work import Said, write_set

from asrtool.report.figures.figure import narrow_svg
from asrtool.report.statistics import (
    Statistics,
    bin_edges,
    describe_histogram,
    draw_histogram,
    percent_unknown,
    read_statistics,
    shown_histograms,
)


def write(work: Path, *texts: str) -> Path:
    said = [Said("r", "AB"[n % 2], f"s{n % 2}", "SW", text, {"greedy": "a"}) for n, text in enumerate(texts)]
    write_set(work, "some", said, audio=False)
    return work / "manifests" / "some"


def test_values_are_those_of_each_utterance_and_each_speaker(tmp_path: Path) -> None:
    found = read_statistics(write(tmp_path, "a b c", "a", "b [noise] a b"))
    assert found.durations_s.tolist() == [2.0, 2.0, 2.0]
    assert found.num_words.tolist() == [3, 1, 4]
    assert found.rates.tolist() == [1.5, 0.5, 2.0]
    assert found.speaker_minutes.tolist() == pytest.approx([4 / 60, 2 / 60])
    assert found.words == {"a": 3, "b": 3, "c": 1, "[noise]": 1}
    silent = read_statistics(write(tmp_path / "silent", "a b", ""))
    assert (silent.num_words.tolist(), silent.rates.tolist()) == ([2, 0], [1.0])


def test_what_training_has_not_heard_counts_as_often_as_it_is_said() -> None:
    assert percent_unknown({"a": 3, "b": 1}, {"a": 1}) == "25.0"
    assert percent_unknown({}, {"a": 1}) == "-"


def test_what_is_the_same_in_all_utterances_has_no_histogram(tmp_path: Path) -> None:
    sets = {"some": read_statistics(write(tmp_path, "a b", "c d"))}
    assert shown_histograms(sets) == []
    sets["other"] = read_statistics(write(tmp_path, "a b", "c d", "e f g"))
    assert shown_histograms(sets) == ["words", "rates", "speakers"]


@given(st.lists(st.integers(0, 10**6).map(lambda ms: ms / 1000) | st.integers(0, 1000), min_size=1, max_size=200))
def test_bins_hold_nearly_all_values_and_are_not_many(values: list[float]) -> None:
    found = np.array(values, dtype=float)
    edges = bin_edges(found)
    assert (np.diff(edges) > 0).all()
    assert 1 < len(edges) <= 34
    assert edges[0] <= found.min()
    assert np.mean(found <= edges[-1] + 1e-9) >= 0.98 - 1 / len(found)
    if (found == found.round()).all():
        assert not set(found.tolist()) & set(edges.tolist())  # each is within a bin, not on its border


def test_the_last_bin_has_what_lies_beyond() -> None:
    values, figure = np.array([1.0] * 999 + [500.0]), Figure()
    draw_histogram(figure, "durations", {"some": Statistics(values, values, values, {})})
    (steps,) = figure.axes[0].lines
    assert np.sum(steps.get_ydata()) == pytest.approx(100)


def test_a_histogram_is_drawn_and_described(tmp_path: Path) -> None:
    sets = {
        "one": read_statistics(write(tmp_path, "a", "b c", "d e f")),
        "two": read_statistics(write(tmp_path, "a b c d")),
    }
    svg = narrow_svg(lambda figure: draw_histogram(figure, name="words", sets=sets), "x")
    for text in ("words", "% of the utterances", "one", "two"):
        assert f">{text}</text>" in svg
    assert describe_histogram("words", sets) == (
        "Words in an utterance in words. one: half of the utterances have 1.5 to 2.5, median 2;"
        " two: half of the utterances have 4 to 4, median 4."
    )
