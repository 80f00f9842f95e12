"""Changes of audio against what they are defined by, and how they are drawn."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from lhotse import Recording
from lhotse.augmentation import ReverbWithImpulseResponse

from asrtool.data.augment.audio import Augmentation, add_noise, limit_band, reverberate
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Augment

RATE_HZ = 8000
RANDOM = np.random.default_rng(0)


def voice(num_samples: int = 8000, level: float = 0.1) -> np.ndarray:
    """Pulses of 120 Hz through a resonance, loud and soft."""
    t = np.arange(num_samples) / RATE_HZ
    pulses = (np.diff(np.floor(120 * t), prepend=0) > 0).astype(float)
    sound = np.convolve(pulses, np.exp(-t[:200] * 300) * np.sin(2 * np.pi * 700 * t[:200]))[:num_samples]
    return (level * sound * (1 + 0.8 * np.sin(2 * np.pi * 3 * t))).astype(np.float32)


def write_sounds(folder: Path, *sounds: np.ndarray) -> str:
    folder.mkdir()
    for i, samples in enumerate(sounds):
        soundfile.write(folder / f"{i}.wav", samples, RATE_HZ, subtype="FLOAT")
    return str(folder)


@pytest.fixture
def everything(tmp_path: Path) -> dict[str, Any]:
    """Settings that have all of it, half of the time."""
    room = RANDOM.standard_normal(800) * np.exp(-np.arange(800) / 200)
    noise_dir = write_sounds(
        tmp_path / "noise", 0.1 * RANDOM.standard_normal(3000), 0.1 * RANDOM.standard_normal(20000)
    )
    reverb_dir = write_sounds(tmp_path / "rooms", room)
    return {"noise_dir": noise_dir, "reverb_dir": reverb_dir, "band_prob": 0.5}


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 12.5])
def test_noise_has_the_ratio_to_speech_that_is_asked_for(snr_db: float) -> None:
    speech, noise = voice(), (0.7 * RANDOM.standard_normal(8000)).astype(np.float32)
    added = add_noise(speech, noise, snr_db, RATE_HZ) - speech
    assert 10 * np.log10(np.mean(speech**2) / np.mean(added**2)) == pytest.approx(snr_db, abs=1e-3)
    assert np.corrcoef(added, noise)[0, 1] == pytest.approx(1)


def test_digital_silence_stays_silent() -> None:
    silence = np.zeros(400, np.float32)
    assert not add_noise(silence, voice(400), 5, RATE_HZ).any()
    assert not reverberate(silence, voice(100)).any()


def test_reverberation_is_what_lhotse_makes_of_the_impulse_response(tmp_path: Path) -> None:
    room = (RANDOM.standard_normal(900) * np.exp(-np.arange(900) / 150) * 0.2).astype(np.float32)
    room[70] = 1.5
    soundfile.write(tmp_path / "room.wav", room, RATE_HZ, subtype="FLOAT")
    transform = ReverbWithImpulseResponse(rir=Recording.from_file(tmp_path / "room.wav").to_dict())
    expected = transform(voice()[None], RATE_HZ)[0]
    np.testing.assert_allclose(reverberate(voice(), room), expected, atol=1e-5)


def test_the_direct_sound_is_not_delayed_whatever_its_sign() -> None:
    room = np.zeros(300, np.float32)
    room[120], room[200] = -1.0, 0.3
    samples = voice()
    delayed = np.concatenate([np.zeros(80, np.float32), samples[:-80]])
    expected = -samples + 0.3 * delayed
    expected *= np.sqrt(np.sum(samples**2) / np.sum(expected**2))
    np.testing.assert_allclose(reverberate(samples, room), expected, atol=1e-5)


def test_a_room_that_is_longer_than_the_utterance_leaves_its_length() -> None:
    assert len(reverberate(voice(500), voice(4000))) == 500


@pytest.mark.parametrize(("low_hz", "high_hz"), [(300.0, 3400.0), (0.0, 2000.0), (500.0, 4000.0)])
def test_a_band_lets_through_what_is_in_it(low_hz: float, high_hz: float) -> None:
    for hz in (60, 150, 1000, 1900, 2600, 3800):
        samples = np.sin(2 * np.pi * hz * np.arange(8000) / RATE_HZ).astype(np.float32)
        gain_db = 20 * np.log10(limit_band(samples, low_hz, high_hz, RATE_HZ)[4000:].std() / samples.std())
        # Butterworth of order 4: 24 dB an octave outside, 3 dB at the edge
        below = 10 * np.log10(1 + (low_hz / hz) ** 8)
        above = 10 * np.log10(1 + (np.tan(np.pi * hz / 8000) / np.tan(np.pi * min(high_hz, 3992) / 8000)) ** 8)
        assert gain_db == pytest.approx(-below - above, abs=0.5)


def test_the_same_generator_draws_the_same_in_a_copy_that_was_pickled(everything: dict[str, Any]) -> None:
    augmentation = Augmentation(Augment(**everything), RATE_HZ)
    copy = pickle.loads(pickle.dumps(augmentation))
    for seed in range(8):
        one, other = (a.change(voice(), 7500, np.random.default_rng(seed)) for a in (augmentation, copy))
        np.testing.assert_array_equal(one, other)
        assert len(one) == 7500


def test_other_generators_draw_other_changes(everything: dict[str, Any]) -> None:
    augmentation = Augmentation(Augment(**everything), RATE_HZ)
    changed = [augmentation.change(voice(), 8000, np.random.default_rng(seed)).tobytes() for seed in range(30)]
    assert len(set(changed)) > 20


@pytest.mark.parametrize("kind", ["noise", "reverb", "band"])
def test_a_change_is_drawn_as_often_as_its_probability_says(everything: dict[str, Any], kind: str) -> None:
    probs = {f"{other}_prob": 0.0 for other in ("noise", "reverb", "band")}
    augmentation = Augmentation(Augment(**(everything | probs | {f"{kind}_prob": 0.3})), RATE_HZ)
    samples = voice(400)
    num = sum(augmentation.change(samples, 400, np.random.default_rng(seed)) is not samples for seed in range(500))
    assert num == pytest.approx(150, abs=4 * np.sqrt(500 * 0.3 * 0.7))


def test_without_a_change_the_samples_are_those_there_were() -> None:
    samples = voice()
    assert Augmentation(Augment(), RATE_HZ).change(samples, len(samples), RANDOM) is samples


def test_a_folder_that_is_never_drawn_from_is_not_opened(tmp_path: Path) -> None:
    Augmentation(Augment(noise_dir=str(tmp_path / "gone"), noise_prob=0.0), RATE_HZ)
    with pytest.raises(AsrtoolError, match=r"augment\.noise_dir: .*gone is no folder"):
        Augmentation(Augment(noise_dir=str(tmp_path / "gone")), RATE_HZ)
    with pytest.raises(AsrtoolError, match=r"augment\.reverb_dir: .*gone is no folder"):
        Augmentation(Augment(reverb_dir=str(tmp_path / "gone")), RATE_HZ)


def test_a_sum_that_is_too_loud_is_softer_and_not_cut_off(tmp_path: Path) -> None:
    noise_dir = write_sounds(tmp_path / "noise", 0.5 * RANDOM.standard_normal(9000))
    settings = Augment(noise_dir=noise_dir, noise_prob=1.0, snr_db=(-10.0, -10.0))
    changed = Augmentation(settings, RATE_HZ).change(voice(level=0.9), 8000, np.random.default_rng(1))
    assert np.abs(changed).max() == pytest.approx(1)
    assert (np.abs(changed) > 0.99).sum() < 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"noise_prob": 1.5}, r"augment\.noise_prob is 1\.5, expected 0 to 1"),
        ({"tempo": (1.1, 0.9)}, r"augment\.tempo is \[1\.1, 0\.9\], expected two numbers, the lower one first"),
        ({"tempo": (0.1, 1.0)}, r"augment\.tempo is 0\.1, expected 0\.5 to 2"),
        ({"snr_db": (5.0,)}, r"augment\.snr_db is \[5\.0\], expected two numbers"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augment(**values)
