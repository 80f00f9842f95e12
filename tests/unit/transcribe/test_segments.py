"""Cutting a channel where nobody speaks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

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
    """As words that were cut out: nothing in it is quieter than the rest."""
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
