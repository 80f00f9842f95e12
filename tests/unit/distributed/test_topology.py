"""Rings against closed forms and brute force."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore

from asrtool.distributed.strategies.strategy import StrategyContext
from asrtool.distributed.strategies.topology import (
    fixed_ring,
    mixing_matrix,
    passive_partner,
    random_ring,
)
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.settings.schema import Choice

sizes = st.integers(1, 40)
steps = st.integers(0, 10_000)


def test_the_fixed_ring_mixes_by_t_1() -> None:
    expected = np.array([[1, 1, 0, 0, 1], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [1, 0, 0, 1, 1]]) / 3
    np.testing.assert_allclose(mixing_matrix(fixed_ring(5, 3, 1)), expected, atol=1e-15)


@given(num=st.integers(2, 40), step=steps, seed=steps)
def test_the_random_ring_is_the_fixed_one_in_another_order(num: int, step: int, seed: int) -> None:
    order = np.eye(num)[random_ring(num, step, seed)]
    np.testing.assert_allclose(mixing_matrix(random_ring(num, step, seed)), order.T @ mixing_matrix(range(num)) @ order)


def short_ring(num_learners: int, step: int, seed: int) -> Sequence[int]:
    """Forgets the last learner."""
    return range(num_learners - 1)


def late_ring(num_learners: int, step: int, seed: int) -> Sequence[int]:
    """Right at the first step."""
    return [min(learner, num_learners - 1 - step) for learner in range(num_learners)]


def array_ring(num_learners: int, step: int, seed: int) -> np.ndarray:
    """Right, but no sequence."""
    return np.arange(num_learners)


@pytest.mark.parametrize(
    ("name", "returned"),
    [
        ("short_ring", "returned range(0, 2) at step 0"),
        ("late_ring", "returned [0, 1, 1] at step 1"),
        ("array_ring", "returned array([0, 1, 2]) at step 0"),
    ],
)
def test_an_own_ring_that_is_no_order_of_the_learners_is_refused(name: str, returned: str) -> None:
    choice, model = Choice.of("strategy", "adpsgd", ring=f"{__name__}:{name}"), torch.nn.Linear(2, 2)
    make_optimizer = lambda named: torch.optim.SGD([parameter for _, parameter in named], lr=0.1)  # noqa: E731
    context = StrategyContext(model, model, make_optimizer, 1.0, choice.settings, 1, World(0, 3, 3, HashStore()))
    with pytest.raises(AsrtoolError) as caught:
        choice.load()(context)
    what = f"distributed.adpsgd.ring = {__name__}:{name} {returned}, expected a list that has each of 0 to 2 once; "
    assert str(caught.value).startswith(what)


def test_rings_of_other_steps_and_seeds_differ() -> None:
    rings = {tuple(random_ring(16, step, seed)) for step in range(50) for seed in range(2)}
    assert len(rings) == 100


@given(num=sizes, step=steps, seed=steps)
def test_each_even_rank_has_an_odd_partner_and_no_odd_one_has_any(num: int, step: int, seed: int) -> None:
    partners = [passive_partner(num, step, seed, learner) for learner in range(num)]
    assert partners[1::2] == [None] * (num // 2)
    assert all(partner in range(1, num, 2) for partner in partners[::2] if num > 1)
    assert passive_partner(1, step, seed, 0) is None


def test_an_active_learner_comes_to_all_passive_ones_alike_and_apart_from_the_others() -> None:
    drawn = [(passive_partner(7, step, 5, 0), passive_partner(7, step, 5, 2)) for step in range(900)]
    counts = [drawn.count(pair) for pair in itertools.product((1, 3, 5), repeat=2)]
    assert min(counts) > 60
    assert max(counts) < 140
