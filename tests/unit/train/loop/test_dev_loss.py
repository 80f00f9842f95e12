"""The loss on dev is that of the weights that stand for all learners; what is known of it, and what follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch.distributed import HashStore
from trainings import DEEP_SPEECH, components_of, metrics, run_training

from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.models.precision import choose_precision
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.settings.train import Train
from asrtool.train.batches import shard_source
from asrtool.train.checkpoints.checkpoint import State, checkpoint_path, final_weights, load_checkpoint
from asrtool.train.checkpoints.merge import CheckpointMerger
from asrtool.train.loop.evaluation import DevLosses
from asrtool.train.loop.loss import sum_loss
from asrtool.train.optimisation.learning_rate import LearningRates, learning_rate

NUM_PROCESSES = 3  # of learners
AVERAGED = ("train.ema_decay=0.8", *DEEP_SPEECH)


def train(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> None:
    """Be one of the learners, each of which has a part of dev."""
    with patch.object(shard_source, "EVAL_FRAMES", 0):
        run_training(toy, config, out, overrides)


@pytest.mark.parametrize(
    ("strategy", "more"),
    [("adpsgd-random", ()), ("bmuf", ()), pytest.param("adpsgd-fixed", AVERAGED, marks=pytest.mark.slow)],
)
def test_the_loss_on_dev_is_that_of_the_checkpoint(
    learners, toy, small_batches_config, tmp_path, strategy: str, more: tuple[str, ...]
) -> None:
    """If there is an average of its weights, the loss is that of the average."""
    out = tmp_path / "train"
    # A block longer than an epoch leaves learners of bmuf apart where it ends.
    overrides = (f"distributed.strategy={strategy}", "distributed.bmuf.block_steps=1000", "train.peak_lr=0.1", *more)
    learners.run(train, toy, small_batches_config, out, overrides)
    lines = metrics(out)
    reported = {line["step"]: line["loss"] for line in lines if line["kind"] == "dev"}
    assert len(reported) == 3
    distances = [line["consensus_distance"] for line in lines if line["kind"] == "learners"]
    assert max(distances) > 0.01
    components = components_of(toy, small_batches_config, *overrides)
    batches, precision = components.dev_set.plan_eval(), choose_precision("fp32")
    for step, loss in reported.items():
        content, _ = load_checkpoint(checkpoint_path(out / "checkpoints", step))
        found = []
        for weights in (final_weights(content), content["weights"]):
            components.model.load_state_dict(weights)
            losses = sum_loss(components.model, components.dev_set, batches, precision, lambda: None)
            found.append(losses.means()["loss"])
        assert loss == pytest.approx(found[0], rel=1e-4)
        assert (loss != pytest.approx(found[1], rel=1e-4)) == bool(more)


ANY_LOSSES = st.lists(st.sampled_from([1.0, 1.5, 2.0, 2.5, math.inf]), max_size=20)


@given(ANY_LOSSES, st.integers(1, 4), st.sampled_from([0.1, 0.5, 0.7]))
def test_plateau_is_that_of_torch(losses: list[float], patience: int, factor: float) -> None:
    """Whose patience is the number of bad evaluations that change nothing."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
    expected = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=factor, patience=patience - 1, threshold=0.0, min_lr=0.4 * 0.01, eps=0.0
    )
    values = {"warmup_fraction": 0.0, "factor": factor, "patience": patience}
    settings = Train(peak_lr=0.4, schedule=Choice.of("schedule", "plateau", **values))
    for number, loss in enumerate(losses, 1):
        expected.step(loss)
        assert learning_rate(settings, 50, 100, losses[:number]) == pytest.approx(optimizer.param_groups[0]["lr"])


