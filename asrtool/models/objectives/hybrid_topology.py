"""Paths of a hybrid model: rows are pdfs; silence is optional around tokens.

Silence may also be between two tokens of a word, as a blank of CTC may. It is a left context like any other.
decision_tree.py defines pdfs; column i of the scores is pdf i.

Letters in names: R rows, L pdfs, X states of an alignment, U tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asrtool.models.objectives.decision_tree import FIRST, SILENCE, Tree
from asrtool.models.objectives.topology import Span, Topology

NONE = -1  # no state


class LeafTopology(Topology):
    """Topology of `frame-ce`: scores are log posteriors minus scaled log priors."""

    margin_s = 0.0

    def __init__(self, tree: Tree, prior_scale: float) -> None:
        self.tree = tree
        self.scaled_priors_L = (prior_scale * tree.log_priors_L).tolist()

    def align(self, scores_TV: np.ndarray, tokens: Sequence[int]) -> list[int]:
        """The best path of `tokens`, by Viterbi over the states of `_chain`."""
        leaves_X, before_X5, begins, ends = self._chain(tokens)
        emit_RX = scores_TV[:, leaves_X].astype(np.float64)
        score = np.full(len(leaves_X) + 1, -np.inf)  # the last one is that of NONE
        moves_RX = np.zeros(emit_RX.shape, dtype=np.int8)
        for r, emit_X in enumerate(emit_RX):
            if r == 0:
                score[begins] = emit_X[begins]
                continue
            came_X5 = score[before_X5]
            moves_RX[r] = came_X5.argmax(axis=1)
            score[:-1] = came_X5.max(axis=1) + emit_X
        state = max(ends, key=lambda end: score[end])
        assert np.isfinite(score[state]), f"{len(tokens)} tokens do not fit {len(scores_TV)} rows"
        path = []
        for r in range(len(scores_TV) - 1, -1, -1):
            path.append(int(leaves_X[state]))
            state = int(before_X5[state, moves_RX[r, state]])
        return path[::-1]

    def _chain(self, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray, list[int], list[int]]:
        """Return state pdfs (X,), predecessors (X, 5), first and last states.

        Token i has states 5 i and on: silence before it, first and further rows after silence, and these two after
        the previous token. A last state is the silence at the end.
        """
        leaves: list[int] = []
        before: list[list[int]] = []
        for i, token in enumerate(tokens):
            state = 5 * i
            spoken = [state - 4, state - 3, state - 2, state - 1] if i else []
            behind_silence = self.tree.leaves_VV2[SILENCE, token]
            behind_token = self.tree.leaves_VV2[tokens[i - 1] if i else SILENCE, token]
            leaves += [SILENCE, *behind_silence, *behind_token]
            before += [[state, *spoken], [state], [state + 1, state + 2], spoken or [NONE], [state + 3, state + 4]]
        end = 5 * len(tokens)
        spoken = [end - 4, end - 3, end - 2, end - 1] if tokens else []
        before_X5 = np.array([row + [NONE] * (5 - len(row)) for row in [*before, [end, *spoken]]])
        return np.array([*leaves, SILENCE]), before_X5, [0, 1] if tokens else [0], [end, *spoken]

    def spans(self, path: Sequence[int], scores_TV: np.ndarray) -> list[Span]:
        """Return the tokens of a path with their rows and highest log posterior."""
        tokens_L, places_L = self.tree.tokens_L, self.tree.places_L
        spans: list[Span] = []
        last = SILENCE
        for r, leaf in enumerate(path):
            token = int(tokens_L[leaf])
            score = float(scores_TV[r, leaf]) + self.scaled_priors_L[leaf]
            if token != SILENCE and (places_L[leaf] == FIRST or token != last):
                spans.append((token, r, r + 1, score))
            elif token != SILENCE:
                _, begin, _, peak = spans[-1]
                spans[-1] = (token, begin, r + 1, max(peak, score))
            last = token
        return spans

    def rows_needed(self, tokens: Sequence[int]) -> int:
        """One a token."""
        return len(tokens)

    def transducer(self, tokens: Sequence[int]) -> str:
        """Return H and the context in one automaton.

        State 0 has read silence or nothing, each other one a token by its two pdfs.
        """
        pairs = {(token, *self._pair(left, token)) for token in tokens for left in (SILENCE, *tokens)}
        states = {key: number for number, key in enumerate(sorted(pairs), 1)}
        lines = [f"0 0 {SILENCE + 1} 0"]
        for left, state, further in [(SILENCE, 0, NONE), *((key[0], number, key[2]) for key, number in states.items())]:
            for token in tokens:
                first, other = self._pair(left, token)
                lines.append(f"{state} {states[token, first, other]} {first + 1} {token + 1}")
            if state:
                lines += [f"{state} {state} {further + 1} 0", f"{state} 0 {SILENCE + 1} 0"]
        return "\n".join([*lines, *map(str, range(len(states) + 1))]) + "\n"

    def _pair(self, left: int, token: int) -> tuple[int, int]:
        first, further = self.tree.leaves_VV2[left, token].tolist()
        return first, further
