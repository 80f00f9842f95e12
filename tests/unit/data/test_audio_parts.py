"""Joined or cut-off audio files are read as far as they go, and named."""

from __future__ import annotations

import dataclasses
import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import (
    AudioSource,
    CutSet,
    MonoCut,
    Recording,
    RecordingSet,
    SupervisionSegment,
    SupervisionSet,
)
from lhotse.audio.backend import audio_backend
from lhotse.augmentation import Volume
from lhotse.shar.writers.tar import TarWriter
from small_releases import read_manifests

from asrtool.data.audio import sphere
from asrtool.data.audio.joined import parts_in
from asrtool.data.audio.remote import fetched
from asrtool.data.audio.sphere import check_sphere, read_header, read_sphere
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.detect import prepare_any
from asrtool.local.layouts.folder import prepare_folder
from asrtool.local.releases.shortened import decode
from asrtool.settings.data import Data
from asrtool.transcribe.audio import open_sound
from asrtool.utils.sphere import HEADER_BYTES, write_sphere

FORMATS = (("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("FLAC", "PCM_16"), ("WAV", "PCM_16"),
           ("AIFF", "PCM_16"), ("AU", "PCM_16"), ("WAV", "FLOAT"), ("WAV", "PCM_24"))  # fmt: skip
TAG = b"ID3\3\0\0\0\0\0\x14" + b"\xff" * 20  # whose content looks like the begin of a frame


def audio(seconds: float, kind: tuple[str, str], rate_hz: int = 16000, num_channels: int = 1) -> bytes:
    shape = (int(seconds * rate_hz), num_channels)
    loudness = 2 if kind[1] == "FLOAT" else 0.1  # beyond full scale
    samples = np.random.default_rng(0).normal(0, loudness, shape)
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format=kind[0], subtype=kind[1])
    return file.getvalue()


def decoded(content: bytes) -> np.ndarray:
    found: np.ndarray = soundfile.read(io.BytesIO(content), dtype="float32")[0]
    return found


