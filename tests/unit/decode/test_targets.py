"""Frame targets: what an alignment leaves between tokens, and where each utterance of a set has its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asrtool.data.storage.alignment import Alignment, writing_alignment
from asrtool.decode.align.frame_targets import Segmenter, find_segments
from asrtool.errors import AsrtoolError
from asrtool.models.objectives.topology import CtcTopology, Span

runs = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), max_size=5)  # rows before a token, and its own


@given(runs, st.integers(0, 9), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_each_row_is_of_the_nearest_token_within_the_margin_else_silence(
    gaps: list[tuple[int, int]], behind: int, margin: int
) -> None:
    spans: list[Span] = []
    row = 0
    for token, (before, length) in enumerate(gaps, 1):
        spans.append((token, row + before, row + before + length, 0.0))
        row += before + length
    num_rows = max(row + behind, 1)
    segments_S2 = find_segments(spans, num_rows, margin)
    found = np.repeat(segments_S2[:, 0], np.diff([*segments_S2[:, 1], num_rows]))
    assert segments_S2[0, 1] == 0
    assert [token for token in segments_S2[:, 0] if token] == [token for token, _, _, _ in spans]
    for r in range(num_rows):  # the earlier of two that are as near
        distances = [max(begin - r, r - end + 1, 0) for _, begin, end, _ in spans]
        nearest = min(range(len(spans)), key=distances.__getitem__, default=-1)
        expected = spans[nearest][0] if spans and distances[nearest] <= margin else 0
        assert found[r] == expected, (spans, num_rows, margin)


def test_scores_become_tokens_and_the_frames_they_begin_at() -> None:
    path = [0, 0, 0, 0, 0, 1, 0, 0, 2, 2, 0, 0, 0]
    scores_TV = np.log(np.full((13, 4), 0.02, dtype=np.float32))
    scores_TV[np.arange(13), path] = np.log(0.94)
    segmenter = Segmenter(CtcTopology(), margin=2, subsampling=3)
    found = segmenter((scores_TV, [("ab", [1, 2])]))
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [[0, 0], [1, 9], [2, 21], [0, 36]]
    assert segmenter((scores_TV[:1], [("ab", [1, 2])])) == "1 rows, 2 needed"
    assert segmenter((scores_TV, "no tokens")) == "no tokens"
    silence = segmenter((scores_TV, []))
    assert isinstance(silence, np.ndarray)
    assert silence.tolist() == [[0, 0]]


def test_utterances_have_their_own_segments_in_whatever_order_they_came(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    segments = {i: random.integers(0, 2**32, size=(random.integers(1, 9), 2)) for i in (5, 0, 3, 1)}
    with writing_alignment(tmp_path / "set", 7) as add:
        for position, segments_S2 in segments.items():
            add(position, segments_S2)
    alignment = Alignment(tmp_path / "set")
    assert [alignment.lacks(i) for i in range(7)] == [i not in segments for i in range(7)]
    for position, segments_S2 in segments.items():
        np.testing.assert_array_equal(alignment.segments(position), segments_S2)
    file = tmp_path / "set" / "segments.bin"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(AsrtoolError, match=r"segments\.bin: \d+ segments, expected \d+; run `asrtool targets` again"):
        Alignment(tmp_path / "set")
    with pytest.raises(AsrtoolError, match="no alignment of a set"):
        Alignment(tmp_path / "other")
