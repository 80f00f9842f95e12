"""Cutting a channel where nobody speaks, and joining the words of pieces that overlap."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from asrtool.decode.words import Word
from asrtool.transcribe.overlap import Recognised, join_overlaps
from asrtool.transcribe.segments import KEPT_S, OVERLAP_S, PAUSE_S, Segment, Segmenter, levels_of

RATE = 8000
LONGEST_S = 6.0


def sound(spans: list[tuple[float, float]], duration_s: float, noise: float = 0.001, seed: int = 1) -> np.ndarray:
    """Noise, and in each span (begin, end) in seconds something a hundred times as loud."""
    random = np.random.default_rng(seed)
    samples = random.normal(scale=noise, size=round(duration_s * RATE))
    for begin_s, end_s in spans:
        begin, end = round(begin_s * RATE), round(end_s * RATE)
        samples[begin:end] = random.normal(scale=100 * noise, size=end - begin)
    return samples.astype(np.float32)


def pieces(samples: np.ndarray, block_s: float = 1.0, longest_s: float = LONGEST_S) -> list[Segment]:
    size = max(1, round(block_s * RATE))
    segmenter = Segmenter(RATE, longest_s)
    found = [one for i in range(0, len(samples), size) for one in segmenter.add(samples[i : i + size])]
    return [*found, *segmenter.end()]


def end_s(segment: Segment) -> float:
    return segment.begin_s + len(segment.samples_S) / RATE


def test_speech_is_found_with_a_little_of_the_pause_around_it() -> None:
    samples = sound([(2.0, 3.5), (6.0, 6.4)], 9.0)
    found = pieces(samples)
    assert [(pytest.approx(one.begin_s, abs=0.011), pytest.approx(end_s(one), abs=0.011)) for one in found] == [
        (2.0 - KEPT_S, 3.5 + KEPT_S),
        (6.0 - KEPT_S, 6.4 + KEPT_S),
    ]
    for one in found:
        begin = round(one.begin_s * RATE)
        assert np.array_equal(one.samples_S, samples[begin : begin + len(one.samples_S)])


def test_a_short_pause_is_no_end() -> None:
    assert len(pieces(sound([(1.0, 2.0), (2.0 + PAUSE_S - 0.1, 4.0)], 6.0))) == 1
    assert len(pieces(sound([(1.0, 2.0), (2.0 + PAUSE_S + 0.1, 4.0)], 6.0))) == 2


def test_speech_up_to_the_last_sample_is_kept() -> None:
    samples = sound([(0.0, 3.0)], 3.0)
    (only,) = pieces(np.concatenate([sound([], 2.0), samples]))
    assert end_s(only) == pytest.approx(5.0, abs=0.011)


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(30 * RATE), np.zeros(17)], ids=["none", "silence", "few"])
def test_nothing_is_found_in_silence(samples: np.ndarray) -> None:
    assert pieces(samples.astype(np.float32)) == []


def test_a_recording_may_be_nothing_but_speech() -> None:
    """Words that were cut out are such: nothing in them is quieter than the rest."""
    (only,) = pieces(sound([(0.0, 0.4)], 0.4))
    assert (only.begin_s, len(only.samples_S)) == (0.0, round(0.4 * RATE))


def test_noise_alone_is_no_speech() -> None:
    assert pieces(sound([], 60.0)) == []


def test_long_speech_is_cut_at_its_quietest_place_and_both_have_what_is_around_it() -> None:
    samples = sound([(0.5, 9.5)], 10.0)
    low, high = round(4.0 * RATE), round(4.2 * RATE)
    samples[low:high] *= 0.1
    first, second = pieces(samples, longest_s=8.0)
    assert second.begin_s + second.overlap_s / 2 == pytest.approx(4.1, abs=0.06)
    assert second.overlap_s == pytest.approx(2 * OVERLAP_S, abs=0.011)
    assert end_s(first) == pytest.approx(second.begin_s + second.overlap_s, abs=1e-6)


bursts = st.lists(st.tuples(st.floats(0.05, 9.0), st.floats(0.05, 3.0)), max_size=6)


@settings(max_examples=60, phases=set(Phase) - {Phase.shrink, Phase.explain})
@given(bursts, st.sampled_from([0.1, 0.37, 100.0]), st.integers(0, 5))
@example([(2.0, 2.8), (9.0, 0.05), (0.65, 0.05), (2.7, 0.5), (3.5, 0.7), (7.0, 0.9)], 0.1, 5)  # full in a short pause
def test_all_speech_is_in_a_piece_none_is_too_long_and_blocks_do_not_matter(
    lengths: list[tuple[float, float]], block_s: float, seed: int
) -> None:
    spans, at = [], 1.0
    for speech_s, pause_s in lengths:
        spans.append((at, at + speech_s))
        at += speech_s + pause_s
    samples = sound(spans, at + 1.0, seed=seed)
    found = pieces(samples, block_s)
    assert [(one.begin_s, len(one.samples_S)) for one in found] == [
        (one.begin_s, len(one.samples_S)) for one in pieces(samples, 1.0)
    ]
    assert all(len(one.samples_S) / RATE <= LONGEST_S + 0.02 for one in found)
    for first, second in itertools.pairwise(found):
        shared_s = end_s(first) - second.begin_s
        assert shared_s == pytest.approx(second.overlap_s, abs=1e-6) if second.overlap_s else shared_s <= 1e-6
    for begin_s, stop_s in spans:
        middles = np.arange(begin_s + 0.02, stop_s - 0.02, 0.05)
        assert all(any(one.begin_s <= at_s <= end_s(one) for one in found) for at_s in middles), (spans, found)


def test_levels_are_decibels_of_full_scale() -> None:
    wave = np.sin(np.arange(RATE) * 2 * np.pi * 1000 / RATE).astype(np.float32)
    assert levels_of(wave, 80) == pytest.approx(np.full(100, 10 * np.log10(0.5)), abs=0.01)
    assert levels_of(wave + 0.5, 80) == pytest.approx(np.full(100, 10 * np.log10(0.5)), abs=0.01)  # no offset
    assert levels_of(np.zeros(80, np.float32), 80) == pytest.approx([-100.0])


def word(text: str, begin_s: float, end_s: float) -> Word:
    return Word(text, begin_s, end_s, 1.0)


def texts(pieces: list[Recognised]) -> list[str]:
    return [each.text for piece in pieces for each in piece.words]


def test_a_word_that_both_have_is_written_once() -> None:
    first = Recognised(0, 5, (word("one", 3.0, 3.4), word("two", 4.1, 4.4), word("thr", 4.8, 5.0)))
    second = Recognised(4, 8, (word("wo", 4.0, 4.05), word("two", 4.2, 4.5), word("three", 4.8, 5.2)), 1.0)
    assert texts(join_overlaps([first, second])) == ["one", "two", "three"]


def test_without_a_word_alike_the_middle_is_the_seam() -> None:
    first = Recognised(0, 5, (word("a", 4.0, 4.3), word("x", 4.6, 4.9)))
    second = Recognised(4, 8, (word("y", 4.0, 4.4), word("b", 4.6, 4.9)), 1.0)
    assert texts(join_overlaps([first, second])) == ["a", "b"]


def test_of_a_word_said_again_and_again_each_is_the_one_of_its_time() -> None:
    """For the first and last words alone, two pairs 0.25 s apart lie as near to the middle as the true one."""
    said = [word("no", at, at + 0.25) for at in (1.2, 1.45, 2.08, 2.7, 2.95)]
    first = Recognised(0, 3.875, (*said, word("no", 3.2, 3.95)))
    second = Recognised(2.075, 5.95, (*said[2:], word("no", 3.2, 3.95)), 1.8)
    assert texts(join_overlaps([first, second])) == ["no"] * 6


def test_words_alike_are_paired_by_their_time_even_if_fewer_then_have_a_pair() -> None:
    said = [word("no", at, at + 0.25) for at in (4.1, 4.35, 4.6, 4.85)]
    first, second = Recognised(0, 5, tuple(said[:3])), Recognised(4, 8, (word("oh", 4.1, 4.35), *said[1:]), 1.0)
    assert texts(join_overlaps([first, second])) == ["no"] * 4


def test_one_word_heard_differently_across_the_middle_is_written_once() -> None:
    first = Recognised(0, 5, (word("seat", 4.2, 4.75),))
    second = Recognised(4, 8, (word("sea", 4.3, 4.8), word("is", 4.9, 5.3)), 1.0)
    assert texts(join_overlaps([first, second])) == ["seat", "is"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.15, 0.8), st.floats(0.0, 0.4)), min_size=1, max_size=40),
    st.lists(st.floats(-0.02, 0.02), min_size=80, max_size=80),  # more, and one word's place could be another's
    st.floats(3.0, 6.0),
)
def test_words_cut_anywhere_come_out_once_and_in_order(
    said: list[tuple[str, float, float]], shifts: list[float], length_s: float
) -> None:
    """Each piece has the words that lie wholly in it, a little earlier or later."""
    words, at = [], 0.0
    for text, duration_s, pause_s in said:
        words.append(word(text, at, at + duration_s))
        at += duration_s + pause_s
    shift = iter(shifts * 20)
    pieces, begin_s, overlap_s = [], 0.0, 0.0
    while begin_s + overlap_s < at:
        end_s = begin_s + length_s
        heard = [each for each in words if each.begin_s >= begin_s - 1e-9 and each.end_s <= end_s + 1e-9]
        shifted = [word(each.text, each.begin_s + by, each.end_s + by) for each in heard for by in [next(shift)]]
        pieces.append(Recognised(begin_s, end_s, tuple(shifted), overlap_s))
        overlap_s = 1.8  # more than twice the longest word: each lies wholly in a piece
        begin_s = end_s - overlap_s
    assert texts(join_overlaps(pieces)) == [each.text for each in words]
