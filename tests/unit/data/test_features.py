"""Manifests to features: what is computed, the same for any number of processes, and every kind of bad input."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import shutil
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from lhotse import AudioSource, CutSet, Fbank, FbankConfig, Recording, SupervisionSegment
from scipy.signal import resample_poly
from small_releases import read_manifests
from tones import PLAIN, SMALL, change_line, read_all

from asrtool.data.features.cmvn import (
    MIN_SPEAKER_FRAMES,
    STD_FLOOR,
    Cmvn,
    Moments,
    add_moments,
    write_cmvn,
    write_more_cmvn,
)
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.features.disk_space import stored_bytes
from asrtool.data.features.feature_type import FeatureType, Filterbank, NumpyFilterbank, PowerSpectrum, frames_of
from asrtool.data.features.shard_plan import with_rate
from asrtool.data.manifests.manifest import read_drops, read_report, write_manifests
from asrtool.data.manifests.sets import EvaluationSet, Sets, read_sets, write_sets
from asrtool.data.manifests.speed_copies import with_speeds
from asrtool.data.storage.index import read_feature_settings, read_index
from asrtool.data.storage.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.files import mark_files
from asrtool.models.acoustic import build_model
from asrtool.settings.config import Config, check_conflicts
from asrtool.settings.data import Features
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.train.derived_settings import hybrid_settings

MakeManifests = Callable[..., Path]


def test_the_training_set_has_a_copy_at_each_speed_and_the_others_have_none(corpus: Path) -> None:
    train = read_index(corpus / "lilcom" / "train")
    plain = {utterance.id: utterance for utterance in train if not utterance.id.startswith("sp")}
    assert len(plain) == 4 * 6
    assert len(train) == 3 * len(plain)
    for utterance in train:
        if utterance.id in plain:
            continue
        speed, _, name = utterance.id.removeprefix("sp").partition("-")
        original = plain[name]
        assert utterance.speaker == f"sp{speed}-{original.speaker}"
        assert utterance.recording == original.recording
        assert utterance.start_s == pytest.approx(original.start_s / float(speed))
        assert utterance.duration_s == pytest.approx(original.duration_s / float(speed), abs=1 / 8000)
        assert utterance.num_frames == pytest.approx(100 * utterance.duration_s, abs=0.51)
    for name in ("dev", "test"):
        assert [u.id for u in read_index(corpus / "lilcom" / name) if u.id.startswith("sp")] == []
    assert read_feature_settings(corpus / "lilcom") == dataclasses.replace(SMALL, num_jobs=0)


def test_the_index_says_where_an_utterance_is_its_corpus_and_what_else_a_corpus_says(
    corpus: Path, tmp_path: Path
) -> None:
    shutil.copytree(corpus / "manifests", tmp_path / "manifests")
    change_line(tmp_path / "manifests/test/supervisions.jsonl.gz", 0, {"custom": {"corpus": "calls", "snr_db": 12}})
    compute_features(tmp_path / "manifests", tmp_path / "features", SMALL)
    described, *others = index = read_index(tmp_path / "features" / "test")
    assert (described.corpus, described.fields) == ("calls", {"snr_db": 12})
    assert {(other.corpus, *other.fields) for other in others} == {("",)}
    _, supervisions = read_manifests(corpus / "manifests" / "test")
    expected = {s.id: (s.recording_id, "AB"[s.channel], s.start, s.duration, s.speaker) for s in supervisions}
    assert {u.id: (u.recording, u.channel, u.start_s, u.duration_s, u.speaker) for u in index} == expected


def test_sets_are_those_of_the_manifests_and_others_go(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "manifests", tmp_path / "manifests")
    (tmp_path / "manifests" / "test").rename(tmp_path / "manifests" / "calls")
    write_sets(tmp_path / "manifests", Sets((EvaluationSet("calls", "Calls", {"X": "Part X"}),)))
    (tmp_path / "features" / "test").mkdir(parents=True)
    (tmp_path / "features" / "test" / "index.jsonl").write_text("of an earlier run")
    mark_files(tmp_path / "features" / "test" / "index.jsonl")
    (tmp_path / "features" / "mine").mkdir()
    (tmp_path / "features" / "mine" / "index.jsonl").write_text("of a user")
    (tmp_path / "features" / ".999999999.tmp.test").mkdir()  # of one that was killed
    compute_features(tmp_path / "manifests", tmp_path / "features", SMALL)
    folders = [path.name for path in (tmp_path / "features").iterdir() if path.is_dir()]
    assert sorted(folders) == ["calls", "dev", "mine", "train"]
    assert read_sets(tmp_path / "features") == read_sets(tmp_path / "manifests")


@pytest.mark.parametrize("speed", [1.0, 0.9, 1.1])
def test_features_are_those_that_lhotse_makes_of_the_cut(corpus: Path, speed: float) -> None:
    recordings, supervisions = read_manifests(corpus / "manifests" / "train")
    cuts = CutSet.from_manifests(recordings=recordings, supervisions=supervisions)
    by_id = {cut.supervisions[0].id: cut for cut in cuts.trim_to_supervisions(keep_overlapping=False)}
    extractor = Fbank(FbankConfig(sampling_rate=8000, num_filters=23))
    reader = FeatureReader(corpus / "lilcom" / "train", "none")
    prefix = f"sp{speed}-" if speed != 1 else "train"
    places = [i for i, utterance in enumerate(reader.index) if utterance.id.startswith(prefix)]
    assert len(places) == 24
    for i in places[::5]:
        cut, feats_TF = by_id[reader.index[i].id.removeprefix(f"sp{speed}-")], reader.read(i)
        expected_TF = extractor.extract(cut.perturb_speed(speed).load_audio(), 8000)
        num_frames = min(len(expected_TF), len(feats_TF))
        assert abs(len(expected_TF) - len(feats_TF)) <= (speed != 1)
        if speed == 1:
            np.testing.assert_allclose(feats_TF, expected_TF, atol=2**-5)
        # lhotse rounds where the cut begins, so a copy may be shifted by a part of a sample.
        assert np.abs(expected_TF[:num_frames] - feats_TF[:num_frames]).mean() < 0.1


def test_bytes_do_not_depend_on_the_number_of_processes(corpus: Path, tmp_path: Path) -> None:
    compute_features(corpus / "manifests", tmp_path, dataclasses.replace(SMALL, num_jobs=2))
    assert read_all(tmp_path) == read_all(corpus / "lilcom")


def test_a_shard_holds_whole_recordings_at_one_speed(corpus: Path) -> None:
    shards: dict[int, set[tuple[str, str]]] = {}
    for utterance in read_index(corpus / "lilcom" / "train"):
        speed = utterance.id.partition("-")[0] if utterance.id.startswith("sp") else ""
        shards.setdefault(utterance.shard, set()).add((speed, utterance.recording))
    assert sorted(shards) == list(range(6))
    assert all(len({speed for speed, _ in members}) == 1 for members in shards.values())
    assert sum(len(members) for members in shards.values()) == len(set().union(*shards.values())) == 12


def test_normalisation_is_numpys_on_the_concatenated_features_and_that_of_all_is_in_each_set(corpus: Path) -> None:
    everyone = []
    for name in ("train", "dev"):
        reader = FeatureReader(corpus / "lilcom" / name, "none")
        speakers: dict[str, list[np.ndarray]] = {}
        for i, utterance in enumerate(reader.index):
            speakers.setdefault(utterance.speaker, []).append(reader.read(i))
        if name == "train":
            speakers["*"] = [reader.read(i) for i in range(len(reader.index))]
        with np.load(corpus / "lilcom" / name / "cmvn.npz") as arrays:
            names = arrays["names"].tolist()
            for speaker, parts in speakers.items():
                whole = np.concatenate(parts).astype(np.float64)
                assert len(whole) >= MIN_SPEAKER_FRAMES
                row = names.index(speaker)
                np.testing.assert_allclose(arrays["means"][row], whole.mean(axis=0), atol=2**-5)
                np.testing.assert_allclose(arrays["stds"][row], whole.std(axis=0), atol=2**-5)
            everyone.append((arrays["means"][names.index("*")].tolist(), arrays["stds"][names.index("*")].tolist()))
    assert everyone[0] == everyone[1]


def test_rate_and_speeds_that_suit_the_speech_are_written_down(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        compute_features(
            corpus / "manifests", tmp_path, dataclasses.replace(PLAIN, sampling_rate_hz=0, speeds=(), storage="flac")
        )
    settings = read_feature_settings(tmp_path)
    assert (settings.sampling_rate_hz, settings.speeds) == (8000, (0.8, 0.9, 1.0, 1.1, 1.2))
    assert "sampling_rate_hz is 0: 8000 Hz, as 100 % of the hours of recordings to train on have" in caplog.text
    assert "features.speeds is []: 0.8, 0.9, 1, 1.1, 1.2, for " in caplog.text
    prefixes = Counter(utterance.id.partition("-")[0] for utterance in read_index(tmp_path / "train"))
    assert {prefixes[f"sp{speed}"] for speed in (0.8, 0.9, 1.1, 1.2)} == {prefixes.total() / 5}


@pytest.mark.parametrize(("hours", "num_speeds"), [(0.0, 5), (0.49, 5), (0.5, 3), (1000.0, 3)])
def test_little_speech_has_more_copies_unless_speeds_are_given(hours: float, num_speeds: int) -> None:
    assert len(with_speeds(dataclasses.replace(SMALL, speeds=()), hours).speeds) == num_speeds
    assert with_speeds(SMALL, hours) is SMALL


@pytest.mark.parametrize(
    ("seconds_by_rate", "chosen_hz"),
    [
        ([(8000, 1), (16000, 1), (16000, 1)], 16000),
        ([(16000, 1), (8000, 1)], 8000),
        ([(16000, 1), (16000, 1), (8000, 3)], 8000),  # fewer recordings, but more hours
    ],
)
def test_of_several_rates_that_of_most_hours_is_taken_and_else_the_lowest(
    seconds_by_rate: list[tuple[int, int]], chosen_hz: int, tmp_path: Path
) -> None:
    recordings = [
        Recording(f"r{i}", [AudioSource("file", [0], "x")], hz, s * hz, float(s))
        for i, (hz, s) in enumerate(seconds_by_rate)
    ]
    segments = [SupervisionSegment(f"u{i}", f"r{i}", 0.0, 1.0, 0, "hi") for i in range(len(recordings))]
    write_manifests(tmp_path / "train", recordings, segments, [], 0.0, {})
    assert with_rate(dataclasses.replace(SMALL, sampling_rate_hz=0), tmp_path / "train").sampling_rate_hz == chosen_hz
    assert with_rate(SMALL, tmp_path / "nowhere") is SMALL


def test_unreadable_audio_and_what_is_too_short_is_set_aside_and_listed(
    make_manifests: MakeManifests, tmp_path: Path
) -> None:
    """For FLAC, lhotse replaces libsndfile's error by one without text."""
    manifests = make_manifests(train=6)
    change_line(manifests / "train" / "supervisions.jsonl.gz", 2, {"duration": 0.02})
    paths = [tmp_path / "audio" / f"train{i}.wav" for i in range(6)]
    soundfile.write(paths[5], *soundfile.read(paths[5]), format="FLAC")
    paths[1].unlink()
    for path, content in zip(paths[2:], (None, b"none" * 5000, b"", None), strict=True):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if content is None else content)
    compute_features(manifests, tmp_path / "features", dataclasses.replace(PLAIN, bad_fraction=0.9))
    reader = FeatureReader(tmp_path / "features" / "train", "speaker")
    assert [utterance.id for utterance in reader.index] == [f"train0-{n}" for n in (0, 1, 3, 4, 5)]
    assert all(len(reader.read(i)) for i in range(5))
    short, *drops = read_drops(tmp_path / "features" / "train" / "dropped.tsv")
    assert dataclasses.astuple(short) == ("train0-2", "too short", "160 samples are less than a frame")
    assert [drop.id for drop in drops] == [f"train{i}-{n}" for i in range(1, 6) for n in range(6)]
    assert {drop.reason for drop in drops} == {"unusable audio"}
    assert drops[6].detail.endswith("train2.wav has 79994 samples, expected 160000")
    assert drops[-1].detail == "Error : flac decoder lost sync."