def heard(path: Path) -> np.ndarray:
    with open_sound(path) as sound:
        return np.concatenate([np.zeros(0, np.float32), *(block[0] for block in sound.blocks)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("hello\n")
    return tmp_path / "in"


@pytest.mark.parametrize("kind", FORMATS, ids="-".join)
def test_all_parts_of_a_joined_file_are_heard_if_they_are_alike(kind: tuple[str, str], tmp_path: Path) -> None:
    parts = [audio(1, kind), audio(1.5, kind), audio(0, kind)][: 2 if kind[1] == "OPUS" else 3]  # the last is empty
    path = tmp_path / "a.bin"
    path.write_bytes(b"".join(parts))
    assert np.allclose(heard(path), np.concatenate([decoded(part) for part in parts[:2]]), atol=1e-6)
    for rate_hz, channels in ((8000, 1), (16000, 2)):
        path.write_bytes(parts[0] + audio(1, kind, rate_hz, channels))
        with pytest.raises(AsrtoolError, match=r"its 2 joined parts differ: 16000 Hz with 1 channels"):
            heard(path)


@pytest.mark.parametrize("kind", FORMATS, ids="-".join)
def test_any_bytes_have_parts_and_what_follows_the_audio_is_none(kind: tuple[str, str]) -> None:
    whole = audio(0.1, kind)
    for rest in (b"", bytes(500), b"TAG" + b"a" * 125):
        assert [part.fault for part in parts_in(whole + rest)] == [""]
    draw = random.Random(0)
    for size in (*range(0, 64, 3), *(draw.randrange(len(whole)) for _ in range(10))):
        for content in (whole[:size], whole[:4] + draw.randbytes(size), whole + whole[:size]):
            assert all(0 <= part.begin <= part.end <= len(content) for part in parts_in(content))


def name_in_folder(path: Path, _: Recording) -> Path:
    path.with_suffix(".txt").write_text("hello\n")
    return path.parent


def name_in_pipe(path: Path, _: Recording) -> Path:
    for name, value in (("wav.scp", f"cat {path} |"), ("text", "hello"), ("utt2spk", "ann")):
        (path.parent / name).write_text(f"a {value}\n")
    return path.parent


def name_in_manifests(path: Path, recording: Recording) -> Path:
    RecordingSet.from_recordings([recording]).to_file(path.parent / "recordings.jsonl.gz")
    SupervisionSet.from_segments([hello(recording)]).to_file(path.parent / "supervisions.jsonl.gz")
    return path.parent


def name_in_cuts(path: Path, recording: Recording) -> Path:
    cut = MonoCut("a", 0.0, recording.duration, 0, [hello(recording)], recording=recording)
    CutSet.from_cuts([cut]).to_file(path.parent / "cuts.jsonl.gz")
    return path.parent


def name_in_shar(path: Path, recording: Recording) -> Path:
    name_in_cuts(path, recording)
    shar = path.parent / "shar"
    shar.mkdir()
    (path.parent / "cuts.jsonl.gz").rename(shar / "cuts.000000.jsonl.gz")
    with TarWriter(str(shar / "recording.000000.tar"), shard_size=None) as tar:
        tar.write(path.name, io.BytesIO(path.read_bytes()))
        tar.write("a.json", io.BytesIO(json.dumps(recording.to_dict()).encode()), count=False)
    return shar


def hello(recording: Recording) -> SupervisionSegment:
    return SupervisionSegment("a", recording.id, 0.0, recording.duration, 0, "hello", speaker="ann")


LAYOUTS = (name_in_folder, name_in_pipe, name_in_cuts, name_in_shar)


@pytest.mark.parametrize("declared_s", [1.0, 2.5])
@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        *((kind, name_in_manifests) for kind in FORMATS if kind[0] != "AU"),
        *((FORMATS[0], layout) for layout in LAYOUTS),
    ],
)
def test_each_layout_has_the_audio_of_all_parts(
    kind: tuple[str, str], layout: Callable[[Path, Recording], Path], declared_s: float, tmp_path: Path
) -> None:
    """A manifest of lhotse may declare the length of the first part alone, as lhotse does."""
    parts = [audio(1, kind), audio(1.5, kind)]
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / f"a.{kind[0].lower()}"
    path.write_bytes(b"".join(parts))
    source = AudioSource("file", [0], str(path))
    num_samples = len(decoded(parts[0])) + (len(decoded(parts[1])) if declared_s > 1 else 0)
    recording = Recording("a", [source], 16000, num_samples, num_samples / 16000)
    prepare_any(layout(path, recording), tmp_path / "m", Data(), "own")
    found = read_manifests(tmp_path / "m")[0]["a"]
    with audio_backend("LibsndfileBackend"):
        samples_CS = fetched(found).load_audio()
    # Bit for bit, but of mp3, which is rounded by block.
    assert np.allclose(samples_CS[0], np.concatenate([decoded(part) for part in parts]), rtol=0, atol=1e-6)
    assert found.num_samples == samples_CS.shape[1]


def test_a_joined_file_at_an_address_or_with_transforms_is_set_aside_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    path.write_bytes(audio(1, FORMATS[3]) * 2)
    name_in_manifests(path, Recording.from_file(path).perturb_speed(1.1))
    with pytest.raises(AsrtoolError, match=r"a.flac: 2 audio files joined in one, whose length after transforms is"):
        prepare_any(tmp_path, tmp_path / "m", Data(), "own")
    with pytest.raises(OSError, match=r"a.flac: 2 audio files joined in one, of which the first alone is read"):
        fetched(dataclasses.replace(Recording.from_file(path), sources=[AudioSource("url", [0], path.as_uri())]))


