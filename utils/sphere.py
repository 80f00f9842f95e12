"""Write NIST SPHERE audio files of 8-bit mu-law samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

HEADER_BYTES = 1024


def write_sphere(path: Path | str, samples: np.ndarray, sampling_rate_hz: int) -> None:
    """Write int16 samples (num_samples, num_channels); ValueError for other arrays."""
    if samples.dtype != np.int16 or samples.ndim != 2:
        raise ValueError(f"samples are {samples.dtype} of shape {samples.shape}, expected int16 of (samples, channels)")
    header = format_header(samples.shape[0], samples.shape[1], sampling_rate_hz)
    Path(path).write_bytes(header + encode_ulaw(samples).tobytes())


def format_header(num_samples: int, num_channels: int, sampling_rate_hz: int) -> bytes:
    """Return the header, padded to HEADER_BYTES; `num_samples` is a channel's."""
    lines = [
        "NIST_1A",
        f"{HEADER_BYTES:7d}",
        f"channel_count -i {num_channels}",
        f"sample_count -i {num_samples}",
        f"sample_rate -i {sampling_rate_hz}",
        "sample_n_bytes -i 1",
        "sample_byte_format -s1 1",
        "sample_sig_bits -i 8",
        "sample_coding -s4 ulaw",
        "end_head",
        "",
    ]
    return "\n".join(lines).encode("ascii").ljust(HEADER_BYTES, b"\n")


def encode_ulaw(samples: np.ndarray) -> np.ndarray:
    """Return the codes, uint8, of the nearest levels of mu-law, ITU-T G.711."""
    flipped = ~np.arange(256, dtype=np.int32) & 0xFF
    exponent, mantissa = (flipped >> 4) & 7, flipped & 15
    magnitude = (((mantissa << 3) + 132) << exponent) - 132
    levels = np.where(flipped & 0x80, -magnitude, magnitude)
    order = np.argsort(levels, kind="stable")
    ordered = levels[order].astype(np.float64)
    codes = order[np.searchsorted((ordered[1:] + ordered[:-1]) / 2, np.arange(-32768, 32768))].astype(np.uint8)
    return codes[samples.astype(np.int32) + 32768]
