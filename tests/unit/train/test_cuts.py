"""Which cuts learner 0 finds between two of its steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.settings.train import Optimisation
from asrtool.train.batches.plan import Plan
from asrtool.train.batches.source import Planned
from asrtool.train.checkpoints.checkpoint import Saved, State, save_checkpoint
from asrtool.train.checkpoints.coordinator import CheckpointCoordinator, Reached
from asrtool.train.checkpoints.merge import Cut
from asrtool.train.checkpoints.snapshots import Snapshots
from asrtool.train.loop.evaluation import DevLosses


class FourBatches:
    """Epochs of four batches of one utterance."""

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        return (Planned(number, 1, 1) for number in range(batch, 4))


def coordinator(**given: Any) -> CheckpointCoordinator:
    """That of learner 0, of which a test gives what counts."""
    names = [field.name for field in dataclasses.fields(CheckpointCoordinator)]
    return CheckpointCoordinator(**dict.fromkeys(names, MagicMock()) | {"world": World(), "code": ""} | given)


def cuts_of(asked: list[int], by_steps: list[bool], epoch: int, number: int) -> list[Cut]:
    """Those before its next round, `number` in `epoch`, once its first step is trained."""
    plan, snapshots = Plan(FourBatches(), epoch + 1, 1, State()), MagicMock()  # type: ignore[arg-type]
    plan.round(number)
    coordinator(
        plan=plan,
        queue=SimpleNamespace(cuts_between=lambda first, last: asked[first:last], first_cut=len(asked) - len(by_steps)),
        pace=MagicMock(by_steps=by_steps),
        snapshots=snapshots,
        state=State(),
        reached=Reached(0),
    ).reach(epoch, 0, len(asked))
    _, cuts, _ = snapshots.take.call_args.args
    return list(cuts)


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
    found = cuts_of(asked, by_steps, 1, 6)
    assert [(cut.number, cut.state.step, cut.ends_epoch, cut.counts) for cut in found] == expected


def test_learner_0_finds_the_cuts_of_many_epochs_that_others_trained_meanwhile() -> None:
    found = cuts_of([2], [True], 8, 33)
    assert [cut.state.step for cut in found] == [2, *range(4, 33, 4)]
    assert [origin.epoch for origin in found[-1].state.origins] == list(range(9))


def test_learners_that_neither_step_together_nor_take_snapshots_are_refused() -> None:
    strategy: Any = SimpleNamespace(asynchronous=False)
    with pytest.raises(AsrtoolError, match=r"SimpleNamespace: its learners do not step together.*lockstep=True"):
        Snapshots(strategy, *[MagicMock()] * 4)


def test_own_weights_are_back_at_all_learners_before_any_exchanges_them_after_an_evaluation(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    own, seen, kept = model.weight.item(), list[float](), list[Saved]()
    save_checkpoint(tmp_path, {}, {"weight": torch.ones(1, 1)}, {}, State(step=3))
    cuts = coordinator(
        settings=Optimisation(),
        model=model,
        world=SimpleNamespace(barrier=lambda: seen.append(model.weight.item())),
        state=State(saved=[Saved(3, None)], unevaluated=[3]),
        dev_losses=DevLosses(World(), [], 0),
        snapshots=SimpleNamespace(keep=lambda state: kept.extend(state.saved)),
        checkpointer=SimpleNamespace(directory=tmp_path),
        reports=SimpleNamespace(report_dev=lambda losses, then: losses),
        evaluation=SimpleNamespace(together=lambda model: model.weight.item()),
    )
    for _ in range(2):  # the second time nothing is left
        cuts.evaluate_what_is_left()
        assert cuts.state.saved == kept == [Saved(3, 1.0)]
        assert cuts.state.unevaluated == []
        assert seen == [own]
