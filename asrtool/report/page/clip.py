"""Utterance as data URLs: FLAC audio, and a PNG spectrogram."""

from __future__ import annotations

import base64
import io
import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np
import soundfile

MAX_CLIP_S = 15.0  # of a longer utterance this much is heard
MAX_RATE_HZ = 16_000
WINDOW_S, HOP_S = 0.025, 0.01
MAX_COLUMNS, NUM_ROWS = 400, 64  # points of a spectrogram
NUM_SHADES, RANGE_DB = 16, 60.0  # below the loudest point; PNG packs two points of 16 shades into a byte


@dataclass(frozen=True)
class Clip:
    """Clip with ``data:`` URLs of `seconds` of `whole_s`, shown up to `max_hz`."""

    audio: str
    picture: str
    seconds: float
    whole_s: float
    max_hz: float

    @property
    def num_bytes(self) -> int:
        """Size of both URLs."""
        return len(self.audio) + len(self.picture)


def make_clip(samples_S: np.ndarray, rate_hz: int, palette: bytes) -> Clip:
    """Make the clip of float32 samples in [-1, 1].

    `palette` has NUM_SHADES colours of three bytes.
    """
    whole_s = len(samples_S) / rate_hz
    samples_S = samples_S[: round(MAX_CLIP_S * rate_hz)]
    if rate_hz > MAX_RATE_HZ:
        from scipy.signal import resample_poly

        common = math.gcd(rate_hz, MAX_RATE_HZ)
        samples_S, rate_hz = resample_poly(samples_S, MAX_RATE_HZ // common, rate_hz // common), MAX_RATE_HZ
    file = io.BytesIO()
    soundfile.write(file, np.clip(samples_S, -1, 1), rate_hz, format="FLAC", subtype="PCM_16")
    picture = format_png(spectrogram(samples_S, rate_hz), palette)
    return Clip(
        _address("audio/flac", file.getvalue()),
        _address("image/png", picture),
        len(samples_S) / rate_hz,
        whole_s,
        rate_hz / 2,
    )


def spectrogram(samples_S: np.ndarray, rate_hz: int) -> np.ndarray:
    """Return shades (NUM_ROWS, columns), highest frequency first.

    The loudest point has the last of NUM_SHADES.
    """
    size = round(WINDOW_S * rate_hz)
    hop = max(round(HOP_S * rate_hz), -(-len(samples_S) // MAX_COLUMNS), 1)
    padded = np.pad(samples_S, (size // 2, size))
    frames_TS = np.lib.stride_tricks.sliding_window_view(padded, size)[: max(len(samples_S), 1) : hop]
    power_TF = np.abs(np.fft.rfft(frames_TS * np.hanning(size), 512 * -(-size // 512))) ** 2
    edges = np.linspace(0, power_TF.shape[1], NUM_ROWS + 1).astype(int)[:-1]
    power_RT = np.add.reduceat(power_TF, edges, axis=1).T[::-1]
    peak = power_RT.max()
    loudness_db = 10 * np.log10(np.maximum(power_RT / peak if peak else power_RT, 10 ** (-RANGE_DB / 10)))
    return np.asarray(np.round((loudness_db / RANGE_DB + 1) * (NUM_SHADES - 1)), dtype=np.uint8)


def format_png(shades: np.ndarray, palette: bytes) -> bytes:
    """Return a PNG of `shades` (rows, columns) below 16, in colours of `palette`."""
    num_rows, num_columns = shades.shape
    even = np.pad(shades, ((0, 0), (0, num_columns % 2)))
    packed = even[:, ::2] << 4 | even[:, 1::2]
    lines = np.pad(packed, ((0, 0), (1, 0))).tobytes()  # each begins with its filter: none
    header = struct.pack(">IIBBBBB", num_columns, num_rows, 4, 3, 0, 0, 0)
    chunks = (b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def make_palette() -> bytes:
    """NUM_SHADES colours from dark to light."""
    import matplotlib

    colours = matplotlib.colormaps["magma"](np.linspace(0, 1, NUM_SHADES), bytes=True)
    return np.ascontiguousarray(colours[:, :3]).tobytes()


def _address(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