def test_too_much_unreadable_audio_fails_and_leaves_the_list_but_no_set(
    make_manifests: MakeManifests, tmp_path: Path
) -> None:
    manifests = make_manifests(train=3)
    (tmp_path / "audio" / "train1.wav").write_bytes(b"")
    out = tmp_path / "features"
    message = (
        r"train: 6 of 18 utterances cannot be used, and features\.bad_fraction = 0\.01 allows 1;"
        r" the first is train1-0: unusable audio: .*; fix what .*train\.dropped\.tsv lists"
    )
    with pytest.raises(AsrtoolError, match=message) as raised:
        compute_features(manifests, out, PLAIN)
    assert "\n" not in str(raised.value)
    assert sorted(path.name for path in out.iterdir()) == [".part.train", "train.dropped.tsv"]
    assert len((out / "train.dropped.tsv").read_text().splitlines()) == 1 + 6
    compute_features(manifests, out, dataclasses.replace(PLAIN, bad_fraction=0.5))
    assert not (out / "train.dropped.tsv").exists()


def test_samples_that_are_no_numbers_name_the_utterance(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests = make_manifests()
    samples, rate_hz = soundfile.read(tmp_path / "audio" / "train0.wav")
    samples[int(6.5 * rate_hz), 0] = np.nan
    soundfile.write(tmp_path / "audio" / "train0.wav", samples, rate_hz, subtype="FLOAT")
    with pytest.raises(AsrtoolError, match=r"features of train0-2 hold NaN or infinity; listen to recording train0"):
        compute_features(manifests, tmp_path / "features", dataclasses.replace(PLAIN, num_jobs=2, shard_cuts=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"channel": 2}, "train.*channel"),
        ({"text": None}, "train: utterance train0-3 has no text"),
        ({"speaker": None}, "train: utterance train0-3 has no speaker"),
        ({"id": "sp2-x", "speaker": "sp2-y"}, "is called as a copy at another speed would be; rename"),
    ],
)
def test_an_utterance_that_cannot_be_used_is_named(
    make_manifests: MakeManifests, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    manifests = make_manifests()
    change_line(manifests / "train" / "supervisions.jsonl.gz", 3, change)
    with pytest.raises(AsrtoolError, match=message):
        compute_features(manifests, tmp_path / "features", PLAIN)


@pytest.mark.parametrize("name", ["recordings.jsonl.gz", "supervisions.jsonl.gz"])
def test_a_corrupt_manifest_is_named_and_features_do_not_look_complete(
    make_manifests: MakeManifests, tmp_path: Path, name: str
) -> None:
    manifests, out = make_manifests(), tmp_path / "features"
    compute_features(manifests, out, PLAIN)
    path = manifests / "test" / name
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(AsrtoolError, match=rf"test.{name}: "):
        compute_features(manifests, out, PLAIN)
    with pytest.raises(AsrtoolError, match="not complete"):
        read_feature_settings(out)


DISK_FULL = """
import dataclasses, resource, sys
from pathlib import Path
from asrtool.settings.data import Features
from asrtool.data.features.compute_sets import compute_features
from asrtool.errors import AsrtoolError
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
for num_jobs, storage in ((1, "lilcom"), (1, "shar"), (2, "lilcom")):
    try:
        settings = Features(num_jobs=num_jobs, shard_cuts=6, storage=storage)
        compute_features(Path(sys.argv[1]), Path(sys.argv[2]), settings)
    except AsrtoolError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_leaves_no_set(corpus: Path, tmp_path: Path) -> None:
    # A process of its own, because pytest writes files too.
    arguments = [sys.executable, "-B", "-c", DISK_FULL, str(corpus / "manifests"), str(tmp_path / "features")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    for line in lines:
        assert "features/train: cannot be written, file too large; free some space" in line
    assert [path.name for path in (tmp_path / "features").iterdir()] == [".part.train"]


class Narrow(FeatureType):
    """Feature type with one value less than its settings say."""

    @dataclass(frozen=True)
    class Settings:
        num_features: int = 7

    def __init__(self, features: Features) -> None:
        self.num_features = features.num_features

    def extract(self, samples_S: np.ndarray) -> np.ndarray:
        return np.zeros((3, self.num_features - 1), np.float32)


def test_features_of_another_shape_than_their_settings_say_are_refused(corpus: Path, tmp_path: Path) -> None:
    settings = dataclasses.replace(PLAIN, type=Choice.of("features", f"{__name__}:Narrow"))
    with pytest.raises(AsrtoolError) as caught:
        compute_features(corpus / "manifests", tmp_path / "features", settings)
    assert "Narrow gave an array of shape (3, 6), expected (frames, 7), the num_features of its" in str(caught.value)


HOURS = 0.004  # of a set of one recording, as its report rounds them
STORED = Features(num_jobs=1, speeds=(1.0,))


def size(out: Path) -> int:
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the space on the disk that is free."""
    return lambda num_bytes: monkeypatch.setattr("shutil.disk_usage", lambda _: types.SimpleNamespace(free=num_bytes))


@pytest.mark.parametrize("storage", ["lilcom", "shar", "flac"])
def test_the_estimate_of_disk_space_is_near_what_is_written(corpus: Path, storage: str) -> None:
    """Features of 23 values, where what lies beside them weighs more than with 40."""
    features = dataclasses.replace(Features(), storage=storage)
    hours = {name: read_report(corpus / "manifests" / name)["speech_hours"] for name in ("train", "dev", "test")}
    copies_hours = hours["train"] * (1 / 0.9 + 1 / 1.1)
    estimate = stored_bytes(features, sum(hours.values()), copies_hours) * (1 if storage == "flac" else 23 / 40)
    assert 0.75 < estimate / size(corpus / storage) < 1.3


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"keep_audio": True}, "features.keep_audio=false"),
        ({"speeds": (0.9, 1.0)}, r"features.speeds=\[1.0\]"),
        ({"storage": "shar"}, "features.storage=lilcom"),
        ({"storage": "flac"}, "features.storage=lilcom"),
        ({"storage": "flac", "speeds": (0.8, 0.9, 1.0, 1.1, 1.2)}, "data.train"),
    ],
)
def test_too_little_space_is_one_line_with_advice(
    corpus: Path, tmp_path: Path, free: Callable[[float], None], changes: dict, advice: str
) -> None:
    free(0)
    with pytest.raises(AsrtoolError, match=advice):
        compute_features(corpus / "manifests", tmp_path / "features", dataclasses.replace(STORED, **changes))
    assert not (tmp_path / "features").exists()


