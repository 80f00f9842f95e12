"""Changes of audio against what they are defined by, how they are drawn, and features of them."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from lhotse import Fbank, FbankConfig, Recording
from lhotse.augmentation import ReverbWithImpulseResponse
from small_releases import read_manifests
from tones import SMALL

from asrtool.data.augment.audio import (
    Augmentation,
    AugmentedReader,
    EpochCopy,
    add_noise,
    change_tempo,
    limit_band,
    reverberate,
)
from asrtool.data.augment.sound_folder import digest_of_sounds, open_sounds
from asrtool.data.features.cmvn import Cmvn
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.storage.index import read_feature_settings, read_index
from asrtool.data.storage.reader import FeatureReader, SampleReader
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
    assert len(reverberate(voice(500), voice(4000))) == 500


def test_the_direct_sound_is_not_delayed_whatever_its_sign() -> None:
    room = np.zeros(300, np.float32)
    room[120], room[200] = -1.0, 0.3
    samples = voice()
    delayed = np.concatenate([np.zeros(80, np.float32), samples[:-80]])
    expected = -samples + 0.3 * delayed
    expected *= np.sqrt(np.sum(samples**2) / np.sum(expected**2))
    np.testing.assert_allclose(reverberate(samples, room), expected, atol=1e-5)


@pytest.mark.parametrize(("low_hz", "high_hz"), [(300.0, 3400.0), (0.0, 2000.0), (500.0, 4000.0)])
def test_a_band_lets_through_what_is_in_it(low_hz: float, high_hz: float) -> None:
    for hz in (60, 150, 1000, 1900, 2600, 3800):
        samples = np.sin(2 * np.pi * hz * np.arange(8000) / RATE_HZ).astype(np.float32)
        gain_db = 20 * np.log10(limit_band(samples, low_hz, high_hz, RATE_HZ)[4000:].std() / samples.std())
        # Butterworth of order 4: 24 dB an octave outside, 3 dB at the edge
        below = 10 * np.log10(1 + (low_hz / hz) ** 8)
        above = 10 * np.log10(1 + (np.tan(np.pi * hz / 8000) / np.tan(np.pi * min(high_hz, 3992) / 8000)) ** 8)
        assert gain_db == pytest.approx(-below - above, abs=0.5)


def test_the_same_generator_draws_the_same_in_a_copy_and_others_draw_others(everything: dict[str, Any]) -> None:
    augmentation = Augmentation(Augment(**everything), RATE_HZ)
    copy = pickle.loads(pickle.dumps(augmentation))
    found = set()
    for seed in range(20):
        one, other = (a.change(voice(), 7500, np.random.default_rng(seed)) for a in (augmentation, copy))
        np.testing.assert_array_equal(one, other)
        assert len(one) == 7500
        found.add(one.tobytes())
    assert len(found) > 13


@pytest.mark.parametrize("kind", ["noise", "reverb", "band"])
def test_a_change_is_drawn_as_often_as_its_probability_says(everything: dict[str, Any], kind: str) -> None:
    probs = {f"{other}_prob": 0.0 for other in ("noise", "reverb", "band")}
    augmentation = Augmentation(Augment(**(everything | probs | {f"{kind}_prob": 0.3})), RATE_HZ)
    samples = voice(400)
    num = sum(augmentation.change(samples, 400, np.random.default_rng(seed)) is not samples for seed in range(500))
    assert num == pytest.approx(150, abs=4 * np.sqrt(500 * 0.3 * 0.7))


def test_a_folder_is_opened_where_it_is_drawn_from(tmp_path: Path) -> None:
    Augmentation(Augment(noise_dir=str(tmp_path / "gone"), noise_prob=0.0), RATE_HZ)
    with pytest.raises(AsrtoolError, match=r"augment\.noise_dir: .*gone is no folder"):
        Augmentation(Augment(noise_dir=str(tmp_path / "gone")), RATE_HZ)
    with pytest.raises(AsrtoolError, match=r"augment\.reverb_dir: .*gone is no folder"):
        Augmentation(Augment(reverb_dir=str(tmp_path / "gone")), RATE_HZ)
    with pytest.raises(AsrtoolError, match=r"augment\.reverb_dir: .* has no sound file, expected some of \*\.wav"):
        Augmentation(Augment(reverb_dir=str(tmp_path)), RATE_HZ)


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


def tone(hz: float, duration_s: float) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * hz * np.arange(round(duration_s * RATE_HZ)) / RATE_HZ)).astype(np.float32)


def pitch_hz(samples: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * RATE_HZ / len(samples))


@pytest.mark.parametrize("tempo", [0.7, 0.9, 1.1, 1.5])
def test_tempo_keeps_pitch_loudness_and_what_is_said_when(tempo: float) -> None:
    """Each half second has a pitch of its own."""
    pitches = [300.0, 700.0, 90.0, 1100.0]
    samples = np.concatenate([tone(hz, 0.5) for hz in pitches])
    changed = change_tempo(samples, round(len(samples) / tempo), RATE_HZ)
    assert (len(changed), changed.dtype) == (round(len(samples) / tempo), np.float32)
    assert changed.std() == pytest.approx(samples.std(), rel=0.05)
    part = len(changed) // 4
    for i, hz in enumerate(pitches):
        middle = changed[i * part + part // 5 : (i + 1) * part - part // 5]
        assert pitch_hz(middle) == pytest.approx(hz, abs=8)
    assert change_tempo(samples, len(samples), RATE_HZ) is samples


@pytest.mark.parametrize(("before", "after"), [(1, 2), (50, 45), (240, 300), (1001, 501)])
def test_the_tempo_of_the_shortest_utterances_and_of_silence_is_changed_too(before: int, after: int) -> None:
    assert len(change_tempo(np.ones(before, np.float32), after, RATE_HZ)) == after
    assert not change_tempo(np.zeros(before, np.float32), after, RATE_HZ).any()


KEY = "augment.noise_dir"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write two sounds, one of two channels in a folder below, and a file that is none."""
    random = np.random.default_rng(0)
    (tmp_path / "deep").mkdir()
    soundfile.write(tmp_path / "b.flac", 0.1 * random.standard_normal(900), RATE_HZ)
    soundfile.write(tmp_path / "deep" / "a.WAV", 0.1 * random.standard_normal((500, 2)), RATE_HZ)
    (tmp_path / "README").write_text("noise", encoding="utf-8")
    return tmp_path


