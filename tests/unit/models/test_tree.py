"""The decision tree, and paths, loss and scores of a hybrid model by its leaves."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import build_model, load_model, save_model, tree_to_info
from asrtool.models.objectives.decision_tree import (
    Context,
    Tree,
    contexts,
    find_questions,
    grow_tree,
    moments,
    tree_of,
)
from asrtool.models.objectives.frame_ce import FrameCe
from asrtool.models.objectives.topology import LeafTopology
from asrtool.settings.config import check_conflicts, to_table
from asrtool.settings.models import FrameCe as FrameCeSettings
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config

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
        assert (tree.tokens_L[leaf], tree.positions_L[leaf]) == (token, place)
    assert (tree.leaves_VV2[:, 0] == 0).all()
    assert (tree.tokens_L[0], tree.positions_L[0]) == (0, 1)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=6),
    st.integers(1, 4),
)
@settings(max_examples=100, deadline=None)
def test_a_row_is_what_its_middle_frame_is(segments: list[tuple[int, int]], subsampling: int) -> None:
    """Each frame has a name: token, the token before it, and the number of its segment."""
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


NUM_TOKENS = 3  # silence, 1 and 2


def make_tree() -> Tree:
    """Token 1 has one first leaf and two others; token 2 two first ones, behind silence or 2 and behind 1."""
    leaves_VV2 = np.zeros((NUM_TOKENS, NUM_TOKENS, 2), dtype=np.int32)
    leaves_VV2[:, 1, 0] = 1
    leaves_VV2[:, 1, 1] = [2, 2, 3]
    leaves_VV2[:, 2, 0] = [4, 5, 4]
    leaves_VV2[:, 2, 1] = 6
    return Tree(leaves_VV2, np.array([40, 10, 20, 5, 15, 10, 0]))


TREE = make_tree()
TOPOLOGY = LeafTopology(TREE, 0.5)


def paths_of(tokens: list[int], num_rows: int) -> set[tuple[int, ...]]:
    """Every sequence of leaves that says `tokens`: each as it follows silence or the token before it."""
    found = set()
    for states in itertools.product(range(-1, len(tokens)), repeat=num_rows):  # the token of each row, -1 is silence
        said = [i for i, _ in itertools.groupby(states) if i >= 0]
        if said != list(range(len(tokens))):
            continue
        path, left = [], 0
        for before, state in zip((None, *states), states, strict=False):
            if state != before:
                left = 0 if before in (None, -1) else tokens[before]
            path.append(0 if state < 0 else int(TREE.leaves_VV2[left, tokens[state], int(state == before)]))
        found.add(tuple(path))
    return found


@given(st.lists(st.sampled_from([1, 2]), max_size=3), st.integers(1, 5), st.integers(0, 2**31))
@settings(max_examples=150, deadline=None)
def test_the_alignment_is_the_best_of_all_paths_and_its_spans_are_the_tokens(
    tokens: list[int], num_rows: int, seed: int
) -> None:
    scores_TV = np.random.default_rng(seed).normal(scale=3, size=(num_rows, 7)).astype(np.float32)
    if TOPOLOGY.rows_needed(tokens) > num_rows:
        assert not paths_of(tokens, num_rows)
        return
    path = TOPOLOGY.align(scores_TV, tokens)

    def score(leaves: tuple[int, ...]) -> float:
        return float(sum(scores_TV[r, leaf] for r, leaf in enumerate(leaves)))

    paths = paths_of(tokens, num_rows)
    assert tuple(path) in paths
    assert score(tuple(path)) == pytest.approx(max(map(score, paths)), abs=1e-5)
    spans = TOPOLOGY.spans(path, scores_TV)
    assert [token for token, _, _, _ in spans] == tokens
    said = {r for _, begin, end, _ in spans for r in range(begin, end)}
    assert said == {r for r, leaf in enumerate(path) if leaf}


def test_confidence_is_of_posteriors_not_of_scores() -> None:
    scores_TV = np.full((3, 7), -5.0, dtype=np.float32)
    scores_TV[[0, 1, 2], [1, 2, 2]] = -0.3 - 0.5 * TREE.log_priors_L[[1, 2, 2]]
    ((token, begin, end, peak),) = TOPOLOGY.spans([1, 2, 2], scores_TV)
    assert (token, begin, end) == (1, 0, 3)
    assert peak == pytest.approx(-0.3, abs=1e-6)


def make_objective(prior_scale: float = 0.5) -> FrameCe:
    torch.manual_seed(0)
    return FrameCe(FrameCeSettings(prior_scale=prior_scale), 4, NUM_TOKENS, TREE)


def test_the_loss_is_that_of_each_row_and_padding_has_no_influence() -> None:
    objective = make_objective()
    hidden_NTC, lens_N = torch.randn(2, 5, 4), torch.tensor([5, 3])
    targets_NU = torch.randint(0, 7, (2, 5))
    loss = objective.loss(hidden_NTC, lens_N, targets_NU, lens_N)
    log_probs_NTL = torch.log_softmax(objective.output(hidden_NTC), dim=-1)
    rows = [(n, t) for n in range(2) for t in range(int(lens_N[n]))]
    expected = -sum(log_probs_NTL[n, t, targets_NU[n, t]] for n, t in rows)
    torch.testing.assert_close(loss.total, expected)
    wrong = sum(int(log_probs_NTL[n, t].argmax() != targets_NU[n, t]) for n, t in rows)
    assert (loss.normaliser, loss.figures) == (8, {"errors": wrong})
    assert sum(objective.normaliser(int(num), []) for num in lens_N) == loss.normaliser
    hidden_NTC[1, 3:], targets_NU[1, 3:] = 1e6, 6
    torch.testing.assert_close(objective.loss(hidden_NTC, lens_N, targets_NU, lens_N).total, loss.total, rtol=0, atol=0)


def test_scores_are_log_posteriors_less_scaled_log_priors() -> None:
    objective, hidden_NTC = make_objective(), torch.randn(1, 3, 4)
    scores_TL = objective.scores(hidden_NTC)[0].detach().numpy()
    posteriors_TL = torch.softmax(objective.output(hidden_NTC), dim=-1)[0].detach().numpy()
    counts_L = TREE.counts_L
    for t, leaf in itertools.product(range(3), range(7)):
        prior = counts_L[leaf] / counts_L.sum() if counts_L[leaf] else 1.0  # never a target: never preferred
        assert scores_TL[t, leaf] == pytest.approx(np.log(posteriors_TL[t, leaf] / prior**0.5), abs=1e-5)


def test_the_model_file_has_the_tree_and_gives_the_same_scores(tmp_path: Path) -> None:
    small = Choice.of("encoder", "lstm", num_layers=1, hidden_size=4)
    settings_ = Model(encoder=small, objective=Choice.of("objective", "frame-ce", prior_scale=0.7))
    model = build_model(settings_, 5, NUM_TOKENS, TREE).eval()
    info = {"model": to_table(settings_), "num_features": 5, "num_tokens": NUM_TOKENS, **tree_to_info(TREE)}
    save_model(tmp_path / "model.pt", model, info)
    again, found = load_model(tmp_path / "model.pt")
    tree = tree_of(found)
    assert tree is not None
    assert (tree.leaves_VV2 == TREE.leaves_VV2).all()
    feats_NTF, lens_N = torch.randn(2, 9, 5), torch.tensor([9, 6])
    torch.testing.assert_close(again(feats_NTF, lens_N), model(feats_NTF, lens_N), rtol=0, atol=0)


@pytest.mark.parametrize("objective", ["frame-ce", "lf-mmi"])
@pytest.mark.parametrize("aligner", ["transducer", "frame-ce"])
def test_what_makes_the_first_alignment_has_to_align_by_itself(aligner: str, objective: str) -> None:
    overrides = [f"model.objective={objective}", "decode.methods=graph"]
    check_conflicts(load_config(overrides=overrides))
    with pytest.raises(
        AsrtoolError, match=rf"model\.{objective}\.aligner is '{aligner}', expected an objective that al"
    ):
        check_conflicts(load_config(overrides=[*overrides, f"model.{objective}.aligner={aligner}"]))
