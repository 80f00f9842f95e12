"""Utterances that are one sound are found through a change of speed, gain and codec, and no others."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import AudioSource, Recording, SupervisionSegment
from scipy.signal import butter, lfilter, resample_poly, sosfilt

from asrtool.data.duplicates import fingerprint
from asrtool.data.duplicates.fingerprint import RATE_HZ, Alignment, Triplets, find_peaks, log_spectrogram, similarity
from asrtool.data.duplicates.same_audio import SameAudio, find_same_audio
from asrtool.data.manifests.manifest import write_manifests
from asrtool.settings.data import Features


@functools.cache
def speech(seed: int, seconds: float = 4.0) -> np.ndarray:
    """Make a voice: pulses of changing pitch, through resonances that change ten times a second; some noise."""
    random = np.random.default_rng(seed)
    num = int(seconds * RATE_HZ)
    pitch_hz = np.interp(np.arange(num), np.linspace(0, num, 9), random.uniform(90, 240, 9))
    pulses = np.diff(np.floor(np.cumsum(pitch_hz) / RATE_HZ), prepend=0) + 0.02 * random.normal(size=num)
    parts = []
    for part in np.array_split(pulses, int(10 * seconds)):
        for centre_hz in random.uniform([250, 900, 2000], [850, 1900, 3200]):
            pole = 0.97 * np.exp(2j * np.pi * centre_hz / RATE_HZ)
            part = lfilter([1.0], np.poly([pole, pole.conj()]).real, part)
        parts.append(part * random.choice([0.05, 0.3, 1.0]))
    samples = np.concatenate(parts)
    return (0.3 * samples / np.abs(samples).max()).astype(np.float32)


def at_speed(samples: np.ndarray, speed: Fraction) -> np.ndarray:
    return np.asarray(resample_poly(samples, speed.denominator, speed.numerator), dtype=np.float32)


def through(samples: np.ndarray, format_: str, subtype: str | None = None) -> np.ndarray:
    """Code and decode by a codec of libsndfile."""
    file = io.BytesIO()
    soundfile.write(file, samples, RATE_HZ, format=format_, subtype=subtype)
    file.seek(0)
    return np.asarray(soundfile.read(file, dtype="float32")[0])


NARROW = butter(4, [400, 2400], "bandpass", fs=RATE_HZ, output="sos")
CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the same": lambda x: x,
    "quieter": lambda x: x * np.float32(0.1),
    "faster": lambda x: at_speed(x, Fraction(11, 10)),
    "slower": lambda x: at_speed(x, Fraction(9, 10)),
    "GSM": lambda x: through(x, "WAV", "GSM610"),
    "slower, quieter and mu-law": lambda x: through(at_speed(x, Fraction(19, 20)) * np.float32(0.4), "WAV", "ULAW"),
    "faster and GSM": lambda x: through(at_speed(x, Fraction(108, 100)), "WAV", "GSM610"),
    "cut at both ends": lambda x: x[2000:-3000],
    "within more": lambda x: np.concatenate([speech(99, 1.0), x, speech(98, 2.0)]),
    "narrow, with noise": lambda x: sosfilt(NARROW, x) + 0.01 * np.random.default_rng(1).normal(size=len(x)),
}


def in_order(triplets: Triplets) -> Triplets:
    return triplets.take(np.argsort(triplets.keys_H, kind="stable"))


def indexed(*utterances: np.ndarray) -> Triplets:
    return in_order(fingerprint.find_triplets([find_peaks(samples) for samples in utterances]))


def aligned(index: Triplets, samples: np.ndarray) -> list[Alignment]:
    """Find the alignments with all utterances of the index."""
    return [
        alignment
        for _, alignment in fingerprint.find_alignments(
            index, fingerprint.find_queries([find_peaks(samples)]), first=2**20
        )
    ]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_is_found_among_others(change: str) -> None:
    others = [speech(seed) for seed in range(12)]
    copy = CHANGES[change](others[7])
    found = aligned(indexed(*others), copy)
    spectrogram = log_spectrogram(copy)
    alike = {a.other: similarity(spectrogram, log_spectrogram(others[a.other]), a) for a in found}
    assert alike.pop(7) > 0.8
    assert all(value < 0.7 for value in alike.values())


def test_all_utterances_at_once_find_what_each_finds_alone() -> None:
    """Numbers of those that are searched for begin with 3; what comes later is not looked at."""
    sounds = [speech(seed) for seed in range(3)]
    copies = [sounds[2], speech(9), sounds[0], sounds[2]]
    index = indexed(*sounds, *copies)
    together = fingerprint.find_alignments(
        index, fingerprint.find_queries([find_peaks(samples) for samples in copies]), first=3
    )
    assert [(i, a.other) for i, a in together if a.votes > 50] == [(3, 2), (5, 0), (6, 2), (6, 3)]
    for number, copy in enumerate(copies, 3):
        alone = fingerprint.find_alignments(index, fingerprint.find_queries([find_peaks(copy)]), number)
        assert alone == [found for found in together if found[0] == number]


def test_triplets_are_those_of_the_highest_peaks_behind_each() -> None:
    """The expectation is a loop over peaks, of two utterances with the same times."""
    random = np.random.default_rng(5)
    peaks = [
        np.stack([np.sort(random.uniform(0, 4, 90)), random.uniform(8, 11, 90), random.normal(size=90)]) for _ in "ab"
    ]
    expected = []
    for owner, (seconds, _, levels) in enumerate(peaks):
        for i in range(90):
            near = [j for j in range(90) if fingerprint.NEAREST_S <= seconds[j] - seconds[i] < fingerprint.FARTHEST_S]
            highest = sorted(sorted(near, key=lambda j, levels=levels: -levels[j])[: fingerprint.FAN_OUT])
            expected += [(owner, np.float32(seconds[i])) for a in range(len(highest)) for _ in highest[a + 1 :]]
    found = fingerprint.find_triplets(peaks)
    assert sorted(zip(found.owners_H.tolist(), found.times_H.tolist(), strict=True)) == sorted(expected)
    assert len(set(found.keys_H.tolist())) > 0.99 * len(found)


def test_the_index_finds_what_comparing_all_with_all_finds() -> None:
    """Queries and triplets match that are in one cell and, of pitch, within the tolerance."""
    random = np.random.default_rng(0)
    cells_H, pitches_H = random.integers(0, 40, 3000) * 2**20, random.integers(30, 600, 3000)
    triplets = Triplets(cells_H * 2**10 + pitches_H, np.zeros(3000, np.float32), np.zeros(3000, np.int32))
    index = in_order(triplets)
    asked_H = random.integers(0, 42, 200) * 2**30 + random.integers(30, 600, 200)
    of_index_H = index.keys_H
    same_cell = (asked_H >> 10)[:, None] == of_index_H >> 10
    near = np.abs((asked_H % 2**10)[:, None] - of_index_H % 2**10) <= int(
        fingerprint.MAX_PITCH_CHANGE * fingerprint.PITCH_STEPS
    )
    assert set(zip(*fingerprint.matches(index, asked_H), strict=True)) == set(
        zip(*np.nonzero(same_cell & near), strict=True)
    )
    assert len(fingerprint.matches(index, asked_H)[0]) == (same_cell & near).sum() > 500


@pytest.mark.parametrize("scale", [0.0, 0.024])
@pytest.mark.parametrize("offset_s", [1.0, 1.125])
def test_votes_that_lie_across_a_border_are_of_one_box(scale: float, offset_s: float) -> None:
    """Borders of scale, of offset, of both and of none."""
    random = np.random.default_rng(2)
    scales_M, times_M = scale + random.uniform(-0.012, 0.012, 40), np.zeros(40)
    found_s_M = offset_s + random.uniform(-0.06, 0.06, 40)
    boxes_5B = fingerprint.vote(np.full(40, 7), scales_M, times_M, found_s_M)
    best_5 = boxes_5B[:, boxes_5B[1].argmax()]
    assert best_5[:2].tolist() == [7, 40]
    np.testing.assert_allclose(best_5[2:], [scales_M.mean(), 0.0, found_s_M.mean()])


def test_a_key_that_very_many_have_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of a tone are such; searching them would take time in proportion to their number."""
    index = indexed(speech(1), *[speech(2)] * 5)
    assert len(aligned(index, speech(2))) == fingerprint.CANDIDATES == 4
    monkeypatch.setattr(fingerprint, "MAX_MATCHES", 4)
    assert len(aligned(index, speech(1))) == 1
    assert aligned(index, speech(2)) == []


