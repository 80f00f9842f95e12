"""Outputs of a neural language model: hidden rows to next-word probabilities.

Letters in names: N sentences, T positions, C channels, V words, R rows, G groups of words, P pairs of a row and a
word.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from asrtool.models.acoustic import Loss, Objective
from asrtool.settings.models import Adaptive as AdaptiveSettings
from asrtool.settings.models import Softmax as SoftmaxSettings

CHUNK_ROWS, CHUNK_WORDS = 512, 1024  # logits in memory at once, 2 MiB, to stay in a cache


class NextWord(Objective):
    """Cross-entropy of the next word; probabilities of all words sum to 1.

    It is built with its settings and the embedding, whose weights it shares (Press and Wolf, 2017).
    """

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight_VC = embedding.weight
        self.bias_V = nn.Parameter(torch.zeros(embedding.num_embeddings))

    @property
    def words_a_row(self) -> float:
        """Words whose weights take part in a loss of one row."""
        return len(self.bias_V)

    @abstractmethod
    def row_losses(self, rows_RC: Tensor, words_R: Tensor) -> Tensor:
        """Return -ln p of the word after each row, (R,), in float32 nats."""

    @abstractmethod
    def word_scores(self, rows_RC: Tensor, row_P: Tensor, word_P: Tensor) -> Tensor:
        """Return ln p of `word_P` after row `row_P`, (P,), float32.

        Few logits are held at once.
        """

    def fits(self, num_rows: int, targets: Sequence[int]) -> str:
        """Return '' if every position has a next word, else the reason."""
        return "" if num_rows == len(targets) else f"{num_rows} rows, {len(targets)} words"

    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """Return the loss in nats a word, with the ends of sentences."""
        return Loss(self.losses(hidden_NTC, targets_NU, target_lens_N).sum(), int(target_lens_N.sum()))

    def losses(self, hidden_NTC: Tensor, targets_NT: Tensor, target_lens_N: Tensor) -> Tensor:
        """Return -ln p of every sentence with its end, (N,), in nats."""
        position_T = torch.arange(targets_NT.shape[1], device=targets_NT.device)
        is_word_NT = position_T < target_lens_N[:, None]
        losses_R = self.row_losses(hidden_NTC[is_word_NT], targets_NT[is_word_NT])
        return losses_R.new_zeros(is_word_NT.shape).masked_scatter(is_word_NT, losses_R).sum(dim=1)


class Softmax(NextWord):
    """One softmax over all words."""

    def __init__(self, settings: SoftmaxSettings, embedding: nn.Embedding) -> None:
        super().__init__(embedding)

    def scores(self, hidden_NTC: Tensor) -> Tensor:
        """Return ln p of every word after each position, (N, T, V)."""
        return compute_logits(hidden_NTC, self.weight_VC, self.bias_V).log_softmax(dim=-1)

    def row_losses(self, rows_RC: Tensor, words_R: Tensor) -> Tensor:
        """Return the loss of each row, as NextWord.row_losses."""
        return nn.functional.cross_entropy(
            compute_logits(rows_RC, self.weight_VC, self.bias_V), words_R, reduction="none"
        )

    def word_scores(self, rows_RC: Tensor, row_P: Tensor, word_P: Tensor) -> Tensor:
        """Return log probabilities, as NextWord.word_scores."""
        sums_R = log_sums(rows_RC, self.weight_VC, self.bias_V)
        return _logits_of(rows_RC[row_P], self.weight_VC[word_P], self.bias_V[word_P]) - sums_R[row_P]


class Adaptive(NextWord):
    """Softmax over frequent words and groups of rare ones, and one in each group.

    Source: Grave et al., 2017. Words are numbered by frequency, the most frequent 0. ln p of a rare word is ln p of
    its group plus ln p in the group, so a group is computed only if one of its words is needed.
    """

    def __init__(self, settings: AdaptiveSettings, embedding: nn.Embedding) -> None:
        super().__init__(embedding)
        num_words, num_channels = embedding.weight.shape
        cutoffs = [cutoff for cutoff in settings.cutoffs if cutoff < num_words] or [num_words - 1]
        self.num_frequent = cutoffs[0]
        self.groups = list(map(slice, cutoffs, [*cutoffs[1:], num_words]))
        self.group_weight_GC = nn.Parameter(torch.randn(len(cutoffs), num_channels) * num_channels**-0.5)
        self.group_bias_G = nn.Parameter(torch.zeros(len(cutoffs)))

    @property
    def words_a_row(self) -> float:
        """Mean number of words computed a row, if frequencies follow Zipf's law."""
        shares = [math.log(group.stop / group.start) / math.log(len(self.bias_V)) for group in self.groups]
        rare = sum(share * (group.stop - group.start) for share, group in zip(shares, self.groups, strict=True))
        return self.num_frequent + len(self.groups) + rare

    def scores(self, hidden_NTC: Tensor) -> Tensor:
        """Return ln p of every word after each position, (N, T, V)."""
        first = compute_logits(hidden_NTC, *self._first()).log_softmax(dim=-1)
        parts = [first[..., : self.num_frequent]]
        for i, group in enumerate(self.groups):
            within = compute_logits(hidden_NTC, self.weight_VC[group], self.bias_V[group]).log_softmax(dim=-1)
            parts.append(first[..., self.num_frequent + i, None] + within)
        return torch.cat(parts, dim=-1)

    def row_losses(self, rows_RC: Tensor, words_R: Tensor) -> Tensor:
        """Return the loss of each row, as NextWord.row_losses."""
        first_R, group_R = self._find(words_R)
        losses_R = nn.functional.cross_entropy(compute_logits(rows_RC, *self._first()), first_R, reduction="none")
        for i, group in enumerate(self.groups):
            (in_K,) = torch.where(group_R == i)
            logits_KW = compute_logits(rows_RC[in_K], self.weight_VC[group], self.bias_V[group])
            within_K = nn.functional.cross_entropy(logits_KW, words_R[in_K] - group.start, reduction="none")
            losses_R = losses_R.index_add(0, in_K, within_K)
        return losses_R

    def word_scores(self, rows_RC: Tensor, row_P: Tensor, word_P: Tensor) -> Tensor:
        """Return log probabilities, as NextWord.word_scores."""
        weight_FC, bias_F = self._first()
        first_P, group_P = self._find(word_P)
        sums_R = log_sums(rows_RC, weight_FC, bias_F)
        scores_P = _logits_of(rows_RC[row_P], weight_FC[first_P], bias_F[first_P]) - sums_R[row_P]
        for i, group in enumerate(self.groups):
            (in_K,) = torch.where(group_P == i)
            needed, at_K = torch.unique(row_P[in_K], return_inverse=True)
            some_RC, words_K = rows_RC[needed], word_P[in_K]
            sums_K = log_sums(some_RC, self.weight_VC[group], self.bias_V[group])[at_K]
            scores_P[in_K] += _logits_of(some_RC[at_K], self.weight_VC[words_K], self.bias_V[words_K]) - sums_K
        return scores_P

    def _first(self) -> tuple[Tensor, Tensor]:
        """Return weights (F, C), biases (F,) of frequent words, then groups."""
        weight_FC = torch.cat([self.weight_VC[: self.num_frequent], self.group_weight_GC])
        return weight_FC, torch.cat([self.bias_V[: self.num_frequent], self.group_bias_G])

    def _find(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output of the first softmax for each word, and its group or -1."""
        group = torch.full_like(words, -1)
        for each in self.groups:
            group += words >= each.start
        return torch.where(group < 0, words, self.num_frequent + group), group


def compute_logits(rows: Tensor, weight_VC: Tensor, bias_V: Tensor) -> Tensor:
    """Return the logits of all words of `weight_VC` after each row, float32."""
    return nn.functional.linear(rows, weight_VC, bias_V).float()


def _logits_of(rows_PC: Tensor, weight_PC: Tensor, bias_P: Tensor) -> Tensor:
    """Return the logit of one word a row, (P,)."""
    return (rows_PC * weight_PC).sum(dim=1).float() + bias_P


def log_sums(rows_RC: Tensor, weight_VC: Tensor, bias_V: Tensor) -> Tensor:
    """Return ln of the sum of exp of each row's logits, (R,), in pieces."""
    words = list(zip(weight_VC.split(CHUNK_WORDS), bias_V.split(CHUNK_WORDS), strict=True))
    sums = []
    for chunk_RC in rows_RC.split(CHUNK_ROWS):
        parts = [compute_logits(chunk_RC, *some).logsumexp(dim=1) for some in words]
        sums.append(torch.stack(parts).logsumexp(dim=0))
    return torch.cat(sums)
