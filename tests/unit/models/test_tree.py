"""The decision tree: what a leaf is of, what is split, and what tying loses."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.models.objectives.decision_tree import (
    Context,
    Tree,
    contexts,
    find_questions,
    grow_tree,
    log_likelihood,
    moments,
)

Rows = dict[Context, np.ndarray]


def rows_of_contexts(seed: int, num_tokens: int, num_classes: int, num_rows: int = 60) -> Rows:
    """Rows (K, F) of each context of a few tokens; tokens of a class sound alike, and act alike as left contexts."""
    random = np.random.default_rng(seed)
    sounds = random.normal(scale=20.0, size=(num_classes, 2))
    effects = random.normal(scale=3.0, size=(num_tokens, 2, num_classes, 2))
    found = {(0, 0, 1): sounds[0] + random.normal(size=(num_rows, 2))}
    for token, left, place in itertools.product(range(1, num_tokens), range(num_tokens), (0, 1)):
        centre = sounds[token % num_classes] + effects[token, place, left % num_classes]
        found[left, token, place] = centre + random.normal(size=(random.integers(5, num_rows), 2))
    return found


def sums(rows: Rows) -> dict[Context, np.ndarray]:
    return {context: moments(rows_KF).sum(axis=0) for context, rows_KF in rows.items()}


def gaussian_log_prob(rows_KF: np.ndarray) -> float:
    """ln p of rows by the Gaussian that fits them best, one row and one feature after the other."""
    mean, variance = rows_KF.mean(axis=0), np.maximum(rows_KF.var(axis=0), 1e-3)
    return sum(
        -0.5 * (math.log(2 * math.pi * v) + (x - m) ** 2 / v)
        for row in rows_KF
        for x, m, v in zip(row, mean, variance, strict=True)
    )


def partition(tree: Tree, rows: Rows) -> set[frozenset[Context]]:
    """The contexts of each leaf."""
    leaf = {context: int(tree.leaves_VV2[context]) for context in rows}
    return {frozenset(context for context in rows if leaf[context] == one) for one in leaf.values()}


def test_moments_say_how_likely_rows_are() -> None:
    rows_KF = np.random.default_rng(3).normal(loc=2.0, scale=4.0, size=(30, 5))
    rows_KF[:, 4] = 1.5  # no variance
    assert log_likelihood(moments(rows_KF).sum(axis=0)) == pytest.approx(gaussian_log_prob(rows_KF), abs=1e-6)


def grow_by_brute_force(rows: Rows, num_tokens: int, num_leaves: int, min_count: int) -> set[frozenset[Context]]:
    """Try every question on every set of contexts, again and again, by the rows themselves."""
    questions = find_questions(
        {t: sum(moments(r).sum(axis=0) for c, r in rows.items() if c[1] == t) for t in range(num_tokens)}, num_tokens
    )
    groups = {frozenset(c for c in rows if c[1:] == key) for key in {c[1:] for c in rows}}
    while len(groups) < num_leaves:
        best: tuple[float, frozenset[Context], frozenset[Context]] | None = None
        for group, question in itertools.product(groups, questions):
            yes = frozenset(c for c in group if question[c[0]])
            parts = [np.concatenate([rows[c] for c in part]) for part in (yes, group - yes) if part]
            if len(parts) < 2 or min(map(len, parts)) < min_count:
                continue
            gain = sum(map(gaussian_log_prob, parts)) - gaussian_log_prob(np.concatenate(parts))
            if gain > (best[0] if best else 0):
                best = gain, group, yes
        if best is None:
            break
        groups = (groups - {best[1]}) | {best[2], best[1] - best[2]}
    return groups


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("num_leaves", "min_count"), [(9, 1), (14, 1), (100, 40), (100, 100)])
def test_what_is_split_is_what_brute_force_finds(seed: int, num_leaves: int, min_count: int) -> None:
    rows = rows_of_contexts(seed, 4, 2)
    tree = grow_tree(sums(rows), 4, num_leaves, min_count)
    assert partition(tree, rows) == grow_by_brute_force(rows, 4, num_leaves, min_count)
    assert tree.num_leaves == max(7, len(partition(tree, rows)))
    assert tree.num_leaves <= num_leaves


def test_questions_merge_what_sounds_alike() -> None:
    """Tokens 0, 2 and 4 are near each other, as are 1 and 3."""
    random = np.random.default_rng(0)
    of_token = {t: moments(random.normal(loc=10.0 * (t % 2), size=(50, 3))).sum(axis=0) for t in range(5)}
    asked = {frozenset(np.flatnonzero(question).tolist()) for question in find_questions(of_token, 6)}
    assert {frozenset({token}) for token in range(5)} <= asked
    assert frozenset({0, 2, 4}) in asked
    assert frozenset({1, 3}) in asked
    assert not any(len({token % 2 for token in question}) > 1 for question in asked)


def test_leaves_count_the_rows_that_they_are_targets_of(tmp_path: Path) -> None:
    rows = rows_of_contexts(1, 4, 2)
    tree = grow_tree(sums(rows), 5, 15, 30)  # token 4 is never said
    for leaf, members in enumerate(
        [context for context in rows if tree.leaves_VV2[context] == leaf] for leaf in range(tree.num_leaves)
    ):
        assert tree.counts_L[leaf] == sum(len(rows[context]) for context in members)
    seen = tree.counts_L > 0
    assert list(tree.tokens_L[~seen]) == [4, 4]
    assert np.exp(tree.log_priors_L[seen]).sum() == pytest.approx(1.0, abs=1e-5)
    assert (tree.log_priors_L[~seen] == 0).all()
    tree.save(tmp_path)
    again = Tree.load(tmp_path)
    assert (again.leaves_VV2 == tree.leaves_VV2).all()
    assert (again.counts_L == tree.counts_L).all()
    (tmp_path / "tree.npz").write_bytes(b"no archive")
    with pytest.raises(AsrtoolError, match=r"tree\.npz: no decision tree; run `asrtool targets`"):
        Tree.load(tmp_path)


def test_no_two_tokens_and_no_two_places_share_a_leaf() -> None:
    rows = rows_of_contexts(2, 5, 3)
    tree = grow_tree(sums(rows), 5, 40, 1)
    for left, token, place in itertools.product(range(5), range(1, 5), (0, 1)):
        leaf = tree.leaves_VV2[left, token, place]
        assert (tree.tokens_L[leaf], tree.places_L[leaf]) == (token, place)
    assert (tree.leaves_VV2[:, 0] == 0).all()
    assert (tree.tokens_L[0], tree.places_L[0]) == (0, 1)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=6),
    st.integers(1, 4),
)
@settings(max_examples=100, deadline=None)
def test_a_row_is_what_its_middle_frame_is(segments: list[tuple[int, int]], subsampling: int) -> None:
    """By naming each frame: token, the one before it, and the number of its segment."""
    begins = list(itertools.accumulate((length for _, length in segments), initial=0))
    frames = [
        (token, segments[i - 1][0] if i else 0, i) for i, (token, length) in enumerate(segments) for _ in range(length)
    ]
    num_rows = -(-len(frames) // subsampling)
    expected, before = [], -1
    for row in range(num_rows):
        token, left, number = frames[min(row * subsampling + subsampling // 2, len(frames) - 1)]
        expected.append((left, token, int(number == before)) if token else (0, 0, 1))
        before = number
    segments_S2 = np.array([(token, begin) for (token, _), begin in zip(segments, begins, strict=False)])
    assert list(zip(*(each.tolist() for each in contexts(segments_S2, num_rows, subsampling)), strict=True)) == expected
