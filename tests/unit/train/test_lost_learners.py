"""A training is the same whoever is lost or joins, between any two requests of a learner to the others."""

from __future__ import annotations

import functools
import random as random_module
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crew import Attempt, Crew

NUM_REQUESTS = 300  # about as many as a learner makes


def attempts(random: random_module.Random) -> Iterator[Callable[[Crew], Attempt]]:
    """Some in which learners are killed at any request, and one join of another; then one without."""
    for _ in range(random.randrange(1, 4)):
        size, num_join = random.randint(2, 4), random.randrange(2)
        who = random.sample(range(size + num_join), random.randint(1, size))
        kills = {rank: random.randrange(1, NUM_REQUESTS) for rank in who}
        yield functools.partial(Attempt, size=size, kills=kills, num_join=num_join)
    yield functools.partial(Attempt, size=random.randint(2, 3), kills={})


@pytest.mark.parametrize("seed", range(4))
def test_each_batch_is_trained_once_and_checkpoints_have_what_was_trained_before(seed: int, tmp_path: Path) -> None:
    Crew(tmp_path / "train").train(attempts(random_module.Random(seed)))
