"""CPU time of each change of audio, for an hour of it, beside that of filterbanks.

    .venv/bin/python benchmarks/augment.py

Utterances of 1 to 6 s of noise at 8 kHz, one thread.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np
import torch

from asrtool.data.augment.audio import add_noise, change_tempo, limit_band, reverberate, transmit
from asrtool.data.features.filterbank import Filterbank
from asrtool.settings.data import CODECS, Features

RATE_HZ = 8000
NUM_UTTERANCES = 300
ROOM_S = 0.5


def main() -> None:
    """Print seconds an hour."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    lengths = random.integers(RATE_HZ, 6 * RATE_HZ, NUM_UTTERANCES)
    utterances = [0.1 * random.standard_normal(num).astype(np.float32) for num in lengths]
    decay = np.exp(-np.linspace(0, 7, int(ROOM_S * RATE_HZ)))
    room = (decay * random.standard_normal(len(decay))).astype(np.float32)
    filterbank = Filterbank(Features())
    changes: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "filterbanks": filterbank.extract,
        "tempo": lambda samples: change_tempo(samples, round(len(samples) / 0.95), RATE_HZ),
        "reverberation": lambda samples: reverberate(samples, room),
        "noise": lambda samples: add_noise(samples, samples[::-1].copy(), 10, RATE_HZ),
        "band": lambda samples: limit_band(samples, 200, 3500, RATE_HZ),
    }
    for codec in CODECS:
        changes[codec] = functools.partial(transmit, codec=codec, compression=0.5, rate_hz=RATE_HZ)
    hours = sum(map(len, utterances)) / RATE_HZ / 3600
    for name, change in changes.items():
        change(utterances[0])  # what is imported or drawn up at the first call
        start = time.process_time()
        for samples in utterances:
            change(samples)
        print(f"{name:14}{(time.process_time() - start) / hours:6.1f} s")


if __name__ == "__main__":
    main()