@pytest.mark.parametrize("kind", FORMATS, ids="-".join)
def test_a_file_that_is_cut_off_is_set_aside_and_heard_with_a_warning(
    kind: tuple[str, str], folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = audio(4, kind)
    path = folder / f"a.{kind[0].lower()}"
    path.write_bytes(whole[: len(whole) * 3 // 4])
    found = heard(path)
    assert 1 < len(found) / 16000 < 3.5
    assert "cut off" in caplog.messages[-1]
    assert f"first {len(found) / 16000:.1f} s" in caplog.messages[-1]
    if kind[0] not in ("MP3", "OGG"):  # single frames of these cannot be decoded
        assert np.array_equal(found, decoded(whole)[: len(found)])
    if kind[0] != "AU":
        (folder / "b.wav").write_bytes(audio(1, FORMATS[4]))
        (folder / "b.txt").write_text("hello\n")
        prepare_folder(folder, tmp_path / "m", Data(bad_fraction=0.9), "own")
        assert "a\tunusable audio" in (dropped := (tmp_path / "m" / "dropped.tsv").read_text())
        assert f"{path}: cut off: " in dropped


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate_hz", [8000, 16000, 44100])
def test_tags_are_passed_over_and_parts_without_a_heading_are_found(rate_hz: int, channels: int) -> None:
    first, second = (audio(seconds, FORMATS[0], rate_hz, channels) for seconds in (1, 1.5))
    assert len(parts_in(TAG + first + TAG + second)) == 2
    bare = second[parts_in(second)[0].begin :]
    frames = bare[bare.index(b"\xff", 200) :]  # after the frame with the heading
    assert [part.fault for part in parts_in(first + frames)] == ["", ""]
    assert len(parts_in(frames)) == 1


@pytest.mark.parametrize(("layout", "role"), [(name_in_manifests, "train"), (name_in_cuts, "test")])
@pytest.mark.parametrize(
    "transform",
    [
        lambda recording: recording.perturb_speed(1.1),
        lambda recording: recording.perturb_speed(0.9).perturb_volume(3.0),
        lambda recording: recording.resample(8000),
    ],
)
def test_transforms_of_recordings_are_applied_as_lhotse_does(
    transform: Callable[[Recording], Recording], role: str, layout: Callable[[Path, Recording], Path], tmp_path: Path
) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(audio(1, FORMATS[4]))
    recording = transform(Recording.from_file(path))
    prepare_any(layout(path, recording), tmp_path / "m", Data(), "own", role)
    (found,), (said,) = read_manifests(tmp_path / "m")
    assert np.array_equal(found.load_audio(), recording.load_audio())
    assert (found.sampling_rate, said.duration) == (recording.sampling_rate, recording.duration)


def test_a_transform_that_cannot_be_applied_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(audio(1, FORMATS[4]))
    name_in_manifests(path, Recording.from_file(path).perturb_volume(0.5))

    def fail(*_: object) -> None:
        raise RuntimeError("needs torchaudio")

    monkeypatch.setattr(Volume, "__call__", fail)
    with pytest.raises(AsrtoolError, match="its transform Volume is not supported: needs torchaudio"):
        prepare_any(tmp_path, tmp_path / "m", Data(), "own")


def test_a_file_without_a_byte_is_set_aside_and_refused(tmp_path: Path) -> None:
    (tmp_path / "a.wav").touch()
    (tmp_path / "a.txt").write_text("hello\n")
    with pytest.raises(AsrtoolError, match=r"a.wav: no readable audio: it is empty"):
        prepare_folder(tmp_path, tmp_path / "m", Data(), "own")
    with pytest.raises(AsrtoolError, match=r"a.wav: no readable audio: it is empty"):
        heard(tmp_path / "a.wav")


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "sw02001.sph"
    samples = np.arange(-2000, 2000, dtype=np.int16).reshape(2000, 2)
    write_sphere(path, samples, 8000)
    return path


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    header = data[:HEADER_BYTES].replace(old, new)
    path.write_bytes(header[:HEADER_BYTES].ljust(HEADER_BYTES) + data[HEADER_BYTES:])


@pytest.mark.parametrize(("coding", "sample_bytes"), [("ULAW", 1), ("ALAW", 1), ("PCM_16", 2)])
def test_a_header_of_libsndfile_is_read(tmp_path: Path, coding: str, sample_bytes: int) -> None:
    soundfile.write(tmp_path / "a.sph", np.zeros((10, 3)), 11025, coding, format="NIST")
    header = check_sphere(tmp_path / "a.sph")
    assert (header.num_samples, header.num_channels, header.sampling_rate_hz) == (10, 3, 11025)
    assert (header.is_shortened, header.data_bytes) == (False, 30 * sample_bytes)


def test_the_older_name_of_mu_law_and_padding_to_a_whole_block_are_no_faults(sound: Path) -> None:
    change(sound, b"sample_coding -s4 ulaw", b"sample_coding -s6 mu-law")
    sound.write_bytes(sound.read_bytes() + b"\0" * 1000)
    assert check_sphere(sound).num_samples == 2000
    change(sound, b"sample_coding -s6 mu-law", b"sample_coding -s4 ulaw")
    assert read_sphere(sound)[0].shape == (2000, 2)


def test_another_length_is_reported_with_both(sound: Path) -> None:
    content = sound.read_bytes()
    sound.write_bytes(content[:-1500])
    with pytest.raises(AsrtoolError, match=r"sw02001.sph: truncated, the header declares 4000 bytes .* 2500 are there"):
        check_sphere(sound)
    sound.write_bytes(content)
    change(sound, b"sample_count -i 2000", b"sample_count -i 1000")
    with pytest.raises(AsrtoolError, match="longer than its header says, 2000 bytes of samples, 4000 are there"):
        check_sphere(sound)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"sample_coding -s4 ulaw", b"sample_coding -s4 adpc", "coding is 'adpc', expected pcm, ulaw"),
        (b"sample_rate -i 8000", b"sample_rate -i none", "sample_rate in the header is 'none'"),
        (b"channel_count -i 2", b"chanel_count -i 2", "channel_count in the header is missing"),
        (b"end_head", b"end_hear", "truncated in its header"),
        (b"NIST_1A", b"NIST_2A", "no SPHERE header"),
        (b"   1024", b"      5", "no SPHERE header"),
    ],
)
def test_a_broken_header_is_reported(sound: Path, old: bytes, new: bytes, message: str) -> None:
    change(sound, old, new)
    with pytest.raises(AsrtoolError, match=message):
        read_header(sound)


