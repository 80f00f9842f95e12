"""Split a recording into pieces with features, as the model was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from asrtool.data.features.feature_type import FeatureType
from asrtool.data.features.from_samples import frames_of
from asrtool.errors import AsrtoolError
from asrtool.settings.data import Features
from asrtool.transcribe.audio import Sound
from asrtool.transcribe.recogniser import Piece
from asrtool.transcribe.segments import LONGEST_S, Segment, Segmenter

EACH, MIX = "each", "mix"


@dataclass
class Listener:
    """Reads one recording; `heard_s` grows as it does."""

    sound: Sound
    features: Features
    channels: Sequence[int]  # from 0 on; none where all are mixed into one
    heard_s: float = 0.0

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces of all channels in order of their ends."""
        extractor: FeatureType = self.features.type.load()(self.features)
        segmenters = [Segmenter(self.sound.sampling_rate_hz, LONGEST_S) for _ in self.channels or (0,)]
        for block_CS in self.sound.blocks:
            self.heard_s += block_CS.shape[1] / self.sound.sampling_rate_hz
            rows = block_CS[list(self.channels)] if self.channels else block_CS.mean(axis=0, keepdims=True)
            for number, segmenter in enumerate(segmenters):
                yield from self._made(number, segmenter.add(rows[number]), extractor)
        for number, segmenter in enumerate(segmenters):
            yield from self._made(number, segmenter.end(), extractor)

    def speaker(self, number: int) -> str:
        """The name of the channel that is number `number` of those listened to."""
        return f"{self.sound.name}-{self.channels[number] + 1 if self.channels else 1}"

    def _made(self, number: int, segments: Iterator[Segment], extractor: FeatureType) -> Iterator[Piece]:
        for segment in segments:
            feats_TF = frames_of(segment.samples_S, self.sound.sampling_rate_hz, self.features, extractor)
            if len(feats_TF):
                duration_s = len(segment.samples_S) / self.sound.sampling_rate_hz
                yield Piece(self.speaker(number), segment.begin_s, duration_s, segment.overlap_s, feats_TF)


def choose_channels(sound: Sound, channels: str) -> tuple[int, ...]:
    """Parse ``each``, ``mix`` or numbers from 1 on; returns numbers from 0 on.

    A mixture has none. Raises AsrtoolError for a channel that the recording does not have.
    """
    if channels == EACH:
        return tuple(range(sound.num_channels))
    if channels == MIX:
        return ()
    try:
        numbers = tuple(int(text) for text in channels.split(","))
    except ValueError:
        numbers = (0,)
    if not all(1 <= number <= sound.num_channels for number in numbers):
        found = f"{sound.name}: has {sound.num_channels} channels, --channels is {channels!r}"
        raise AsrtoolError(found, f"choose {EACH}, {MIX}, or numbers from 1 to {sound.num_channels}, as 1,2")
    return tuple(number - 1 for number in numbers)
