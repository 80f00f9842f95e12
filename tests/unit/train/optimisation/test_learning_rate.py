"""Learning rates against their formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from asrtool.errors import AsrtoolError
from asrtool.settings.schema import Choice
from asrtool.settings.train import Train
from asrtool.train.optimisation.learning_rate import learning_rate

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
