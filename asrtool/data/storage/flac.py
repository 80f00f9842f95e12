"""Storage `flac`: audio in place of features, in `recording.NNNNNN.tar` of Shar.

16-bit samples are kept as FLAC; samples beyond full scale as float WAV. Features are computed when they are read.
Copies at other speeds have no audio: it is resampled when it is read.

Letters in names: S samples, T frames, F features of a frame.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from lhotse import AudioSource, Recording
from lhotse.augmentation import Speed
from lhotse.shar.writers.tar import TarWriter

from asrtool.data.audio.joined import encode
from asrtool.data.features.feature_type import FeatureType, one_thread
from asrtool.data.storage.index import Utterance, read_feature_settings
from asrtool.data.storage.shard_offsets import FLAC, Span, data_members, open_span

SCALE = 2**15  # integers from -1 to 1
NUM_FRAMES = "num_frames"  # of an utterance, in its cut
Keep = Callable[[Utterance, np.ndarray], None]


@contextmanager
def keeping_flac(directory: Path, number: int, rate_hz: int) -> Iterator[Keep]:
    """Yield a function that stores an utterance's samples (S,) in shard `number`."""
    with TarWriter(str(directory / FLAC.format(number)), shard_size=None) as tar:

        def keep(utterance: Utterance, samples_S: np.ndarray) -> None:
            is_beyond = np.abs(samples_S).max(initial=0) > 1
            audio = io.BytesIO(encode(samples_S if is_beyond else to_integers(samples_S), rate_hz))
            tar.write(f"{utterance.id}.{'wav' if is_beyond else 'flac'}", audio)
            manifest = json.dumps(recording_of(utterance, rate_hz).to_dict()) + "\n"
            tar.write(f"{utterance.id}.json", io.BytesIO(manifest.encode()), count=False)

        yield keep


def recording_of(utterance: Utterance, rate_hz: int, speed: float = 1.0) -> Recording:
    """Return the recording of an utterance in a tar file, at `speed` for copies."""
    channel = "AB".index(utterance.channel)
    return Recording(
        id=original_id(utterance.id, speed),
        sources=[AudioSource(type="shar", channels=[channel], source="")],
        sampling_rate=rate_hz,
        num_samples=round(utterance.duration_s * rate_hz),
        duration=utterance.duration_s,
        channel_ids=[channel],
        transforms=None if speed == 1 else [Speed(factor=speed).to_dict()],
    )


def copy_id(name: str, speed: float) -> str:
    """Return the id of an utterance or speaker at `speed`."""
    return name if speed == 1 else f"sp{speed:g}-{name}"


def original_id(name: str, speed: float) -> str:
    """Return the id of the original of a copy at `speed`."""
    return name.removeprefix(copy_id("", speed))


def to_integers(samples_S: np.ndarray) -> np.ndarray:
    """Convert samples in [-1, 1] to 16-bit little-endian integers."""
    return np.clip(np.rint(samples_S * SCALE), -SCALE, SCALE - 1).astype("<i2")


class FlacArchive:
    """Archive that computes the features of a shard's utterances in one thread."""

    def __init__(self, directory: Path, span: Span, cuts: Sequence[Mapping[str, Any]]) -> None:
        """Open a shard; ValueError if audio is missing, AsrtoolError if settings are."""
        self._extent = open_span(directory, FLAC, span)
        self._members = data_members(self._extent)
        self._recordings = [cut["recording"] for cut in cuts]
        for recording in self._recordings:
            if recording["id"] not in self._members:
                raise ValueError(f"{FLAC.format(span.file)} lacks {recording['id']}")
        features = read_feature_settings(directory)
        self._extractor: FeatureType = features.type.load()(features)

    def read(self, place: int) -> np.ndarray:
        """The features of an utterance, (T, F) float32."""
        recording = self._recordings[place]
        content = self._extent.read(*self._members[recording["id"]])
        samples_S, rate_hz = soundfile.read(io.BytesIO(content), dtype="float32")
        with one_thread():
            for transform in recording.get("transforms") or ():
                samples_S = Speed(**transform["kwargs"])(samples_S, rate_hz)
            return self._extractor.extract(samples_S)
