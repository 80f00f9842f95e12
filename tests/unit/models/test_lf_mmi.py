"""Lattice-free MMI against all paths, one after another."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.models.objectives.decision_tree import Tree
from asrtool.models.objectives.denominator_graph import LeafGraph, TokenNgrams, chain_of, compose, estimate_ngrams
from asrtool.models.objectives.frame_ce import FrameCe
from asrtool.models.objectives.lf_mmi import Denominator, LfMmi
from asrtool.settings.models import LfMmi as LfMmiSettings

NUM_TOKENS, NUM_LEAVES = 3, 8  # silence, 1 and 2
SEQUENCES = [[0, 1, 2, 0], [1, 0, 2], [2, 2, 1, 0], [0, 2, 1], [1]]
CPU = torch.device("cpu")


def make_tree() -> Tree:
    """Token 1 has one first leaf and two others; token 2 two first ones, and two others."""
    leaves_VV2 = np.zeros((NUM_TOKENS, NUM_TOKENS, 2), dtype=np.int32)
    leaves_VV2[:, 1, 0] = 1
    leaves_VV2[:, 1, 1] = [2, 2, 3]
    leaves_VV2[:, 2, 0] = [4, 5, 4]
    leaves_VV2[:, 2, 1] = [6, 6, 7]
    return Tree(leaves_VV2, np.array([40, 10, 20, 5, 15, 10, 3, 4]))


TREE = make_tree()


def estimate(order: int, max_histories: int = 100) -> TokenNgrams:
    return estimate_ngrams(map(np.array, SEQUENCES), NUM_TOKENS, order, max_histories)


def random_scores(seed: int, *shape: int, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def segmentations(num_rows: int, num_segments: int) -> Iterator[list[int]]:
    """The first row of each segment; each has a row."""
    for inner in itertools.combinations(range(1, num_rows), num_segments - 1):
        yield [0, *inner]


def leaves_of(tokens: list[int], begins: list[int], num_rows: int) -> list[int]:
    """The leaf of each row, where token i begins at row `begins[i]`."""
    leaves = []
    for i, (token, begin) in enumerate(zip(tokens, begins, strict=True)):
        end = begins[i + 1] if i + 1 < len(begins) else num_rows
        first, further = TREE.leaves_VV2[tokens[i - 1] if i else 0, token].tolist()
        leaves += [first, *[further] * (end - begin - 1)]
    return leaves


def score(scores_TL: torch.Tensor, leaves: list[int]) -> float:
    return float(sum(scores_TL[t, leaf] for t, leaf in enumerate(leaves)))


def sum_of_all_sequences(scores_TL: torch.Tensor, ngrams: TokenNgrams) -> float:
    """ln of the sum over all sequences of tokens that have a probability, and all their alignments."""
    num_rows, found = len(scores_TL), [-math.inf]
    for size in range(1, num_rows + 1):
        for tokens in itertools.product(range(NUM_TOKENS), repeat=size):
            prior = sum(ngrams.log_probs(tokens, -math.inf))
            for begins in segmentations(num_rows, size) if prior > -math.inf else ():
                found.append(prior + score(scores_TL, leaves_of(list(tokens), begins, num_rows)))
    return float(np.logaddexp.reduce(found))


def make_denominator(ngrams: TokenNgrams, leak: float) -> Denominator:
    return Denominator(compose(ngrams, TREE), NUM_LEAVES, leak, CPU)


@pytest.mark.parametrize("max_histories", [0, 2, 100])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_the_denominator_sums_all_sequences_and_padding_has_no_influence(order: int, max_histories: int) -> None:
    ngrams = estimate(order, max_histories)
    lens = [5, 1, 3, 4]
    scores_NTL = random_scores(order, len(lens), 5, NUM_LEAVES)
    expected = [sum_of_all_sequences(scores_NTL[n, :num], ngrams) for n, num in enumerate(lens)]
    for n, num in enumerate(lens):
        scores_NTL[n, num:] = 1e6
    found = make_denominator(ngrams, 0.0).log_probs(scores_NTL, torch.tensor(lens))
    assert found.tolist() == pytest.approx(expected, abs=1e-9)


def sum_with_leaks(scores_TL: torch.Tensor, graph: LeafGraph, leak: float) -> float:
    """ln of the sum over all states of all rows, with and without a leak behind each row."""
    emit_TL = scores_TL.exp().numpy()
    num_states = len(graph.first_S)
    arcs = dict(zip(zip(graph.sources_A.tolist(), graph.targets_A.tolist(), strict=True), graph.probs_A, strict=True))

    def behind(t: int, state: int) -> float:
        """All ways after row t, which ended in `state`."""
        total = 0.0
        for after in range(num_states):
            stays = (after == state) + leak * graph.share_S[after]
            total += stays * from_there(t + 1, after) if stays else 0.0
        return total

    def from_there(t: int, state: int) -> float:
        if t == len(scores_TL):
            return float(graph.end_S[state])
        total = emit_TL[t, graph.further_S[state]] * behind(t, state)
        for target in range(num_states):
            if (state, target) in arcs:
                total += arcs[state, target] * emit_TL[t, graph.first_S[target]] * behind(t, target)
        return float(total)

    return math.log(sum(graph.begin_S[s] * emit_TL[0, graph.first_S[s]] * behind(0, s) for s in range(num_states)))


def test_a_leak_leads_from_each_state_to_each() -> None:
    ngrams = estimate(2, 0)
    graph = compose(ngrams, TREE)
    scores_NTL = random_scores(5, 1, 3, NUM_LEAVES)
    found = Denominator(graph, NUM_LEAVES, 0.3, CPU).log_probs(scores_NTL, torch.tensor([3]))
    assert found.item() == pytest.approx(sum_with_leaks(scores_NTL[0], graph, 0.3), abs=1e-9)
    assert found.item() > sum_of_all_sequences(scores_NTL[0], ngrams)


def test_states_have_their_share_of_the_tokens_of_training() -> None:
    graph = compose(estimate(4), TREE)
    num_tokens = sum(map(len, SEQUENCES))
    for leaf in range(NUM_LEAVES):
        begun = sum(
            int(TREE.leaves_VV2[before, token, 0]) == leaf
            for tokens in SEQUENCES
            for before, token in itertools.pairwise([0, *tokens])
        )
        assert graph.share_S[graph.first_S == leaf].sum() == pytest.approx(begun / num_tokens)


@pytest.mark.parametrize("leak", [0.0, 0.2])
def test_the_gradient_is_that_of_finite_differences(leak: float) -> None:
    denominator, lens_N = make_denominator(estimate(3), leak), torch.tensor([4, 2, 1])
    scores_NTL = random_scores(1, 3, 4, NUM_LEAVES).requires_grad_()
    assert torch.autograd.gradcheck(lambda scores: denominator.log_probs(scores, lens_N), scores_NTL)
    denominator.log_probs(scores_NTL, lens_N).sum().backward()
    assert scores_NTL.grad is not None
    is_row_NT = torch.arange(4) < lens_N[:, None]
    torch.testing.assert_close(scores_NTL.grad.sum(dim=2), is_row_NT.double())  # each row has one leaf


def test_long_utterances_lose_no_accuracy_and_no_path() -> None:
    """The expectation uses logarithms of a dense matrix; scores differ by hundreds of nats, as in a diverged model."""
    graph = compose(estimate(3), TREE)
    leak, num_rows = 0.01, 400
    scores_TL = random_scores(2, num_rows, NUM_LEAVES, scale=40.0)
    num_states = len(graph.first_S)
    arcs_SS = torch.zeros(num_states, num_states, dtype=torch.float64)
    arcs_SS[graph.sources_A, graph.targets_A] = torch.from_numpy(graph.probs_A)
    leak_SS = torch.eye(num_states) + leak * torch.from_numpy(graph.share_S)
    reached_S = torch.from_numpy(graph.begin_S).log() + scores_TL[0, graph.first_S]
    for t in range(1, num_rows):
        leaked_S = torch.logsumexp(reached_S[:, None] + leak_SS.log(), 0)
        begun_S = torch.logsumexp(leaked_S[:, None] + arcs_SS.log(), 0) + scores_TL[t, graph.first_S]
        reached_S = torch.logaddexp(begun_S, leaked_S + scores_TL[t, graph.further_S])
    leaked_S = torch.logsumexp(reached_S[:, None] + leak_SS.log(), 0)
    expected = torch.logsumexp(leaked_S + torch.from_numpy(graph.end_S).log(), 0)
    lens_N = torch.tensor([num_rows])
    found = Denominator(graph, NUM_LEAVES, leak, CPU).log_probs(scores_TL[None], lens_N)
    assert found.item() == pytest.approx(expected.item(), rel=1e-9)
    in_float32 = Denominator(graph, NUM_LEAVES, leak, CPU).log_probs(scores_TL[None].float(), lens_N)
    assert in_float32.item() == pytest.approx(expected.item(), rel=1e-6)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_a_chain_has_the_tokens_of_its_leaves(tokens: list[int], more: int, seed: int) -> None:
    tokens = [token for i, token in enumerate(tokens) if token or i == 0 or tokens[i - 1]]  # one silence, not two
    num_rows = len(tokens) + more
    choices = list(segmentations(num_rows, len(tokens)))
    begins = choices[seed % len(choices)]
    leaves = leaves_of(tokens, begins, num_rows)
    chain = chain_of(np.array(leaves), TREE)
    assert (chain.tokens, chain.begins_I.tolist()) == (tokens, begins)
    pairs = [TREE.leaves_VV2[before, token].tolist() for before, token in itertools.pairwise([0, *tokens])]
    assert list(zip(chain.first_I.tolist(), chain.further_I.tolist(), strict=True)) == list(map(tuple, pairs))


def make_objective(**values: float) -> LfMmi:
    torch.manual_seed(0)
    objective = LfMmi(LfMmiSettings(**values), 4, NUM_TOKENS, TREE)  # type: ignore[arg-type]
    objective.prepare(map(np.array, SEQUENCES))
    return objective


def test_histories_are_those_of_the_settings() -> None:
    assert make_objective(max_histories=1).ngrams == estimate(4, 1) != estimate(4, 2)


def make_batch(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[tuple[list[int], list[int]]]]:
    """Rows of three utterances of training, their lengths, the leaf of each row, and tokens with their first rows."""
    hidden_NTC = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(seed))
    lens, aligned = [8, 4, 5], [(SEQUENCES[0], [0, 1, 3, 5]), (SEQUENCES[2], [0, 1, 2, 3]), (SEQUENCES[1], [0, 2, 3])]
    targets_NU = torch.zeros(3, 8, dtype=torch.int64)
    for n, (tokens, begins) in enumerate(aligned):
        targets_NU[n, : lens[n]] = torch.tensor(leaves_of(tokens, begins, lens[n]))
    return hidden_NTC, torch.tensor(lens), targets_NU, aligned


@pytest.mark.parametrize(("ce_scale", "leak"), [(0.0, 0.01), (0.5, 0.3)])
def test_the_loss_is_that_of_all_alignments_near_the_given_one(ce_scale: float, leak: float) -> None:
    objective = make_objective(ce_scale=ce_scale, leak=leak)
    hidden_NTC, lens_N, targets_NU, aligned = make_batch(3)
    assert objective.ngrams is not None
    assert objective.graph is not None
    scores_NTL = objective.scores(hidden_NTC).detach().double()
    denominator_N = Denominator(objective.graph, NUM_LEAVES, leak, CPU).log_probs(scores_NTL, lens_N)
    expected = 0.0
    for n, (tokens, begins) in enumerate(aligned):
        scores_TL = scores_NTL[n, : int(lens_N[n])]
        near = [
            leaves_of(tokens, others, len(scores_TL))
            for others in segmentations(len(scores_TL), len(tokens))
            if all(abs(one - other) <= 2 for one, other in zip(begins, others, strict=True))
        ]
        total = np.logaddexp.reduce([score(scores_TL, leaves) for leaves in near])
        expected += float(denominator_N[n]) - total - sum(objective.ngrams.log_probs(tokens, -math.inf))
    of_frames = FrameCe.loss(objective, hidden_NTC, lens_N, targets_NU, lens_N)
    loss = objective.loss(hidden_NTC, lens_N, targets_NU, lens_N)
    assert loss.total.item() == pytest.approx(expected + ce_scale * of_frames.total.item(), rel=1e-5)
    assert expected > 0  # the denominator has what the numerator has
    assert loss.normaliser == of_frames.normaliser == 17
    assert loss.figures == {**of_frames.figures, "cross_entropy": of_frames.total.item()}
    hidden_NTC[1, 4:], targets_NU[1, 4:] = 1e4, 7
    padded = objective.loss(hidden_NTC, lens_N, targets_NU, lens_N)
    torch.testing.assert_close(padded.total, loss.total, rtol=0, atol=0)


def test_the_gradient_of_the_loss_is_that_of_finite_differences() -> None:
    objective = make_objective(ce_scale=0.3)
    hidden_NTC, lens_N, targets_NU, _ = make_batch(4)
    weight = objective.output.weight

    def loss() -> float:
        with torch.no_grad():
            return objective.loss(hidden_NTC, lens_N, targets_NU, lens_N).total.item()

    objective.loss(hidden_NTC, lens_N, targets_NU, lens_N).total.backward()
    assert weight.grad is not None
    for leaf, channel in [(0, 0), (2, 1), (5, 3)]:
        values = []
        for step in (1e-2, -1e-2):
            with torch.no_grad():
                weight[leaf, channel] += step
                values.append(loss())
                weight[leaf, channel] -= step
        assert weight.grad[leaf, channel].item() == pytest.approx((values[0] - values[1]) / 2e-2, rel=2e-2, abs=2e-3)


def test_an_utterance_of_unseen_tokens_has_a_loss_and_a_copy_the_same() -> None:
    objective = make_objective()
    leaves = torch.tensor([leaves_of([2, 0, 2, 0], [0, 1, 2, 3], 4)])
    hidden_NTC, lens_N = torch.randn(1, 4, 4), torch.tensor([4])
    loss = objective.loss(hidden_NTC, lens_N, leaves, lens_N)
    assert math.isfinite(loss.total.item())
    again = copy.deepcopy(objective).loss(hidden_NTC, lens_N, leaves, lens_N)
    torch.testing.assert_close(again.total, loss.total, rtol=0, atol=0)
