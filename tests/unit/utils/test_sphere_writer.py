"""SPHERE files as libsndfile reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrtool.utils.sphere import HEADER_BYTES, decode_g711, encode_g711, write_sphere

RAMP = np.arange(-32768, 32768, dtype=np.int32).astype(np.int16)


@pytest.mark.parametrize(("coding", "subtype"), [("ulaw", "ULAW"), ("alaw", "ALAW"), ("pcm", "PCM_16")])
@pytest.mark.parametrize("num_channels", [1, 2])
def test_libsndfile_reads_what_was_written(tmp_path: Path, coding: str, subtype: str, num_channels: int) -> None:
    samples = RAMP.reshape(-1, num_channels)
    write_sphere(tmp_path / "a.sph", samples, 8000, coding)
    info = soundfile.info(tmp_path / "a.sph")
    assert (info.samplerate, info.channels, info.frames, info.subtype) == (8000, num_channels, len(samples), subtype)
    read, _ = soundfile.read(tmp_path / "a.sph", dtype="int16", always_2d=True)
    expected = samples if coding == "pcm" else decode_g711(encode_g711(samples, coding), coding)
    np.testing.assert_array_equal(read, expected)


@pytest.mark.parametrize("coding", ["ulaw", "alaw"])
def test_a_code_is_that_of_the_nearest_level(coding: str) -> None:
    levels = np.unique(decode_g711(np.arange(256, dtype=np.uint8), coding)).astype(np.int64)
    values = RAMP.astype(np.int64)
    smallest_error = np.abs(values[::37, None] - levels).min(axis=1)
    error = np.abs(values - decode_g711(encode_g711(RAMP, coding), coding))[::37]
    np.testing.assert_array_equal(error, smallest_error)


def test_the_header_is_1024_bytes_and_counts_the_samples_of_one_channel(tmp_path: Path) -> None:
    write_sphere(tmp_path / "a.sph", np.zeros((123, 2), np.int16), 8000)
    data = (tmp_path / "a.sph").read_bytes()
    assert len(data) == HEADER_BYTES + 2 * 123
    assert data.startswith(b"NIST_1A\n   1024\n")
    assert b"sample_count -i 123\n" in data
    assert b"sample_coding -s4 ulaw\n" in data


def test_other_arrays_and_codings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="float64 of shape"):
        write_sphere(tmp_path / "a.sph", np.zeros((3, 1)), 8000)
    with pytest.raises(ValueError, match="expected ulaw, alaw or pcm"):
        write_sphere(tmp_path / "a.sph", np.zeros((3, 1), np.int16), 8000, "mp3")
    assert not (tmp_path / "a.sph").exists()