def test_an_empty_file_and_a_missing_one_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.sph").touch()
    with pytest.raises(AsrtoolError, match="no SPHERE header"):
        read_header(tmp_path / "a.sph")
    with pytest.raises(AsrtoolError, match="cannot be read: No such file"):
        read_header(tmp_path / "b.sph")


@pytest.mark.parametrize("name", ["123_1pcbe_shn", "123_1ulaw_shn", "123_2ulaw_shn"])
def test_shorten_is_decoded_bit_exactly(shared: Path, tmp_path: Path, name: str) -> None:
    import desphere

    path = shared / "data" / "sph" / f"{name}.sph"
    wav = desphere.transcode_bytes(path.read_bytes())
    expected, rate_hz = soundfile.read(io.BytesIO(wav), dtype="int16", always_2d=True)
    samples, found_hz = read_sphere(path)
    assert (found_hz, samples.shape) == (rate_hz, (37120, 2 if "2ulaw" in name else 1))
    np.testing.assert_array_equal(samples, expected)
    assert decode((path, tmp_path / "a")) == ""
    np.testing.assert_array_equal(soundfile.read(tmp_path / "a.flac", dtype="int16", always_2d=True)[0], expected)


def test_a_shortened_file_cut_off_is_no_audio(shared: Path, tmp_path: Path) -> None:
    whole = (shared / "data" / "sph" / "123_2ulaw_shn.sph").read_bytes()
    path = tmp_path / "fe_03_00001.sph"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AsrtoolError, match=r"fe_03_00001.sph: (cannot be decoded|truncated)"):
        read_sphere(path)
    assert "fe_03_00001.sph" in decode((path, tmp_path / "a"))
    assert not (tmp_path / "a.flac").exists()


def test_sph2pipe_is_used_where_it_is_installed(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared / "data" / "sph" / "123_1ulaw_shn.sph"
    program = tmp_path / "sph2pipe"
    program.write_text("#!/bin/sh\necho sph2pipe: no such thing >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(sphere.shutil, "which", lambda name: str(program))
    with pytest.raises(AsrtoolError, match="cannot be decoded: sph2pipe: sph2pipe: no such thing"):
        read_sphere(path)
