"""Which cuts learner 0 finds between two of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.settings.train import Optimisation
from asrtool.train.batches.plan import Plan
from asrtool.train.batches.source import Planned
from asrtool.train.checkpoints import coordinator as cuts_module
from asrtool.train.checkpoints.checkpoint import Saved, State
from asrtool.train.checkpoints.coordinator import CheckpointCoordinator, Reached
from asrtool.train.checkpoints.snapshots import Snapshots
from asrtool.train.loop.evaluation import DevLosses


class FourBatches:
    """Epochs of four batches of one utterance."""

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        return (Planned(number, 1, 1) for number in range(batch, 4))


def cuts_of(asked: list[int], by_steps: list[bool], num_epochs: int, number: int) -> CheckpointCoordinator:
    """Those of learner 0, whose first steps are trained and whose next round is `number`."""
    cuts = object.__new__(CheckpointCoordinator)
    cuts.plan = Plan(FourBatches(), num_epochs, 1, State())  # type: ignore[arg-type]
    cuts.queue = SimpleNamespace(  # type: ignore[assignment]
        cuts_between=lambda first, last: asked[first:last], first_cut=len(asked) - len(by_steps)
    )
    cuts.pace = SimpleNamespace(by_steps=by_steps)  # type: ignore[assignment]
    cuts.reports = SimpleNamespace(lap_s=lambda: 0.0)  # type: ignore[assignment]
    cuts.state, cuts.code, cuts.reached = State(), "", Reached(0)
    cuts.plan.round(number)
    return cuts


@pytest.mark.parametrize(
    ("asked", "by_steps", "expected"),
    [
        ([2], [True], [(1, 2, False, True), (2, 4, True, True)]),
        ([2], [False], [(1, 2, False, False), (2, 4, True, True)]),
        # The first of two at a place is the one: it has the updates since the cut before.
        ([4], [False], [(1, 4, True, True)]),
        ([2, 2], [False, True], [(1, 2, False, True), (3, 4, True, True)]),
        ([2, 4], [True, True], [(1, 2, False, True), (2, 4, True, True)]),
        ([3, 5], [False, True], [(1, 3, False, False), (2, 4, True, True), (3, 5, False, True)]),
        # The first one was asked for by a learner that is lost.
        ([2, 3], [False], [(1, 2, False, True), (2, 3, False, False), (3, 4, True, True)]),
    ],
)
def test_of_cuts_at_the_same_place_the_first_is_saved_and_counts_where_one_does(
    asked: list[int], by_steps: list[bool], expected: list[tuple[int, int, bool, bool]]
) -> None:
    found = cuts_of(asked, by_steps, 3, 6)._cuts(0, 1, len(asked))
    assert [(cut.number, cut.state.step, cut.ends_epoch, cut.counts) for cut in found] == expected


def test_learner_0_finds_the_cuts_of_many_epochs_that_others_trained_meanwhile() -> None:
    found = cuts_of([2], [True], 9, 33)._cuts(0, 8, 1)
    assert [cut.state.step for cut in found] == [2, *range(4, 33, 4)]
    assert [origin.epoch for origin in found[-1].state.origins] == list(range(9))


def test_learners_that_neither_step_together_nor_take_snapshots_are_refused() -> None:
    unused: Any = None
    with pytest.raises(AsrtoolError, match=r"SimpleNamespace: its learners do not step together.*lockstep=True"):
        Snapshots(SimpleNamespace(asynchronous=False), *[unused] * 4)  # type: ignore[arg-type]


def test_own_weights_are_back_at_all_learners_before_any_exchanges_them_after_an_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    own = model.weight.item()
    seen: list[float] = []
    monkeypatch.setattr(
        cuts_module, "load_checkpoint", lambda path: ({"weights": {"weight": torch.ones(1, 1)}}, State(step=3))
    )
    cuts = object.__new__(CheckpointCoordinator)
    cuts.model = model  # type: ignore[assignment]
    cuts.state = State(saved=[Saved(3, None)], unevaluated=[3])
    cuts.settings, cuts.dev_losses = Optimisation(), DevLosses(World(), [], 0)
    kept: list[Saved] = []
    cuts.snapshots = SimpleNamespace(keep=lambda state: kept.extend(state.saved))  # type: ignore[assignment]
    cuts.checkpointer = SimpleNamespace(directory=Path())  # type: ignore[assignment]
    cuts.reports = SimpleNamespace(report_dev=lambda losses, then: losses)  # type: ignore[assignment]
    cuts.evaluation = SimpleNamespace(together=lambda model: model.weight.item())  # type: ignore[assignment]
    cuts.world = SimpleNamespace(barrier=lambda: seen.append(model.weight.item()))  # type: ignore[assignment]
    cuts.evaluate_what_is_left()
    assert cuts.state.saved == kept == [Saved(3, 1.0)]
    assert cuts.state.unevaluated == []
    assert seen == [own]
    cuts.evaluate_what_is_left()  # nothing is left
    assert seen == [own]
