"""A person's own data: wav and txt folders, Kaldi data directories, lhotse manifests."""

from __future__ import annotations

import dataclasses
import gzip
import json
import logging
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from commands import error_of
from lhotse import CutSet, MonoCut, Recording, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.audio import audio_backend
from small_releases import dropped, make_data, read_jsonl, read_manifests, supervisions, write_wav

import asrtool
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.manifests.manifest import read_drops
from asrtool.data.storage.index import read_feature_settings
from asrtool.data.storage.reader import FeatureReader
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import prepare_all
from asrtool.local.layouts.detect import prepare_any
from asrtool.local.layouts.folder import prepare_folder
from asrtool.local.layouts.lhotse import prepare_lhotse
from asrtool.local.sets.split import split_manifests
from asrtool.recipe.recipe import load_recipe, load_settings
from asrtool.score.stm_ctm import read_stm
from asrtool.score.utterances import unescape
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=0.9)
OWN = make_data(("own",), ("own",), ("own",))


def write_pair(stem: Path, text: str = "Hello, world.") -> None:
    write_wav(stem.with_suffix(".wav"))
    stem.with_suffix(".txt").write_text(text + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "my data"
    write_pair(root / "ann" / "one")
    write_pair(root / "ann" / "two", "It's\nwell-known!")
    write_pair(root / "flat", "Yes")
    return root


def test_a_folder_of_pairs_becomes_manifests(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_pair(folder / "flat", "Yes" + "s" * 57)
    prepare_folder(folder, tmp_path / "m", Data(), "own")
    assert "characters a second" not in caplog.text
    caplog.clear()
    write_pair(folder / "flat", "Yes")
    out = tmp_path / "own_test"
    prepare_folder(folder, out, Data(), "own")
    assert [(s["id"], s["speaker"], s["text"]) for s in supervisions(out)] == [
        ("ann-one", "ann", "hello world"),
        ("ann-two", "ann", "it's well known"),
        ("flat", "flat", "yes"),
    ]
    write_pair(folder / "fast", "a" * 61)
    prepare_folder(folder, tmp_path / "m", Data(), "own")
    assert "m: 1 of 4 utterances have more than 30 characters a second, the first is fast" in caplog.text
    assert (out / "ref.stm").read_text().splitlines()[-1] == "flat/flat A flat 0.000 2.000 <O,own> yes"


@pytest.mark.parametrize(
    "suffix",
    [".wav", ".flac", ".sph", ".mp3", ".ogg", ".oga", ".opus", ".aiff", ".aif", ".aifc", ".au", ".snd", ".caf", ".w64"],
)
def test_a_file_of_any_format_beside_its_text_is_read_to_its_end(suffix: str, tmp_path: Path) -> None:
    format_ = {".sph": "NIST", ".oga": "OGG", ".opus": "OGG", ".aif": "AIFF", ".aifc": "AIFF", ".snd": "AU"}.get(
        suffix, suffix[1:].upper()
    )
    path = tmp_path / "data" / f"Three{suffix.upper()}"
    path.parent.mkdir()
    samples = 0.1 * np.sin(np.arange(48000) / 20)
    soundfile.write(path, samples, 16000, format=format_, subtype="OPUS" if suffix == ".opus" else None)
    path.with_suffix(".txt").write_text("three")
    prepare_folder(path.parent, tmp_path / "m", Data(), "own")
    (recording,) = read_manifests(tmp_path / "m")[0]
    with audio_backend("LibsndfileBackend"):
        assert recording.load_audio().shape == (1, recording.num_samples)
    assert recording.duration == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("suffix", [".wav", ".sph"])
def test_a_file_of_two_channels_is_named_with_what_to_do(
    suffix: str, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    both = folder / f"both{suffix}"
    soundfile.write(both, np.zeros((16000, 2)), 8000, format="WAV" if suffix == ".wav" else "NIST")
    (folder / "both.txt").write_text("two")
    advice = r"mix the channels \(sox IN OUT remix -\) or keep one of them \(sox IN OUT remix 1\)"
    with pytest.raises(AsrtoolError, match=rf"both{suffix}: 2 channels, expected 1 channel; {advice}"):
        prepare_folder(folder, tmp_path / "m", Data(bad_fraction=0), "own")
    prepare_folder(folder, tmp_path / "m", Data(), "own")
    found = rf"1 of 4 audio files have several channels, the first is {both}: left out; {advice}"
    assert re.search(found, caplog.text)


def test_odd_files_of_a_folder_are_set_aside(folder: Path, tmp_path: Path) -> None:
    write_wav(folder / "alone.wav")
    (folder / "lonely.txt").write_text("where is my sound")
    (folder / "phone.txt").write_text("hello")
    (folder / "phone.M4A").write_bytes(b"\0\0\0\x18ftyp")
    write_pair(folder / "silent", "")
    write_pair(folder / "number", "room 42")
    write_pair(folder / "dots", "...")
    write_pair(folder / "both")
    write_wav(folder / "both.wav", num_channels=2)
    write_pair(folder / "bad")
    (folder / "bad.wav").write_bytes(b"RIFF")
    (folder / "flat.txt").write_bytes(b"caf\xe9 no")
    (folder / "ann" / "one.txt").write_bytes(b"\xef\xbb\xbfno")  # a byte order mark is not text
    prepare_folder(folder, tmp_path / "m", LENIENT, "own")
    assert [s["text"] for s in supervisions(tmp_path / "m")] == ["no", "it's well known"]
    drops = (tmp_path / "m" / "dropped.tsv").read_text()
    assert "is not UTF-8; convert the text" in drops
    assert "phone.M4A: no readable audio: of another format, convert it (ffmpeg -i x.m4a x.flac)\n" in drops
    assert dropped(tmp_path / "m") == {
        "flat": "unknown characters",
        "alone": "no transcript",
        "lonely": "no audio",
        "phone": "unusable audio",
        "silent": "empty",
        "number": "unknown characters",
        "dots": "empty",
        "both": "unusable audio",
        "bad": "unusable audio",
    }
    write_wav(tmp_path / "none" / "x.wav")
    with pytest.raises(AsrtoolError, match=r"no audio file with a text beside it, expected x.txt and x with .wav, "):
        prepare_folder(tmp_path / "none", tmp_path / "n", LENIENT, "own")


def write_lhotse(folder: Path) -> Path:
    recordings = [Recording.from_file(write_wav(folder / "audio" / f"r{i}.wav")) for i in range(2)]
    segments = [SupervisionSegment(f"u{i}", f"r{i}", 0.5, 1.0, 0, "Hello!", speaker=f"s{i}") for i in range(2)]
    RecordingSet.from_recordings(recordings).to_file(folder / "x_recordings_all.jsonl.gz")
    SupervisionSet.from_segments(segments).to_file(folder / "x_supervisions_all.jsonl.gz")
    return folder


def test_a_dev_set_no_longer_given_is_no_longer_taken(folder: Path, tmp_path: Path) -> None:
    corpus, manifests = tmp_path / "corpus", tmp_path / "manifests"
    corpus.mkdir()
    for name in ("own_train", "own_dev", "own_test"):
        (corpus / name).symlink_to(folder)
    prepare_all(corpus, manifests, OWN)
    (corpus / "own_dev").unlink()
    prepare_all(corpus, manifests, OWN)
    (corpus / "own_test").unlink()
    with pytest.raises(AsrtoolError, match=r"own/test: half-written, it has no report.json; run"):
        prepare_all(corpus, manifests, OWN)
    assert not (manifests / "corpora" / "own" / "dev" / "report.json").exists()
    assert (manifests / "corpora" / "own" / "train" / "report.json").exists()


def test_two_pairs_of_a_folder_that_would_be_one_are_refused(folder: Path, tmp_path: Path) -> None:
    write_wav(folder / "bob" / "six.wav")
    (folder / "bob-six.txt").write_text("six")
    prepare = lambda: prepare_folder(folder, tmp_path / "m", LENIENT, "own")  # noqa: E731
    with pytest.raises(AsrtoolError, match=r"bob/six.\* and .*bob-six.\*: both would be recording bob-six; rename one"):
        prepare()
    (folder / "bob-six.txt").unlink()
    prepare()
    for name in ("one.flac", "one.mp3"):
        (folder / "ann" / name).touch()
        with pytest.raises(AsrtoolError, match=rf"ann/{name} and one.wav: two files for one recording; keep one"):
            prepare()
        (folder / "ann" / name).unlink()
    (folder / "ann" / "one.mp4").touch()  # a film; its audio may be
    prepare()
    assert dropped(tmp_path / "m") == {"bob-six": "no transcript"}


def test_names_with_blanks_become_one_word_that_a_reference_can_hold(tmp_path: Path) -> None:
    folder = tmp_path / "lhotse"
    recording = Recording.from_file(write_wav(folder / "r.wav"), recording_id="my call")
    segment = SupervisionSegment("u 1", "my call", 0.5, 1.0, 0, "Hello!", speaker="John Smith")
    RecordingSet.from_recordings([recording]).to_file(folder / "recordings.jsonl.gz")
    SupervisionSet.from_segments([segment]).to_file(folder / "supervisions.jsonl.gz")
    prepare_lhotse(folder, tmp_path / "l", Data(), "own")
    assert unescape(read_stm(tmp_path / "l" / "ref.stm")[0].speaker) == "John-Smith"
    assert read_stm(tmp_path / "l" / "ref.stm")[0].side[0] == "my-call/u-1"
    twins = [recording, Recording.from_file(folder / "r.wav", recording_id="my-call")]
    RecordingSet.from_recordings(twins).to_file(folder / "recordings.jsonl.gz")
    with pytest.raises(AsrtoolError, match=r"two recordings are my-call, of .* and .*; make the ids unique"):
        prepare_lhotse(folder, tmp_path / "l", Data(), "own")


def write_cuts(tmp_path: Path) -> Path:
    """Recordings of four seconds in halves, each with an utterance; a cut that is mixed, and one seen twice."""
    recordings, cuts = [], []
    for number in range(2):
        soundfile.write(tmp_path / f"r{number}.wav", np.full(32000, 0.01), 8000)
        recordings.append(Recording.from_file(tmp_path / f"r{number}.wav"))
        for half in range(2):
            name = f"u{number}{half}"
            said = SupervisionSegment(name, f"r{number}", 0.5, 1.0, 0, f"word {'ab'[half]}", speaker="s")
            cuts.append(MonoCut(f"c{name}", 2.0 * half, 2.0, 0, [said], recording=recordings[number]))
    whole = MonoCut("whole", 0.0, 4.0, 0, [cuts[1].supervisions[0].with_offset(2.0)], recording=recordings[0])
    path = tmp_path / "data" / "my_cuts.jsonl.gz"
    path.parent.mkdir()
    CutSet.from_cuts([*cuts, whole, cuts[0].pad(3.0)]).to_file(path)
    return path


def test_cuts_of_lhotse_are_read_where_they_are_in_their_recordings(tmp_path: Path) -> None:
    path = write_cuts(tmp_path)
    (tmp_path / "own_train").symlink_to(path)  # as the stage corpus does
    for number, source in enumerate((tmp_path / "own_train", path.parent)):
        prepare_any(source, tmp_path / f"m{number}", LENIENT, "own")
        _, segments = read_manifests(tmp_path / f"m{number}")
        assert [(s.id, s.recording_id, s.start, s.duration, s.text) for s in segments] == [
            ("u00", "r0", 0.5, 1.0, "word a"),
            ("u01", "r0", 2.5, 1.0, "word b"),
            ("u10", "r1", 0.5, 1.0, "word a"),
            ("u11", "r1", 2.5, 1.0, "word b"),
        ]
        (drop,) = read_drops(tmp_path / f"m{number}" / "dropped.tsv")
        assert drop.detail == "a MixedCut, expected a MonoCut with a recording"


BROKEN = {
    "recordings": {"duration": "x", "sources": ["x"], "sampling_rate": 0, "id": None, "channel_ids": "x"},
    "supervisions": {
        "id": "half \ud800", "recording_id": None, "speaker": {}, "channel": 1.5, "start": "0", "text": 5,
        "custom": "x", "alignment": [1],
    },
    "cuts": {"start": "0", "recording.channel_ids": "x", "supervisions.id": None},
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_value_that_lhotse_does_not_look_at_is_reported(name: str, tmp_path: Path) -> None:
    folder = write_cuts(tmp_path).parent if name == "cuts" else write_lhotse(tmp_path / "lhotse")
    (path,) = folder.glob(f"*{name}*.jsonl.gz")
    for place, value in BROKEN[name].items():
        whole, (part, _, key) = read_jsonl(path), place.rpartition(".")
        entries = json.loads(json.dumps(whole))
        of_part = entries[1][part] if part else entries[1]
        (of_part[0] if isinstance(of_part, list) else of_part)[key] = value
        for lines in (entries, whole):  # which stay
            path.write_bytes(gzip.compress("".join(json.dumps(entry) + "\n" for entry in lines).encode()))
            if lines is entries:
                message = f"{path.name}: corrupt after line 1: (ValueError: {key} (is|has)|Unicode)"
                with pytest.raises(AsrtoolError, match=message):
                    prepare_lhotse(folder, tmp_path / "m", LENIENT, "own")
    if name != "cuts":
        path.unlink()
        with pytest.raises(AsrtoolError, match=rf"0 files \*{name}\*.jsonl.gz, expected one"):
            prepare_lhotse(folder, tmp_path / "m", LENIENT, "own")


@pytest.mark.parametrize(
    ("layout", "below"), [("folder", "."), ("kaldi", "sub/m"), ("lhotse", "."), ("shar", "m"), ("manifest", "m")]
)
def test_manifests_are_not_written_into_the_data(layout: str, below: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    before = sorted(folder.rglob("*"))
    out = tmp_path / "link" / below
    error = error_of("prepare", layout, folder, out)
    assert str(error) == f"{out}: lies in the data {folder}, expected the two apart; choose another OUT"
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("words", [["check"], ["prepare", "folder"], ["prepare", "manifest"]])
def test_a_place_that_cannot_be_written_is_noticed_before_the_data_are_read(words: list[str], folder: Path) -> None:
    (folder / "ann" / "one.flac").touch()  # reading them would name it
    assert re.match(r"/proc/new(/report.json)?: cannot be written, /proc", str(error_of(*words, folder, "/proc/new")))


def test_manifests_may_lie_beside_a_table_but_not_in_its_folder(folder: Path, tmp_path: Path) -> None:
    (folder / "train.csv").write_text("path,text\nflat.wav,yes\n")
    with pytest.raises(AsrtoolError, match=r"my data: is the folder of the data .*train.csv, expected the two apart"):
        asrtool.prepare(folder / "train.csv", folder)
    assert asrtool.prepare(folder / "train.csv", folder / "m") == folder / "m"


RATES_HZ = (8000, 16000, 11025, 44100, 16000, 48000)
RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "own"


def test_features_of_the_recipe_are_at_one_rate_and_the_log_says_what_became_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_settings(load_recipe(RECIPE), [], ["features.num_jobs=1", "features.speeds=1.0"])
    for number, rate_hz in enumerate(RATES_HZ):
        path = tmp_path / "corpus" / "own_train" / f"s{number % 3}" / f"u{number}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, 0.3 * np.sin(2 * np.pi * 1000 * np.arange(2 * rate_hz) / rate_hz), rate_hz)
        path.with_suffix(".txt").write_text("one two")
    shutil.copytree(tmp_path / "corpus" / "own_train", tmp_path / "corpus" / "own_test")
    manifests = tmp_path / "manifests"
    prepare_all(tmp_path / "corpus", manifests, config.data)
    split_manifests(manifests, config.data)
    assert sorted(r.sampling_rate for r in read_manifests(manifests / "own")[0]) == sorted(RATES_HZ)
    with caplog.at_level(logging.INFO):
        compute_features(manifests, tmp_path / "features", config.features)
    assert read_feature_settings(tmp_path / "features").sampling_rate_hz == 16000
    reader = FeatureReader(tmp_path / "features" / "own", "none")
    assert [len(reader.read(i)) for i in range(len(reader.index))] == [200] * len(RATES_HZ)
    loudest = {int(reader.read(i).mean(0).argmax()) for i in range(len(reader.index))}
    assert max(loudest) - min(loudest) <= 1  # the tone is the same at all rates
    where = manifests / "own"
    expected = {
        f"{where}: 1 of 6 recordings have 8000 Hz, resampled to 16000: NOTHING ABOVE 4000 Hz IS IN THEM;"
        " features.sampling_rate_hz=8000 would make all alike": "WARNING",
        f"{where}: 1 of 6 recordings have 11025 Hz, resampled to 16000: NOTHING ABOVE 5512 Hz IS IN THEM": "WARNING",
        f"{where}: 1 of 6 recordings have 44100 Hz, resampled to 16000": "INFO",
        f"{where}: 1 of 6 recordings have 48000 Hz, resampled to 16000": "INFO",
    }
    said = {record.getMessage(): record.levelname for record in caplog.records}
    assert {message: level for message, level in said.items() if message.startswith(f"{where}: ")} == expected
    rates = [entry["sampling_rate"] for entry in read_jsonl(manifests / "train" / "recordings.jsonl.gz")]
    assert f"16000 Hz, as {100 * rates.count(16000) / len(rates):.3g} % of the hours of recordings" in caplog.text
    with pytest.raises(AsrtoolError, match=r"samples a second, expected \d+; .*set features.resample=true"):
        compute_features(manifests, tmp_path / "f", dataclasses.replace(config.features, resample=False))
