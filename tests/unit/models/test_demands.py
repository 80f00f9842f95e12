"""Targets of many utterances, and what objectives demand of all at once: as of each by itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrtool.models.objectives.ctc import Ctc
from asrtool.models.objectives.targets import Targets
from asrtool.models.objectives.topology import CtcTopology
from asrtool.settings.models import Ctc as CtcSettings

sequences = st.lists(st.lists(st.integers(0, 2), max_size=7), max_size=7)


@given(sequences)
def test_each_sequence_is_what_it_was(given_: list[list[int]]) -> None:
    targets = Targets.of(given_)
    assert [targets[i].tolist() for i in range(len(targets))] == given_
    assert targets.lens.tolist() == list(map(len, given_))
    assert targets.repeats().tolist() == [sum(a == b for a, b in pairwise(sequence)) for sequence in given_]


@given(sequences, st.integers(0, 12))
def test_ctc_demands_of_all_what_its_topology_demands_of_each(given_: list[list[int]], num_rows: int) -> None:
    objective = Ctc(CtcSettings(), 2, 3)
    needed = [max(1, CtcTopology().rows_needed(sequence)) for sequence in given_]
    assert objective.rows_needed(Targets.of(given_)).tolist() == needed
    for sequence, rows in zip(given_, needed, strict=True):
        assert objective.fits(num_rows, sequence) == ("" if rows <= num_rows else f"{num_rows} rows, {rows} needed")
        assert objective.normaliser(num_rows, sequence) == len(sequence)


@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
def test_repeats_do_not_reach_from_one_sequence_into_the_next(kind: type) -> None:
    targets = Targets(np.array([5, 5, 5, 5], kind), np.array([0, 1, 1, 3, 4], np.uint64))
    assert targets.repeats().tolist() == [0, 0, 1, 0]