def test_space_is_needed_for_features_copies_and_samples_but_not_for_what_is_there(
    make_manifests: MakeManifests, tmp_path: Path, free: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    manifests, out = make_manifests(), tmp_path / "features"
    plain = stored_bytes(STORED, 3 * HOURS, 0)
    for changes, more in (({}, 0), ({"speeds": (1.0, 0.5)}, plain / 3 * 2), ({"keep_audio": True}, HOURS * 57.6e6)):
        free(plain + more - 2e3)
        with pytest.raises(AsrtoolError, match="are missing"):
            compute_features(manifests, out, dataclasses.replace(STORED, **changes))
    # 3 x sets, 100 frames a second of 40 values of 1.25 bytes
    free(plain + 2e3)
    with caplog.at_level(logging.INFO):
        compute_features(manifests, out, STORED)
    assert "features of 0.012 h at all speeds, lilcom: about 0.000216 GB of disk; 0 GB are there, 0.00" in caplog.text
    free(plain - size(out) + 2e3)
    compute_features(manifests, out, STORED)


CONF = Path(__file__).parents[3] / "recipes/swbd/conf"


def settings(rate_hz: int, length_ms: float) -> Features:
    return Features(Choice.of("features", "spectrogram"), sampling_rate_hz=rate_hz, frame_length_ms=length_ms)


@pytest.mark.parametrize("rate_hz", [8000, 16000, 44100])
def test_the_filterbank_without_torch_is_that_of_lhotse(rate_hz: int) -> None:
    features = dataclasses.replace(Config().features, sampling_rate_hz=rate_hz)
    for num_samples in (400, 401, 439, 440, 479, 480, 800, 1000, 4041, 12345):  # the last frames are filled up
        samples_S = np.random.default_rng(num_samples).normal(scale=0.1, size=num_samples).astype(np.float32)
        samples_S[: num_samples // 3] = 0.0
        expected_TF = Filterbank(features).extract(samples_S)
        np.testing.assert_allclose(NumpyFilterbank(features).extract(samples_S), expected_TF, atol=1e-3)
    for given_hz in (rate_hz // 2, 11025, 44100):
        expected_TF = frames_of(samples_S, given_hz, features, Filterbank(features))
        np.testing.assert_allclose(
            frames_of(samples_S, given_hz, features, NumpyFilterbank(features)), expected_TF, atol=1e-3
        )


@pytest.mark.parametrize("num", [0, 1, 5, 99, 4410])
@pytest.mark.parametrize(("rate_hz", "wanted_hz"), [(16000, 8000), (8000, 16000), (44100, 8000), (11025, 16000)])
def test_resampling_by_numpy_is_that_of_scipy(num: int, rate_hz: int, wanted_hz: int) -> None:
    samples_S = np.random.default_rng(1).normal(size=num).astype(np.float32)
    found_S = NumpyFilterbank(Features()).resample(samples_S, rate_hz, wanted_hz)
    divisor = math.gcd(rate_hz, wanted_hz)
    expected_S = resample_poly(samples_S, wanted_hz // divisor, rate_hz // divisor) if num else samples_S
    assert (found_S.shape, found_S.dtype) == (expected_S.shape, np.float32)
    np.testing.assert_allclose(found_S, expected_S, atol=1e-5)


@pytest.mark.parametrize(
    ("rate_hz", "length_ms", "num"), [(16000, 20.0, 161), (8000, 20.0, 81), (8000, 25.0, 101), (11025, 25.0, 138)]
)
def test_a_frame_has_the_log_power_of_each_frequency_of_its_window(rate_hz: int, length_ms: float, num: int) -> None:
    features = settings(rate_hz, length_ms)
    assert features.num_features == num
    samples_S = np.random.default_rng(1).standard_normal(rate_hz).astype(np.float32) / 10
    feats_TF = PowerSpectrum(features).extract(samples_S)
    assert feats_TF.shape == (100, num)
    length, shift = int(rate_hz * length_ms / 1000), rate_hz // 100
    for frame in range(2, 98):  # the first and last reach beyond the samples
        begin = frame * shift + shift // 2 - length // 2
        window = samples_S[begin : begin + length].astype(float) * np.hamming(length)
        expected = np.log(np.abs(np.fft.rfft(window)) ** 2)
        np.testing.assert_allclose(feats_TF[frame], expected, atol=2e-3)


@pytest.mark.parametrize("name", ["deepspeech2", "conformer", "lstm_paper", "transducer", "attention"])
def test_each_system_is_laid_over_each_size_and_its_model_can_be_built(name: str) -> None:
    for base in ("swb300", "swb2000", "mini"):
        config = load_config([CONF / f"{base}.toml", CONF / f"{name}.toml"])
        check_conflicts(config)
    small = [f"model.{config.model.encoder.table}.num_layers=1"]
    config = load_config([CONF / f"{base}.toml", CONF / f"{name}.toml"], small)
    model = build_model(config.model, config.features.num_features, config.tokenizer.vocab_size)
    assert config.model.encoder.name in (name, "lstm")
    assert sum(parameter.numel() for parameter in model.parameters()) > 100_000
    assert (config.features.type.name == "spectrogram") == (name == "deepspeech2")


def test_systems_of_several_files_are_what_they_say() -> None:
    """The papers' hybrid, the best attention model, and LF-MMI behind models that are trained as long as the base."""

    def laid_over(*names: str) -> Config:
        config = load_config([CONF / f"{name}.toml" for name in names])
        check_conflicts(config)
        return config

    hybrid = laid_over("swb2000", "hybrid", "lstm_paper")
    assert (hybrid.tree.num_leaves, hybrid.model.objective.settings.piece_frames) == (32000, 21)
    assert (hybrid.model.encoder.settings.weight_drop, hybrid.model.encoder.settings.dropout) == (0, 0)
    attention = laid_over("swb300", "attention", "attention_paper")
    encoder, decoder = attention.model.encoder.settings, attention.model.objective.settings
    assert (encoder.num_layers, encoder.hidden_size, encoder.residual, decoder.hidden_size) == (8, 768, True, 768)
    assert attention.train.sequence_noise
    assert attention.train.optimizer.settings.nesterov
    for base in ("swb300", "swb2000", "mini"):
        plain, mmi = laid_over(base).train, hybrid_settings(laid_over(base, "hybrid_mmi")).train
        assert (mmi.num_epochs, mmi.peak_lr) == (plain.num_epochs, plain.peak_lr)


NUM_BINS = 5


def features(seed: int, num_frames: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.normal(size=(num_frames, NUM_BINS)) * [1, 2, 3, 4, 5] + seed - 8).astype(np.float32)


def write_speakers(directory: Path, speakers: dict[str, np.ndarray]) -> np.ndarray:
    """Write the normalisation of these features; returns them in one piece."""
    totals: dict[str, Moments] = {}
    for name, feats_TF in speakers.items():
        add_moments(totals, {name: Moments.of(feats_TF)})
    write_cmvn(directory, totals, functools.reduce(Moments.__add__, totals.values()))
    return np.concatenate(list(speakers.values()))


def test_a_small_deviation_around_a_large_mean_is_kept_and_a_constant_bin_gets_the_floor() -> None:
    random = np.random.default_rng(0)
    feats_TF = (4000 + random.normal(size=(20000, NUM_BINS)) * 0.5).astype(np.float32)
    feats_TF[:, 0] = -15.942385
    mean_F, std_F = Moments.of(feats_TF).mean_std()
    assert mean_F[0] == pytest.approx(-15.942385, rel=1e-6)
    np.testing.assert_allclose(std_F[1:], feats_TF[:, 1:].astype(np.float64).std(axis=0), rtol=1e-5)
    assert std_F[0] == np.float32(STD_FLOOR)


@given(st.integers(0, 40), st.integers(0, 99))
def test_an_utterance_is_normalised_by_itself(tmp_path_factory: pytest.TempPathFactory, length: int, seed: int) -> None:
    directory = tmp_path_factory.mktemp("cmvn")
    write_speakers(directory, {"a": features(100, 800)})
    feats_TF = features(seed, length)
    exact_TF = feats_TF.astype(np.float64)
    expected_TF = exact_TF
    if length:
        expected_TF = (exact_TF - exact_TF.mean(axis=0)) / np.maximum(exact_TF.std(axis=0), STD_FLOOR)
    found_TF = Cmvn(directory, "utterance").normalise("a", feats_TF)
    assert found_TF.dtype == np.float32
    np.testing.assert_allclose(found_TF, expected_TF, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("speaker", ["quiet", "unknown"])
def test_a_speaker_with_little_speech_is_normalised_like_everyone(tmp_path: Path, speaker: str) -> None:
    speakers = {"quiet": features(1, MIN_SPEAKER_FRAMES - 1), "loud": features(2, MIN_SPEAKER_FRAMES)}
    whole = write_speakers(tmp_path, speakers).astype(np.float64)
    expected = (speakers["quiet"] - whole.mean(axis=0)) / whole.std(axis=0)
    np.testing.assert_allclose(Cmvn(tmp_path, "speaker").normalise(speaker, speakers["quiet"]), expected, atol=1e-4)
    own = Cmvn(tmp_path, "speaker").normalise("loud", speakers["loud"])
    np.testing.assert_allclose(own.mean(axis=0), 0, atol=1e-4)
    expected = (speakers["loud"] - whole.mean(axis=0)) / whole.std(axis=0)
    np.testing.assert_allclose(Cmvn(tmp_path, "global").normalise("loud", speakers["loud"]), expected, atol=1e-4)
    np.testing.assert_array_equal(Cmvn(tmp_path, "none").normalise("loud", speakers["loud"]), speakers["loud"])


@pytest.mark.parametrize("num_frames", [30, MIN_SPEAKER_FRAMES])
def test_a_speaker_of_a_further_set_with_little_speech_is_completed_by_the_training_set(
    tmp_path: Path, num_frames: int
) -> None:
    base, more = tmp_path / "base", tmp_path / "more"
    base.mkdir()
    more.mkdir()
    whole = write_speakers(base, {"one": features(1, 600)}).astype(np.float64)
    feats_TF = features(2, num_frames)
    write_more_cmvn(more, base, {"new": Moments.of(feats_TF)})
    all_TF = feats_TF.astype(np.float64)
    if num_frames < MIN_SPEAKER_FRAMES:  # 100 frames with mean and deviation of the training set
        alike = np.repeat([whole.mean(axis=0) - whole.std(axis=0), whole.mean(axis=0) + whole.std(axis=0)], 50, axis=0)
        all_TF = np.concatenate([all_TF, alike])
    expected = (feats_TF - all_TF.mean(axis=0)) / all_TF.std(axis=0)
    np.testing.assert_allclose(Cmvn(more, "speaker").normalise("new", feats_TF), expected, atol=1e-3)


@pytest.mark.parametrize("damage", ["missing", "truncated", "other"])
def test_a_broken_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "cmvn.npz"
    write_speakers(tmp_path, {"one": features(1, 600)})
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:200])
    else:
        np.savez(path, other=np.zeros(3))
    with pytest.raises(AsrtoolError, match=r"cmvn\.npz: no readable normalisation: .*; run the features stage"):
        Cmvn(tmp_path, "speaker")
