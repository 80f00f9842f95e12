"""CTC as k2 computes it against torch in double precision."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.models.objectives.ctc import Ctc, K2Ctc
from asrtool.models.objectives.topology import CtcTopology
from asrtool.settings.models import Ctc as CtcSettings

pytest.importorskip("k2.fsa", reason="k2 is not installed; make test-k2 makes an environment that has it")

CTC, K2_CTC = (kind(CtcSettings(), num_channels=1, num_tokens=2).path_loss for kind in (Ctc, K2Ctc))


def make_batch(
    seed: int, num_utterances: int, num_tokens: int, scale: float
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Logits of random utterances, with repeated tokens and empty texts among them; lengths and texts that fit."""
    random = torch.Generator().manual_seed(seed)
    token_lens_N = torch.randint(0, 9, (num_utterances,), generator=random)
    tokens_NU = torch.randint(1, num_tokens, (num_utterances, 8), generator=random)
    needed = [
        CtcTopology().rows_needed(tokens[:length].tolist())
        for tokens, length in zip(tokens_NU, token_lens_N.tolist(), strict=True)
    ]
    lens_N = torch.tensor(needed) + torch.randint(1, 20, (num_utterances,), generator=random)
    logits_NTV = scale * torch.randn(num_utterances, int(lens_N.max()), num_tokens, generator=random)
    return logits_NTV, (lens_N, tokens_NU, token_lens_N)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6), st.sampled_from([3, 60]), st.sampled_from([0.0, 1.0, 5.0]))
def test_loss_and_gradient_are_those_of_torch(seed: int, num_utterances: int, num_tokens: int, scale: float) -> None:
    logits_NTV, texts = make_batch(seed, num_utterances, num_tokens, scale)
    exact_NTV = logits_NTV.double().requires_grad_()
    expected = CTC(exact_NTV.log_softmax(-1), *texts)
    expected.backward()
    logits_NTV.requires_grad_()
    loss = K2_CTC(logits_NTV.log_softmax(-1), *texts)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-4)
    torch.testing.assert_close(logits_NTV.grad, exact_NTV.grad.float(), rtol=1e-3, atol=1e-4)


def test_an_utterance_with_too_few_frames_makes_the_loss_infinite() -> None:
    scores_NTV = torch.zeros(2, 3, 4).log_softmax(-1)
    texts = torch.tensor([3, 3]), torch.tensor([[1, 2], [1, 1]]), torch.tensor([2, 2])
    assert torch.isfinite(K2_CTC(scores_NTV, *texts))
    too_short = torch.tensor([3, 2]), *texts[1:]
    assert torch.isinf(K2_CTC(scores_NTV, *too_short))
