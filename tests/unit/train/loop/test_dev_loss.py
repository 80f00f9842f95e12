"""The loss on dev is that of the weights that stand for all learners: of those in the checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from learners import MANY_BATCHES, Learners
from trainings import metrics, toy_job

from asrtool.models.precision import choose_precision
from asrtool.settings.toml_files import load_config
from asrtool.train.batches import shard_source
from asrtool.train.checkpoints.checkpoint import checkpoint_path, load_checkpoint
from asrtool.train.loop.evaluation import Evaluation
from asrtool.train.loop.loss import Sums, sum_loss
from asrtool.train.run import train as train_job
from asrtool.train.train import build_components

NUM_PROCESSES = 3  # of learners
NUM_LEARNERS = 3


def train(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> None:
    """Be one of the learners, each of which has a part of dev."""
    with patch.object(shard_source, "EVAL_FRAMES", 0):
        train_job(toy_job(toy, out, config, overrides))


@pytest.mark.parametrize("strategy", ["adpsgd-random", "adpsgd-d1", "bmuf"])
def test_the_loss_on_dev_is_that_of_the_checkpoint(
    learners: Learners, toy: Path, tmp_path: Path, strategy: str
) -> None:
    config, out = tmp_path / "toy.toml", tmp_path / "train"
    config.write_text(MANY_BATCHES)
    # A block longer than an epoch leaves learners of bmuf apart where it ends.
    overrides = (f"distributed.strategy={strategy}", "distributed.bmuf.block_steps=1000", "train.peak_lr=0.1")
    learners.run(train, toy, config, out, overrides)
    lines = metrics(out)
    reported = {line["step"]: line["loss"] for line in lines if line["kind"] == "dev"}
    assert len(reported) == 3
    assert max(line["consensus_distance"] for line in lines if line["kind"] == "learners") > 0.01
    settings = load_config([config])
    components = build_components(toy / "features", toy / "tokenizer", settings)
    batches, precision = components.dev_set.plan_eval(), choose_precision(settings.train.precision)
    for step, loss in reported.items():
        content, _ = load_checkpoint(checkpoint_path(out / "checkpoints", step))
        components.model.load_state_dict(content["weights"])
        with torch.no_grad():
            losses = sum_loss(components.model, components.dev_set, batches, precision, lambda: None)
        assert loss == pytest.approx(losses.means()["loss"], rel=1e-4)


def test_each_learner_evaluates_its_part_and_the_sums_are_those_of_all(toy: Path, toy_config: Path) -> None:
    components = build_components(toy / "features", toy / "tokenizer", load_config([toy_config]))
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
