"""The loss on dev is that of the weights that stand for all learners: of those in the checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from learners import Learners
from trainings import components_of, metrics, run_training

from asrtool.models.precision import choose_precision
from asrtool.train.batches import shard_source
from asrtool.train.checkpoints.checkpoint import checkpoint_path, final_weights, load_checkpoint
from asrtool.train.loop.evaluation import Evaluation
from asrtool.train.loop.loss import Sums, sum_loss

NUM_PROCESSES = 3  # of learners
# With statistics of batches, which learners keep for themselves.
DEEP_SPEECH = ("model.encoder=deepspeech2", "model.deepspeech2.num_layers=1", "model.deepspeech2.hidden_size=8")
AVERAGED = ("train.ema_decay=0.8", *DEEP_SPEECH)


def train(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> None:
    """Be one of the learners, each of which has a part of dev."""
    with patch.object(shard_source, "EVAL_FRAMES", 0):
        run_training(toy, config, out, overrides)


@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        ("adpsgd-random", ()),
        ("adpsgd-d1", ()),
        ("bmuf", ()),
        pytest.param("allreduce", AVERAGED, marks=pytest.mark.slow),
        pytest.param("adpsgd-fixed", AVERAGED, marks=pytest.mark.slow),
    ],
)
def test_the_loss_on_dev_is_that_of_the_checkpoint(
    learners: Learners, toy: Path, small_batches_config: Path, tmp_path: Path, strategy: str, more: tuple[str, ...]
) -> None:
    """And of the average of its weights, if there is one."""
    out = tmp_path / "train"
    # A block longer than an epoch leaves learners of bmuf apart where it ends.
    overrides = (f"distributed.strategy={strategy}", "distributed.bmuf.block_steps=1000", "train.peak_lr=0.1", *more)
    learners.run(train, toy, small_batches_config, out, overrides)
    lines = metrics(out)
    reported = {line["step"]: line["loss"] for line in lines if line["kind"] == "dev"}
    assert len(reported) == 3
    distances = [line["consensus_distance"] for line in lines if line["kind"] == "learners"]
    assert max(distances) > 0.01 or strategy == "allreduce"
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


def test_each_learner_evaluates_its_part_and_the_sums_are_those_of_all(toy: Path, toy_config: Path) -> None:
    components = components_of(toy, toy_config)
    model, dev_set, precision = components.model, components.dev_set, choose_precision("fp32")
    of_all: list[tuple[Sums, bool]] = []

    def together(place: int) -> Sums:
        world: Any = SimpleNamespace(index=place, size=2, gather=lambda own: of_all.append(own) or of_all)
        anything: Any = SimpleNamespace(check=lambda: None, is_set=lambda: False)
        return Evaluation(dev_set, precision, world, 1, anything, anything).together(model)

    together(0)
    found = together(1)
    expected = sum_loss(model, dev_set, dev_set.plan_eval(), precision, lambda: None)
    assert found.normaliser == expected.normaliser == sum(sums.normaliser for sums, _ in of_all)
    assert all(0 < sums.normaliser < expected.normaliser for sums, _ in of_all)
    assert found.total == pytest.approx(expected.total, rel=1e-6)
