"""Tempo: samples that last longer or shorter at the same pitch.

By waveform similarity overlap-add (Verhelst and Roelands, ICASSP 1993): windows that overlap by half are taken out of
the samples where the tempo wants them, but for a shift by which each continues the one before it best. torchaudio, by
which lhotse changes tempo, is not there for every torch.

Letters in names: S samples.
"""

from __future__ import annotations

import numpy as np

WINDOW_S = 0.03
SHIFT_S = 0.008  # either way: together more than a period of a low voice


def change_tempo(samples_S: np.ndarray, num_samples: int, rate_hz: int) -> np.ndarray:
    """`num_samples` samples, float32, in which all of `samples_S` is said: their ratio is the tempo."""
    if num_samples == len(samples_S):
        return samples_S
    half, shift = round(WINDOW_S / 2 * rate_hz), round(SHIFT_S * rate_hz)
    window = np.hanning(2 * half + 1)[:-1].astype(np.float32)  # two that overlap by half add up to 1
    margin = 2 * half + shift
    padded = np.pad(samples_S, (margin, margin + 2 * half))
    out = np.zeros(num_samples + 4 * half, np.float32)
    begin = margin - half
    for i, at in enumerate(range(0, num_samples + half, half)):
        if i:
            wanted = margin - half + round(at * len(samples_S) / num_samples)
            begin = _best_begin(padded, wanted, begin + half, 2 * half, shift)
        out[at : at + 2 * half] += window * padded[begin : begin + 2 * half]
    return out[half : half + num_samples]


def _best_begin(padded: np.ndarray, wanted: int, natural: int, size: int, shift: int) -> int:
    """Where, at most `shift` from `wanted`, the `size` samples begin that are most like those at `natural`.

    By the correlation over the norm of the candidate: a loud one would win by its loudness.
    """
    first = max(0, wanted - shift)
    region = padded[first : wanted + shift + size]
    like = np.correlate(region, padded[natural : natural + size], "valid")
    energy = np.cumsum(np.concatenate([[0.0], region.astype(np.float64) ** 2]))
    norm = np.sqrt(np.maximum(energy[size:] - energy[:-size], 1e-9))
    return first + int(np.argmax(like / norm))
