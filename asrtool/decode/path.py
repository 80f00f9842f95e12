"""CTC paths: lists of one token id a frame, and the spans of tokens that a path holds.

Shapes: T frames, V tokens, U tokens of a sequence; token 0 is the blank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BLANK = 0
# Token, the frames in which a path emits it, begin and end (exclusive), and its highest log posterior there. A plain
# tuple: an utterance has dozens, and named ones take longer to make than all else that words take after the search.
Span = tuple[int, int, int, float]


def greedy_path(log_probs_TV: np.ndarray) -> list[int]:
    """The most probable token of each frame."""
    return list(log_probs_TV.argmax(axis=1).tolist())


def viterbi_path(log_probs_TV: np.ndarray, tokens: Sequence[int]) -> list[int]:
    """The most probable path that spells `tokens`.

    States are blank, token 1, blank, ... token U, blank; from one a path stays, goes on, or skips a blank between two
    different tokens (Graves et al. 2006, section 4.1, with max instead of sum).
    """
    num_frames, num_states = len(log_probs_TV), 2 * len(tokens) + 1
    labels = np.full(num_states, BLANK)
    labels[1::2] = tokens
    skips = np.zeros(num_states, dtype=bool)
    skips[3::2] = labels[3::2] != labels[1:-2:2]
    emit_TS = log_probs_TV[:, labels].astype(np.float64)
    score = np.full(num_states + 2, -np.inf)  # two states of padding in front: score[2 + s] belongs to state s
    score[2] = 0.0
    moves_TS = np.zeros((num_frames, num_states), dtype=np.int8)
    came = np.empty((3, num_states))
    for t in range(num_frames):
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
    assert np.isfinite(score[2 + state]), f"{len(tokens)} tokens do not fit {num_frames} frames"
    return list(labels[_trace(moves_TS, state)].tolist())


def _trace(moves_TS: np.ndarray, state: int) -> np.ndarray:
    states = np.empty(len(moves_TS), dtype=np.int64)
    for t in range(len(moves_TS) - 1, -1, -1):
        states[t] = state
        state -= int(moves_TS[t, state])  # the moves are bytes, too small for a state
    return states


def find_spans(path: Sequence[int], log_probs_TV: np.ndarray) -> list[Span]:
    """The tokens of a path in order: runs of equal ids, blanks left out."""
    # A loop: for the length of an utterance NumPy's calls take twice as long.
    log_prob = log_probs_TV.item
    spans: list[Span] = []
    last, begin, peak = BLANK, 0, 0.0
    for t, token in enumerate(path):
        if token != last:
            if last != BLANK:
                spans.append((last, begin, t, peak))
            last, begin, peak = token, t, log_prob(t, token)
        elif token != BLANK and (score := log_prob(t, token)) > peak:
            peak = score
    if last != BLANK:
        spans.append((last, begin, len(path), peak))
    return spans
