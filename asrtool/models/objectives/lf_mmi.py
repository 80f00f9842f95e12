"""Lattice-free maximum mutual information (Povey et al. 2016).

    -ln P(tokens | features) = ln sum over all sequences of p(features, tokens) - ln p(features, right tokens)

p(features | pdf) is the score of a hybrid model, and P(tokens) an n-gram of the training alignment with silence as a
token. The denominator has all alignments of all sequences; the numerator has the tokens of the utterance's own
alignment, each of which may begin some rows earlier or later. Parameters are the ones of `frame-ce`, whose loss is
added with a small weight.

Forward and backward run over the rows of a batch at once. x(t, s) is the probability of all paths of rows 0 to t that
end in state s. e(t, l) is the exponential of the score of pdf l, and p(r, s) the probability of the arc from r to s.

    y(t, s) = x(t, s) + leak share(s) sum_r x(t, r)
    x(t + 1, s) = e(t + 1, first(s)) sum_r y(t, r) p(r, s) + e(t + 1, further(s)) y(t, s)

The leaky HMM coefficient `leak` lets a path forget its history (section 3.4); after the last row P is the sum of
y(t, s) end(s). Probabilities are divided by their sum after each row, whose logarithms add up, in float64.

Letters in names: N utterances, T rows, C channels of a row, L pdfs, S states of the graph, I tokens of an utterance, U
its targets.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from asrtool.models.acoustic import Loss
from asrtool.models.objectives.decision_tree import Tree
from asrtool.models.objectives.denominator_graph import (
    Chain,
    LeafGraph,
    TokenNgrams,
    chain_of,
    compose,
    estimate_ngrams,
)
from asrtool.models.objectives.frame_ce import FrameCe
from asrtool.settings.models import LfMmi as LfMmiSettings

ORDER = 4  # order of the n-gram over tokens
NO_PATH = -1e30  # ln P; finite, since the difference of two infinities is NaN
TOLERANCE = 2  # rows that a token may begin before or after its position in the alignment


class LfMmi(FrameCe):
    """LF-MMI loss in nats a row; also reports `cross_entropy` and `errors`."""

    def __init__(self, settings: LfMmiSettings, num_channels: int, num_tokens: int, tree: Tree) -> None:
        super().__init__(settings, num_channels, num_tokens, tree)
        self.settings = settings
        self.tree = tree
        self.ngrams: TokenNgrams | None = None  # until `prepare`; a search needs none
        self.graph: LeafGraph | None = None
        self.denominators: dict[torch.device, Denominator] = {}

    def prepare(self, sequences: Iterable[np.ndarray]) -> None:
        """Estimate the n-gram and make the graph of the denominator."""
        settings, num_tokens = self.settings, len(self.tree.leaves_VV2)
        self.ngrams = estimate_ngrams(sequences, num_tokens, ORDER, settings.max_histories)
        self.graph = compose(self.ngrams, self.tree)
        sizes = len(self.ngrams.histories), len(self.graph.first_S), len(self.graph.sources_A)
        logging.info("denominator: %d histories, %d states, %d arcs", *sizes)

    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """Return the LF-MMI loss plus the weighted frame loss; one target a row."""
        by_frames = super().loss(hidden_NTC, lens_N, targets_NU, target_lens_N)
        scores_NTL = self.scores(hidden_NTC)
        chains = [
            chain_of(leaves_U[:num_rows], self.tree)
            for leaves_U, num_rows in zip(targets_NU.cpu().numpy(), lens_N.tolist(), strict=True)
        ]
        numerator_N = chain_log_probs(scores_NTL, lens_N, self._batch(chains, hidden_NTC.shape[1], lens_N.device))
        denominator_N = self._denominator(lens_N.device).log_probs(scores_NTL, lens_N)
        total = (denominator_N - numerator_N).sum() - sum(map(self._log_prior, chains))
        figures = {**by_frames.figures, "cross_entropy": float(by_frames.total.detach())}
        return Loss(total.float() + self.settings.ce_scale * by_frames.total, by_frames.normaliser, figures)

    def _batch(self, chains: Sequence[Chain], num_rows: int, device: torch.device) -> Chains:
        longest = max(len(chain.tokens) for chain in chains)
        row_T = np.arange(num_rows)[:, None]
        leaves_2NI = np.zeros((2, len(chains), longest), dtype=np.int64)
        is_allowed_NTI = np.zeros((len(chains), num_rows, longest), dtype=bool)
        for n, chain in enumerate(chains):
            num = len(chain.tokens)
            leaves_2NI[:, n, :num] = chain.first_I, chain.further_I
            ends_I = np.append(chain.begins_I[1:], num_rows)
            is_allowed_NTI[n, :, :num] = (chain.begins_I - TOLERANCE <= row_T) & (row_T < ends_I + TOLERANCE)
        lens_N = torch.tensor([len(chain.tokens) for chain in chains])
        parts = (torch.from_numpy(leaves_2NI[0]), torch.from_numpy(leaves_2NI[1]), lens_N)
        return Chains(*(part.to(device) for part in (*parts, torch.from_numpy(is_allowed_NTI))))

    def _log_prior(self, chain: Chain) -> float:
        """Return ln P(tokens); tokens that training lacks cost a leak."""
        assert self.ngrams is not None, "prepare() comes before the first loss"
        return math.fsum(self.ngrams.log_probs(chain.tokens, math.log(self.settings.leak)))

    def _denominator(self, device: torch.device) -> Denominator:
        """Return the graph on `device`, copied there once."""
        assert self.graph is not None, "prepare() comes before the first loss"
        if device not in self.denominators:
            self.denominators[device] = Denominator(self.graph, self.tree.num_leaves, self.settings.leak, device)
        return self.denominators[device]


class Denominator:
    """Denominator graph on a device, as sparse matrices in rows."""

    def __init__(self, graph: LeafGraph, num_leaves: int, leak: float, device: torch.device) -> None:
        """Take `leak`, the probability of a leak after a row, relative to 1 for none."""
        num_states = len(graph.first_S)
        states_S = np.arange(num_states)
        ones_S = np.ones(num_states)

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(values).to(device)

        def matrix(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, num_rows: int) -> Tensor:
            return _sparse(rows, columns, values, (num_rows, num_states)).to(device)

        self.leak = leak
        self.first_S, self.further_S = tensor(graph.first_S), tensor(graph.further_S)
        self.begin_S1 = tensor(graph.begin_S)[:, None]
        self.end_S1 = tensor(graph.end_S + leak * (graph.share_S @ graph.end_S))[:, None]  # with the last leak
        self.share_S1 = tensor(graph.share_S)[:, None]
        self.arrive_SS = matrix(graph.targets_A, graph.sources_A, graph.probs_A, num_states)
        self.leave_SS = matrix(graph.sources_A, graph.targets_A, graph.probs_A, num_states)
        self.of_first_LS = matrix(graph.first_S, states_S, ones_S, num_leaves)
        self.of_further_LS = matrix(graph.further_S, states_S, ones_S, num_leaves)

    def __deepcopy__(self, memo: dict[int, Any]) -> Denominator:
        """Return itself: it is constant, and torch cannot copy such matrices."""
        return self

    def log_probs(self, scores_NTL: Tensor, lens_N: Tensor) -> Tensor:
        """Return ln P of each utterance (N,), float64, by pdf scores.

        The first `lens_N` rows count.
        """
        found: Tensor = _Paths.apply(scores_NTL, lens_N, self)
        return found

    def emit(self, scores_NL: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return e of first and further pdfs (S, N) of a row, and the ln of the scale.

        Both are divided by e of the best pdf.
        """
        best_N = scores_NL.max(dim=1).values.double()
        emit_LN = (scores_NL.double() - best_N[:, None]).exp().t().contiguous()
        return emit_LN[self.first_S], emit_LN[self.further_S], best_N

    def leaked(self, reached_SN: Tensor) -> Tensor:
        """Return the probabilities of states after leaks, (S, N)."""
        return reached_SN + self.leak * self.share_S1 * reached_SN.sum(dim=0)


