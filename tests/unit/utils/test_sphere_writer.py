"""SPHERE files as libsndfile reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrtool.utils.sphere import HEADER_BYTES, write_sphere

RAMP = np.arange(-32768, 32768, dtype=np.int32).astype(np.int16)


@pytest.mark.parametrize("num_channels", [1, 2])
def test_libsndfile_reads_the_nearest_levels_of_what_was_written(tmp_path: Path, num_channels: int) -> None:
    samples = RAMP.reshape(-1, num_channels)
    write_sphere(tmp_path / "a.sph", samples, 8000)
    assert (tmp_path / "a.sph").stat().st_size == HEADER_BYTES + len(RAMP)
    info = soundfile.info(tmp_path / "a.sph")
    assert (info.samplerate, info.channels, info.frames, info.subtype) == (8000, num_channels, len(samples), "ULAW")
    read, _ = soundfile.read(tmp_path / "a.sph", dtype="int16", always_2d=True)
    levels = np.unique(read).astype(np.int64)
    assert len(levels) == 255  # two codes are 0
    nearest = np.abs(RAMP.astype(np.int64)[::37, None] - levels).min(axis=1)
    np.testing.assert_array_equal(np.abs(RAMP.astype(np.int64) - read.reshape(-1))[::37], nearest)


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="float64 of shape"):
        write_sphere(tmp_path / "a.sph", np.zeros((3, 1)), 8000)
    assert not (tmp_path / "a.sph").exists()
