"""Audio files that are joined or cut off are heard as far as they go, and named."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import Recording
from lhotse.augmentation import Volume

from asrtool.data.audio.joined import parts_in
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.folder import prepare_folder
from asrtool.local.layouts.lhotse import _fault
from asrtool.settings.data import Data
from asrtool.transcribe.audio import open_sound

FORMATS = (("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("FLAC", "PCM_16"), ("WAV", "PCM_16"),
           ("AIFF", "PCM_16"), ("AU", "PCM_16"))  # fmt: skip
TAG = b"ID3\3\0\0\0\0\0\x14" + b"\xff" * 20  # whose content looks like the begin of a frame


def audio(seconds: float, kind: tuple[str, str], rate_hz: int = 16000, num_channels: int = 1) -> bytes:
    shape = (int(seconds * rate_hz), num_channels)
    samples = np.random.default_rng(0).normal(0, 0.1, shape)
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
def test_all_parts_of_a_joined_file_are_heard(kind: tuple[str, str], folder: Path, tmp_path: Path) -> None:
    parts = [audio(1, kind), audio(1.5, kind)]
    path = folder / f"a.{kind[0].lower()}"
    path.write_bytes(b"".join(parts))
    expected = np.concatenate([decoded(part) for part in parts])
    assert np.allclose(heard(path), expected, atol=1e-6)
    if kind[0] != "AU":  # no suffix of this layout
        prepare_folder(folder, tmp_path / "m", Data(), "own")
        (flac,) = (tmp_path / "m" / "audio").glob("a-*.flac")
        found, _ = soundfile.read(flac, dtype="float32")
        assert np.allclose(found, expected, atol=2**-15)
    if kind[0] not in ("WAV", "AIFF"):  # which lhotse refuses by itself
        assert "2 audio files joined in one" in _fault(Recording.from_file(path), folder)


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
    if kind[0] not in ("MP3", "OGG"):  # of which a frame is not heard alone
        assert np.array_equal(found, decoded(whole)[: len(found)])
    if kind[0] != "AU":
        (folder / "b.wav").write_bytes(audio(1, FORMATS[4]))
        (folder / "b.txt").write_text("hello\n")
        prepare_folder(folder, tmp_path / "m", Data(bad_fraction=0.9), "own")
        assert "a\tunusable audio" in (dropped := (tmp_path / "m" / "dropped.tsv").read_text())
        assert f"{path}: cut off: " in dropped


@pytest.mark.parametrize("kind", FORMATS, ids="-".join)
def test_what_follows_the_audio_is_no_part_and_no_fault(kind: tuple[str, str]) -> None:
    for rest in (b"", bytes(500), b"TAG" + b"a" * 125):
        assert [part.fault for part in parts_in(audio(1, kind) + rest)] == [""]


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate_hz", [8000, 16000, 44100])
def test_tags_are_passed_over_and_parts_without_a_heading_are_found(rate_hz: int, channels: int) -> None:
    first, second = (audio(seconds, FORMATS[0], rate_hz, channels) for seconds in (1, 1.5))
    assert len(parts_in(TAG + first + TAG + second)) == 2
    bare = second[parts_in(second)[0].begin :]
    frames = bare[bare.index(b"\xff", 200) :]  # after the frame with the heading
    assert [part.fault for part in parts_in(first + frames)] == ["", ""]
    assert len(parts_in(frames)) == 1


@pytest.mark.parametrize(("rate_hz", "channels"), [(8000, 1), (16000, 2)])
@pytest.mark.parametrize("kind", FORMATS, ids="-".join)
def test_parts_of_other_rates_or_channels_are_refused(
    kind: tuple[str, str], rate_hz: int, channels: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(audio(1, kind) + audio(1, kind, rate_hz, channels))
    with pytest.raises(AsrtoolError, match=r"its 2 joined parts differ: 16000 Hz with 1 channels"):
        heard(path)


@pytest.mark.parametrize("kind", FORMATS, ids="-".join)
def test_any_bytes_have_parts(kind: tuple[str, str]) -> None:
    whole = audio(0.1, kind)
    draw = random.Random(0)
    for size in (*range(0, 64, 3), *(draw.randrange(len(whole)) for _ in range(10))):
        for content in (whole[:size], whole[:4] + draw.randbytes(size), whole + whole[:size]):
            assert all(0 <= part.begin <= part.end <= len(content) for part in parts_in(content))


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind[1] != "OPUS"], ids="-".join)
def test_an_empty_second_part_adds_nothing(kind: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes((whole := audio(1, kind)) + audio(0, kind))
    assert np.allclose(heard(path), decoded(whole), atol=1e-6)


def test_a_transform_that_cannot_be_applied_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.wav").write_bytes(audio(1, FORMATS[4]))
    recording = Recording.from_file(folder / "a.wav").perturb_volume(0.5)
    assert _fault(recording, folder) == ""

    def fail(*_: object) -> None:
        raise RuntimeError("needs torchaudio")

    monkeypatch.setattr(Volume, "__call__", fail)
    assert _fault(recording, folder) == "its transform Volume is not supported: needs torchaudio"