def test_a_stretch_of_a_sound_is_that_of_the_first_channel_and_goes_round_at_the_end(folder: Path) -> None:
    soundfile.write(folder / "c.wav", np.concatenate([np.zeros(200_000), [0.25]]), RATE_HZ)  # begins with silence
    b, c, a = open_sounds(folder, KEY, RATE_HZ)
    assert [sound.path.name for sound in (b, c, a)] == ["b.flac", "c.wav", "a.WAV"]
    expected, _ = soundfile.read(a.path, dtype="float32")
    assert (b.num_samples, a.num_samples) == (900, 500)
    np.testing.assert_array_equal(a.read(20, 100), expected[20:120, 0])
    np.testing.assert_array_equal(a.read(450, 1100), np.concatenate([expected[450:], *[expected] * 3])[:1100, 0])


def test_the_digest_of_sounds_is_of_names_and_sizes(folder: Path) -> None:
    before = digest_of_sounds(folder, KEY)
    assert digest_of_sounds(folder, KEY) == before
    soundfile.write(folder / "b.flac", np.full(2000, 0.1), RATE_HZ)
    second = digest_of_sounds(folder, KEY)
    (folder / "b.flac").rename(folder / "c.flac")
    assert len({before, second, digest_of_sounds(folder, KEY)}) == 3


@pytest.mark.parametrize(
    ("samples", "rate_hz", "message"),
    [
        (np.ones(99), 16000, r"c\.wav has 16000 samples a second, expected 8000; convert the folder"),
        (None, 8000, r"c\.wav cannot be read: .*; remove or repair it"),
        (np.zeros(200_000), 8000, r"c\.wav is silent; remove it"),
        (np.zeros(0), 8000, r"c\.wav is silent; remove it"),
        (np.full(9, np.nan), 8000, r"c\.wav has samples that are NaN or infinite; remove or repair it"),
    ],
)
def test_a_sound_that_is_of_no_use_is_one_line(
    folder: Path, samples: np.ndarray | None, rate_hz: int, message: str
) -> None:
    path = folder / "c.wav"
    path.write_bytes(b"RIFF of nothing") if samples is None else soundfile.write(path, samples, rate_hz, "FLOAT")
    with pytest.raises(AsrtoolError, match=rf"augment\.noise_dir: .*{message}") as raised:
        open_sounds(folder, KEY, RATE_HZ)
    assert "\n" not in str(raised.value)


