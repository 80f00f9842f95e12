"""Learning rates against their formulas."""

from __future__ import annotations

import dataclasses
import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from asrtool.config import Train
from asrtool.train.schedule import SCHEDULES, learning_rate

TOTAL = 1000
ONE_CYCLE = Train(peak_lr=0.4, warmup_share=0.2, final_lr_share=0.1)


def rates(settings: Train, *num_samples: int) -> list[float]:
    return [learning_rate(settings, n, TOTAL) for n in num_samples]


def test_one_cycle_rises_in_a_line_and_falls_as_half_a_cosine() -> None:
    middle = (0.4 + 0.04) / 2
    assert rates(ONE_CYCLE, 1, 50, 100, 200, 600, 1000) == pytest.approx([0.002, 0.1, 0.2, 0.4, middle, 0.04])


def test_inverse_sqrt_quarters_the_samples_for_double_the_rate() -> None:
    settings = dataclasses.replace(ONE_CYCLE, schedule="inverse-sqrt")
    assert rates(settings, 100, 200, 800) == pytest.approx([0.2, 0.4, 0.2])


def test_halving_holds_then_divides_by_sqrt_2_at_the_beginning_of_every_epoch() -> None:
    settings = Train(peak_lr=0.1, schedule="halving", num_epochs=10, warmup_share=0.1, hold_share=0.4)
    root = math.sqrt(2)
    found = rates(settings, 50, 100, 300, 500, 501, 600, 601, 700, 1000)
    assert found == pytest.approx([0.05, 0.1, 0.1, 0.1, 0.1 / root, 0.1 / root, 0.05, 0.05, 0.1 * 2**-2.5])


def test_halving_without_warm_up_or_hold_falls_from_the_first_epoch() -> None:
    settings = Train(peak_lr=0.1, schedule="halving", num_epochs=4, warmup_share=0.0, hold_share=0.0)
    assert rates(settings, 1, 250, 251) == pytest.approx([0.1 / math.sqrt(2), 0.1 / math.sqrt(2), 0.05])


SHARES = st.floats(0.01, 0.5), st.floats(0, 0.4)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, TOTAL), *SHARES, st.integers(1, 30))
def test_every_rate_is_above_0_and_at_most_the_peak(
    schedule: str, num_samples: int, warmup: float, hold: float, num_epochs: int
) -> None:
    settings = Train(schedule=schedule, warmup_share=warmup, hold_share=hold, num_epochs=num_epochs)
    assert 0 < learning_rate(settings, num_samples, TOTAL) <= settings.peak_lr * (1 + 1e-9)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(250, TOTAL - 1))
def test_no_rate_rises_after_the_warm_up(schedule: str, num_samples: int) -> None:
    settings = Train(schedule=schedule, warmup_share=0.25, hold_share=0.25, num_epochs=8)
    now, later = rates(settings, num_samples, num_samples + 1)
    assert later <= now


def test_inverse_sqrt_without_warm_up_is_refused() -> None:
    with pytest.raises(ValueError, match="expected more: inverse-sqrt falls from the end of the warm-up"):
        Train(schedule="inverse-sqrt", warmup_share=0.0)
