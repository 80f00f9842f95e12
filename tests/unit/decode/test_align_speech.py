"""Forced alignment by brute force over all paths, and the frame targets made of it."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lhotse import SupervisionSet, validate
from made_up import acoustic_of

from asrtool.data.storage.alignment import Alignment, writing_alignment
from asrtool.data.storage.index import Utterance
from asrtool.decode.acoustic_model import Scored
from asrtool.decode.align import align
from asrtool.decode.align.align import Aligned, align_run, align_utterance
from asrtool.decode.align.frame_targets import align_segments, find_segments
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer, train_tokenizer
from asrtool.models.objectives.topology import CtcTopology, Span
from asrtool.settings.config import Decode

PIECES = ("<blk>", "\u2581a", "b", "[noise]")
TOKENS = {"a": [1], "ab": [1, 2], "abb": [1, 2, 2], "[noise]": [3]}
FRAME_S = 0.03


def test_a_word_holds_its_tokens_and_a_tag_takes_its_time_without_being_written() -> None:
    path = [0, 1, 0, 2, 0, 2, 3, 3, 0, 1]
    scores_TV = np.log(np.full((10, 4), 0.02, dtype=np.float32))
    scores_TV[np.arange(10), path] = math.log(0.94)
    tokenized = [(word, TOKENS[word]) for word in ("abb", "[noise]", "a")]
    result = align_utterance(CtcTopology(), PIECES, 1.0, (scores_TV, tokenized))  # rows of a second, beyond the margin
    assert isinstance(result, Aligned)
    assert [(word.text, word.begin_s, word.end_s) for word in result.words] == [
        ("abb", pytest.approx(0.9), pytest.approx(6.1)),
        ("a", pytest.approx(8.9), 10.0),
    ]
    assert [(word.text, word.begin_s) for word in result.tokens] == [("\u2581a", 1), ("b", 3), ("b", 5), ("\u2581a", 9)]
    assert [word.confidence for word in result.tokens] == pytest.approx([0.94] * 4)


class Reader:
    """Stand-in for the features of a set."""

    directory = Path("features/set")  # which is on no server

    def __init__(self, texts: list[str]) -> None:
        self.index = [
            Utterance(f"u-{i}", "sw_1", "A", 10.0 * i, 3.0, "s", text, 0, 300) for i, text in enumerate(texts)
        ]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    text = tmp_path / "text"
    text.write_text("so what did you do\nuh i went to the sea\n" * 3)
    train_tokenizer(text, tmp_path / "tokenizer", 40)
    return tmp_path / "tokenizer"


def run(
    tokenizer: Path, reader: Reader, out: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int = 40, scale: float = 1.0
) -> None:
    """Align the texts of `reader` to random posteriors."""
    loaded = Tokenizer.load(tokenizer)
    random = np.random.default_rng(1)

    def scores(*_: object) -> list[Scored]:
        logits = random.normal(scale=scale, size=(len(reader.index), num_rows, loaded.num_tokens)).astype(np.float32)
        scores_NTV = torch.from_numpy(logits).log_softmax(dim=-1).numpy()
        return [Scored(u, rows, 0.0) for u, rows in zip(reader.index, scores_NTV, strict=True)]

    monkeypatch.setattr(align, "load_acoustic_model", lambda _: acoustic_of(loaded))
    monkeypatch.setattr(align, "open_features", lambda directory, acoustic: reader)
    monkeypatch.setattr(align, "compute_scores", scores)
    align_run(Path("model.pt"), Path("features/dev"), tokenizer, out, Decode(num_jobs=1))


def test_the_ctm_holds_the_words_of_every_transcript_in_order(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["so what", "[noise] the sea [laughter]", "", "you do"]
    run(tokenizer, Reader(texts), tmp_path / "out", monkeypatch)
    rows = [line.split() for line in (tmp_path / "out" / "words.ctm").read_text().splitlines()]
    assert [row[4] for row in rows] == ["so", "what", "the", "sea", "you", "do"]
    assert [int(float(row[2]) // 10) for row in rows] == [0, 0, 1, 1, 3, 3]
    tokens = [line.split()[4] for line in (tmp_path / "out" / "tokens.ctm").read_text(encoding="utf-8").splitlines()]
    assert "".join(tokens).replace("\u2581", " ").split() == ["so", "what", "the", "sea", "you", "do"]
    found = SupervisionSet.from_file(tmp_path / "out" / "supervisions.jsonl")
    validate(found)
    assert [(each.id, each.text) for each in found] == [(f"u-{number}", text) for number, text in enumerate(texts)]
    assert {(each.recording_id, each.channel) for each in found} == {("sw_1", 0)}
    words = [item for each in found for item in each.alignment["word"]]
    assert [word.symbol for word in words] == [row[4] for row in rows]
    assert [word.start for word in words] == pytest.approx([float(row[2]) for row in rows], abs=0.01)


def test_an_utterance_too_short_for_its_text_is_set_aside_and_listed(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "uh i went to the sea so what did you do"
    run(tokenizer, Reader(["so what", long]), tmp_path / "out", monkeypatch, num_rows=9)
    assert (tmp_path / "out" / "dropped.tsv").read_text().startswith("u-1\t9 rows, ")
    with pytest.raises(AsrtoolError, match=r"out: none of 1 utterances can be aligned, u-0: 9 rows, \d+ needed; look"):
        run(tokenizer, Reader([long]), tmp_path / "out", monkeypatch, num_rows=9)


def test_speed_perturbed_copies_are_passed_over(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(["so", "what"])
    reader.index[0] = replace(reader.index[0], id="sp0.9-u-1", speaker="sp0.9-s")
    run(tokenizer, reader, tmp_path / "out", monkeypatch)
    assert [line.split()[4] for line in (tmp_path / "out" / "words.ctm").read_text().splitlines()] == ["what"]


def test_an_utterance_whose_words_have_no_tokens_is_set_aside_and_listed(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    run(tokenizer, Reader(["so", "caf\u00e9", "so \u2581", "the <unk>", "sea"]), tmp_path / "out", monkeypatch)
    assert (tmp_path / "out" / "dropped.tsv").read_text(encoding="utf-8").splitlines() == [
        "u-1\t'caf\u00e9': '\u00e9' outside the tokenizer",
        "u-2\t'\u2581': the tokenizer has no tokens for it",
        "u-3\t'<unk>': '<', '>' outside the tokenizer",
    ]
    assert [line.split()[4] for line in (tmp_path / "out" / "words.ctm").read_text().splitlines()] == ["so", "sea"]
    assert "2 utterances aligned, 3 left out" in caplog.text


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_texts_that_were_hardly_said_are_a_warning(
    scale: float, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(tokenizer, Reader(["so what did you do"]), tmp_path / "out", monkeypatch, num_rows=24, scale=scale)
    what = "most words of 1 of 1 utterances have a confidence below 0.01, the first is u-0: see if they are said"
    assert (what in caplog.text) == (scale > 1)


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
    segmenter = functools.partial(align_segments, CtcTopology(), 2, 3)
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
