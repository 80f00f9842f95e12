"""Learning rates against their formulas, and rates and batches of learners by the batch of all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learners import MANY_BATCHES, batches_trained, planned
from trainings import metrics, toy_job, train_as_learner

from asrtool.errors import AsrtoolError
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.settings.train import Train
from asrtool.train.optimisation.learning_rate import LearningRates, learning_rate
from asrtool.train.train import acoustic_job

TOTAL = 1000


def settings_of(schedule: str, peak_lr: float = 0.002, num_epochs: int = 5, **values: float) -> Train:
    return Train(peak_lr=peak_lr, num_epochs=num_epochs, schedule=Choice.of("schedule", schedule, **values))


def rates(settings: Train, *num_samples: int) -> list[float]:
    return [learning_rate(settings, n, TOTAL) for n in num_samples]


def test_one_cycle_rises_in_a_line_and_falls_as_half_a_cosine() -> None:
    settings = settings_of("one-cycle", 0.4, warmup_fraction=0.2)
    middle = (0.4 + 0.004) / 2
    assert rates(settings, 1, 50, 100, 200, 600, 1000) == pytest.approx([0.002, 0.1, 0.2, 0.4, middle, 0.004])


def test_inverse_sqrt_is_the_curve_of_noam() -> None:
    """Vaswani et al. 2017, equation 3, of 1,000 steps by models of 256 values: only the peak has another name."""
    warmup_steps, steps = 200, range(1, 1001, 37)
    expected = [256**-0.5 * min(step**-0.5, step * warmup_steps**-1.5) for step in steps]
    settings = settings_of("inverse-sqrt", (256 * warmup_steps) ** -0.5, warmup_fraction=warmup_steps / 1000)
    assert rates(settings, *steps) == pytest.approx(expected)


def test_halving_holds_then_divides_by_sqrt_2_at_the_beginning_of_every_epoch() -> None:
    settings = settings_of("halving", 0.1, 10, warmup_fraction=0.1, hold_fraction=0.4)
    root = math.sqrt(2)
    found = rates(settings, 50, 100, 300, 500, 501, 600, 601, 700, 1000)
    assert found == pytest.approx([0.05, 0.1, 0.1, 0.1, 0.1 / root, 0.1 / root, 0.05, 0.05, 0.1 * 2**-2.5])


def fast(settings: Any, peak_lr: float, fraction: float, num_epochs: int) -> str:
    """Not a number."""
    return "fast"


def sinking(settings: Any, peak_lr: float, fraction: float, num_epochs: int) -> float:
    """A line that falls below 0 at half of the training."""
    return peak_lr * (1 - 2 * fraction)


def narrow(settings: Any, peak_lr: float, fraction: float, num_epochs: int) -> np.float32:
    return np.float32(0.5)


@pytest.mark.parametrize(
    ("name", "num_samples", "found"), [("fast", 1, "'fast' at 0.1%"), ("sinking", 1000, "-0.002 at 100.0%")]
)
def test_an_own_schedule_that_gives_no_rate_is_refused(name: str, num_samples: int, found: str) -> None:
    settings = settings_of(f"{__name__}:{name}")
    with pytest.raises(AsrtoolError) as caught:
        learning_rate(settings, num_samples, TOTAL)
    what = f"train.schedule = {__name__}:{name} returned {found} of the training, expected a rate of 0 or more; return"
    assert str(caught.value).startswith(what)


def test_an_own_schedule_gives_numbers_of_any_type_down_to_0() -> None:
    assert rates(settings_of(f"{__name__}:sinking"), 250, 500) == [0.001, 0.0]
    assert rates(settings_of(f"{__name__}:narrow"), 1) == [0.5]


def test_inverse_sqrt_without_warm_up_is_refused() -> None:
    with pytest.raises(ValueError, match=r"warmup_fraction is 0\.0, expected 1e-06 to 0\.9"):
        settings_of("inverse-sqrt", warmup_fraction=0.0)


NUM_PROCESSES = 3  # of learners
PEAK = 0.1
LINEAR = ("distributed.global_batch_s=1.8", "distributed.reference_batch_s=0.9")


@pytest.mark.parametrize("schedule", ["one-cycle", "inverse-sqrt", "halving"])
def test_the_rate_grows_in_a_line_from_that_of_the_reference_and_then_is_a_multiple(schedule: str) -> None:
    settings = settings_of(schedule, PEAK, warmup_fraction=0.25)
    found = [LearningRates(settings, TOTAL, factor=8.0).after(samples) for samples in (1, 125, 250, 600, 1000)]
    later = [8 * learning_rate(settings, samples, TOTAL) for samples in (600, 1000)]
    assert found == pytest.approx([0.1 + 0.7 / 250, 0.45, 0.8, *later])


def test_the_reference_batch_warms_up_at_its_own_rate_and_a_smaller_one_comes_down_to_its() -> None:
    settings = settings_of("halving", PEAK, warmup_fraction=0.25)
    assert [LearningRates(settings, TOTAL, factor=1.0).after(samples) for samples in (1, 125)] == [PEAK, PEAK]
    assert LearningRates(settings, TOTAL, factor=0.5).after(125) == pytest.approx(0.75 * PEAK)


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
def toy_config(small_batches_config: Path) -> Path:
    small_batches_config.write_text(MANY_BATCHES.replace("batch_s = 0.9", "batch_s = 99"))
    return small_batches_config


def test_learners_divide_the_batch_of_all(toy: Path, toy_config: Path) -> None:
    plans = []
    for num, batch in ((2, "distributed.global_batch_s=1.8"), (1, "train.batch_s=0.9")):
        source = toy_job(toy, toy / "never", toy_config, [batch]).build(num).train_set
        plans.append([planned.num_samples for planned in source.plan(0, 0, {})])
    assert plans[0] == plans[1]


def test_with_more_learners_each_keeps_its_batch_and_the_rate_follows_the_batch_of_all(
    learners, toy, toy_config, tmp_path
) -> None:
    overrides = ("distributed.strategy=allreduce", *LINEAR, "train.log_every_steps=1")
    out = tmp_path / "train"
    learners.run(train_as_learner, toy, toy_config, out, overrides, (1, 8), num=2)
    num_lines = len(logged_rates(out))
    learners.run(train_as_learner, toy, toy_config, out, overrides, None, num=3)
    small = tmp_path / "small.toml"
    small.write_text(MANY_BATCHES)
    of_all = planned(toy, small)
    assert batches_trained(out) == of_all

    settings = load_config([toy_config], overrides).train
    found = logged_rates(out)
    assert 0 < num_lines < len(found)
    total = 3 * 24
    for number, (samples, rate) in enumerate(found):
        factor = 2.0 if number < num_lines else 3.0
        assert rate == pytest.approx(LearningRates(settings, total, factor=factor).after(samples))


def logged_rates(out: Path) -> list[tuple[int, float]]:
    """Utterances and learning rate of each line of metrics."""
    entries = metrics(out)
    return [(entry["samples"], entry["lr"]) for entry in entries if entry["kind"] == "train"]
