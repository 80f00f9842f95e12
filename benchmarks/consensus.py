"""How close exchanges keep learners, by who exchanges with whom: matrices alone, without messages and training.

    .venv/bin/python benchmarks/consensus.py

First the fraction of the squared distance from the mean that is left after as many exchanges as there are learners.
Then learners with speeds: each of their steps adds noise of variance 1 to their weights, and begins an exchange that
takes place at once. The covariance of all is computed, not drawn; steps take 0.95 to 1.05 of their time. Printed is
the mean over time and learners of the squared distance from the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from asrtool.distributed.strategies.topology import (
    EDGE_WEIGHT,
    consensus_rate,
    fixed_ring,
    mixing_matrix,
    pair_matrix,
    passive_partner,
    random_ring,
    right_neighbour,
)

SEED = 5
NUM_DRAWN = 2000  # matrices that an expectation is taken over
NUM_STEPS = 1500  # of a learner
SLOWNESS = 10

# step of a learner, laps of all (batches drawn / learners), learner, number of learners -> partner
Choose = Callable[[int, int, int, int], int | None]


def _fixed(step: int, lap: int, learner: int, num: int) -> int | None:
    return (learner + 1) % num


def _own_step(step: int, lap: int, learner: int, num: int) -> int | None:
    return right_neighbour(random_ring(num, step, SEED), learner)


def _lap(step: int, lap: int, learner: int, num: int) -> int | None:
    return right_neighbour(random_ring(num, lap, SEED), learner)


def _pairs(step: int, lap: int, learner: int, num: int) -> int | None:
    return passive_partner(num, step, SEED, learner)


WAYS: dict[str, tuple[Choose, float]] = {
    "fixed ring": (_fixed, EDGE_WEIGHT),
    "random ring, by the learner's own step": (_own_step, EDGE_WEIGHT),
    "random ring, by laps of all": (_lap, EDGE_WEIGHT),
    "pairs": (_pairs, 1 / 2),
}


def main() -> None:
    print("| learners | fixed ring | random ring | pairs |\n|---|---|---|---|")
    for num in (4, 8, 16, 32, 64):
        rates = [
            consensus_rate([mixing_matrix(fixed_ring(num, 0, SEED))]),
            consensus_rate([mixing_matrix(random_ring(num, step, SEED)) for step in range(NUM_DRAWN)]),
            consensus_rate([_two_steps(num, step) for step in range(0, 2 * NUM_DRAWN, 2)]),
        ]
        print(f"| {num} |", " | ".join(f"{rate:.3f}" for rate in rates), "|", flush=True)
    slow = {"all equal": None, f"learner 0 {SLOWNESS}x slower": 0, f"learner 1 {SLOWNESS}x slower": 1}
    for num in (8, 16):
        print(f"\n| {num} learners |", " | ".join(slow), "|\n|---" + "|---" * len(slow) + "|")
        for name, (choose, weight) in WAYS.items():
            distances = [np.mean(list(distances_of(choose, weight, num, who))) for who in slow.values()]
            print(f"| {name} |", " | ".join(f"{distance:.3f}" for distance in distances), "|", flush=True)


def _two_steps(num: int, step: int) -> np.ndarray:
    """T of two steps of the active learners, who begin half as many exchanges a step as there are learners."""
    active = [(at, learner) for at in (step, step + 1) for learner in range(0, num, 2)]
    drawn = [(learner, passive_partner(num, at, SEED, learner)) for at, learner in active]
    return pair_matrix(num, [(learner, partner) for learner, partner in drawn if partner is not None])


def distances_of(choose: Choose, weight: float, num: int, slow: int | None) -> Iterator[float]:
    """The squared distance from the mean, a learner, after each step behind the first quarter."""
    random = np.random.default_rng(SEED)
    covariance, apart = np.zeros((num, num)), np.eye(num) - 1 / num
    periods = np.where(np.arange(num) == slow, SLOWNESS, 1.0)
    ends = random.random(num) * periods
    steps, batches = np.zeros(num, int), np.zeros(num, int)  # of each learner; the number of the batch at hand
    for number in range(NUM_STEPS * num):
        learner = int(ends.argmin())
        ends[learner] += periods[learner] * random.uniform(0.95, 1.05)
        covariance[learner, learner] += 1
        steps[learner] += 1
        partner = choose(int(steps[learner]), int(batches[learner]) // num, learner, num)
        batches[learner] = number  # drawn as the step began
        if partner is not None:
            edge = np.zeros(num)
            edge[[learner, partner]] = 1, -1
            matrix = np.eye(num) - weight * np.outer(edge, edge)
            covariance = matrix @ covariance @ matrix
        if number > NUM_STEPS * num // 4:
            yield float(np.trace(apart @ covariance)) / num


if __name__ == "__main__":
    main()
