"""CTC paths and the spans in them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from asrtool.decode.path import find_spans, greedy_path, viterbi_path


def log_of(rows: list[list[float]]) -> np.ndarray:
    return np.log(np.array(rows, dtype=np.float32))


def test_greedy_takes_the_best_token_of_each_frame_and_spans_join_runs_but_not_across_a_blank() -> None:
    log_probs_TV = log_of(
        [[0.1, 0.7, 0.2], [0.2, 0.6, 0.2], [0.8, 0.1, 0.1], [0.3, 0.5, 0.2], [0.1, 0.1, 0.8], [0.9, 0.05, 0.05]]
    )
    path = greedy_path(log_probs_TV)
    assert path == [1, 1, 0, 1, 2, 0]
    spans = find_spans(path, log_probs_TV)
    assert [span[:3] for span in spans] == [(1, 0, 2), (1, 3, 4), (2, 4, 5)]
    assert [math.exp(peak) for *_, peak in spans] == pytest.approx([0.7, 0.5, 0.8], rel=1e-5)


def test_no_frames_hold_no_spans() -> None:
    empty_TV = np.zeros((0, 3), dtype=np.float32)
    assert find_spans(greedy_path(empty_TV), empty_TV) == []


def test_only_blanks_spell_nothing() -> None:
    log_probs_TV = log_of([[0.9, 0.1], [0.8, 0.2]])
    assert find_spans(viterbi_path(log_probs_TV, ()), log_probs_TV) == []


def test_a_token_twice_in_a_row_keeps_a_blank_between() -> None:
    log_probs_TV = log_of([[0.01, 0.99], [0.01, 0.99], [0.01, 0.99]])
    assert viterbi_path(log_probs_TV, (1, 1)) == [1, 0, 1]
    assert find_spans([1, 0, 1], log_probs_TV)[1] == (1, 2, 3, pytest.approx(math.log(0.99), rel=1e-4))


def test_more_tokens_than_frames_is_an_assertion() -> None:
    with pytest.raises(AssertionError, match="3 tokens do not fit 2 frames"):
        viterbi_path(log_of([[0.5, 0.5], [0.5, 0.5]]), (1, 1, 1))
