"""How probable it is by CTC that an utterance begins with some tokens (Watanabe et al. 2017, algorithm 2).

Letters in names: T rows, V tokens, B prefixes, K tokens that may follow each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BLANK = 0


class PrefixState(NamedTuple):
    """ln of the paths of some prefixes up to each row, by what they end in."""

    blank_BT: np.ndarray
    spoken_BT: np.ndarray  # the last token

    def take(self, rows: np.ndarray) -> PrefixState:
        """Those of some prefixes."""
        return PrefixState(self.blank_BT[rows], self.spoken_BT[rows])


class PrefixScorer:
    """Of one utterance, by natural logarithms of posteriors (T, V), T at least 1."""

    def __init__(self, log_probs_TV: np.ndarray) -> None:
        self.log_probs_TV = log_probs_TV.astype(np.float64)

    def start(self) -> PrefixState:
        """The empty prefix alone."""
        blank_T = np.cumsum(self.log_probs_TV[:, BLANK])
        return PrefixState(blank_T[None], np.full((1, len(blank_T)), -np.inf))

    def extend(self, state: PrefixState, last_B: np.ndarray, tokens_BK: np.ndarray) -> tuple[np.ndarray, PrefixState]:
        """ln P that the tokens begin with each prefix and one of `tokens_BK` (B, K), and the states of these (B K).

        `last_B` is the last token of each prefix, BLANK of the empty one. Numbers of these states count K first.
        """
        num_rows = len(self.log_probs_TV)
        both_BT = np.logaddexp(state.blank_BT, state.spoken_BT)
        # The same token twice in a row is one token unless a blank is between.
        repeats_BK1 = (tokens_BK == last_B[:, None])[:, :, None]
        ends_BKT = np.where(repeats_BK1, state.blank_BT[:, None], both_BT[:, None])
        before_BKT = np.empty_like(ends_BKT)  # paths of the prefix that end in the row before each
        before_BKT[:, :, 0] = np.where(last_B == BLANK, 0.0, -np.inf)[:, None]
        before_BKT[:, :, 1:] = ends_BKT[:, :, :-1]
        token_BKT = self.log_probs_TV.T[tokens_BK]
        blank_BKT, spoken_BKT = np.empty_like(before_BKT), np.empty_like(before_BKT)
        blank_BK = spoken_BK = np.full(tokens_BK.shape, -np.inf)
        for t in range(num_rows):
            blank_BK, spoken_BK = (
                np.logaddexp(blank_BK, spoken_BK) + self.log_probs_TV[t, BLANK],
                np.logaddexp(spoken_BK, before_BKT[:, :, t]) + token_BKT[:, :, t],
            )
            blank_BKT[:, :, t], spoken_BKT[:, :, t] = blank_BK, spoken_BK
        begins_BK = np.logaddexp.reduce(before_BKT + token_BKT, axis=2)
        flat = (-1, num_rows)
        return begins_BK, PrefixState(blank_BKT.reshape(flat), spoken_BKT.reshape(flat))

    def end(self, state: PrefixState) -> np.ndarray:
        """ln P (B,) that the tokens are each prefix and no more."""
        total_B: np.ndarray = np.logaddexp(state.blank_BT[:, -1], state.spoken_BT[:, -1])
        return total_B
