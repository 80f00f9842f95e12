"""Reading audio block by block."""

from __future__ import annotations

import io
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrtool.errors import AsrtoolError
from asrtool.transcribe.audio import open_sound

SHORTENED = Path(__file__).resolve().parents[4] / "shared" / "data" / "sph" / "123_2ulaw_shn.sph"
FORMS = [
    ("wav", "PCM_16"),
    ("wav", "FLOAT"),
    ("wav", "ULAW"),
    ("flac", "PCM_16"),
    ("ogg", "VORBIS"),
    ("opus", "OPUS"),
    ("mp3", "MPEG_LAYER_III"),
    ("aiff", "PCM_16"),
    ("au", "ALAW"),
]


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    random = np.random.default_rng(1)
    return (0.1 * random.normal(size=(40_000, 2))).clip(-1, 1).astype(np.float32)


def write(path: Path, samples: np.ndarray, subtype: str = "PCM_16", rate_hz: int = 16000) -> Path:
    form = "OGG" if path.suffix == ".opus" else path.suffix[1:].upper()
    soundfile.write(path, samples, rate_hz, subtype, format=form)
    return path


def read(path: str | Path) -> np.ndarray:
    with open_sound(path) as sound:
        blocks = list(sound.blocks)
        assert all(block.dtype == np.float32 and len(block) == sound.num_channels for block in blocks)
        assert max(block.shape[1] for block in blocks) <= sound.sampling_rate_hz
    return np.concatenate(blocks, axis=1)


@pytest.mark.parametrize(("suffix", "subtype"), FORMS)
def test_blocks_are_what_libsndfile_reads(suffix: str, subtype: str, samples: np.ndarray, tmp_path: Path) -> None:
    path = write(tmp_path / f"a.{suffix}", samples, subtype)
    expected, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    with open_sound(path) as sound:
        assert (sound.name, sound.sampling_rate_hz, sound.num_channels) == ("a", rate_hz, 2)
        assert sound.duration_s == pytest.approx(len(expected) / rate_hz)
    assert np.allclose(read(path), expected.T, atol=1e-6)  # mp3 is rounded by block


def test_a_pipe_is_read_as_it_comes(samples: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, 16000, "PCM_16", format="WAV")
    out, into = os.pipe()
    writer = threading.Thread(target=lambda: [os.write(into, buffer.getvalue()), os.close(into)])
    with os.fdopen(out) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        writer.start()
        with open_sound("-") as sound:
            assert sound.duration_s is None
            found = np.concatenate(list(sound.blocks), axis=1)
    writer.join()
    assert np.abs(found - samples.T).max() <= 2**-15


@pytest.mark.skipif(not SHORTENED.exists(), reason="no SPHERE files in ../shared/data/sph")
def test_shorten_is_decoded() -> None:
    from asrtool.corpus.sphere import read_sphere

    expected, _ = read_sphere(SHORTENED)
    assert np.array_equal(read(SHORTENED), expected.T / np.float32(2**15))


def test_what_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without ffmpeg
    (tmp_path / "text.wav").write_text("no audio")
    (tmp_path / "empty.flac").write_bytes(b"")
    for name, found in (
        ("missing.wav", "no such file"),
        ("", "is a folder"),
        ("text.wav", "ffmpeg, which reads more, is not installed"),
        ("empty.flac", "ffmpeg, which reads more, is not installed"),
    ):
        with pytest.raises(AsrtoolError, match=found) as caught:
            read(tmp_path / name)
        assert "\n" not in caught.value.what


def ffmpeg(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "ffmpeg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_what_libsndfile_does_not_read_goes_through_ffmpeg(
    samples: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wav = write(tmp_path / "a.wav", samples)
    ffmpeg(tmp_path, f'test "$5" = "{tmp_path / "a.m4a"}" && cat {wav}', monkeypatch)
    (tmp_path / "a.m4a").write_bytes(b"something else")
    assert np.array_equal(read(tmp_path / "a.m4a"), read(wav))


def test_the_reason_that_ffmpeg_gives_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ffmpeg(tmp_path, "echo 'moov atom not found' >&2; exit 1", monkeypatch)
    (tmp_path / "a.m4a").write_bytes(b"something else")
    with pytest.raises(AsrtoolError, match=r"a\.m4a: no readable audio: moov atom not found"):
        read(tmp_path / "a.m4a")
