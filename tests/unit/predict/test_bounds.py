"""Each theorem against the exact course of a training on a quadratic, and its constants by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from systems import ALL, system_of

from asrtool.predict.theory.bounds import Bound, Constants, bounds_of
from asrtool.predict.theory.quadratic import Step, predict, steps_of

CONSTANTS = Constants(smoothness=3.0, noise=2.0, between=0.0, start=5.0)


def bounds(name: str, num: int, constants: Constants = CONSTANTS, **settings: object) -> list[Bound]:
    slow = settings.pop("slow", {})
    found = bounds_of(system_of(name, num, slow, **settings), constants, "constant")  # type: ignore[arg-type]
    return [bound for bound in found if isinstance(bound, Bound)]


@pytest.mark.parametrize("of_largest", [1.0, 0.3, 0.03])
@pytest.mark.parametrize(("name", "settings"), ALL)
def test_no_quadratic_is_above_its_bound(name: str, settings: dict[str, object], of_largest: float) -> None:
    found = bounds(name, 6, **settings)
    assert found
    for bound in found:
        rate, in_rounds = of_largest * bound.largest_rate, bound.step == "round"
        course = predict(system_of(name, 6, **settings), CONSTANTS, rate, 1500, in_rounds)
        limits = [bound.value(rate, k) for k in range(1, 1501)]
        assert (course.mean_gradient_K() <= limits).all()


@pytest.mark.parametrize("name", ["adpsgd-fixed", "adpsgd-random", "adpsgd-pairs"])
def test_no_quadratic_with_a_straggler_is_above_its_bound(name: str) -> None:
    (bound,) = bounds(name, 6, slow={0: 5.0})
    course = predict(system_of(name, 6, {0: 5.0}), CONSTANTS, bound.largest_rate, 3000, in_rounds=False)
    assert (course.mean_gradient_K() <= [bound.value(bound.largest_rate, k) for k in range(1, 3001)]).all()


@pytest.mark.parametrize("of_largest", [1.0, 0.1])
@pytest.mark.parametrize("name", ["adpsgd-fixed", "adpsgd-random", "adpsgd-d1", "bmuf"])
def test_the_consensus_of_theorems_1_and_4_is_above_that_of_a_quadratic(name: str, of_largest: float) -> None:
    settings = {"block_momentum": 0.0, "block_steps": 4} if name == "bmuf" else {}
    bound = bounds(name, 6, **settings)[0]
    rate = of_largest * bound.largest_rate
    course = predict(system_of(name, 6, **settings), CONSTANTS, rate, 500, in_rounds=True)
    limit = bound.extra * rate**2 / CONSTANTS.smoothness**2
    assert limit / 20 < course.distance_K.max() <= limit


@pytest.mark.parametrize("of_largest", [1.0, 0.1])
@pytest.mark.parametrize("name", ["adpsgd-fixed", "adpsgd-random", "adpsgd-pairs"])
def test_gradients_are_taken_as_near_the_mean_as_the_proof_of_theorem_2_says(name: str, of_largest: float) -> None:
    """sum |phi_k - mean w_k|^2 <= alpha^2 sigma^2 K A + alpha^2 B sum |grad f(phi_k)|^2."""
    system, beta = system_of(name, 6), CONSTANTS.smoothness
    bound = bounds_of(system, CONSTANTS, "exponential")[-1]
    assert isinstance(bound, Bound)
    rate, num = of_largest * bound.largest_rate, 3000
    apart, squares = distances_of_gradients(steps_of(system, beta, rate, in_rounds=False), system.num_replicas, num)
    by_noise = rate**2 * CONSTANTS.noise * num * bound.symbols["A"]
    by_gradients = rate**2 * bound.symbols["B"] * beta**2 * squares
    assert apart <= by_noise + by_gradients
    assert of_largest == 1 or by_gradients < apart
    assert bound.extra * rate**2 * num == pytest.approx(beta**2 * by_noise)


@pytest.mark.parametrize("of_largest", [1.0, 0.1])
def test_gradients_are_as_stale_as_the_proof_of_theorem_3_says(of_largest: float) -> None:
    """sum |w_k - phi_k|^2 <= 2 alpha^2 (L - 1) (K sigma^2 + tau sum |grad f(phi_k)|^2); a half is needed, or nearly."""
    system, beta, num = system_of("ps-async", 6), CONSTANTS.smoothness, 3000
    (bound,) = bounds("ps-async", 6)
    rate = of_largest * bound.largest_rate
    apart, squares = distances_of_gradients(steps_of(system, beta, rate, in_rounds=False), 1, num)
    by_noise = bound.extra * rate**2 / beta**2 * num
    by_gradients = 2 * rate**2 * 5 * bound.symbols["tau"] * beta**2 * squares
    assert 0.4 * by_noise < apart <= by_noise + by_gradients


def distances_of_gradients(steps: Iterator[Step], num_replicas: int, num: int) -> tuple[float, float]:
    """Sums over `num` steps, of 400 weights from the minimum on: |phi_k - mean w_k|^2, and |phi_k|^2."""
    random, scale, state_SP = np.random.default_rng(2), math.sqrt(CONSTANTS.noise / 400), None
    apart = squares = 0.0
    for step in itertools.islice(steps, num):
        if state_SP is None:
            state_SP = np.zeros((step.change.shape[1], 400))
        phi_P = state_SP[step.rows[1] if num_replicas > 1 else -1]
        apart += float(np.square(phi_P - state_SP[:num_replicas].mean(axis=0)).sum())
        squares += float(np.square(phi_P).sum())
        noise_P = scale * random.standard_normal((step.noise.shape[1], 400))
        state_SP[step.rows] = step.change @ state_SP + step.noise @ noise_P
    return apart, squares


def test_theorem_1_has_the_constants_of_the_page() -> None:
    constants = Constants(3.0, 2.0, 0.5, 5.0)
    (bound,) = bounds("adpsgd-fixed", 4, constants)  # rho = 1/9, sqrt 1/3; Theorem 2 needs between = 0
    assert bound.largest_rate == pytest.approx((1 - 1 / 3) / 6)
    assert bound.terms(0.1, 50) == pytest.approx(
        {"start": 10 / 5, "noise": 0.1 * 3 * 2 / 4, "extra": 2 * 0.09 * (2 * 0.75 + 1.0 / (2 / 3)) / (2 / 3)}
    )
    assert bound.value(0.12, 50) == math.inf


def test_theorem_2_has_the_constants_of_the_page() -> None:
    bound = bounds("adpsgd-fixed", 4)[1]
    assert bound.symbols["rho of a step"] == pytest.approx(1 - 4 / 9 / 4 * 2)
    one = 1 - math.sqrt(1 - 2 / 9)
    a, b = 1 / one + 2 + 1, 1 / one**2 + 4 + 3
    assert (bound.symbols["A"], bound.symbols["B"], bound.symbols["tau"]) == pytest.approx((a, b, 3))
    x = bound.largest_rate * 3
    assert b * x**2 + x / 4 == pytest.approx(1)
    assert bound.terms(0.01, 100) == pytest.approx({"start": 40, "noise": 0.015, "extra": 1e-4 * 9 * 2 * a})


def test_theorems_3_and_4_have_the_constants_of_the_page() -> None:
    (bound,) = bounds("ps-async", 4)
    x = bound.largest_rate * 3
    assert 2 * 3 * 3 * x**2 + x == pytest.approx(1)
    assert bound.terms(0.01, 100) == pytest.approx({"start": 10, "noise": 0.06, "extra": 2e-4 * 9 * 2 * 3})
    (bound,) = bounds("bmuf", 4, block_momentum=0.0, block_steps=5)
    assert bound.largest_rate == pytest.approx(1 / (math.sqrt(8) * 4 * 3))
    assert bound.terms(0.01, 100) == pytest.approx({"start": 10, "noise": 0.015, "extra": 4e-4 * 9 * 4 * 1.5})
    (plain,) = bounds("bmuf", 4, block_momentum=0.0, block_steps=1)
    assert (plain.extra, plain.largest_rate) == (0, pytest.approx(1 / 3))


@pytest.mark.parametrize(("name", "settings"), ALL)
def test_the_speed_up_begins_where_its_two_conditions_are_met(name: str, settings: dict[str, object]) -> None:
    for bound in bounds(name, 6, **settings):

        def is_met(num_steps: float, bound: Bound = bound) -> bool:
            rate = bound.best_rate(num_steps)
            terms = bound.terms(rate, num_steps)
            return rate <= bound.largest_rate and terms["extra"] <= terms["start"] + terms["noise"]

        assert is_met(1.0001 * bound.speed_up_from)
        assert not is_met(0.9999 * bound.speed_up_from)


@pytest.mark.parametrize(
    ("name", "settings", "constants", "words"),
    [
        ("none", {}, CONSTANTS, "exchange nothing"),
        ("bmuf", {}, CONSTANTS, "block_momentum=0"),
        ("ps-async", {}, Constants(between=1.0), "zeta"),
        ("adpsgd-pairs", {}, Constants(between=1.0), "zeta"),
    ],
)
def test_where_nothing_is_proved_nothing_is_promised(
    name: str, settings: dict[str, object], constants: Constants, words: str
) -> None:
    (found,) = bounds_of(system_of(name, 4, **settings), constants, "constant")
    assert isinstance(found, str)
    assert words in found


def test_of_a_persons_own_ring_any_order_may_come() -> None:
    own, unknown = bounds_of(system_of("adpsgd", 8, ring="systems:turning_ring"), CONSTANTS, "constant")
    assert isinstance(own, Bound)
    assert isinstance(unknown, str)
    assert own.symbols["rho"] == pytest.approx(bounds("adpsgd-fixed", 8)[0].symbols["rho"])


def test_without_noise_more_learners_do_not_help() -> None:
    assert math.isinf(bounds("adpsgd-d1", 4, Constants(noise=0.0))[0].speed_up_from)


def test_data_of_their_own_pull_learners_apart_within_theorem_1() -> None:
    """f_i = beta/2 |w - c_i|^2, the c_i along the slowest mode, without noise: an exact run of the equations."""
    num, beta, rate = 6, 3.0, 0.05
    system = system_of("adpsgd-fixed", num)
    centers_N = np.cos(2 * np.pi * np.arange(num) / num)
    constants = Constants(beta, 0.0, float((beta * centers_N) @ (beta * centers_N)) / num, 1.0)
    bound = bounds_of(system, constants, "constant")[0]
    assert isinstance(bound, Bound)
    assert rate <= bound.largest_rate
    matrix = np.roll(np.eye(num), 1, 0) / 3 + np.roll(np.eye(num), -1, 0) / 3 + np.eye(num) / 3
    w, largest = np.zeros(num), 0.0
    for _ in range(2000):
        w = matrix @ w - rate * beta * (w - centers_N)
        largest = max(largest, float(((w - w.mean()) ** 2).mean()))
    assert 0 < largest <= bound.extra * rate**2 / beta**2
