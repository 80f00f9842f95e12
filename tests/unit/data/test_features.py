"""Manifests to features: what is computed, the same for any number of processes, and every kind of bad input."""

from __future__ import annotations

import dataclasses
import gzip
import json
import logging
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner
from lhotse import AudioSource, CutSet, Fbank, FbankConfig, Recording, SupervisionSegment

from asrtool.cli.data import features as features_command
from asrtool.data.features.cmvn import MIN_SPEAKER_FRAMES
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.features.extract import _cut_out
from asrtool.data.features.feature_type import FeatureType
from asrtool.data.features.shard_plan import with_rate
from asrtool.data.manifests.manifest import read_manifests, write_manifests
from asrtool.data.manifests.sets import EvaluationSet, Sets, read_sets, write_sets
from asrtool.data.manifests.speed_copies import with_speeds
from asrtool.data.storage.index import read_feature_settings, read_index
from asrtool.data.storage.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.files import mark_files
from asrtool.settings.data import Features
from asrtool.settings.schema import Choice

MakeManifests = Callable[..., Path]
SMALL = Features(type=Choice.of("features", "fbank", num_mel_bins=23), shard_cuts=12, num_jobs=1)
PLAIN = dataclasses.replace(SMALL, speeds=(1.0,))


def read_all(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


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


def test_the_index_says_where_in_the_recording_an_utterance_is(corpus: Path) -> None:
    _, supervisions = read_manifests(corpus / "manifests" / "dev")
    expected = {s.id: (s.recording_id, "AB"[s.channel], s.start, s.duration, s.speaker) for s in supervisions}
    index = read_index(corpus / "lilcom" / "dev")
    found = {u.id: (u.recording, u.channel, u.start_s, u.duration_s, u.speaker) for u in index}
    assert found == expected


def test_the_index_says_the_corpus_and_what_else_a_corpus_says(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "manifests", tmp_path / "manifests")
    _change_line(tmp_path / "manifests/test/supervisions.jsonl.gz", 0, {"custom": {"corpus": "calls", "snr_db": 12}})
    compute_features(tmp_path / "manifests", tmp_path / "features", SMALL)
    described, *others = read_index(tmp_path / "features" / "test")
    assert (described.corpus, described.fields) == ("calls", {"snr_db": 12})
    assert {(other.corpus, *other.fields) for other in others} == {("",)}


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


@pytest.mark.parametrize("speed", [0.9, 1.1])
def test_a_copy_at_another_speed_is_what_lhotse_makes_of_the_cut(corpus: Path, speed: float) -> None:
    recordings, supervisions = read_manifests(corpus / "manifests" / "train")
    cuts = CutSet.from_manifests(recordings=recordings, supervisions=supervisions).trim_to_supervisions(
        keep_overlapping=False
    )
    by_id = {cut.supervisions[0].id: cut for cut in cuts}
    extractor = Fbank(FbankConfig(sampling_rate=8000, num_filters=23))
    reader = FeatureReader(corpus / "lilcom" / "train", "none")
    prefix = f"sp{speed}-"
    copies = [i for i, utterance in enumerate(reader.index) if utterance.id.startswith(prefix)]
    for i in copies[::5]:
        cut = by_id[reader.index[i].id.removeprefix(prefix)].perturb_speed(speed)
        expected_TF = extractor.extract(cut.load_audio(), 8000)
        feats_TF = reader.read(i)
        num_frames = min(len(expected_TF), len(feats_TF))
        assert abs(len(expected_TF) - len(feats_TF)) <= 1
        # lhotse rounds where the cut begins, so a copy may be shifted by a part of a sample.
        assert np.abs(expected_TF[:num_frames] - feats_TF[:num_frames]).mean() < 0.1


def test_a_segment_is_cut_out_at_the_nearest_samples() -> None:
    segment = SupervisionSegment("u", "r", 2.01, 2.03, 0, "hello", speaker="s")
    assert (int(2.01 * 8000), int(2.03 * 8000)) == (16079, 16239)
    assert _cut_out(np.arange(40000), segment, 8000).tolist() == list(range(16080, 16080 + 16240))


def test_each_side_is_taken_from_its_own_channel(corpus: Path) -> None:
    reader = FeatureReader(corpus / "lilcom" / "dev", "none")
    peaks = {"A": set(), "B": set()}
    for i, utterance in enumerate(reader.index):
        peaks[utterance.channel].add(int(reader.read(i).mean(axis=0).argmax()))
    assert max(peaks["A"]) < 10 < min(peaks["B"])  # tones of 400 and 1500 Hz


def test_bytes_do_not_depend_on_the_number_of_processes(corpus: Path, tmp_path: Path) -> None:
    compute_features(corpus / "manifests", tmp_path, dataclasses.replace(SMALL, num_jobs=2))
    assert read_all(tmp_path) == read_all(corpus / "lilcom")


def test_a_shard_holds_whole_recordings_at_one_speed(corpus: Path) -> None:
    index = read_index(corpus / "lilcom" / "train")
    shards: dict[int, set[tuple[str, str]]] = {}
    for utterance in index:
        speed = utterance.id.partition("-")[0] if utterance.id.startswith("sp") else ""
        shards.setdefault(utterance.shard, set()).add((speed, utterance.recording))
    assert sorted(shards) == list(range(6))
    assert all(len({speed for speed, _ in members}) == 1 for members in shards.values())
    assert sum(len(members) for members in shards.values()) == len(set().union(*shards.values())) == 12


def test_normalisation_is_numpys_on_the_concatenated_features(corpus: Path) -> None:
    for name in ("train", "dev"):
        reader = FeatureReader(corpus / "lilcom" / name, "none")
        speakers: dict[str, list[np.ndarray]] = {}
        for i, utterance in enumerate(reader.index):
            speakers.setdefault(utterance.speaker, []).append(reader.read(i))
        with np.load(corpus / "lilcom" / name / "cmvn.npz") as arrays:
            for speaker, parts in speakers.items():
                whole = np.concatenate(parts).astype(np.float64)
                assert len(whole) >= MIN_SPEAKER_FRAMES
                row = arrays["names"].tolist().index(speaker)
                np.testing.assert_allclose(arrays["means"][row], whole.mean(axis=0), atol=2**-5)
                np.testing.assert_allclose(arrays["stds"][row], whole.std(axis=0), atol=2**-5)


def test_all_sets_hold_the_normalisation_of_the_whole_training_set(corpus: Path) -> None:
    everyone = []
    for name in ("train", "dev", "test"):
        with np.load(corpus / "lilcom" / name / "cmvn.npz") as arrays:
            row = arrays["names"].tolist().index("*")
            everyone.append((arrays["means"][row].tolist(), arrays["stds"][row].tolist()))
    assert everyone[0] == everyone[1] == everyone[2]


def test_digital_silence_gives_finite_features(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests = make_manifests()
    soundfile.write(tmp_path / "audio" / "train0.wav", np.zeros((8000 * 20, 2)), 8000, subtype="PCM_16")
    compute_features(manifests, tmp_path / "features", PLAIN)
    for cmvn in ("speaker", "global", "none"):
        reader = FeatureReader(tmp_path / "features" / "train", cmvn)
        assert all(np.isfinite(reader.read(i)).all() for i in range(len(reader.index)))


def test_a_wrong_sampling_rate_names_the_recording(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"recording train0 has 8000 samples a second, expected 16000; convert"):
        compute_features(corpus / "manifests", tmp_path, dataclasses.replace(SMALL, sampling_rate_hz=16000))


def test_a_rate_of_0_is_that_of_the_recordings_and_is_written_down(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        compute_features(corpus / "manifests", tmp_path, dataclasses.replace(SMALL, sampling_rate_hz=0))
    assert read_all(tmp_path) == read_all(corpus / "lilcom")
    assert read_feature_settings(tmp_path).sampling_rate_hz == 8000
    assert "sampling_rate_hz is 0: 8000 Hz, as 100 % of the hours of recordings to train on have" in caplog.text


def test_speeds_that_suit_the_speech_are_written_down(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        compute_features(corpus / "manifests", tmp_path, dataclasses.replace(SMALL, speeds=()))
    assert read_feature_settings(tmp_path).speeds == (0.8, 0.9, 1.0, 1.1, 1.2)
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


def test_a_file_at_another_rate_than_its_manifest_says_is_named(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests = make_manifests()
    soundfile.write(tmp_path / "audio" / "dev0.wav", np.zeros((16000 * 20, 2)), 16000, subtype="PCM_16")
    with pytest.raises(AsrtoolError, match=r"dev0\.wav \(recording dev0\) has 16000 samples a second, expected 8000"):
        compute_features(manifests, tmp_path / "features", PLAIN)


@pytest.mark.parametrize("damage", ["missing", "truncated", "garbage", "empty"])
def test_unreadable_audio_is_set_aside_and_listed(make_manifests: MakeManifests, tmp_path: Path, damage: str) -> None:
    manifests = make_manifests(train=3)
    _damage(tmp_path / "audio" / "train1.wav", damage)
    compute_features(manifests, tmp_path / "features", dataclasses.replace(PLAIN, bad_fraction=0.5))
    index = read_index(tmp_path / "features" / "train")
    assert {utterance.recording for utterance in index} == {"train0", "train2"}
    lines = (tmp_path / "features" / "train" / "dropped.tsv").read_text().splitlines()
    assert lines[0] == "id\treason\tdetail"
    assert [line.split("\t")[:2] for line in lines[1:]] == [[f"train1-{n}", "unusable audio"] for n in range(6)]
    assert ("train1.wav has 79994 samples, expected 160000" in lines[1]) == (damage == "truncated")
    reader = FeatureReader(tmp_path / "features" / "train", "speaker")
    assert len([reader.read(i) for i in range(len(index))]) == 12


def test_a_flac_file_that_ends_too_early_is_set_aside_with_the_reason(
    make_manifests: MakeManifests, tmp_path: Path
) -> None:
    """Its header declares all samples; lhotse makes another error of libsndfile's, which has no text then."""
    manifests = make_manifests(train=3)
    path = tmp_path / "audio" / "train1.wav"
    samples, rate_hz = soundfile.read(path)
    soundfile.write(path, samples, rate_hz, format="FLAC")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    compute_features(manifests, tmp_path / "features", dataclasses.replace(PLAIN, bad_fraction=0.5))
    _, *drops = (tmp_path / "features" / "train" / "dropped.tsv").read_text().splitlines()
    assert {tuple(drop.split("\t")[1:]) for drop in drops} == {("unusable audio", "Error : flac decoder lost sync.")}


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_too_much_unreadable_audio_fails_and_leaves_the_list_but_no_set(
    make_manifests: MakeManifests, tmp_path: Path, num_jobs: int
) -> None:
    manifests = make_manifests(train=3)
    _damage(tmp_path / "audio" / "train1.wav", "truncated")
    out = tmp_path / "features"
    message = (
        r"train: 6 of 18 utterances cannot be used \(33\.3%, the limit features\.bad_fraction is 1\.0%\);"
        r" the first is train1-0: unusable audio: .*; fix what .*train\.dropped\.tsv lists"
    )
    with pytest.raises(AsrtoolError, match=message) as raised:
        compute_features(manifests, out, dataclasses.replace(PLAIN, num_jobs=num_jobs, shard_cuts=6))
    assert "\n" not in str(raised.value)
    assert sorted(path.name for path in out.iterdir()) == [".part.train", "train.dropped.tsv"]
    assert len((out / "train.dropped.tsv").read_text().splitlines()) == 1 + 6
    compute_features(manifests, out, dataclasses.replace(PLAIN, bad_fraction=0.5))
    assert not (out / "train.dropped.tsv").exists()


def _damage(path: Path, damage: str) -> None:
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"truncated": content[: len(content) // 2], "garbage": b"none" * 5000, "empty": b""}[damage])


def test_a_segment_shorter_than_a_frame_is_set_aside(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests = make_manifests()
    _change_line(manifests / "train" / "supervisions.jsonl.gz", 2, {"duration": 0.02})
    compute_features(manifests, tmp_path / "features", dataclasses.replace(PLAIN, bad_fraction=0.5))
    text = (tmp_path / "features" / "train" / "dropped.tsv").read_text()
    assert "train0-2\ttoo short\t160 samples are less than a frame\n" in text


def test_samples_that_are_no_numbers_name_the_utterance(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests = make_manifests()
    samples, rate_hz = soundfile.read(tmp_path / "audio" / "train0.wav")
    samples[int(6.5 * rate_hz), 0] = np.nan
    soundfile.write(tmp_path / "audio" / "train0.wav", samples, rate_hz, subtype="FLOAT")
    with pytest.raises(AsrtoolError, match=r"features of train0-2 hold NaN or infinity; listen to recording train0"):
        compute_features(manifests, tmp_path / "features", dataclasses.replace(PLAIN, num_jobs=2, shard_cuts=1))


def test_a_segment_on_a_channel_the_recording_lacks_is_an_error(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests = make_manifests()
    _change_line(manifests / "dev" / "supervisions.jsonl.gz", 1, {"channel": 2})
    with pytest.raises(AsrtoolError, match=r"dev.*channel"):
        compute_features(manifests, tmp_path / "features", PLAIN)


@pytest.mark.parametrize("key", ["text", "speaker"])
def test_an_utterance_without_text_or_speaker_is_named(make_manifests: MakeManifests, tmp_path: Path, key: str) -> None:
    manifests = make_manifests()
    _change_line(manifests / "test" / "supervisions.jsonl.gz", 3, {key: None})
    with pytest.raises(AsrtoolError, match=f"test: utterance test0-3 has no {key}"):
        compute_features(manifests, tmp_path / "features", PLAIN)


def _change_line(path: Path, number: int, change: dict[str, object]) -> None:
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    lines[number] = json.dumps({**json.loads(lines[number]), **change})
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


@pytest.mark.parametrize("name", ["recordings.jsonl.gz", "supervisions.jsonl.gz"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "garbage"])
def test_a_corrupt_manifest_is_named_and_features_do_not_look_complete(
    make_manifests: MakeManifests, tmp_path: Path, name: str, damage: str
) -> None:
    manifests = make_manifests()
    out = tmp_path / "features"
    compute_features(manifests, out, PLAIN)
    _damage(manifests / "test" / name, damage)
    with pytest.raises(AsrtoolError, match=rf"test.{name}: "):
        compute_features(manifests, out, PLAIN)
    with pytest.raises(AsrtoolError, match="not complete"):
        read_feature_settings(out)


DISK_FULL = """
import resource, sys
from pathlib import Path
from asrtool.settings.data import Features
from asrtool.settings.schema import Choice
from asrtool.data.features.compute_sets import compute_features
from asrtool.errors import AsrtoolError
from asrtool.files import mark_files
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
for num_jobs, storage in ((1, "lilcom"), (1, "shar"), (2, "lilcom")):
    fbank = Choice.of("features", "fbank", num_mel_bins=23)
    settings = Features(type=fbank, num_jobs=num_jobs, shard_cuts=6, storage=storage)
    try:
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


@pytest.mark.slow
def test_a_long_name_of_the_folder_of_temporary_files_is_no_hindrance(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20) / ("name" * 20)
    folder.mkdir(parents=True)
    command = [sys.executable, "-c", "from asrtool.cli.main import main; main()", "features", corpus / "manifests"]
    command += [tmp_path / "features", "--set", "features.num_jobs=2", "--set", "features.fbank.num_mel_bins=23"]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "features/test: 6 utterances, 0 left out" in done.stderr


def test_the_command_takes_settings_and_says_what_it_did(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = [
        "--set",
        "features.speeds=[1.0]",
        "--set",
        "features.num_jobs=1",
        "--set",
        "features.fbank.num_mel_bins=30",
    ]
    with caplog.at_level(logging.INFO):
        result = CliRunner().invoke(features_command, [str(corpus / "manifests"), str(tmp_path), *options])
    assert result.exit_code == 0, result.output
    assert "24 utterances, 0 left out" in caplog.text
    assert FeatureReader(tmp_path / "test", "speaker").num_bins == 30


class Flat(FeatureType):
    """Says nothing of time."""

    @dataclass(frozen=True)
    class Settings:
        num_features: int = 7

    def __init__(self, features: Features) -> None:
        self.num_features = features.num_features

    def extract(self, samples_S: np.ndarray) -> np.ndarray:
        return samples_S[: self.num_features]


class Narrow(Flat):
    """One value less than its settings say."""

    def extract(self, samples_S: np.ndarray) -> np.ndarray:
        return np.zeros((3, self.num_features - 1), np.float32)


@pytest.mark.parametrize(("name", "shape"), [("Flat", "(7,)"), ("Narrow", "(3, 6)")])
def test_features_of_another_shape_than_their_settings_say_are_refused(
    name: str, shape: str, corpus: Path, tmp_path: Path
) -> None:
    settings = Features(type=Choice.of("features", f"{__name__}:{name}"), speeds=(1.0,), num_jobs=1)
    with pytest.raises(AsrtoolError) as caught:
        compute_features(corpus / "manifests", tmp_path / "features", settings)
    assert f"{name} gave an array of shape {shape}, expected (frames, 7), the num_features of its" in str(caught.value)


def loudest(corpus: Path, tone_hz: int, recorded_hz: int, wanted_hz: int) -> tuple[float, float]:
    """Frequency and log power of the loudest bin of the spectrum that is made of a tone."""
    spectrum = Features(
        type=Choice.of("features", "spectrogram"), sampling_rate_hz=wanted_hz, resample=True, speeds=(1.0,), num_jobs=1
    )
    root = corpus / f"{tone_hz}-{recorded_hz}-{wanted_hz}"
    (root / "audio").mkdir(parents=True)
    times = np.arange(2 * recorded_hz) / recorded_hz
    soundfile.write(root / "audio" / "r.wav", 0.3 * np.sin(2 * np.pi * tone_hz * times), recorded_hz)
    for name in ("train", "dev", "test"):
        recording = Recording.from_file(root / "audio" / "r.wav", recording_id=f"r{name}")
        segment = SupervisionSegment(f"u{name}", f"r{name}", 0.5, 1.0, 0, "hello", speaker="s")
        write_manifests(root / "m" / name, [recording], [segment], [], 0.0, {})
    write_sets(root / "m", Sets((EvaluationSet("test", "Test", {}),)))
    compute_features(root / "m", root / "f", spectrum)
    reader = FeatureReader(root / "f" / "train", "none")
    assert len(reader.index) == 1
    assert abs(reader.index[0].num_frames - 100) <= 2
    mean = reader.read(0)[10:-10].mean(0)
    return float(mean.argmax() * wanted_hz / 2 / (len(mean) - 1)), float(mean.max())


@pytest.mark.parametrize(
    ("tone_hz", "recorded_hz", "wanted_hz"), [(1000, 16000, 8000), (1000, 8000, 16000), (3000, 48000, 16000)]
)
def test_a_tone_keeps_its_frequency_at_another_sampling_rate(
    tone_hz: int, recorded_hz: int, wanted_hz: int, tmp_path: Path
) -> None:
    found_hz, _ = loudest(tmp_path, tone_hz, recorded_hz, wanted_hz)
    assert found_hz == pytest.approx(tone_hz, abs=41)


def test_a_tone_that_a_lower_rate_cannot_hold_is_not_heard_as_another(tmp_path: Path) -> None:
    _, kept = loudest(tmp_path, 1000, 16000, 8000)
    _, lost = loudest(tmp_path, 6000, 16000, 8000)
    assert lost < kept - 9.2  # 40 dB
