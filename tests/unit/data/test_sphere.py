"""SPHERE: headers, faults of files, and shorten decoding against desphere and libsndfile."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrtool.data.audio import sphere
from asrtool.data.audio.sphere import check_sphere, read_header, read_sphere
from asrtool.errors import AsrtoolError
from asrtool.local.releases.shortened import decode
from asrtool.utils.sphere import HEADER_BYTES, write_sphere


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