def test_peaks_are_where_the_sinusoids_are() -> None:
    """Bursts of known frequency and time, which lie between bins and between frames."""
    times_s, pitches_hz = np.array([0.503, 1.111, 1.702]), np.array([441.0, 1234.0, 2777.0])
    t = np.arange(int(2.2 * RATE_HZ)) / RATE_HZ
    bursts = [
        np.exp(-(((t - s) / 0.03) ** 2)) * np.sin(2 * np.pi * hz * t) for s, hz in zip(times_s, pitches_hz, strict=True)
    ]
    seconds_P, octaves_P, levels_P = find_peaks(np.sum(bursts, axis=0).astype(np.float32))
    assert np.ptp(levels_P) < 0.5
    np.testing.assert_allclose(seconds_P + 0.032, times_s, atol=0.004)  # a frame is named by its beginning
    np.testing.assert_allclose(2**octaves_P, pitches_hz, rtol=0.01)


@pytest.mark.parametrize("num_samples", [0, 100, 512, 700])
def test_of_next_to_nothing_there_are_no_triplets(num_samples: int) -> None:
    samples = speech(1)[:num_samples]
    peaks = find_peaks(samples)
    assert len(fingerprint.find_triplets([peaks])) == len(fingerprint.find_queries([peaks])) == 0
    assert aligned(indexed(speech(1)), samples) == aligned(indexed(samples), speech(1)) == []


