"""Reading audio block by block."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrtool.errors import AsrtoolError
from asrtool.transcribe.audio import is_pipe, open_sound

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


def test_mp3_at_a_low_rate_loses_nothing_between_blocks(samples: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "a.mp3"  # its frames take bits from those before, which seeking forgets
    soundfile.write(path, np.tile(samples[:, 0], 2), 8000, format="MP3", compression_level=0.99)
    assert np.allclose(read(path)[0], soundfile.read(path, dtype="float32")[0], atol=1e-6)


@contextlib.contextmanager
def piped(parts: Iterable[bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard input is a pipe into which `parts` are written."""
    out, into = os.pipe()

    def write_all() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(into, "wb", buffering=0) as pipe:
            for part in parts:
                pipe.write(part)

    writer = threading.Thread(target=write_all, daemon=True)
    with os.fdopen(out) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        writer.start()
        yield
    writer.join()


@pytest.mark.parametrize(("suffix", "subtype"), FORMS)
def test_each_format_is_read_from_a_pipe(
    suffix: str, subtype: str, samples: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / f"a.{suffix}", np.tile(samples, (4, 1)), subtype)  # more than a pipe holds
    content = path.read_bytes()
    for name in ("-", "/dev/stdin"):
        with piped([content[:3], content[3:]], monkeypatch), open_sound(name) as sound:
            assert sound.name == "stdin"
            found = np.concatenate(list(sound.blocks), axis=1)
        assert np.array_equal(found, read(path))


def test_a_named_pipe_is_read_as_standard_input_is(samples: np.ndarray, tmp_path: Path) -> None:
    for path in (write(tmp_path / "a.wav", samples), write(tmp_path / "b.flac", samples)):
        os.mkfifo(pipe := tmp_path / f"pipe-{path.stem}")
        writer = threading.Thread(target=pipe.write_bytes, args=(path.read_bytes(),), daemon=True)
        writer.start()
        assert is_pipe(pipe)
        assert np.array_equal(read(pipe), read(path))
        writer.join()


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("subtypes", [("PCM_16", "PCM_16"), ("FLOAT", "PCM_16", "FLOAT")])
def test_wav_files_that_are_joined_in_a_pipe_are_read_to_the_last(
    subtypes: tuple[str, ...], live: bool, samples: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(tmp_path / f"{i}.wav", samples[i:], subtype) for i, subtype in enumerate(subtypes)]
    note = b"LIST\4\0\0\0note"
    content = note.join(path.read_bytes() for path in paths) + note
    with piped([content[:90_000], content[90_000:]], monkeypatch), open_sound("-", live=live) as sound:
        found = np.concatenate(list(sound.blocks), axis=1)
    assert np.array_equal(found, np.concatenate([read(path) for path in paths], axis=1))
    other = write(tmp_path / "other.wav", samples[:, :1], "PCM_16").read_bytes()
    with (
        piped([paths[0].read_bytes() + other], monkeypatch),
        open_sound("-", live=live) as sound,
        pytest.raises(AsrtoolError, match="standard input: its joined parts differ in sampling rate or channels"),
    ):
        list(sound.blocks)


