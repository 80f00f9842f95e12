"""Decision tree that ties HMM states of tokens in context to pdfs (leaves).

A token with its left context has two HMM states: its first row, and all further ones (the topology of Povey et al.
2016, section 4). Token 0 is silence, which has one pdf and no context. A sequence of pdfs determines its tokens, as a
first row always begins one. Needs no torch.

The tree is grown as by Young, Odell and Woodland (1994). The likelihood of a set of rows is by its best diagonal
Gaussian; the gain of a question is the likelihood of two Gaussians minus one. Questions come from the data: tokens are
merged bottom-up by least loss, and each set on the way is a question about the left context.

Letters in names: V tokens, L pdfs, R rows, S segments; K contexts, F features of a row, M moments of rows, 1 + 2 F:
their number, sums and sums of squares; Q questions.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.errors import AsrtoolError

SILENCE = 0  # the token, and its leaf
FIRST, FURTHER = 0, 1  # places
FILE = "tree.npz"


@dataclass(frozen=True)
class Tree:
    """Pdf of each token in context, and its count in training."""

    leaves_VV2: np.ndarray  # int32: of a left context, a token and a place
    counts_L: np.ndarray  # int64, rows

    @property
    def num_leaves(self) -> int:
        return len(self.counts_L)

    @cached_property
    def tokens_L(self) -> np.ndarray:
        """The token of each leaf; no two share one."""
        return self._by_leaf(np.arange(self.leaves_VV2.shape[1])[:, None])

    @cached_property
    def positions_L(self) -> np.ndarray:
        """The place of each leaf; silence is all further rows, so it begins no token."""
        positions_L = self._by_leaf(np.arange(2))
        positions_L[SILENCE] = FURTHER
        return positions_L

    @cached_property
    def log_priors_L(self) -> np.ndarray:
        """Natural logarithms of relative frequencies, float32; 0 for unseen pdfs.

        An unseen pdf thus never wins.
        """
        share_L = np.where(self.counts_L > 0, self.counts_L, self.counts_L.sum()) / max(self.counts_L.sum(), 1)
        return np.log(np.maximum(share_L, np.finfo(np.float32).tiny)).astype(np.float32)

    def targets(self, segments_S2: np.ndarray, num_rows: int, subsampling: int) -> np.ndarray:
        """Return the leaf of each row's middle frame (R,), int64.

        `segments_S2` are tokens and the frames they begin at, of which the first is 0; a row stands for `subsampling`
        frames.
        """
        lefts_R, tokens_R, positions_R = contexts(segments_S2, num_rows, subsampling)
        return self.leaves_VV2[lefts_R, tokens_R, positions_R].astype(np.int64)

    def is_same(self, other: Tree) -> bool:
        """Return whether both trees have the same pdfs."""
        return np.array_equal(self.leaves_VV2, other.leaves_VV2)

    def save(self, folder: Path) -> None:
        np.savez(folder / FILE, leaves_VV2=self.leaves_VV2, counts_L=self.counts_L)

    @classmethod
    def load(cls, folder: Path) -> Tree:
        """Load the tree of frame targets or a graph in `folder`; AsrtoolError if missing."""
        path = folder / FILE
        try:
            with np.load(path) as arrays:
                return cls(arrays["leaves_VV2"], arrays["counts_L"])
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise AsrtoolError(
                f"{path}: no decision tree", "run `asrtool targets`, or `asrtool graph` with it"
            ) from error

    def _by_leaf(self, values: np.ndarray) -> np.ndarray:
        found_L = np.zeros(self.num_leaves, dtype=np.int64)
        found_L[self.leaves_VV2] = np.broadcast_to(values, self.leaves_VV2.shape)
        return found_L


def tree_of(info: Mapping[str, Any]) -> Tree | None:
    """Return the decision tree of the `info` of a model file, or None."""
    return Tree(**{name: array.numpy() for name, array in info["tree"].items()}) if "tree" in info else None


def contexts(segments_S2: np.ndarray, num_rows: int, subsampling: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return left context, token and place of each row (R,), as Tree.targets.

    The left context of the first token is silence.
    """
    tokens_S, begins_S = segments_S2[:, 0].astype(np.int64), segments_S2[:, 1]
    middle_R = np.arange(num_rows) * subsampling + subsampling // 2
    segment_R = np.searchsorted(begins_S, middle_R, side="right") - 1
    tokens_R = tokens_S[segment_R]
    lefts_R = np.concatenate([[SILENCE], tokens_S])[segment_R]
    positions_R = np.where(np.diff(segment_R, prepend=-1) > 0, FIRST, FURTHER)
    is_silence_R = tokens_R == SILENCE
    lefts_R[is_silence_R], positions_R[is_silence_R] = SILENCE, FURTHER
    return lefts_R, tokens_R, positions_R


MIN_VARIANCE = 1e-3  # least variance of a feature
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
    lefts_V: np.ndarray = field(compare=False)  # mask of its left contexts
    yes_V: np.ndarray = field(compare=False)  # mask of the left contexts with the answer yes


def grow_tree(found: Mapping[Context, Moments], num_tokens: int, num_leaves: int, min_count: int) -> Tree:
    """Split the node of most gain until there are `num_leaves` or no gain is left.

    `found` has the moments (M,) of the rows of each context in training; silence has one. A new leaf has `min_count`
    rows or more. Each HMM state of each token has a leaf, so there can be more than `num_leaves`.
    """
    grower = _Grower(found, num_tokens, min_count)
    all_V = np.ones(num_tokens, dtype=bool)
    nodes = [grower.node(token, place, all_V) for token in range(1, num_tokens) for place in (FIRST, FURTHER)]
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
        self.left_contexts: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}  # with their moments
        for token, place in {context[1:] for context in found}:
            lefts = [left for left in range(num_tokens) if (left, token, place) in found]
            self.left_contexts[token, place] = np.array(lefts), np.stack([found[left, token, place] for left in lefts])
        token_moments: dict[int, Moments] = {}
        for (_, token, _), moments_M in found.items():
            token_moments[token] = token_moments.get(token, 0) + moments_M
        self.questions_QV = find_questions(token_moments, num_tokens)

    def node(self, token: int, place: int, lefts_V: np.ndarray) -> _Node:
        """Return the node of these left contexts with its best question, if any."""
        lefts_K, moments_KM = self.left_contexts.get((token, place), (np.zeros(0, np.int64), np.zeros((0, 3))))
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


def find_questions(token_moments: Mapping[int, Moments], num_tokens: int) -> np.ndarray:
    """Return sets of tokens (Q, V), bool: each token and each merged set but all."""
    sets = [np.arange(num_tokens) == token for token in token_moments]
    questions = list(sets)
    moments_KM = np.stack(list(token_moments.values())) if sets else np.zeros((0, 3))
    loss_KK = np.full((len(sets), len(sets)), np.inf)  # loss of merging two sets, the later one first
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
