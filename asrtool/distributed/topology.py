"""Who averages with whom: pure functions of learner, number of learners, step and seed.

A ring is an order of the learners; each averages with the one to its right, and so, seen from there, with the one to
its left. A mixing matrix T has T[i, j] = the weight of learner i in the next weights of learner j (Lian et al. 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

# Both ends of each edge move a third of the way, so that a round mixes by the matrix T_1 of a ring: weight 1/3 for the
# learner itself and for each of its neighbours.
EDGE_WEIGHT = 1 / 3

Ring = Callable[[int, int, int], Sequence[int]]


def fixed_ring(num_learners: int, step: int, seed: int) -> Sequence[int]:
    """The order 0, 1, 2, ... at every step."""
    return range(num_learners)


def random_ring(num_learners: int, step: int, seed: int) -> Sequence[int]:
    """An order redrawn at every step; the same at all learners, who know `seed`, so nothing has to be sent."""
    return np.random.default_rng((seed, step)).permutation(num_learners).tolist()


def right_neighbour(ring: Sequence[int], learner: int) -> int:
    """Who follows `learner` in `ring`; itself where it is alone."""
    return ring[(ring.index(learner) + 1) % len(ring)]


def mixing_matrix(ring: Sequence[int]) -> np.ndarray:
    """T of a round in which every learner averages with its right neighbour, all from the same weights.

    Shape (L, L), doubly stochastic; T_1 for the fixed ring, P^T T_1 P for one in another order.
    """
    matrix = np.eye(len(ring))
    for learner in ring:
        neighbour = right_neighbour(ring, learner)
        for here, there in ((learner, neighbour), (neighbour, learner)):
            matrix[here, here] -= EDGE_WEIGHT
            matrix[there, here] += EDGE_WEIGHT
    return matrix


def consensus_rate(matrices: Sequence[np.ndarray]) -> float:
    """The largest fraction of the squared distance from the mean that is left after a round, in expectation.

    The second largest eigenvalue of the mean of T T' over `matrices`, each equally likely (Boyd et al. 2006).
    """
    num_learners = len(matrices[0])
    mean = np.mean([matrix @ matrix.T for matrix in matrices], axis=0) - np.full((num_learners,) * 2, 1 / num_learners)
    return float(np.linalg.eigvalsh(mean)[-1])


def spectral_gap(matrix: np.ndarray) -> float:
    """1 - |lambda_2|: the smallest fraction of their distance from the mean that learners lose in a round."""
    moduli = np.sort(np.abs(np.linalg.eigvals(matrix)))
    return float(1 - moduli[-2])
