"""The transducer against all alignments, one after another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.decode.search.transducer import Joint
from asrtool.models.objectives.transducer import BLANK, Transducer, log_probs, transducer_loss
from asrtool.settings.models import Transducer as TransducerSettings


def all_alignments(num_rows: int, num_tokens: int, one_a_row: bool) -> list[list[tuple[int, int, bool]]]:
    """The nodes (t, u) of each, and whether a token is emitted there, which takes the row where `one_a_row`."""
    alignments = []
    num_arcs = num_rows if one_a_row else num_rows + num_tokens
    num_free = num_rows if one_a_row else num_arcs - 1  # the last arc is a blank
    for places in itertools.combinations(range(num_free), num_tokens):
        t, u, nodes = 0, 0, []
        for place in range(num_arcs):
            emits = place in places
            nodes.append((t, u, emits))
            t, u = t + (one_a_row or not emits), u + emits
        alignments.append(nodes)
    return alignments


def summed(blank_TU: np.ndarray, token_TU: np.ndarray, one_a_row: bool) -> float:
    """ln P of all alignments; shapes (T, U + 1) and (T, U)."""
    scores = [
        sum(token_TU[t, u] if emits else blank_TU[t, u] for t, u, emits in nodes)
        for nodes in all_alignments(len(blank_TU), token_TU.shape[1], one_a_row)
    ]
    return float(np.logaddexp.reduce(scores))


def random_lattice(lens: Sequence[tuple[int, int]], seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    num_rows, num_tokens = (max(column) for column in zip(*lens, strict=True))
    blank = torch.randn(len(lens), num_rows, num_tokens + 1, generator=generator, dtype=torch.float64)
    token = torch.randn(len(lens), num_rows, num_tokens, generator=generator, dtype=torch.float64)
    lens_N, target_lens_N = (torch.tensor(column) for column in zip(*lens, strict=True))
    return blank, token, lens_N, target_lens_N


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=3), st.integers(0, 99), st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_the_loss_sums_all_alignments_and_padding_has_no_influence(
    lens: list[tuple[int, int]], seed: int, one_a_row: bool
) -> None:
    if one_a_row:
        lens = [(max(num_rows, num_tokens), num_tokens) for num_rows, num_tokens in lens]
    blank, token, *lens_N = random_lattice(lens, seed)
    parts = [(blank[n, :t, : u + 1].numpy(), token[n, :t, :u].numpy()) for n, (t, u) in enumerate(lens)]
    expected = -sum(summed(*part, one_a_row) for part in parts)
    assert float(transducer_loss(blank, token, *lens_N, one_a_row)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("one_a_row", [False, True])
def test_the_gradient_is_that_of_finite_differences(one_a_row: bool) -> None:
    blank, token, *lens = random_lattice([(5, 3), (2, 1), (3, 3), (3, 0)], 1)
    inputs = blank.requires_grad_(), token.requires_grad_()
    assert torch.autograd.gradcheck(lambda *logs: transducer_loss(*logs, *lens, one_a_row), inputs)


@pytest.mark.parametrize("one_a_row", [False, True])
def test_long_utterances_lose_no_accuracy_in_float32(one_a_row: bool) -> None:
    """All blanks have the same probability, and all tokens: so have all alignments, whose number is known."""
    num_rows, num_tokens = 400, 80
    num_blanks = num_rows - num_tokens if one_a_row else num_rows
    blank = torch.full((1, num_rows, num_tokens + 1), -0.25, requires_grad=True)
    token = torch.full((1, num_rows, num_tokens), -4.0)
    lens = torch.tensor([num_rows]), torch.tensor([num_tokens])
    loss = transducer_loss(blank, token, *lens, one_a_row)
    num_alignments = math.comb(num_rows if one_a_row else num_rows + num_tokens - 1, num_tokens)
    expected = 0.25 * num_blanks + 4.0 * num_tokens - math.log(num_alignments)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-6)
    loss.backward()
    assert blank.grad is not None
    assert float(blank.grad.sum()) == pytest.approx(-num_blanks, rel=1e-5)  # each alignment has so many


@pytest.mark.parametrize("num_tokens", [0, 3])
def test_log_probabilities_and_their_gradient_are_those_of_log_softmax(num_tokens: int) -> None:
    """Token 2 twice in an utterance, and blanks as padding, which are the next token in a node beside the blank."""
    torch.manual_seed(6)
    targets_NU = torch.tensor([[2, 4, 2], [1, BLANK, BLANK]])[:, :num_tokens]
    logits = torch.randn(2, 5, num_tokens + 1, 6, requires_grad=True)
    all_NTUV = logits.log_softmax(3)
    token_NTU = torch.stack([all_NTUV[n, :, range(num_tokens), targets_NU[n]] for n in range(2)])
    expected, found = (all_NTUV[..., BLANK], token_NTU), log_probs(logits, targets_NU)
    torch.testing.assert_close(found, expected)
    weights = [torch.randn_like(each) for each in expected]
    grads = [torch.autograd.grad(pair, logits, weights) for pair in (found, expected)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(("one_a_row", "num_before"), [(False, 2), (True, 2), (True, 1), (True, 3)])
def test_of_a_model_the_loss_is_that_of_its_joint_network_in_numpy(one_a_row: bool, num_before: int) -> None:
    torch.manual_seed(5)
    objective = Transducer(TransducerSettings(joint_size=6, context=num_before, one_a_row=one_a_row), 4, 7)
    hidden_NTC = torch.randn(2, 4, 4)
    tokens, lens = [[3, 1, 3], [6]], [4, 2]
    targets_NU = torch.tensor([[3, 1, 3], [6, 0, 0]])
    loss = objective.loss(hidden_NTC, torch.tensor(lens), targets_NU, torch.tensor([3, 1]))
    joint = Joint({name: value.detach().numpy() for name, value in objective.state_dict().items()}, num_before)
    rows_NTJ = objective.scores(hidden_NTC).detach().numpy()
    expected = 0.0
    for n, sequence in enumerate(tokens):
        padded = [BLANK] * num_before + sequence
        contexts = [tuple(padded[u : u + num_before]) for u in range(len(sequence) + 1)]
        log_probs_TUV = np.stack([joint.log_probs(row_J, contexts) for row_J in rows_NTJ[n, : lens[n]]])
        np.testing.assert_allclose(np.exp(log_probs_TUV).sum(2), 1.0, rtol=1e-5)
        token_TU = np.stack([log_probs_TUV[:, u, token] for u, token in enumerate(sequence)], axis=1)
        expected -= summed(log_probs_TUV[:, :, BLANK], token_TU, one_a_row)
    assert float(loss.total.detach()) == pytest.approx(expected, rel=1e-5)
    assert loss.normaliser == 4


@pytest.mark.parametrize(
    ("one_a_row", "num_rows", "why"),
    [(False, 0, "0 rows, 1 needed"), (False, 1, ""), (True, 3, "3 rows, 4 needed"), (True, 4, "")],
)
def test_each_token_takes_a_row_unless_a_row_emits_any_number(one_a_row: bool, num_rows: int, why: str) -> None:
    objective = Transducer(TransducerSettings(joint_size=2, one_a_row=one_a_row), 3, 4)
    assert objective.fits(num_rows, [1, 1, 2, 3]) == why
