"""Columns on disk against NumPy in memory."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.lang.ngram.disk_arrays import Scratch, find, gather, merge, tally

QUICK = settings(max_examples=50, deadline=None)
NUMBERS = st.lists(st.integers(0, 40), max_size=30)
BLOCK = st.integers(1, 12)


@QUICK
@given(NUMBERS.filter(bool), st.data(), BLOCK)
def test_gather_takes_rows_in_any_order(values: list[int], data: st.DataObject, block: int) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20)), np.int64)
    column = Scratch().column(np.float64, np.array(values, np.float64))
    assert gather(column, rows, block).tolist() == np.array(values)[rows].tolist()


@QUICK
@given(NUMBERS, st.integers(0, 20), st.integers(0, 20), BLOCK)
def test_tally_counts_as_bincount(rows: list[int], start: int, num: int, block: int) -> None:
    column = Scratch().column(values=np.array(rows, np.int64))
    assert tally(column, start, start + num, block).tolist() == [rows.count(row) for row in range(start, start + num)]


@QUICK
@given(st.sets(st.integers(0, 40)), NUMBERS, BLOCK)
def test_find_says_where_keys_are_and_which_are_missing(keys: set[int], wanted: list[int], block: int) -> None:
    known = sorted(keys)
    found = find(Scratch().column(values=np.array(known, np.int64)), np.array(wanted, np.int64), block)
    assert found.tolist() == [known.index(key) if key in keys else -1 for key in wanted]


@QUICK
@given(st.lists(st.sets(st.integers(0, 60), max_size=25), min_size=1, max_size=4), BLOCK)
def test_merge_gives_every_key_once_in_order_and_where_it_was(runs: list[set[int]], block: int) -> None:
    keys = Scratch().column(values=np.array([key for run in runs for key in sorted(run)], np.int64))
    bounds = np.cumsum([0, *map(len, runs)]).tolist()
    merged: list[int] = []
    places: list[list[int]] = [[] for _ in runs]
    for part in merge(keys, bounds, block):
        for run, (rows, at) in enumerate(part.parts):
            assert keys[rows].tolist() == part.keys[at].tolist()
            places[run] += range(rows.start, rows.stop)
        merged += part.keys.tolist()
    assert merged == sorted(set().union(*runs))
    assert places == [list(range(start, stop)) for start, stop in itertools.pairwise(bounds)]


def test_rows_are_written_and_read_anywhere(tmp_path: Path) -> None:
    column = Scratch(tmp_path).column(np.int32)
    column.append(np.arange(5))
    column.put(3, np.array([7, 8, 9]))
    assert len(column) == 6
    assert column[:].tolist() == [0, 1, 2, 7, 8, 9]
    assert column[4:9].tolist() == [8, 9]
    assert [(start, part.tolist()) for start, part in column.blocks(4)] == [(0, [0, 1, 2, 7]), (4, [8, 9])]


def test_a_column_has_no_name_on_disk(tmp_path: Path) -> None:
    column = Scratch(tmp_path).column(values=np.arange(1000))
    assert len(column) == 1000
    assert not list(tmp_path.iterdir())


@pytest.mark.no_room
def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match="cannot be written, file too large"):
        Scratch(tmp_path).column(values=np.arange(1000))
