"""Hybrid model (Bourlard and Morgan 1994): a classifier of frames.

A search needs p(features | pdf), the posterior divided by the prior up to a common factor. Priors are relative
frequencies in the targets; the tree in the model file has their counts.

Letters in names: N utterances, T rows, C channels of a row, U targets of an utterance, L pdfs.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from asrtool.models.acoustic import Loss, Objective
from asrtool.models.objectives.decision_tree import Tree
from asrtool.models.objectives.targets import Targets
from asrtool.settings.models import Hybrid


class FrameCe(Objective):
    """-ln P(pdf | features) summed over rows; scores subtract scaled log priors."""

    targets = "leaves"

    def __init__(self, settings: Hybrid, num_channels: int, num_tokens: int, tree: Tree) -> None:
        super().__init__()
        self.output = nn.Linear(num_channels, tree.num_leaves)
        self.scaled_priors_L = settings.prior_scale * torch.from_numpy(tree.log_priors_L)

    def rows_needed(self, targets: Targets) -> np.ndarray:
        """Return zeros: unaligned utterances were left out before."""
        return np.zeros(len(targets), np.int64)

    def counts(self, num_rows_N: np.ndarray, num_targets_N: np.ndarray) -> np.ndarray:
        """Return the numbers of rows."""
        return num_rows_N

    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """Return the loss in nats a row, with a target for each row.

        `errors` counts rows with a wrong best pdf.
        """
        row_T = torch.arange(hidden_NTC.shape[1], device=lens_N.device)
        is_row_NT = row_T < lens_N[:, None]
        logits_RL = self.output(hidden_NTC[is_row_NT]).float()
        targets_R = targets_NU[is_row_NT[:, : targets_NU.shape[1]]]
        total = nn.functional.cross_entropy(logits_RL, targets_R, reduction="sum")
        errors = float((logits_RL.argmax(dim=1) != targets_R).sum())
        return Loss(total, len(targets_R), {"errors": errors})

    def scores(self, hidden_NTC: Tensor) -> Tensor:
        """Return scores (N, T, L)."""
        log_posteriors_NTL = self.output(hidden_NTC).float().log_softmax(dim=-1)
        return log_posteriors_NTL - self.scaled_priors_L.to(log_posteriors_NTL.device)
