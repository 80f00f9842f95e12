"""Which cuts learner 0 finds between two of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from asrtool.errors import AsrtoolError
from asrtool.train.checkpoint import State
from asrtool.train.cuts import Cuts, Reached
from asrtool.train.plan import Plan
from asrtool.train.snapshots import Snapshots
from asrtool.train.source import Planned


class FourBatches:
    """Epochs of four batches of one utterance."""

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        return (Planned(number, 1, 1) for number in range(batch, 4))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([2], [(1, 2, False), (2, 4, True)]),
        ([4], [(1, 4, True)]),  # the first of two at a place is the one: it has the updates since the cut before
        ([2, 4], [(1, 2, False), (2, 4, True)]),
        ([3, 5], [(1, 3, False), (2, 4, True), (3, 5, False)]),
    ],
)
def test_of_cuts_at_the_same_place_the_first_is_saved(asked: list[int], expected: list[tuple[int, int, bool]]) -> None:
    cuts = object.__new__(Cuts)
    cuts.plan = Plan(FourBatches(), 3, 1, State())  # type: ignore[arg-type]
    cuts.queue = SimpleNamespace(cuts=asked)  # type: ignore[assignment]
    cuts.reports = SimpleNamespace(lap_s=lambda: 0.0)  # type: ignore[assignment]
    cuts.state, cuts.code, cuts.reached = State(), "", Reached(0)
    cuts.plan.round(6)
    found = cuts._cuts(0, 1, len(asked))
    assert [(cut.number, cut.state.step, cut.ends_epoch) for cut in found] == expected


def test_learners_that_neither_step_together_nor_take_snapshots_are_refused() -> None:
    unused: Any = None
    with pytest.raises(AsrtoolError, match=r"SimpleNamespace: its learners do not step together.*lockstep=True"):
        Snapshots(SimpleNamespace(asynchronous=False), *[unused] * 6)  # type: ignore[arg-type]