def test_a_sound_that_goes_or_shrinks_while_it_is_used_is_named(folder: Path) -> None:
    b, _ = open_sounds(folder, KEY, RATE_HZ)
    soundfile.write(b.path, np.full(100, 0.1), RATE_HZ)
    with pytest.raises(AsrtoolError, match=r"b\.flac has changed or is cut off; restore the file"):
        b.read(0, 900)
    soundfile.write(folder / "b.wav", np.append(np.full(200_000, 0.1), np.nan), RATE_HZ, subtype="FLOAT")
    with pytest.raises(AsrtoolError, match=r"b\.wav has samples that are NaN or infinite; remove or repair it"):
        open_sounds(folder, KEY, RATE_HZ)[1].read(199_000, 1001)  # behind what is looked at before
    b.path.unlink()
    with pytest.raises(AsrtoolError, match=r"b\.flac cannot be read: .*; restore the file"):
        b.read(0, 900)


KEPT = dataclasses.replace(SMALL, speeds=(1.0, 1.1), keep_audio=True)
NARROW = Augment(band_prob=1.0, band_hz=(1000.0, 2000.0))


@pytest.fixture(scope="module")
def kept(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of the corpus with its samples; to be read only."""
    out = tmp_path_factory.mktemp("kept")
    compute_features(corpus / "manifests", out, KEPT)
    return out


def reader_of(directory: Path, augment: Augment = NARROW, seed: int = 1, **changes: Any) -> AugmentedReader:
    features = dataclasses.replace(KEPT, **changes)
    return AugmentedReader(directory, features, Augmentation(augment, 8000), seed, read_index(directory))


def copy_of(directory: Path, i: int, epoch: int = 0, tempo: float = 1.0) -> EpochCopy:
    return EpochCopy(i, epoch, round(read_index(directory)[i].num_frames / tempo))


def test_samples_are_those_of_the_recording_in_sixteen_bits_and_give_the_stored_features(
    corpus: Path, kept: Path
) -> None:
    index = read_index(kept / "train")
    samples, stored = SampleReader(kept / "train", index, 8000), FeatureReader(kept / "train", "none")
    extractor = Fbank(FbankConfig(sampling_rate=8000, num_filters=23))
    paths = {r.id: r.sources[0].source for r in read_manifests(corpus / "manifests" / "train")[0]}
    for i in np.random.default_rng(0).permutation(len(index)).tolist():
        utterance = index[i]
        assert np.abs(extractor.extract(samples.read(i), 8000) - stored.read(i)).mean() < 1 / 32
        if utterance.id.startswith("sp"):
            assert len(samples.read(i)) == round(utterance.duration_s * 8000)
            continue
        audio, _ = soundfile.read(paths[utterance.recording], dtype="float32")
        begin = round(utterance.start_s * 8000)
        expected = audio[begin : begin + round(utterance.duration_s * 8000), "AB".index(utterance.channel)]
        np.testing.assert_array_equal(samples.read(i), expected)


def test_only_the_training_set_keeps_samples_and_only_where_it_is_to(corpus: Path, kept: Path) -> None:
    assert sorted(path.parent.name for path in kept.rglob("*.s16")) == ["train"]
    assert not list((corpus / "lilcom").rglob("*.s16"))
    assert read_feature_settings(kept).keep_audio


@pytest.mark.parametrize("damage", ["missing", "cut off", "empty"])
def test_samples_that_are_missing_or_cut_off_are_named(kept: Path, tmp_path: Path, damage: str) -> None:
    shutil.copytree(kept / "train", tmp_path / "train")
    path = tmp_path / "train" / "samples.000000.s16"
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[: len(content) // 2 if damage == "cut off" else 0])
    with pytest.raises(AsrtoolError, match=r"samples\.000000\.s16 .*; run the features stage again"):
        reader_of(tmp_path / "train").read(copy_of(tmp_path / "train", 13))


@pytest.mark.parametrize("cmvn", ["none", "utterance", "global", "speaker"])
def test_features_are_those_of_the_changed_samples_normalised(kept: Path, cmvn: str) -> None:
    directory = kept / "train"
    index = read_index(directory)
    random = np.random.default_rng((1, 3, 4, 1))
    random.random(3)  # whether there is reverberation, noise, a band
    low_hz, high_hz = random.uniform(0, 1000), random.uniform(2000, 4000)
    samples = limit_band(SampleReader(directory, index, 8000).read(4), low_hz, high_hz, 8000)
    extracted = Fbank(FbankConfig(sampling_rate=8000, num_filters=23)).extract(samples, 8000)
    speaker, stored_TF = index[4].speaker, FeatureReader(directory, "none").read(4)
    expected_TF = plain_TF = Cmvn(directory, cmvn).normalise(speaker, extracted)
    if cmvn == "speaker":
        expected_TF = Cmvn(directory, cmvn).normalise_changed(speaker, extracted, stored_TF)
        assert not np.allclose(expected_TF, plain_TF, atol=0.1)
    found_TF = reader_of(directory, cmvn=cmvn).read(copy_of(directory, 4, epoch=3))
    np.testing.assert_allclose(found_TF, expected_TF, atol=1e-4)


def test_by_speaker_a_copy_is_normalised_as_if_all_of_the_speaker_were_changed_alike(kept: Path) -> None:
    """A change that adds to all features of a speaker and stretches them has no effect then."""
    directory = kept / "train"
    stored, cmvn = FeatureReader(directory, "none"), Cmvn(directory, "speaker")
    shift_F, factor_F = np.linspace(-3, 5, 23, dtype=np.float32), np.linspace(0.5, 1.5, 23, dtype=np.float32)
    for i in (0, 7):
        feats_TF, speaker = stored.read(i), stored.index[i].speaker
        changed_TF = cmvn.normalise_changed(speaker, feats_TF * factor_F + shift_F, feats_TF)
        expected_TF = cmvn.normalise(speaker, feats_TF)
        np.testing.assert_allclose(changed_TF.std(0), expected_TF.std(0), atol=2e-4)
        # where the mean of an utterance is not that of its speaker, the factor stretches around its own
        np.testing.assert_allclose(changed_TF.mean(0), expected_TF.mean(0) / factor_F, atol=2e-4)
        np.testing.assert_array_equal(
            cmvn.normalise_changed("stranger", feats_TF, feats_TF * 2), cmvn.normalise("stranger", feats_TF)
        )


def test_each_epoch_has_features_of_its_own_and_the_same_ones_again(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = kept / "train"
    for seed in (1, 2):
        epochs = [reader_of(directory, seed=seed).read(copy_of(directory, 5, epoch)).tobytes() for epoch in range(6)]
        assert len(set(epochs)) == 6
        reader = reader_of(directory, seed=seed)
        again = [reader.read(copy_of(directory, 5, epoch)).tobytes() for epoch in reversed(range(6))]
        assert again[::-1] == epochs
    assert reader_of(directory, seed=1).read(copy_of(directory, 5)).tobytes() != epochs[0]
    drawn = []
    monkeypatch.setattr(
        Augmentation, "change", lambda _, samples, num, random: drawn.append(random.random()) or samples
    )
    for i in range(20):  # and each utterance of an epoch one of its own
        reader.read(copy_of(directory, i))
    assert len(set(drawn)) == 20


@pytest.mark.parametrize("tempo", [0.8, 0.97, 1.21])
def test_a_copy_at_another_tempo_has_the_frames_that_were_planned(kept: Path, tempo: float) -> None:
    """Speech stays at the same fraction of the copy."""
    directory = kept / "train"
    reader = reader_of(directory, Augment(tempo=(0.5, 2.0)), cmvn="none")
    stored = FeatureReader(directory, "none")
    for i in range(0, 24, 5):
        copy = copy_of(directory, i, tempo=tempo)
        found_TF, plain_TF = reader.read(copy), stored.read(i)
        assert found_TF.shape == (copy.num_frames, 23)
        assert found_TF.dtype == np.float32
        places = ((np.arange(len(found_TF)) + 0.5) * len(plain_TF) / len(found_TF)).astype(int)
        loud, expected = found_TF.max(axis=1), plain_TF[places].max(axis=1)
        assert np.corrcoef(loud, expected)[0, 1] > 0.8


def test_an_utterance_to_which_nothing_happens_has_its_stored_features(kept: Path) -> None:
    reader = reader_of(kept / "train", Augment(), cmvn="speaker")
    stored = FeatureReader(kept / "train", "speaker")
    for i in range(4):
        np.testing.assert_array_equal(reader.read(copy_of(kept / "train", i)), stored.read(i))
