"""Objectives that read tokens: learned by every strategy; frame targets have their own tests."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from learners import Learners
from toy_task import NUM_TOKENS, TOY_CONFIG
from trainings import dev_losses, metrics, toy_job

from asrtool.train.run import train as train_job

NUM_PROCESSES = 2  # of learners
SMALL = {
    "transducer": ("model.transducer.joint_size=8",),
    "attention": ("model.attention.hidden_size=12", "model.attention.attention_size=8", "model.attention.sampling=0.2"),
}

# In nats a token, after two epochs. A model that knows nothing has ln 40 for each token or end by attention, and more
# with CTC beside it; by a transducer or CTC that for each of about three rows a token, less ln of the number of
# alignments.
LEARNED = {"ctc": 6.0, "transducer": 6.0, "attention": 0.8 * math.log(NUM_TOKENS)}


def train(toy: Path, config: Path, out: Path, *overrides: str) -> list[float]:
    """Be one of the learners; the losses on dev."""
    train_job(toy_job(toy, out, config, overrides))
    return dev_losses(out)


CASES = [(objective, strategy) for objective in (*SMALL, "ctc") for strategy in ("allreduce", "adpsgd-random")]


@pytest.mark.parametrize(("objective", "strategy"), CASES)
def test_it_is_learned_by_two_learners(
    learners: Learners, toy: Path, tmp_path: Path, objective: str, strategy: str
) -> None:
    config = tmp_path / "toy.toml"
    config.write_text(TOY_CONFIG.replace("num_epochs = 3", "num_epochs = 2"))
    own = SMALL.get(objective, ("model.ctc.consistency=0.2",))
    overrides = [f"model.objective={objective}", *own, f"distributed.strategy={strategy}"]
    losses = learners.run(train, toy, config, tmp_path / "train", *overrides, "distributed.h-adpsgd.node_size=1")[0]
    assert len(losses) == 2
    assert losses[-1] < LEARNED[objective]


def test_the_views_are_compared(toy: Path, tmp_path: Path) -> None:
    """Their divergence is reported of each step, and is none of dev."""
    config = tmp_path / "toy.toml"
    config.write_text(TOY_CONFIG.replace("num_epochs = 3", "num_epochs = 1"))
    train(toy, config, tmp_path / "train", "model.ctc.consistency=0.2", "train.log_every_steps=1")
    lines = metrics(tmp_path / "train")
    found = [line["consistency"] for line in lines if line["kind"] == "train"]
    assert found
    assert min(found) > 0
    assert not any("consistency" in line for line in lines if line["kind"] == "dev")
