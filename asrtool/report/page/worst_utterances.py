"""Worst utterances of a set, with each system's words, audio and spectrogram."""

from __future__ import annotations

import base64
import functools
import io
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import soundfile

from asrtool.data.audio.excerpts import Clips
from asrtool.report.side_by_side import KINDS, System, shown_labels
from asrtool.score.result import Pair, Segment

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
        """Size of both URLs in bytes."""
        return len(self.audio) + len(self.picture)


def make_clip(samples_S: np.ndarray, rate_hz: int) -> Clip:
    """Make the clip of float32 samples in [-1, 1]."""
    whole_s = len(samples_S) / rate_hz
    samples_S = samples_S[: round(MAX_CLIP_S * rate_hz)]
    if rate_hz > MAX_RATE_HZ:
        from scipy.signal import resample_poly

        common = math.gcd(rate_hz, MAX_RATE_HZ)
        samples_S, rate_hz = resample_poly(samples_S, MAX_RATE_HZ // common, rate_hz // common), MAX_RATE_HZ
    file = io.BytesIO()
    soundfile.write(file, np.clip(samples_S, -1, 1), rate_hz, format="FLAC", subtype="PCM_16")
    picture = format_png(spectrogram(samples_S, rate_hz))
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


def format_png(shades: np.ndarray) -> bytes:
    """Return a PNG of `shades` (rows, columns), in colours of the palette."""
    num_rows, num_columns = shades.shape
    even = np.pad(shades, ((0, 0), (0, num_columns % 2)))
    packed = even[:, ::2] << 4 | even[:, 1::2]
    lines = np.pad(packed, ((0, 0), (1, 0))).tobytes()  # each begins with its filter: none
    header = struct.pack(">IIBBBBB", num_columns, num_rows, 4, 3, 0, 0, 0)
    chunks = (b"IHDR", header), (b"PLTE", make_palette()), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


@functools.cache
def make_palette() -> bytes:
    """Return NUM_SHADES colours of three bytes, from dark to light."""
    import matplotlib

    colours = matplotlib.colormaps["magma"](np.linspace(0, 1, NUM_SHADES), bytes=True)
    return np.ascontiguousarray(colours[:, :3]).tobytes()


def _address(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


MAX_CARDS = 100  # of a set


@dataclass(frozen=True)
class Card:
    """Utterance with its scored segment by system (or None), and its audio."""

    place: int
    segments: Sequence[Segment | None]
    clip: Clip | None = None

    @property
    def first(self) -> Segment:
        """Reference part, which all systems share."""
        return next(segment for segment in self.segments if segment)

    @property
    def results(self) -> list[tuple[list[int], Segment]]:
        """Return distinct hypotheses, each with the numbers of its systems."""
        found: dict[tuple[Pair, ...], tuple[list[int], Segment]] = {}
        for number, segment in enumerate(self.segments):
            if segment:
                found.setdefault(segment.alignment.pairs, ([], segment))[0].append(number)
        return list(found.values())

    @property
    def errors(self) -> list[int]:
        """Return the errors of each system; 0 without a segment."""
        return [segment.alignment.counts.err if segment else 0 for segment in self.segments]

    @property
    def duration_s(self) -> float | None:
        """Duration in s; None for plain text."""
        first = self.first
        return None if first.start_s is None or first.end_s is None else first.end_s - first.start_s

    @property
    def where(self) -> str:
        """Recording, channel, times and labels."""
        first = self.first
        facts = [f"{first.file} {first.channel}"] if first.file else []
        facts += [f"{first.start_s:.2f} to {first.end_s:.2f} s"] if first.start_s is not None else []
        return ", ".join([*facts, *shown_labels(first)])


def worst_cards(systems: Sequence[System]) -> tuple[list[Card], int]:
    """Return at most MAX_CARDS with most errors, and the number of utterances."""
    by_key: dict[tuple[str, str], list[Segment | None]] = {}
    for number, system in enumerate(systems):
        for segment in system.score.segments:
            empty: list[Segment | None] = [None] * len(systems)
            by_key.setdefault((segment.id, segment.reference), empty)[number] = segment
    cards = [Card(place, segments) for place, segments in enumerate(by_key.values())]
    cards.sort(key=lambda card: (-sum(card.errors), card.place))
    return cards[:MAX_CARDS], len(cards)


def read_clip(card: Card, clips: Clips) -> Clip | None:
    """Return the audio of a card, or None if it is missing."""
    first = card.first
    if first.start_s is None or first.end_s is None:
        return None
    found = clips.read(first.file, first.channel, first.start_s, first.end_s)
    return make_clip(*found) if found and len(found[0]) else None


def describe_pairs(pairs: Sequence[Pair]) -> str:
    """Describe aligned words for readers who cannot see them."""
    errors = [_describe_error(pair) for pair in pairs if pair.kind != "C"]
    ref, hyp = (" ".join(filter(None, words)) for words in ([pair.ref for pair in pairs], [pair.hyp for pair in pairs]))
    return f"Reference: {ref or 'nothing'}. Recognised: {hyp or 'nothing'}. Errors: {', '.join(errors) or 'none'}."


def _describe_error(pair: Pair) -> str:
    return f"{pair.hyp} for {pair.ref}" if pair.kind == "S" else f"{pair.ref or pair.hyp} {KINDS[pair.kind]}"
