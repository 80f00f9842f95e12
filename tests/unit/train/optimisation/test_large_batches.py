"""Batch and rate of learners by the batch of all: settings, rates, and trainings."""

from __future__ import annotations

from pathlib import Path

import pytest
from learners import MANY_BATCHES, Learners, batches_trained, planned
from toy_task import assert_same_bits, last_weights
from trainings import metrics, train_as_learner

from asrtool.errors import AsrtoolError
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.settings.train import Train
from asrtool.train.optimisation.learning_rate import learning_rate, scaled_learning_rate
from asrtool.train.train import acoustic_job

NUM_PROCESSES = 3  # of learners
TOTAL, PEAK = 1000, 0.1
LINEAR = ("distributed.global_batch_s=1.8", "distributed.reference_batch_s=0.9")


def settings_of(schedule: str) -> Train:
    return Train(peak_lr=PEAK, schedule=Choice.of("schedule", schedule, warmup_fraction=0.25))


@pytest.mark.parametrize("schedule", ["one-cycle", "inverse-sqrt", "halving"])
def test_the_rate_grows_in_a_line_from_that_of_the_reference_and_then_is_a_multiple(schedule: str) -> None:
    settings = settings_of(schedule)
    found = [scaled_learning_rate(settings, samples, TOTAL, 8.0) for samples in (1, 125, 250, 600, 1000)]
    later = [8 * learning_rate(settings, samples, TOTAL) for samples in (600, 1000)]
    assert found == pytest.approx([0.1 + 0.7 / 250, 0.45, 0.8, *later])


def test_the_reference_batch_warms_up_at_its_own_rate_and_a_smaller_one_comes_down_to_its() -> None:
    settings = settings_of("halving")
    assert [scaled_learning_rate(settings, samples, TOTAL, 1.0) for samples in (1, 125)] == [PEAK, PEAK]
    assert scaled_learning_rate(settings, 125, TOTAL, 0.5) == pytest.approx(0.75 * PEAK)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("distributed.reference_batch_s=50",), "reference_batch_s is 50 but distributed.global_batch_s is not set"),
        (("distributed.global_batch_s=-1",), "distributed.global_batch_s is -1.0, expected 0 or more"),
        ((*LINEAR, "distributed.lr_scale=2"), "both scale the rate: leave one of them out"),
        ((*LINEAR, "distributed.strategy=hogwild"), "each learner's batch is a step by itself"),
        ((*LINEAR, "train.one-cycle.warmup_fraction=0"), "set train.one-cycle.warmup_fraction, or choose"),
        (("model.encoder=conformer", "model.deltas=1"), "but model.encoder conformer convolves over the bins"),
    ],
)
def test_settings_that_do_not_go_together_are_one_line(toy: Path, overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(AsrtoolError) as raised:
        acoustic_job(toy / "features", toy / "tokenizer", toy / "none", load_config(overrides=overrides))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.fixture
def toy_config(tmp_path: Path) -> Path:
    path = tmp_path / "toy.toml"
    path.write_text(MANY_BATCHES.replace("batch_s = 0.9", "batch_s = 99"))
    return path


def test_learners_divide_the_batch_of_all(learners: Learners, toy: Path, toy_config: Path, tmp_path: Path) -> None:
    base = ("distributed.strategy=allreduce",)
    together, each = tmp_path / "together", tmp_path / "each"
    learners.run(train_as_learner, toy, toy_config, together, (*base, "distributed.global_batch_s=1.8"), None, num=2)
    learners.run(train_as_learner, toy, toy_config, each, (*base, "train.batch_s=0.9"), None, num=2)
    assert_same_bits(last_weights(together), last_weights(each))


def test_with_more_learners_each_keeps_its_batch_and_the_rate_follows_the_batch_of_all(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    overrides = ("distributed.strategy=allreduce", *LINEAR, "train.log_every_steps=1")
    out = tmp_path / "train"
    learners.run(train_as_learner, toy, toy_config, out, overrides, (1, 8), num=2)
    num_lines = len(rates(out))
    learners.run(train_as_learner, toy, toy_config, out, overrides, None, num=3)
    small = tmp_path / "small.toml"
    small.write_text(MANY_BATCHES)
    of_all = planned(toy, small)
    assert batches_trained(out) == of_all

    settings = load_config([toy_config], overrides).train
    found = rates(out)
    assert 0 < num_lines < len(found)
    total = 3 * 24
    for number, (samples, rate) in enumerate(found):
        factor = 2.0 if number < num_lines else 3.0
        assert rate == pytest.approx(scaled_learning_rate(settings, samples, total, factor))


def rates(out: Path) -> list[tuple[int, float]]:
    """Utterances and learning rate of each line of metrics."""
    entries = metrics(out)
    return [(entry["samples"], entry["lr"]) for entry in entries if entry["kind"] == "train"]
