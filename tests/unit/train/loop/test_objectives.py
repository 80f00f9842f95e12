"""Objectives are learned by learners that average their gradients."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from learners import Learners
from toy_task import NUM_TOKENS, TOY_CONFIG
from trainings import dev_losses, metrics, run_training

from asrtool.models.objectives.decision_tree import Tree

NUM_PROCESSES = 2  # of learners
SMALL = {
    "ctc": ("model.ctc.consistency=0.2",),
    "transducer": ("model.transducer.joint_size=8",),
    "attention": ("model.attention.hidden_size=12", "model.attention.attention_size=8", "model.attention.sampling=0.2"),
}

# In nats a token, after two epochs. A model that knows nothing has ln 40 for each token or end by attention, and more
# with CTC beside it; by a transducer or CTC that for each of about three rows a token, less ln of the number of
# alignments.
# Of frame targets less than of a model that knows nothing of the leaves.
LEARNED = {"ctc": 6.0, "transducer": 6.0, "attention": 0.8 * math.log(NUM_TOKENS), "frame-ce": 0, "lf-mmi": 0}


@pytest.mark.parametrize("objective", LEARNED)
def test_it_is_learned_by_two_learners(
    learners: Learners, toy: Path, targets: Path, tmp_path: Path, objective: str
) -> None:
    config, out = tmp_path / "toy.toml", tmp_path / "train"
    config.write_text(TOY_CONFIG.replace("num_epochs = 3", "num_epochs = 2"))
    overrides = [f"model.objective={objective}", *SMALL.get(objective, ()), "distributed.strategy=allreduce"]
    learners.run(run_training, toy, config, out, overrides, targets)
    losses = dev_losses(out)
    assert len(losses) == 2
    assert losses[-1] < (LEARNED[objective] or np.log(Tree.load(targets).num_leaves))


def test_the_views_are_compared(toy: Path, tmp_path: Path) -> None:
    """Their divergence is reported of each step, and is none of dev."""
    config = tmp_path / "toy.toml"
    config.write_text(TOY_CONFIG.replace("num_epochs = 3", "num_epochs = 1"))
    run_training(toy, config, tmp_path / "train", ["model.ctc.consistency=0.2", "train.log_every_steps=1"])
    lines = metrics(tmp_path / "train")
    found = [line["consistency"] for line in lines if line["kind"] == "train"]
    assert found
    assert min(found) > 0
    assert not any("consistency" in line for line in lines if line["kind"] == "dev")