class _Paths(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores_NTL: Tensor, lens_N: Tensor, graph: Denominator) -> Tensor:
        rows: list[Tensor] = []
        log_sums_N = scale_N = torch.zeros(len(lens_N), dtype=torch.float64, device=lens_N.device)
        for t in range(scores_NTL.shape[1]):
            first_SN, further_SN, best_N = graph.emit(scores_NTL[:, t])
            if t == 0:
                reached_SN = graph.begin_S1 * first_SN
            else:
                leaked_SN = graph.leaked(rows[-1])
                reached_SN = first_SN * (graph.arrive_SS @ leaked_SN) + further_SN * leaked_SN
            sum_N = reached_SN.sum(dim=0)
            rows.append(reached_SN / sum_N)
            scale_N = scale_N + best_N + sum_N.log()
            at_end_N = scale_N + (graph.end_S1 * rows[-1]).sum(dim=0).log()
            log_sums_N = torch.where(lens_N == t + 1, at_end_N, log_sums_N)
        ctx.graph = graph
        ctx.save_for_backward(scores_NTL, lens_N, *rows)
        return log_sums_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the posterior probability of each pdf in each row as the gradient."""
        graph: Denominator = ctx.graph
        scores_NTL, lens_N, *rows = ctx.saved_tensors
        grad_NTL = torch.zeros_like(scores_NTL)
        ahead_SN = torch.zeros_like(rows[0])  # all paths of later rows, but for a factor
        for t in reversed(range(len(rows))):
            ahead_SN = torch.where(lens_N == t + 1, graph.end_S1, ahead_SN)
            first_SN, further_SN, _ = graph.emit(scores_NTL[:, t])
            arriving_SN, staying_SN = first_SN * ahead_SN, further_SN * ahead_SN
            if t == 0:
                by_leaf_LN = graph.of_first_LS @ (graph.begin_S1 * arriving_SN)
            else:
                leaked_SN = graph.leaked(rows[t - 1])
                begun_SN = (graph.arrive_SS @ leaked_SN) * arriving_SN
                by_leaf_LN = graph.of_first_LS @ begun_SN + graph.of_further_LS @ (leaked_SN * staying_SN)
                ahead_SN = graph.leave_SS @ arriving_SN + staying_SN
                ahead_SN = ahead_SN + graph.leak * (graph.share_S1 * ahead_SN).sum(dim=0)
                ahead_SN = ahead_SN / ahead_SN.sum(dim=0).clamp(min=torch.finfo(torch.float64).tiny)
            total_N = by_leaf_LN.sum(dim=0)
            posteriors_NL = torch.where(t < lens_N, by_leaf_LN / total_N, torch.zeros_like(total_N)).t()
            grad_NTL[:, t] = (grads[0][:, None] * posteriors_NL).to(grad_NTL.dtype)
        return grad_NTL, None, None


def _sparse(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, size: tuple[int, int]) -> Tensor:
    """Return distinct entries as a float64 matrix in compressed rows."""
    order = np.lexsort((columns, rows))
    begins = np.searchsorted(rows[order], np.arange(size[0] + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings that such tensors are new, and not checked
        crow, col, val = map(torch.from_numpy, (begins, columns[order], values[order]))
        return torch.sparse_csr_tensor(crow, col, val, size, dtype=torch.float64)


@dataclass(frozen=True)
class Chains:
    """The tokens of a batch of utterances in their order, with their leaves, padded."""

    first_NI: Tensor
    further_NI: Tensor
    lens_N: Tensor
    is_allowed_NTI: Tensor  # True if the token may be in the row


def chain_log_probs(scores_NTL: Tensor, lens_N: Tensor, chains: Chains) -> Tensor:
    """Return ln P (N,), float64, of the token chain of each utterance."""
    num_rows = scores_NTL.shape[1]
    first_NTI, further_NTI = (
        scores_NTL.gather(2, leaves_NI[:, None].expand(-1, num_rows, -1)).double()
        for leaves_NI in (chains.first_NI, chains.further_NI)
    )
    last_N1 = (chains.lens_N - 1)[:, None]
    reached_NI = pad(first_NTI[:, 0, :1], (0, first_NTI.shape[2] - 1), value=NO_PATH)
    log_sums_N = reached_NI.gather(1, last_N1)[:, 0]
    for t in range(1, num_rows):
        arriving_NI = pad(reached_NI[:, :-1], (1, 0), value=NO_PATH) + first_NTI[:, t]
        reached_NI = torch.logaddexp(arriving_NI, reached_NI + further_NTI[:, t])
        reached_NI = reached_NI.masked_fill(~chains.is_allowed_NTI[:, t], NO_PATH)
        log_sums_N = torch.where(lens_N == t + 1, reached_NI.gather(1, last_N1)[:, 0], log_sums_N)
    return log_sums_N
