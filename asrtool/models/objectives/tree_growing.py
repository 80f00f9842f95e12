"""Grow a decision tree of left contexts (Young, Odell and Woodland 1994).

The likelihood of a set of rows is by its best diagonal Gaussian; the gain of a question is the likelihood of two
Gaussians minus one. Questions come from the data: tokens are merged bottom-up by least loss, and each set on the way
is a question about the left context.

Letters in names: K contexts, F features of a row, M moments of rows, 1 + 2 F: their number, sums and sums of squares;
Q questions, V tokens.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from asrtool.models.objectives.decision_tree import FIRST, FURTHER, SILENCE, Tree

MIN_VARIANCE = 1e-3  # of a feature
Context = tuple[int, int, int]  # left context, token, place
Moments = np.ndarray


def moments(rows_KF: np.ndarray) -> Moments:
    """Return the moments of each row (K, M); a set's moments are their sum."""
    rows_KF = rows_KF.astype(np.float64)
    return np.concatenate([np.ones((len(rows_KF), 1)), rows_KF, rows_KF**2], axis=1)


def log_likelihood(moments_M: Moments) -> np.ndarray:
    """Return ln p of rows by the Gaussian of their moments; (..., M) to (...)."""
    num_features = (moments_M.shape[-1] - 1) // 2
    count = np.maximum(moments_M[..., :1], 1e-10)
    mean = moments_M[..., 1 : 1 + num_features] / count
    found = np.maximum(moments_M[..., 1 + num_features :] / count - mean**2, 0.0)
    variance = np.maximum(found, MIN_VARIANCE)
    total: np.ndarray = -0.5 * count[..., 0] * (np.log(2 * np.pi * variance) + found / variance).sum(axis=-1)
    return total


@dataclass(order=True)
class _Node:
    """Left contexts of an HMM state that share a pdf; ordered by the best gain."""

    loss: float  # minus that gain
    number: int
    token: int = field(compare=False)
    place: int = field(compare=False)
    lefts_V: np.ndarray = field(compare=False)  # whether it has this left context
    yes_V: np.ndarray = field(compare=False)  # those for which the answer is yes


def grow_tree(found: Mapping[Context, Moments], num_tokens: int, num_leaves: int, min_count: int) -> Tree:
    """Split the node of most gain until there are `num_leaves` or no gain is left.

    `found` has the moments (M,) of the rows of each context in training; silence has one. A new leaf has `min_count`
    rows or more. Each HMM state of each token has a leaf, so there can be more than `num_leaves`.
    """
    grower = _Grower(found, num_tokens, min_count)
    nodes = [grower.root(token, place) for token in range(1, num_tokens) for place in (FIRST, FURTHER)]
    heapq.heapify(nodes)
    while nodes[0].loss < 0 and 1 + len(nodes) < num_leaves:
        best = heapq.heappop(nodes)
        for lefts_V in (best.lefts_V & best.yes_V, best.lefts_V & ~best.yes_V):
            heapq.heappush(nodes, grower.node(best.token, best.place, lefts_V))
    leaves_VV2 = np.full((num_tokens, num_tokens, 2), SILENCE, dtype=np.int32)
    for leaf, node in enumerate(sorted(nodes, key=lambda node: (node.token, node.place, node.number)), 1):
        leaves_VV2[node.lefts_V, node.token, node.place] = leaf
    counts_L = np.zeros(1 + len(nodes), dtype=np.int64)
    for context, moments_M in found.items():
        counts_L[leaves_VV2[context]] += round(moments_M[0])
    return Tree(leaves_VV2, counts_L)


class _Grower:
    """Data and questions that nodes are made from."""

    def __init__(self, found: Mapping[Context, Moments], num_tokens: int, min_count: int) -> None:
        self.min_count = min_count
        self.num_tokens = num_tokens
        self.numbers = itertools.count()
        self.of_place: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}  # left contexts, and their moments
        for token, place in {context[1:] for context in found}:
            lefts = [left for left in range(num_tokens) if (left, token, place) in found]
            self.of_place[token, place] = np.array(lefts), np.stack([found[left, token, place] for left in lefts])
        of_token: dict[int, Moments] = {}
        for (_, token, _), moments_M in found.items():
            of_token[token] = of_token.get(token, 0) + moments_M
        self.questions_QV = find_questions(of_token, num_tokens)

    def root(self, token: int, place: int) -> _Node:
        """All left contexts."""
        return self.node(token, place, np.ones(self.num_tokens, dtype=bool))

    def node(self, token: int, place: int, lefts_V: np.ndarray) -> _Node:
        """Return the node of these left contexts with its best question, if any."""
        lefts_K, moments_KM = self.of_place.get((token, place), (np.zeros(0, np.int64), np.zeros((0, 3))))
        inside_K = lefts_V[lefts_K]
        moments_KM, questions_QK = moments_KM[inside_K], self.questions_QV[:, lefts_K[inside_K]]
        loss, yes_V = 0.0, np.zeros(self.num_tokens, dtype=bool)
        if len(moments_KM) > 1:
            all_M = moments_KM.sum(axis=0)
            yes_QM = questions_QK.astype(np.float64) @ moments_KM
            gain_Q = log_likelihood(yes_QM) + log_likelihood(all_M - yes_QM) - log_likelihood(all_M)
            enough_Q = np.minimum(yes_QM[:, 0], all_M[0] - yes_QM[:, 0]) >= self.min_count
            gain_Q = np.where(enough_Q, gain_Q, 0.0)
            best = int(gain_Q.argmax())
            loss, yes_V = -float(gain_Q[best]), self.questions_QV[best]
        return _Node(loss, next(self.numbers), token, place, lefts_V, yes_V)


def find_questions(of_token: Mapping[int, Moments], num_tokens: int) -> np.ndarray:
    """Return sets of tokens (Q, V), bool: each token and each merged set but all."""
    sets = [np.arange(num_tokens) == token for token in of_token]
    questions = list(sets)
    moments_KM = np.stack(list(of_token.values())) if sets else np.zeros((0, 3))
    loss_KK = np.full((len(sets), len(sets)), np.inf)  # of two sets in one, the later one first
    for k in range(len(sets)):
        loss_KK[k, :k] = _loss_of_merging(moments_KM, k)[:k]
    while len(sets) > 2:
        later, earlier = divmod(int(loss_KK.argmin()), len(sets))
        sets[earlier] = sets[earlier] | sets.pop(later)
        moments_KM[earlier] += moments_KM[later]
        moments_KM = np.delete(moments_KM, later, axis=0)
        loss_KK = np.delete(np.delete(loss_KK, later, axis=0), later, axis=1)
        loss_K = _loss_of_merging(moments_KM, earlier)
        loss_KK[earlier, :earlier], loss_KK[earlier + 1 :, earlier] = loss_K[:earlier], loss_K[earlier + 1 :]
        questions.append(sets[earlier])
    return np.stack(questions) if questions else np.zeros((0, num_tokens), dtype=bool)


def _loss_of_merging(moments_KM: Moments, k: int) -> np.ndarray:
    """Return the loss of merging each set with set `k`, in nats (K,)."""
    return log_likelihood(moments_KM) + log_likelihood(moments_KM[k]) - log_likelihood(moments_KM + moments_KM[k])