def test_likeness_is_that_of_the_part_where_both_are_there() -> None:
    one = log_spectrogram(speech(1))
    assert similarity(one, one, Alignment(0, 9, 0.0, 0.0)) == pytest.approx(1.0)
    assert similarity(one[60:], one, Alignment(0, 9, 0.0, 60 * 128 / RATE_HZ)) == pytest.approx(1.0)
    assert similarity(one, one, Alignment(0, 9, 0.0, 0.3)) < 0.7
    assert similarity(one, one, Alignment(0, 9, 0.0, 3.0)) == 0.0  # a quarter of it overlaps
    assert similarity(one, log_spectrogram(speech(2)), Alignment(0, 9, 0.0, 0.0)) < 0.6


def test_a_thinned_index_has_the_same_cells_of_every_utterance() -> None:
    whole = fingerprint.find_triplets([find_peaks(speech(seed, 20.0)) for seed in (8, 4)])
    thin = whole.thinned(4)
    assert 0.15 < len(thin) / len(whole) < 0.35
    kept = set((thin.keys_H >> fingerprint.PITCH_BITS).tolist())
    assert sum(cell in kept for cell in (whole.keys_H >> fingerprint.PITCH_BITS).tolist()) == len(thin)


def write_set(folder: Path, name: str, utterances: Sequence[np.ndarray], rate_hz: int = RATE_HZ) -> None:
    """Write a recording with all utterances, half a second apart, on its second channel; a noise is on the first."""
    audio, segments = [np.zeros(rate_hz // 2, dtype=np.float32)], []
    for number, samples in enumerate(utterances):
        start = sum(map(len, audio)) / rate_hz
        segments.append(
            SupervisionSegment(
                f"{name}-{number}", name, start, len(samples) / rate_hz, 1, f"text {number}", speaker="s"
            )
        )
        audio += [samples, np.zeros(rate_hz // 2, dtype=np.float32)]
    side = np.concatenate(audio)
    noise = 0.01 * np.random.default_rng(len(name)).normal(size=len(side))
    path = folder / f"{name}.wav"
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.stack([noise, side], axis=1), rate_hz)
    source = AudioSource("file", [0, 1], str(path))
    recording = Recording(name, [source], rate_hz, len(side), len(side) / rate_hz)
    write_manifests(folder / name, [recording], segments, [], 1.0, {})


def names(found: Sequence[SameAudio]) -> set[tuple[str, str]]:
    return {(pair.one.id, pair.other.id) for pair in found}


def test_pairs_in_two_sets_and_within_one_are_found(tmp_path: Path) -> None:
    """Planted: 2 of 12 of test in train, changed, and one twice within train; at 16,000 Hz."""
    test = [speech(seed) for seed in range(12)]
    train = [speech(seed) for seed in range(20, 32)]
    train[3] = at_speed(test[5], Fraction(21, 20)) * np.float32(0.5)
    train[8] = through(test[9], "WAV", "GSM610")
    train[11] = train[0]
    train[6] = np.concatenate([test[2][:18500], train[6][18500:]])  # the same only to begin with
    write_set(tmp_path, "test", [resample_poly(x, 2, 1) for x in test], 16000)
    write_set(tmp_path, "train", [resample_poly(x, 2, 1) for x in train], 16000)
    (tmp_path / ".99999999.tmp.same-audio-x").mkdir()  # of a process that was killed
    found = find_same_audio(tmp_path, ["test"], ["train"], Features(num_jobs=1))
    assert not list(tmp_path.glob(".*"))
    assert names(found) == {("train-3", "test-5"), ("train-8", "test-9"), ("train-11", "train-0")}
    speeds = {pair.one.id: pair.speed for pair in found}
    assert speeds["train-3"] == pytest.approx(1.05, abs=0.02)


def test_audio_that_cannot_be_read_is_left_to_the_features(tmp_path: Path) -> None:
    write_set(tmp_path, "test", [speech(1)])
    write_set(tmp_path, "train", [speech(1)])
    (tmp_path / "test.wav").write_bytes(b"no sound")
    assert find_same_audio(tmp_path, ["test"], ["train"], Features(num_jobs=1)) == []