@pytest.mark.parametrize("live", [False, True])
def test_wav_is_read_while_it_comes_in(
    live: bool, samples: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = write(tmp_path / "a.wav", samples).read_bytes()
    heard = threading.Event()

    def parts() -> Iterator[bytes]:
        yield content[:100_000]
        assert heard.wait(60), "nothing was read before the end"
        yield content[100_000:]

    with piped(parts(), monkeypatch), open_sound("-", live=live) as sound:
        assert sound.duration_s is None
        first = next(sound.blocks)
        heard.set()
        found = np.concatenate([first, *sound.blocks], axis=1)
    assert np.array_equal(found, read(tmp_path / "a.wav"))


@pytest.mark.parametrize(("suffix", "subtype"), [("flac", "PCM_16"), ("mp3", "MPEG_LAYER_III")])
def test_what_cannot_be_read_while_it_comes_in_is_refused_there(
    suffix: str, subtype: str, samples: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = write(tmp_path / f"a.{suffix}", np.tile(samples, (4, 1)), subtype).read_bytes()
    refused = pytest.raises(AsrtoolError, match=r"standard input: .* while it arrives")
    with piped([content], monkeypatch), refused as caught, open_sound("-", live=True) as sound:
        list(sound.blocks)
    assert caught.value.hint.startswith("pipe in plain WAV")
    with open(tmp_path / f"a.{suffix}") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with open_sound("-", live=True) as sound:  # no pipe
            assert sum(block.shape[1] for block in sound.blocks) == 4 * len(samples)


def test_a_pipe_goes_through_ffmpeg_where_libsndfile_does_not_read_it(
    samples: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wav = write(tmp_path / "a.wav", samples)
    ffmpeg(tmp_path, f'test "$(cat "$5")" = "something else" && cat {wav}', monkeypatch)
    with piped([b"something", b" else"], monkeypatch):
        assert np.array_equal(read("-"), read(wav))


def test_standard_input_that_is_closed_or_empty_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped([], monkeypatch), pytest.raises(AsrtoolError, match="standard input: is empty"):
        read("-")
    with open(os.devnull) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(AsrtoolError, match="standard input: cannot be read: it is closed"):
        read("-")
    monkeypatch.setattr("sys.stdin", None)
    for live in (False, True):
        with pytest.raises(AsrtoolError, match="standard input: is closed"), open_sound("-", live=live):
            pass


def test_a_name_that_is_not_utf_8_is_read_and_can_be_written(samples: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xe9.wav")
    write(tmp_path / "a.wav", samples).rename(path)
    assert np.array_equal(read(str(path)).T, soundfile.read(os.fsencode(path), dtype="float32")[0])
    with open_sound(path) as sound:
        assert sound.name == r"\xe9"
    path.write_bytes(b"no audio")
    with pytest.raises(AsrtoolError) as caught:
        read(path)
    assert caught.value.what.encode().startswith(os.fsencode(tmp_path) + rb"/\xe9.wav: ")


@pytest.mark.parametrize("name", ["a.wav", "-"])
def test_samples_that_are_no_numbers_are_silence_with_a_warning(
    name: str, samples: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad = samples.copy()
    bad[[100, 20_000], [0, 1]], bad[30_000] = (np.nan, -1e30), (np.inf, -np.inf)
    content = write(tmp_path / "a.wav", bad, "FLOAT").read_bytes()
    with piped([content] if name == "-" else [], monkeypatch):
        found = read("-" if name == "-" else tmp_path / name)
    expected = samples.copy()
    expected[[100, 20_000], [0, 1]], expected[30_000] = 0, 0
    assert np.array_equal(found, expected.T)
    (message,) = caplog.messages
    assert message.startswith("standard input: 4" if name == "-" else f"{tmp_path}/a.wav: 4 samples are NaN")


def test_a_wav_that_is_cut_off_is_read_with_a_warning(
    samples: np.ndarray, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = write(tmp_path / "whole.wav", samples).read_bytes()
    (tmp_path / "half.wav").write_bytes(content[:80_044])
    assert np.array_equal(read(tmp_path / "half.wav"), read(tmp_path / "whole.wav")[:, :20_000])
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/half.wav: cut off: 80000 of 160000 bytes of audio are there")
    assert "first 1.2 s" in message


@pytest.mark.skipif(not SHORTENED.exists(), reason="no SPHERE files in ../shared/data/sph")
def test_shorten_is_decoded_and_one_that_is_cut_off_is_one_line(tmp_path: Path) -> None:
    from asrtool.data.audio.sphere import read_sphere

    expected, _ = read_sphere(SHORTENED)
    assert np.array_equal(read(SHORTENED), expected.T / np.float32(2**15))
    whole = SHORTENED.read_bytes()
    (tmp_path / "half.sph").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AsrtoolError, match=r"half.sph: (cannot be decoded|truncated)"):
        read(tmp_path / "half.sph")


def test_what_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without ffmpeg
    (tmp_path / "text.wav").write_text("no audio")
    (tmp_path / "empty.flac").write_bytes(b"")
    for name, found in (
        ("missing.wav", "no such file"),
        ("", "is a folder"),
        ("text.wav", "ffmpeg, which reads more, is not installed"),
        ("empty.flac", "it is empty; replace the file"),
    ):
        with pytest.raises(AsrtoolError, match=found) as caught:
            read(tmp_path / name)
        assert "\n" not in caught.value.what


def ffmpeg(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "ffmpeg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_what_libsndfile_does_not_read_goes_through_ffmpeg_whose_reason_is_passed_on(
    samples: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wav = write(tmp_path / "a.wav", samples)
    ffmpeg(tmp_path, f'test "$5" = "{tmp_path / "a.m4a"}" && cat {wav}', monkeypatch)
    (tmp_path / "a.m4a").write_bytes(b"something else")
    assert np.array_equal(read(tmp_path / "a.m4a"), read(wav))
    ffmpeg(tmp_path, "echo 'moov atom not found' >&2; exit 1", monkeypatch)
    with pytest.raises(AsrtoolError, match=r"a\.m4a: no readable audio: moov atom not found"):
        read(tmp_path / "a.m4a")


def test_samples_without_a_header_are_one_line(samples: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / "a.raw").write_bytes(samples.tobytes())
    with pytest.raises(AsrtoolError, match=r"a\.raw: "):
        read(tmp_path / "a.raw")


def test_a_header_that_declares_no_audio_before_some_is_a_warning(
    samples: np.ndarray, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = write(tmp_path / "whole.wav", samples).read_bytes()
    at = content.index(b"data") + 4
    (tmp_path / "died.wav").write_bytes(content[:at] + bytes(4) + content[at + 4 :])
    with open_sound(tmp_path / "died.wav") as sound:
        assert not list(sound.blocks)
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/died.wav: its header declares no audio, but ")
    caplog.clear()
    with open_sound(write(tmp_path / "empty.wav", samples[:0])):
        assert not caplog.messages