def test_plateau_begins_with_a_warm_up_whatever_the_losses() -> None:
    settings = Train(peak_lr=0.4, schedule=Choice.of("schedule", "plateau", warmup_fraction=0.5, patience=1))
    rates = LearningRates(settings, 100)
    assert rates.needs_dev
    assert [rates.after(25, [1.0, 2.0]), rates.after(50, [1.0, 2.0])] == pytest.approx([0.2, 0.2])
    assert [rates.after(50), rates.after(75, [2.0, 1.0])] == pytest.approx([0.4, 0.4])
    factored = LearningRates(settings, 100, factor=2.0)
    assert factored.after(75, [1.0, 2.0]) == pytest.approx(0.4)
    assert not LearningRates(Train(), 100).needs_dev


def ends_by_definition(losses: Sequence[float], patience: int) -> int | None:
    """The first epoch that is so many behind the first of the lowest losses up to it."""
    for epochs in range(1, len(losses) + 1):
        so_far = losses[:epochs]
        if patience and epochs - (so_far.index(min(so_far)) + 1) >= patience:
            return epochs
    return None


@given(st.lists(st.sampled_from([1.0, 1.5, 2.0, 2.5]), max_size=20), st.integers(0, 4))
def test_training_ends_where_the_lowest_loss_is_so_many_epochs_behind(losses: list[float], patience: int) -> None:
    found = DevLosses(World(), list(enumerate(losses, 1)), patience)
    ends = ends_by_definition(losses, patience)
    assert found.end == (None if ends is None else (ends, losses[ends - 1]))
    assert found.best == ((losses.index(min(losses)) + 1, min(losses)) if losses else None)


def test_what_is_no_number_is_never_the_best() -> None:
    assert DevLosses(World(), [(1, math.nan), (2, 3.0), (3, math.nan)], 1).best == (2, 3.0)
    assert DevLosses(World(), [(1, 3.0), (2, math.nan)], 1).end is not None


def test_others_know_what_one_tells_once_they_look() -> None:
    store, begin = HashStore(), [(1, 4.0)]  # of the checkpoint that training resumed from
    publisher, other = (DevLosses(World(rank, 2, store=store), begin, 2) for rank in range(2))
    publisher.publish(2, 3.0)
    publisher.publish(3, math.nan)
    assert [other.known(1), other.known(2)] == [[4.0], [4.0, 3.0]]
    assert math.isnan(other.known(9)[2])
    assert [epochs for epochs, _ in other.found] == [1, 2, 3]


def test_one_that_tells_in_place_of_a_lost_learner_goes_on_behind_what_that_has_told() -> None:
    store = HashStore()
    first, second, third = (DevLosses(World(rank, 3, store=store), [], 0) for rank in range(3))
    first.publish(1, 3.0)
    first.publish(2, 2.0)
    second.publish(2, 2.5)  # was not in the checkpoint, so it is evaluated again
    second.publish(3, 1.0)
    assert second.found == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert third.known(3) == [3.0, 2.0, 1.0]


def test_who_takes_over_knows_what_the_one_before_has_found() -> None:
    store = HashStore()
    DevLosses(World(0, 2, store=store), [], 1).publish(1, 3.0)
    world = World(1, 2, store=store)
    strategy: Any = SimpleNamespace(flat=SimpleNamespace(slices=1), ema=None)
    model: Any = torch.nn.Linear(1, 1)
    checkpointer: Any = SimpleNamespace(world=world, directory=Path("out/checkpoints"))
    unused: Any = None
    merger = CheckpointMerger(strategy, model, checkpointer, State(), unused, unused, unused, DevLosses(world, [], 1))
    merger.take_over(State())
    assert merger.result().dev_losses == [(1, 3.0)]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.early_stop=2", "train.keep_best=0"], "train.early_stop is 2 but train.keep_best is 0"),
        (["train.early_stop=-1"], "train.early_stop is -1, expected 0 or more"),
        (["train.schedule=plateau", "train.plateau.patience=0"], "plateau.patience is 0, expected 1 or more"),
    ],
)
def test_settings_without_sense_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(AsrtoolError) as caught:
        load_config(overrides=overrides)
    assert message in str(caught.value)
