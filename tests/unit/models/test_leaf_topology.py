"""Paths of a hybrid model against all sequences of leaves; the loss and the scores of frame-ce."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import build_model, load_model, save_model, tree_of, tree_to_info
from asrtool.models.objectives.decision_tree import Tree
from asrtool.models.objectives.frame_ce import FrameCe
from asrtool.models.objectives.topology import LeafTopology
from asrtool.settings.config import check_conflicts, to_table
from asrtool.settings.models import FrameCe as FrameCeSettings
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config

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
