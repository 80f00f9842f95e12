"""Write NIST SPHERE audio files of 8-bit mu-law or 16-bit linear samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

HEADER_BYTES = 1024


def write_sphere(path: Path | str, samples: np.ndarray, sampling_rate_hz: int, coding: str = "ulaw") -> None:
    """Write int16 samples (num_samples, num_channels) as `coding`: ulaw, alaw or pcm.

    `sample_count` in the header counts the samples of one channel. pcm is little-endian. Raises ValueError for other
    arrays or codings.
    """
    if samples.dtype != np.int16 or samples.ndim != 2:
        raise ValueError(f"samples are {samples.dtype} of shape {samples.shape}, expected int16 of (samples, channels)")
    body = samples.astype("<i2").tobytes() if coding == "pcm" else encode_g711(samples, coding).tobytes()
    Path(path).write_bytes(format_header(samples.shape[0], samples.shape[1], sampling_rate_hz, coding) + body)


def format_header(num_samples: int, num_channels: int, sampling_rate_hz: int, coding: str) -> bytes:
    """Return the header, padded to HEADER_BYTES; `num_samples` is a channel's."""
    num_bytes = 2 if coding == "pcm" else 1
    byte_format = "01" if coding == "pcm" else "1"
    lines = [
        "NIST_1A",
        f"{HEADER_BYTES:7d}",
        f"channel_count -i {num_channels}",
        f"sample_count -i {num_samples}",
        f"sample_rate -i {sampling_rate_hz}",
        f"sample_n_bytes -i {num_bytes}",
        f"sample_byte_format -s{len(byte_format)} {byte_format}",
        f"sample_sig_bits -i {8 * num_bytes}",
        f"sample_coding -s{len(coding)} {coding}",
        "end_head",
        "",
    ]
    return "\n".join(lines).encode("ascii").ljust(HEADER_BYTES, b"\n")


def encode_g711(samples: np.ndarray, coding: str = "ulaw") -> np.ndarray:
    """Return the codes, uint8, of the nearest levels of ITU-T G.711."""
    return _nearest_codes(_levels(coding))[samples.astype(np.int32) + 32768]


def decode_g711(codes: np.ndarray, coding: str = "ulaw") -> np.ndarray:
    """Return int16 samples of codes by ITU-T G.711, scaled to 16 bits."""
    return _levels(coding)[codes]


def _levels(coding: str) -> np.ndarray:
    """Return the int16 level of each of the 256 codes."""
    codes = np.arange(256, dtype=np.int32)
    if coding == "ulaw":
        flipped = ~codes & 0xFF
        exponent, mantissa = (flipped >> 4) & 7, flipped & 15
        magnitude = (((mantissa << 3) + 132) << exponent) - 132
        return np.where(flipped & 0x80, -magnitude, magnitude).astype(np.int16)
    if coding == "alaw":
        flipped = codes ^ 0x55
        exponent, mantissa = (flipped >> 4) & 7, flipped & 15
        magnitude = np.where(exponent, ((mantissa << 4) + 264) << np.maximum(exponent - 1, 0), (mantissa << 4) + 8)
        return np.where(flipped & 0x80, magnitude, -magnitude).astype(np.int16)
    raise ValueError(f"coding is {coding!r}, expected ulaw, alaw or pcm")


def _nearest_codes(levels: np.ndarray) -> np.ndarray:
    """Return the nearest code of each int16 value from -32768 up."""
    order = np.argsort(levels, kind="stable")
    ordered = levels[order].astype(np.float64)
    middles = (ordered[1:] + ordered[:-1]) / 2
    return order[np.searchsorted(middles, np.arange(-32768, 32768))].astype(np.uint8)
