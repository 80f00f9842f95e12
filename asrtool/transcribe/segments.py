"""Cut channels at pauses, while they are read, into pieces with features.

A frame of FRAME_S is speech if its level is MARGIN_DB above the floor or LOUD_DB above full scale. The floor is the
lowest mean of CHUNK_S in the last FLOOR_S seconds. Pauses of PAUSE_S and more are left out, except KEPT_S on either
side. Speech without such a pause is cut at its quietest point; both segments then have OVERLAP_S of the other, since
a cut may go through a word.

Letters in names: C channels, S samples, T frames, F features.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.log import plural
from asrtool.transcribe.audio import Sound

EACH, MIX = "each", "mix"  # values of --channels
FRAME_S = 0.01
MAX_SEGMENT_S = 20.0  # of a piece
MARGIN_DB = 8.0
SILENCE_DB, LOUD_DB = -70.0, -45.0  # dB of full scale: always silence below the first, always speech above the second
FLOOR_S = 30.0
CHUNK_S = 0.25  # steps of the noise floor
PAUSE_S = 0.8
KEPT_S = 0.3
OVERLAP_S = 0.7
QUIET_S = 0.2  # over which the level is averaged to find the quietest place


@dataclass(frozen=True)
class Segment:
    """Segment of a channel.

    Its first `overlap_s` seconds are also the last ones of the segment before.
    """

    begin_s: float
    samples_S: np.ndarray  # float32
    overlap_s: float = 0.0
    is_cut: bool = False  # its last seconds are also the first ones of the next


class Segmenter:
    """Segmenter of one channel: takes samples, and yields complete segments.

    The size of the blocks has no influence.
    """

    def __init__(self, sampling_rate_hz: int, longest_s: float) -> None:
        """Take `longest_s`, the limit of a piece with its overlaps."""
        self._rate = sampling_rate_hz
        self._step = round(FRAME_S * sampling_rate_hz)
        self._longest = round((longest_s - 2 * OVERLAP_S) / FRAME_S)
        self._waiting: list[np.ndarray] = []  # samples of an incomplete chunk
        self._samples = np.zeros(0, np.float32)  # from frame `_first` on
        self._levels = np.zeros(0, np.float32)  # dB, of the same frames
        self._first = 0  # frame
        self._lows: deque[float] = deque(maxlen=round(FLOOR_S / CHUNK_S))  # mean levels of the last chunks
        self._begin: int | None = None  # frame where the open piece begins; None in a pause
        self._last_speech = -1  # frame
        self._end = 0  # frame where the last piece has ended, at a pause
        self._overlap = 0  # frames of the open piece that the one before has

    def add(self, samples_S: np.ndarray) -> Iterator[Segment]:
        """Yield the segments that end in these samples."""
        self._waiting.append(samples_S)
        size = self._step * round(CHUNK_S / FRAME_S)
        if sum(map(len, self._waiting)) >= size:
            samples_S = np.concatenate(self._waiting)
            whole = len(samples_S) // size * size
            self._waiting = [samples_S[whole:]]
            for begin in range(0, whole, size):
                yield from self._add_chunk(samples_S[begin : begin + size])

    def _add_chunk(self, samples_S: np.ndarray) -> Iterator[Segment]:
        """Yield the segments that end in a chunk; the last one may be shorter."""
        levels = levels_of(samples_S, self._step)
        if not len(levels):
            return
        self._lows.append(float(levels.mean()))
        floor = min(max(min(self._lows) + MARGIN_DB, SILENCE_DB), LOUD_DB)
        start = self._first + len(self._levels)
        self._samples = np.concatenate([self._samples, samples_S])
        self._levels = np.concatenate([self._levels, levels])
        for frame, is_speech in enumerate((levels > floor).tolist(), start):
            yield from self._step_over(frame, is_speech)
        self._drop_samples()

    def open_piece(self) -> Segment | None:
        """Return the segment that has not ended; None in a pause."""
        if self._begin is None:
            return None
        return self._piece(self._begin, self._first + len(self._levels))

    def end(self) -> Iterator[Segment]:
        """Yield the segments that end with the channel."""
        if self._waiting:
            yield from self._add_chunk(np.concatenate(self._waiting))
        if self._begin is not None:
            stop = min(self._last_speech + 1 + round(KEPT_S / FRAME_S), self._first + len(self._levels))
            yield self._piece(self._begin, stop)
            self._begin = None

    def _step_over(self, frame: int, is_speech: bool) -> Iterator[Segment]:
        if is_speech:
            self._last_speech = frame
            if self._begin is None:
                self._begin = max(frame - round(KEPT_S / FRAME_S), self._first, self._end)
                self._overlap = 0
        if self._begin is None:
            return
        is_full = frame + 1 - self._begin >= self._longest
        if frame - self._last_speech >= round((KEPT_S if is_full else PAUSE_S) / FRAME_S):
            self._end = self._last_speech + 1 + round(KEPT_S / FRAME_S)
            yield self._piece(self._begin, self._end)
            self._begin = None
        elif is_full:
            yield self._cut(frame + 1)

    def _cut(self, stop: int) -> Segment:
        """End the open segment at the quietest point of its second half."""
        assert self._begin is not None
        low = self._begin + self._longest // 2
        width = round(QUIET_S / FRAME_S)
        levels = self._levels[low - self._first : stop - self._first - round(OVERLAP_S / FRAME_S)]
        sums = np.convolve(levels, np.ones(width), "valid")
        place = low + int(np.argmin(sums)) + width // 2
        overlap = round(OVERLAP_S / FRAME_S)
        piece = replace(self._piece(self._begin, place + overlap), is_cut=True)
        self._begin, self._overlap = place - overlap, 2 * overlap
        return piece

    def _piece(self, begin: int, stop: int) -> Segment:
        # A copy, since a view would keep the whole array in memory.
        part_S = self._samples[(begin - self._first) * self._step : (stop - self._first) * self._step].copy()
        return Segment(begin * self._step / self._rate, part_S, self._overlap * self._step / self._rate)

    def _drop_samples(self) -> None:
        """Drop samples that no segment can need any more."""
        kept = self._first + len(self._levels) - round(KEPT_S / FRAME_S)
        first = self._begin if self._begin is not None else max(self._first, kept)
        self._samples = self._samples[(first - self._first) * self._step :]
        self._levels = self._levels[first - self._first :]
        self._first = first


def levels_of(samples_S: np.ndarray, step: int) -> np.ndarray:
    """Return the level of each whole frame of `step` samples, dBFS, float32."""
    num_frames = len(samples_S) // step
    frames = samples_S[: num_frames * step].reshape(num_frames, step)
    power = (frames - frames.mean(axis=1, keepdims=True)).astype(np.float64) ** 2
    return (10 * np.log10(power.mean(axis=1) + 1e-10)).astype(np.float32)


@dataclass(frozen=True)
class Piece:
    """Segment of a channel with its features before normalisation."""

    speaker: str  # a name for the channel
    begin_s: float
    duration_s: float
    overlap_s: float  # at its start, with the piece before
    feats_TF: np.ndarray

    @property
    def end_s(self) -> float:
        """End in seconds from the start of the recording."""
        return self.begin_s + self.duration_s


@dataclass
class RecordingReader:
    """Reader of the pieces of one recording; counts the seconds read in `audio_s`."""

    sound: Sound
    frames: Callable[[np.ndarray, int], np.ndarray]  # samples (S,) and their rate to frames (T, F)
    channels: Sequence[int]  # from 0 on; none if all are mixed into one
    label: str = ""  # before its name, if recordings share batches
    audio_s: float = 0.0

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces of all channels in order of their ends."""
        segmenters = [Segmenter(self.sound.sampling_rate_hz, MAX_SEGMENT_S) for _ in self.channels or (0,)]
        for block_CS in self.sound.blocks:
            self.audio_s += block_CS.shape[1] / self.sound.sampling_rate_hz
            rows = block_CS[list(self.channels)] if self.channels else block_CS.mean(axis=0, keepdims=True)
            for number, segmenter in enumerate(segmenters):
                yield from self._pieces_of(number, segmenter.add(rows[number]))
        for number, segmenter in enumerate(segmenters):
            yield from self._pieces_of(number, segmenter.end())

    def speaker(self, number: int) -> str:
        """Return the speaker name of channel number `number` of `channels`."""
        return f"{self.label}{self.sound.name}-{self.channels[number] + 1 if self.channels else 1}"

    def _pieces_of(self, number: int, segments: Iterator[Segment]) -> Iterator[Piece]:
        for segment in segments:
            feats_TF = self.frames(segment.samples_S, self.sound.sampling_rate_hz)
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
        numbers = tuple(dict.fromkeys(int(text) for text in channels.split(",")))
    except ValueError:
        numbers = (0,)
    return tuple(channel_row(sound, number, channels, f"{EACH}, {MIX} or ") for number in numbers)


def channel_row(sound: Sound, number: int, given: object = None, others: str = "") -> int:
    """Return the row of a channel, from 1 on; AsrtoolError for another one.

    `given` is how a user named it, and `others` are further choices.
    """
    num = sound.num_channels
    if not 1 <= number <= num:
        what = f"{sound.name}: has {plural(num, 'channel')}, channel {given or number!r} was asked for"
        raise AsrtoolError(what, f"choose {others}1" + (f" to {num}" if num > 1 else ""))
    return number - 1
