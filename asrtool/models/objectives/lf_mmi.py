"""Lattice-free maximum mutual information (Povey et al. 2016).

    -ln P(tokens | features) = ln sum over all sequences of p(features, tokens) - ln p(features, right tokens)

p(features | pdf) is the score of a hybrid model, and P(tokens) an n-gram of the training alignment with silence as a
token. The denominator has all alignments of all sequences; the numerator has the tokens of the utterance's own
alignment, each of which may begin some rows earlier or later. Parameters are the ones of `frame-ce`, whose loss is
added with a small weight.

Letters in names: N utterances, T rows, C channels of a row, L pdfs, I tokens of an utterance, U its targets.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from asrtool.models.acoustic import Loss
from asrtool.models.objectives.decision_tree import Tree
from asrtool.models.objectives.denominator_graph import Chain, LeafGraph, chain_of, compose
from asrtool.models.objectives.frame_ce import FrameCe
from asrtool.models.objectives.graph_loss import Chains, Denominator, chain_log_probs
from asrtool.models.objectives.token_ngrams import TokenNgrams, estimate_ngrams
from asrtool.settings.models import LfMmi as LfMmiSettings

ORDER = 4  # of the n-gram over tokens
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
        """The graph on `device`, brought there once."""
        assert self.graph is not None, "prepare() comes before the first loss"
        if device not in self.denominators:
            self.denominators[device] = Denominator(self.graph, self.tree.num_leaves, self.settings.leak, device)
        return self.denominators[device]
