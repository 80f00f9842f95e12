"""Learners that share weights step and come to cuts in a known order; what is recorded, and what should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from learner_threads import Net, give_gradients, weights_of

from asrtool.distributed.strategies.strategy import Snapshot, Strategy
from asrtool.train.optimisation.optimizer import set_learning_rate

NUM_LEARNERS, NUM_CUTS, NUM_STEPS = 3, 3, 30
RATE = 2**-6


@dataclass
class Reference:
    """SGD with momentum, in float64: the weights, and the velocity of each optimizer."""

    weights: np.ndarray
    velocities: list[np.ndarray]

    def step(self, optimizer: int, gradient: np.ndarray, rate: float, momentum: float) -> None:
        """v <- mu v + g, w <- w - alpha v."""
        self.velocities[optimizer] = momentum * self.velocities[optimizer] + gradient
        self.weights = self.weights - rate * self.velocities[optimizer]


def draw_schedule(seed: int) -> list[tuple[int, bool]]:
    """Which learner is next, and whether it makes a step; otherwise it comes to its next cut, of NUM_CUTS."""
    random = np.random.default_rng(seed)
    events = [(learner, False) for learner in range(NUM_LEARNERS) for _ in range(NUM_CUTS)]
    events += [(int(learner), True) for learner in random.integers(0, NUM_LEARNERS, NUM_STEPS)]
    return [events[number] for number in random.permutation(len(events))]


def run_schedule(
    seed: int, learners: list[Strategy], models: list[Net], momentum: float, optimizer_of: Callable[[int], int]
) -> tuple[list[Reference], list[list[Snapshot]]]:
    """By cut: what the weights are to be by the steps from before it, and the snapshots of all learners.

    Behind the last cut, those of all steps. `optimizer_of` gives the optimizer that steps for a learner.
    """
    random = np.random.default_rng(seed)
    start = weights_of(models[0])
    expected = [Reference(start, [np.zeros_like(start)] * NUM_LEARNERS) for _ in range(NUM_CUTS + 1)]
    taken: list[list[Snapshot]] = [[] for _ in range(NUM_LEARNERS)]
    for number, (learner, makes_step) in enumerate(draw_schedule(seed)):
        passed = len(taken[learner])
        if makes_step:
            rate = RATE / 2 ** (number % 3)
            set_learning_rate(learners[learner].optimizer, rate)
            gradient = give_gradients(models[learner], random)
            learners[learner].step()
            for reference in expected[passed:]:
                reference.step(optimizer_of(learner), gradient, rate, momentum)
        else:
            taken[learner].append(learners[learner].snapshot(passed + 1))
            unsettled = [snapshot for own in taken for snapshot in own[min(map(len, taken)) :]]
            assert not any(snapshot.settled() for snapshot in unsettled if snapshot.settled)
    return expected, [list(of_cut) for of_cut in zip(*taken, strict=True)]
