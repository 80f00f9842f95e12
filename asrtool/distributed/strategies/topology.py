"""Topology of exchanges: functions of learner, number of learners, step and seed.

A ring is an order of the learners. Each averages with its right neighbour, and so also with its
left one. In a bipartite graph learners are active or passive, and each active one averages with a
passive one. In a mixing matrix T, T[i, j] is the weight of learner i in the next weights of learner
j (Lian et al. 2017).
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence

import numpy as np

from asrtool.errors import AsrtoolError

# Both ends of each edge move a third of the way, so that a round mixes by the matrix T_1 of a ring: weight 1/3 for the
# learner itself and for each of its neighbours.
EDGE_WEIGHT = 1 / 3
# In a pair both ends become their mean.
PAIR_WEIGHT = 1 / 2

CHECKED_STEPS = 16  # steps that a custom ring is checked for: a wrong random one may be an order by chance
Ring = Callable[[int, int, int], Sequence[int]]
Partner = Callable[[int, int, int, int], int | None]  # the same and a learner -> its partner in an exchange


def fixed_ring(num_learners: int, step: int, seed: int) -> Sequence[int]:
    """Return the order 0, 1, 2, ... at every step."""
    return range(num_learners)


def random_ring(num_learners: int, step: int, seed: int) -> Sequence[int]:
    """Draw an order at every step, the same at all learners by `seed`."""
    return np.random.default_rng((seed, step)).permutation(num_learners).tolist()


def right_neighbour(ring: Sequence[int], learner: int) -> int:
    """Return the learner after `learner` in `ring`; itself if it is alone."""
    return ring[(ring.index(learner) + 1) % len(ring)]


def check_ring(name: str, ring: Ring, num_learners: int, seed: int) -> None:
    """Raise AsrtoolError if the ring gives no order of the learners in a step."""
    for step in range(CHECKED_STEPS):
        order = ring(num_learners, step, seed)
        if not isinstance(order, Sequence) or sorted(map(str, order)) != sorted(map(str, range(num_learners))):
            what = f"distributed.adpsgd.ring = {name} returned {reprlib.repr(order)} at step {step}"
            expected = f"expected a list that has each of 0 to {num_learners - 1} once"
            raise AsrtoolError(f"{what}, {expected}", "return one, see docs/guide/extending.md")


def ring_partner(ring: Ring) -> Partner:
    """Return the rule by which a learner's partner is its right neighbour."""
    return lambda num_learners, step, seed, learner: right_neighbour(ring(num_learners, step, seed), learner)


def passive_partner(num_learners: int, step: int, seed: int, learner: int) -> int | None:
    """Return a passive partner of `learner` in a bipartite graph.

    It is any of the odd ranks, drawn anew at every step. Even ranks are active and odd ones
    passive, so of an odd number of learners one more is active. None for a passive learner, and for
    one that is alone.
    """
    passive = range(1, num_learners, 2)
    if learner % 2 or not passive:
        return None
    return passive[int(np.random.default_rng((seed, step, learner)).integers(len(passive)))]


def mixing_matrix(ring: Sequence[int]) -> np.ndarray:
    """Return T of a round in which every learner averages with its right neighbour.

    All exchange the same weights. Shape (L, L), doubly stochastic; T_1 for the fixed ring, P^T T_1
    P for one in another order.
    """
    matrix = np.eye(len(ring))
    for learner in ring:
        neighbour = right_neighbour(ring, learner)
        for here, there in ((learner, neighbour), (neighbour, learner)):
            matrix[here, here] -= EDGE_WEIGHT
            matrix[there, here] += EDGE_WEIGHT
    return matrix
