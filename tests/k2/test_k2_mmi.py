"""The denominator of lattice-free MMI as k2 computes it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from toy_graph import make_random_tree

from asrtool.models.objectives.denominator_graph import LeafGraph, chain_of, compose, estimate_ngrams
from asrtool.models.objectives.lf_mmi import Chains, Denominator, chain_log_probs

k2 = pytest.importorskip("k2", reason="k2 is not installed; make test-k2 makes an environment that has it")
pytest.importorskip("k2.fsa", reason="k2 is not installed; make test-k2 makes an environment that has it")

NUM_TOKENS = 7
NO_BEAM = 1e9  # keeps every path


def to_k2(graph: LeafGraph) -> k2.Fsa:
    """State 0 is before the first row, state s + 1 that of the graph; label i + 1 reads leaf i."""
    num_states = len(graph.first_S)
    arcs = [
        (0, s + 1, int(graph.first_S[s]) + 1, np.log(graph.begin_S[s])) for s in np.flatnonzero(graph.begin_S).tolist()
    ]
    arcs += [(s + 1, s + 1, int(graph.further_S[s]) + 1, 0.0) for s in range(num_states)]
    arcs += [
        (source + 1, target + 1, int(graph.first_S[target]) + 1, np.log(prob))
        for source, target, prob in zip(
            graph.sources_A.tolist(), graph.targets_A.tolist(), graph.probs_A.tolist(), strict=True
        )
    ]
    end = num_states + 1
    arcs += [(s + 1, end, -1, np.log(graph.end_S[s])) for s in np.flatnonzero(graph.end_S).tolist()]
    lines = [f"{source} {target} {label} {weight}" for source, target, label, weight in sorted(arcs)]
    return k2.arc_sort(k2.Fsa.from_str("\n".join([*lines, str(end)])))


def k2_log_probs(graph: k2.Fsa, scores_NTL: torch.Tensor, lens: list[int]) -> torch.Tensor:
    """ln P of each utterance (N,), longest first; column 0 of what k2 reads is of label 0, which no arc has."""
    segments_N3 = torch.tensor([[n, 0, num] for n, num in enumerate(lens)], dtype=torch.int32)
    padded = torch.nn.functional.pad(scores_NTL, (1, 0), value=-1e6)
    lattice = k2.intersect_dense(
        k2.create_fsa_vec([graph] * len(lens)), k2.DenseFsaVec(padded, segments_N3), output_beam=NO_BEAM
    )
    return lattice.get_tot_scores(log_semiring=True, use_double_scores=True)


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_the_denominator_and_its_gradient_are_those_of_k2(order: int, scale: float) -> None:
    random = np.random.default_rng(order)
    tree = make_random_tree(random, NUM_TOKENS)
    sequences = [random.integers(0, NUM_TOKENS, size) for size in random.integers(1, 30, 20)]
    graph = compose(estimate_ngrams(sequences, NUM_TOKENS, order, 20), tree)
    lens = [40, 33, 12, 1]
    scores_NTL = (scale * torch.randn(4, 40, tree.num_leaves)).requires_grad_()
    expected_N = k2_log_probs(to_k2(graph), scores_NTL, lens)
    (expected_grad,) = torch.autograd.grad(expected_N.sum(), scores_NTL)
    denominator = Denominator(graph, tree.num_leaves, 0.0, torch.device("cpu"))
    found_N = denominator.log_probs(scores_NTL, torch.tensor(lens))
    (found_grad,) = torch.autograd.grad(found_N.sum(), scores_NTL)
    torch.testing.assert_close(found_N[:3], expected_N[:3], rtol=1e-6, atol=1e-4)
    torch.testing.assert_close(found_grad[:3], expected_grad[:3], rtol=1e-4, atol=1e-4)
    assert torch.isfinite(found_N[3]) == torch.isfinite(expected_N[3])  # whether an utterance of one token was seen


def test_the_numerator_and_its_gradient_are_those_of_k2() -> None:
    random = np.random.default_rng(1)
    tree = make_random_tree(random, NUM_TOKENS)
    tokens = [3, 1, 1, 0, 5, 2]
    pairs = [tree.leaves_VV2[before, token].tolist() for before, token in itertools.pairwise([0, *tokens])]
    arcs = [f"{i} {i + 1} {first + 1} 0" for i, (first, _) in enumerate(pairs)]
    stays = [f"{i + 1} {i + 1} {further + 1} 0" for i, (_, further) in enumerate(pairs)]
    end = len(tokens) + 1
    lines = sorted([*arcs, *stays, f"{end - 1} {end} -1 0"], key=lambda line: int(line.split()[0]))
    scores_NTL = torch.randn(1, 25, tree.num_leaves).requires_grad_()
    expected_N = k2_log_probs(k2.arc_sort(k2.Fsa.from_str("\n".join([*lines, str(end)]))), scores_NTL, [25])
    leaves = np.array([leaf for first, further in pairs for leaf in (first, further, further, further)])
    chain = chain_of(np.append(leaves, leaves[-1]), tree)
    assert chain.tokens == tokens
    chains = Chains(
        torch.from_numpy(chain.first_I)[None],
        torch.from_numpy(chain.further_I)[None],
        torch.tensor([len(tokens)]),
        torch.ones(1, 25, len(tokens), dtype=torch.bool),
    )
    found_N = chain_log_probs(scores_NTL, torch.tensor([25]), chains)
    torch.testing.assert_close(found_N, expected_N, rtol=1e-6, atol=1e-4)
    grads = [torch.autograd.grad(one.sum(), scores_NTL)[0] for one in (found_N, expected_N)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)
