"""Topologies: maps from rows of scores to tokens, for search and alignment.

- CTC: equal tokens in a row are one unless a blank is between (map B of Graves et al. 2006, section 3.1). Column i of
  the scores is token i, and column 0 is the blank.
- Hybrid model: column i is pdf i of the decision tree. Silence is optional around tokens, also between two tokens of a
  word, as a blank of CTC is. It is a left context like any other.

Needs no torch. A path is a list of one column a row. Letters in names: T or R rows, V columns of the scores, L pdfs, X
states of an alignment, U tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.models.objectives.decision_tree import FIRST, SILENCE, Tree
from asrtool.settings import registry
from asrtool.settings.schema import Choice

# Token, the rows in which a path emits it, begin and end (exclusive), and its highest score there. A plain tuple: an
# utterance has dozens, and named ones take longer to make than all else that words take after the search.
Span = tuple[int, int, int, float]
BLANK = 0  # column of CTC
NONE = -1  # no state of an alignment


class Topology(ABC):
    """Interface of topologies; settings name one as `topology`.

    It is built without arguments, or with a decision tree and the scale of priors if the objective `uses_tree`.
    Scores are natural logarithms, higher is better.
    """

    margin_s: ClassVar[float] = 0.1  # tokens reach so far beyond their spans; CTC emits one for a moment

    def best_path(self, scores_TV: np.ndarray) -> list[int]:
        """Return the best column of each row."""
        return list(scores_TV.argmax(axis=1).tolist())

    @abstractmethod
    def align(self, scores_TV: np.ndarray, tokens: Sequence[int]) -> list[int]:
        """Return the best path of `tokens`, which must fit the rows."""

    @abstractmethod
    def spans(self, path: Sequence[int], scores_TV: np.ndarray) -> list[Span]:
        """Return the tokens of a path, in order."""

    @abstractmethod
    def rows_needed(self, tokens: Sequence[int]) -> int:
        """Return the rows of the shortest path of `tokens`."""

    @abstractmethod
    def transducer(self, tokens: Sequence[int]) -> str:
        """Return H of a decoding graph as OpenFst text: columns of rows to `tokens`.

        Input label i + 1 reads column i, output label i + 1 is token i, and 0 is epsilon; state 0 is the start.
        """


def uses_tree(objective: Choice) -> bool:
    """Return whether rows of scores are pdfs of a decision tree, not tokens."""
    return bool(getattr(objective.settings, "uses_tree", False))


def load_topology(objective: Choice, tree: Tree | None = None) -> Topology:
    """Return the topology of `objective`, with the `tree` if it uses one.

    Raises AsrtoolError if it has none, or if it cannot be loaded.
    """
    path = getattr(objective.settings, "topology", "")
    if not path:
        raise AsrtoolError(
            f"model.objective = {objective.name} names no topology, which says how rows of its scores stand for tokens",
            "choose another objective, or give its settings a `topology`, see docs/guide/extending.md",
        )
    kind = registry.load("topology", path)
    topology: Topology = kind(tree, objective.settings.prior_scale) if uses_tree(objective) else kind()
    return topology


class CtcTopology(Topology):
    """Topology of scores that are log posteriors of tokens and of a blank."""

    blank = BLANK

    def align(self, scores_TV: np.ndarray, tokens: Sequence[int]) -> list[int]:
        """Return the most probable path of `tokens`.

        States are blank, token 1, blank, ... token U, blank; from one a path stays, advances, or skips a blank between
        two different tokens (Graves et al. 2006, section 4.1, with max instead of sum).
        """
        num_rows, num_states = len(scores_TV), 2 * len(tokens) + 1
        labels = np.full(num_states, BLANK)
        labels[1::2] = tokens
        skip_cost = np.full(num_states, -np.inf)
        skip_cost[3::2][labels[3::2] != labels[1:-2:2]] = 0.0
        score_TS = np.full((num_rows + 1, num_states + 2), -np.inf)  # column 2 + s is state s
        score_TS[0, 2] = 0.0
        score_TS[1:, 2:] = scores_TV[:, labels]
        best = np.empty(num_states)
        for before, after in zip(score_TS[:-1], score_TS[1:, 2:], strict=True):
            np.add(before[:-2], skip_cost, out=best)
            np.maximum(best, before[1:-1], out=best)
            np.maximum(best, before[2:], out=best)
            after += best
        score_of = score_TS.item
        state = num_states - 1
        if num_states > 1 and score_of(num_rows, 2 + state - 1) > score_of(num_rows, 2 + state):
            state -= 1
        assert np.isfinite(score_of(num_rows, 2 + state)), f"{len(tokens)} tokens do not fit {num_rows} rows"
        label_of, skip_cost_of = labels.tolist(), skip_cost.tolist()
        path = []
        for t in range(num_rows - 1, -1, -1):
            path.append(label_of[state])
            stay, advance = score_of(t, 2 + state), score_of(t, 1 + state)
            skip = score_of(t, state) + skip_cost_of[state]
            if skip > max(stay, advance):
                state -= 2
            elif advance > stay:
                state -= 1
        return path[::-1]

    def spans(self, path: Sequence[int], scores_TV: np.ndarray) -> list[Span]:
        """Return runs of equal tokens, blanks left out."""
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
        """Return one row a token, and one for a blank between equal neighbours."""
        return len(tokens) + sum(one == two for one, two in pairwise(tokens))

    def transducer(self, tokens: Sequence[int]) -> str:
        """Return H: state 0 has read no token, state i + 1 has read tokens[i]."""
        blank, labels = BLANK + 1, [token + 1 for token in tokens]
        lines = [f"0 0 {blank} 0"]
        lines += [f"0 {state} {label} {label}" for state, label in enumerate(labels, 1)]
        for state, label in enumerate(labels, 1):
            lines.append(f"{state} 0 {blank} 0")
            lines.append(f"{state} {state} {label} 0")
            lines += [f"{state} {to} {other} {other}" for to, other in enumerate(labels, 1) if to != state]
        return "\n".join([*lines, *map(str, range(len(labels) + 1))]) + "\n"


class LeafTopology(Topology):
    """Topology of `frame-ce`: scores are log posteriors minus scaled log priors."""

    margin_s = 0.0

    def __init__(self, tree: Tree, prior_scale: float) -> None:
        self.tree = tree
        self.scaled_priors_L = (prior_scale * tree.log_priors_L).tolist()

    def align(self, scores_TV: np.ndarray, tokens: Sequence[int]) -> list[int]:
        """Return the best path of `tokens`, by Viterbi over the states of `_chain`."""
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
        tokens_L, positions_L = self.tree.tokens_L, self.tree.positions_L
        spans: list[Span] = []
        last = SILENCE
        for r, leaf in enumerate(path):
            token = int(tokens_L[leaf])
            score = float(scores_TV[r, leaf]) + self.scaled_priors_L[leaf]
            if token != SILENCE and (positions_L[leaf] == FIRST or token != last):
                spans.append((token, r, r + 1, score))
            elif token != SILENCE:
                _, begin, _, peak = spans[-1]
                spans[-1] = (token, begin, r + 1, max(peak, score))
            last = token
        return spans

    def rows_needed(self, tokens: Sequence[int]) -> int:
        """Return one row a token."""
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
