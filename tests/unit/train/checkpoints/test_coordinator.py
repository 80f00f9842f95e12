"""Times of checkpoints, and the cuts that learner 0 finds between two of its steps.

Those by time are for resuming alone: what counts, and so what is averaged, follows from steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
import torch
from trainings import run_training

from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.settings.train import Optimisation, Train
from asrtool.train.batches.plan import Plan
from asrtool.train.batches.source import Planned
from asrtool.train.checkpoints import coordinator as coordinator_module
from asrtool.train.checkpoints.checkpoint import Saved, State, checkpoint_path, save_checkpoint
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.checkpoints.coordinator import CheckpointCoordinator, LearnerProgress, LearnerRequests
from asrtool.train.checkpoints.merge import Cut
from asrtool.train.checkpoints.snapshots import Snapshots
from asrtool.train.loop.evaluation import DevLosses
from asrtool.train.loop.stop import Stop

MINUTE = "train.save_every_minutes=1"


class Clock:
    """Clock that advances by a minute at each look."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += 61
        return self.now_s


def test_steps_are_counted_from_the_last_checkpoint_by_steps_whatever_was_saved_by_time() -> None:
    def due(steps: int, minutes: float) -> list[int]:
        settings = Train(save_every_steps=steps, save_every_minutes=minutes)
        with patch.object(coordinator_module, "time", Clock()):
            requests = LearnerRequests(settings, 0, False, Stop(), lambda: False)
            granted = [number for number in range(20) if requests.save(number, lambda _: False)]
        return [number for number, by_steps in zip(granted, requests.by_steps, strict=True) if by_steps]

    assert due(4, 1) == due(4, 0) == [4, 8, 12, 16]
    assert due(0, 1) == []


def test_that_of_an_epoch_takes_the_place_of_one_that_steps_ask_for_shortly_before() -> None:
    requests = LearnerRequests(Train(save_every_steps=20), 0, False, Stop(), lambda: False)
    ends = (22, 45, 100)  # of epochs: 2 steps behind 20, then 5 behind 40
    granted = [
        number
        for number in range(1, 100)
        if requests.save(
            number, lambda num_steps, number=number: any(number < end <= number + num_steps for end in ends)
        )
    ]
    assert granted == [40, 60, 80]
    assert requests.by_steps == [True] * 3


def save_by_the_minute(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> list[int]:
    """Train, where a minute passes between any two looks at the clock; the steps saved, by learner 0."""
    saved: list[int] = []
    write_whole = Checkpointer.write_whole

    def noted(self: Checkpointer, weights: Any, part: Any, state: State, *more: Any, **named: Any) -> None:
        write_whole(self, weights, part, state, *more, **named)
        step = state.step
        saved.append(step)
        assert checkpoint_path(self.directory, step).exists()

    with (
        patch.object(coordinator_module, "time", Clock()),
        patch.object(Checkpointer, "write_whole", noted),
        patch.object(Checkpointer, "busy", False),  # else a slow disk leaves some out
    ):
        run_training(toy, config, out, overrides)
    return saved


def steps_of(out: Path) -> list[int]:
    return [int(path.stem.removeprefix("step-")) for path in sorted((out / "checkpoints").glob("step-????????.pt"))]


def test_those_kept_are_the_same_with_and_without_checkpoints_by_time(toy, toy_config, tmp_path) -> None:
    without = save_by_the_minute(toy, toy_config, tmp_path / "without", ())
    assert sorted(steps_of(tmp_path / "without")) == sorted(without)[-len(steps_of(tmp_path / "without")) :]
    every = save_by_the_minute(toy, toy_config, tmp_path / "every", (MINUTE,))
    assert len(every) > len(without)
    assert set(without) <= set(every)
    assert steps_of(tmp_path / "every") == steps_of(tmp_path / "without")


class FourBatches:
    """Epochs of four batches of one utterance."""

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        return (Planned(number, 1, 1) for number in range(batch, 4))


def coordinator(**given: Any) -> CheckpointCoordinator:
    """Make the coordinator of learner 0 with the parts that a test gives."""
    names = [field.name for field in dataclasses.fields(CheckpointCoordinator)]
    return CheckpointCoordinator(**dict.fromkeys(names, MagicMock()) | {"world": World(), "code": ""} | given)


def cuts_of(asked: list[int], by_steps: list[bool], epoch: int, number: int) -> list[Cut]:
    """Return the cuts before the next round, `number` in `epoch`, after the first step."""
    plan, snapshots = Plan(FourBatches(), epoch + 1, 1, State()), MagicMock()  # type: ignore[arg-type]
    plan.round(number)
    coordinator(
        plan=plan,
        queue=SimpleNamespace(cuts_between=lambda first, last: asked[first:last], first_cut=len(asked) - len(by_steps)),
        requests=MagicMock(by_steps=by_steps),
        snapshots=snapshots,
        state=State(),
        progress=LearnerProgress(0),
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
    checkpoints = coordinator(
        settings=Optimisation(),
        model=model,
        world=SimpleNamespace(barrier=lambda: seen.append(model.weight.item())),
        state=State(saved=[Saved(3, None)], unevaluated=[3]),
        dev_losses=DevLosses(World(), [], 0),
        snapshots=SimpleNamespace(keep=lambda state: kept.extend(state.saved)),
        checkpointer=SimpleNamespace(directory=tmp_path),
        reports=SimpleNamespace(report_dev=lambda losses, then: losses),
        evaluation=SimpleNamespace(on_all_learners=lambda model: model.weight.item()),
    )
    for _ in range(2):  # the second time nothing is left
        checkpoints.evaluate_remaining()
        assert checkpoints.state.saved == kept == [Saved(3, 1.0)]
        assert checkpoints.state.unevaluated == []
        assert seen == [own]
