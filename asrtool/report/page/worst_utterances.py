"""Worst utterances of a set, with each system's words, audio and spectrogram."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import soundfile
from PIL import Image

from asrtool.data.audio.excerpts import Clips
from asrtool.report.side_by_side import KINDS, System, shown_labels
from asrtool.score.result import Alignment, Pair, Segment

MAX_CLIP_S = 15.0  # a longer utterance is cut to this
MAX_RATE_HZ = 16_000
WINDOW_S, HOP_S = 0.025, 0.01
MAX_COLUMNS, NUM_ROWS = 400, 64  # points of a spectrogram
NUM_SHADES, RANGE_DB = 16, 60.0  # below the loudest point


@dataclass(frozen=True)
class AudioClip:
    """Audio and spectrogram of `seconds` of `whole_s`, as ``data:`` URLs."""

    audio: str
    picture: str
    seconds: float
    whole_s: float
    max_hz: float

    @property
    def num_bytes(self) -> int:
        """Size of both URLs in bytes."""
        return len(self.audio) + len(self.picture)


def make_clip(samples_S: np.ndarray, rate_hz: int) -> AudioClip:
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
    return AudioClip(
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
    """Return a PNG of `shades` (rows, columns), from dark to light."""
    import matplotlib

    colours = matplotlib.colormaps["magma"](np.linspace(0, 1, NUM_SHADES), bytes=True)[:, :3]
    picture, file = Image.fromarray(shades), io.BytesIO()
    picture.putpalette(colours.tobytes())
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def _address(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


MAX_UTTERANCES = 100  # worst utterances of a set


@dataclass(frozen=True)
class WorstUtterance:
    """Utterance with its scored segment by system (or None), and its audio."""

    place: int
    segments: Sequence[Segment | None]
    clip: AudioClip | None = None

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


def worst_utterances(systems: Sequence[System]) -> tuple[list[WorstUtterance], int]:
    """Return at most MAX_UTTERANCES with most errors, and the number of utterances."""
    by_key: dict[tuple[str, str], list[Segment | None]] = {}
    for number, system in enumerate(systems):
        for segment in system.score.segments:
            empty: list[Segment | None] = [None] * len(systems)
            by_key.setdefault((segment.id, segment.reference), empty)[number] = segment
    found = [WorstUtterance(place, segments) for place, segments in enumerate(by_key.values())]
    found.sort(key=lambda utterance: (-sum(utterance.errors), utterance.place))
    return found[:MAX_UTTERANCES], len(found)


def read_clip(utterance: WorstUtterance, clips: Clips) -> AudioClip | None:
    """Return the audio of an utterance, or None if it is missing."""
    first = utterance.first
    if first.start_s is None or first.end_s is None:
        return None
    found = clips.read(first.file, first.channel, first.start_s, first.end_s)
    return make_clip(*found) if found and len(found[0]) else None


def describe_alignment(aligned: Alignment) -> str:
    """Describe aligned words for readers who cannot see them."""
    errors = map(_describe_error, aligned.errors)
    ref, hyp = (" ".join(filter(None, words)) for words in (aligned.refs, aligned.hyps))
    return f"Reference: {ref or 'nothing'}. Recognised: {hyp or 'nothing'}. Errors: {', '.join(errors) or 'none'}."


def _describe_error(pair: Pair) -> str:
    return f"{pair.hyp} for {pair.ref}" if pair.kind == "S" else f"{pair.ref or pair.hyp} {KINDS[pair.kind]}"
