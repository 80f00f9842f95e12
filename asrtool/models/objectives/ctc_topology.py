"""CTC paths: equal tokens in a row are one unless a blank is between.

This is the map B of Graves et al. 2006, section 3.1. Column i of the scores is token i, and column 0 is the blank.
Shapes: T rows, V tokens, U tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from asrtool.models.objectives.topology import Span, Topology

BLANK = 0


class CtcTopology(Topology):
    """Topology of scores that are log posteriors of tokens and of a blank."""

    blank = BLANK

    def align(self, scores_TV: np.ndarray, tokens: Sequence[int]) -> list[int]:
        """The most probable path of `tokens`.

        States are blank, token 1, blank, ... token U, blank; from one a path stays, advances, or skips a blank between
        two different tokens (Graves et al. 2006, section 4.1, with max instead of sum).
        """
        num_rows, num_states = len(scores_TV), 2 * len(tokens) + 1
        labels = np.full(num_states, BLANK)
        labels[1::2] = tokens
        skips = np.zeros(num_states, dtype=bool)
        skips[3::2] = labels[3::2] != labels[1:-2:2]
        emit_TS = scores_TV[:, labels].astype(np.float64)
        score = np.full(num_states + 2, -np.inf)  # two states of padding in front: score[2 + s] belongs to state s
        score[2] = 0.0
        moves_TS = np.zeros((num_rows, num_states), dtype=np.int8)
        came = np.empty((3, num_states))
        for t in range(num_rows):
            came[0] = score[2:]
            came[1] = score[1:-1]
            came[2] = np.where(skips, score[:-2], -np.inf)
            if t == 0:
                came[2] = -np.inf
            moves_TS[t] = came.argmax(axis=0)
            score[2:] = came.max(axis=0) + emit_TS[t]
        state = num_states - 1
        if num_states > 1 and score[2 + state - 1] > score[2 + state]:
            state -= 1
        assert np.isfinite(score[2 + state]), f"{len(tokens)} tokens do not fit {num_rows} rows"
        return list(labels[_trace(moves_TS, state)].tolist())

    def spans(self, path: Sequence[int], scores_TV: np.ndarray) -> list[Span]:
        """Runs of equal tokens, blanks left out."""
        # A loop: for the length of an utterance NumPy's calls take twice as long.
        score_of = scores_TV.item
        spans: list[Span] = []
        last, begin, peak = BLANK, 0, 0.0
        for t, token in enumerate(path):
            if token != last:
                if last != BLANK:
                    spans.append((last, begin, t, peak))
                last, begin, peak = token, t, score_of(t, token)
            elif token != BLANK and (score := score_of(t, token)) > peak:
                peak = score
        if last != BLANK:
            spans.append((last, begin, len(path), peak))
        return spans

    def rows_needed(self, tokens: Sequence[int]) -> int:
        """One a token, and a blank between equal neighbours."""
        return len(tokens) + sum(one == two for one, two in pairwise(tokens))

    def transducer(self, tokens: Sequence[int]) -> str:
        """State 0 has read a blank or nothing, state i + 1 has read tokens[i]."""
        blank, labels = BLANK + 1, [token + 1 for token in tokens]
        lines = [f"0 0 {blank} 0"]
        lines += [f"0 {state} {label} {label}" for state, label in enumerate(labels, 1)]
        for state, label in enumerate(labels, 1):
            lines.append(f"{state} 0 {blank} 0")
            lines.append(f"{state} {state} {label} 0")
            lines += [f"{state} {to} {other} {other}" for to, other in enumerate(labels, 1) if to != state]
        return "\n".join([*lines, *map(str, range(len(labels) + 1))]) + "\n"


def _trace(moves_TS: np.ndarray, state: int) -> np.ndarray:
    states = np.empty(len(moves_TS), dtype=np.int64)
    for t in range(len(moves_TS) - 1, -1, -1):
        states[t] = state
        state -= int(moves_TS[t, state])  # the moves are bytes, too small for a state
    return states
