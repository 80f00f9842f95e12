"""Connectionist temporal classification (Graves et al., 2006), by torch.

topology.py has the paths. With `consistency` each utterance is trained on twice with other masks, and the
posteriors of each copy are drawn towards the other's (CR-CTC: Yao et al., 2024, arXiv 2410.05101, equations 3 and 4).

Letters in names: N utterances, T rows, C channels of a row, U tokens of an utterance, V tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from asrtool.models.acoustic import Loss, Objective
from asrtool.models.objectives.targets import Targets
from asrtool.models.objectives.topology import BLANK
from asrtool.score.result import edit_distance
from asrtool.settings.models import Ctc as CtcSettings


class Ctc(Objective):
    """-ln P(tokens | features), summed over paths; scores are log posteriors."""

    def __init__(self, settings: CtcSettings, num_channels: int, num_tokens: int) -> None:
        super().__init__()
        self.consistency: float = getattr(settings, "consistency", 0.0)  # a custom objective may have no settings
        self.views = 2 if self.consistency else 1
        self.output = nn.Linear(num_channels, num_tokens)

    def rows_needed(self, targets: Targets) -> np.ndarray:
        """Return the rows of the shortest path; with fewer the loss would be infinite."""
        return np.maximum(targets.lens + targets.repeats(), 1)

    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """Return the loss in nats a token, of utterances that fit.

        Not in training, as it would take time in every step, `errors` counts wrong tokens of the best paths, and
        `word_errors` wrong words, with the `words` of the targets.
        """
        scores_TNV = self.scores(hidden_NTC).transpose(0, 1)
        total = nn.functional.ctc_loss(scores_TNV, targets_NU, lens_N, target_lens_N, blank=BLANK, reduction="sum")
        figures: dict[str, float] = {}
        if not self.training:
            pairs = list(best_paths(scores_TNV, lens_N, targets_NU, target_lens_N))
            figures["errors"] = count_differences(pairs)
            if self.spellings:
                words = [tuple("".join(self.spellings[token] for token in of).split() for of in pair) for pair in pairs]
                figures |= {"word_errors": count_differences(words), "words": float(sum(len(ref) for ref, _ in words))}
        return Loss(total, int(target_lens_N.sum()), figures)

    def loss_of_views(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """Return the mean loss of both copies plus `consistency` times their divergence."""
        losses = [self.loss(view_NTC, lens_N, targets_NU, target_lens_N) for view_NTC in hidden_NTC.chunk(2)]
        divergence = divergence_of_views(self.scores(hidden_NTC), lens_N)
        total = (losses[0].total + losses[1].total) / 2 + self.consistency * divergence
        figures = {name: sum(loss.figures[name] for loss in losses) / 2 for name in losses[0].figures}
        return Loss(total, losses[0].normaliser, {**figures, "consistency": float(divergence.detach())})

    def scores(self, hidden_NTC: Tensor) -> Tensor:
        """Return natural logarithms of the posteriors of tokens, (N, T, V)."""
        logits_TNV = self.output(hidden_NTC.transpose(0, 1))  # the layout of torch's loss, and of LSTM outputs
        return logits_TNV.float().log_softmax(dim=-1).transpose(0, 1)


def best_paths(
    scores_TNV: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the target tokens and the tokens of the best path of each utterance."""
    lens, targets = zip(lens_N.tolist(), target_lens_N.tolist(), strict=True), targets_NU.tolist()
    for path, wanted, (num_rows, num) in zip(scores_TNV.argmax(dim=2).T.tolist(), targets, lens, strict=True):
        yield wanted[:num], [token for token, _ in itertools.groupby(path[:num_rows]) if token != BLANK]


def count_differences(pairs: Iterable[Sequence[Sequence[Hashable]]]) -> float:
    """Return the summed edit distance of pairs of sequences."""
    total = 0
    for pair in pairs:
        numbers: dict[Hashable, int] = {}
        total += edit_distance(*("".join(chr(numbers.setdefault(one, len(numbers))) for one in of) for of in pair))
    return float(total)


def divergence_of_views(scores_NTV: Tensor, lens_N: Tensor) -> Tensor:
    """Return the divergence of posteriors of two views, in nats, summed over rows.

    The second views come after the first. It is half of D(second || first) + D(first || second); the first argument
    is a target without gradient.
    """
    first_NTV, second_NTV = scores_NTV.chunk(2)
    is_row_NT = torch.arange(scores_NTV.shape[1], device=lens_N.device) < lens_N[:, None]
    both_NT = _divergence(second_NTV.detach(), first_NTV) + _divergence(first_NTV.detach(), second_NTV)
    return (both_NT * is_row_NT).sum() / 2


def _divergence(of_NTV: Tensor, from_NTV: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of each row."""
    return nn.functional.kl_div(from_NTV, of_NTV, reduction="none", log_target=True).sum(dim=-1)
