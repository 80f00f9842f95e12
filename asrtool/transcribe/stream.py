"""Streaming recognition, by a model whose rows depend on no later frames.

The piece that is being spoken is searched again each time a block of audio has come; rows of the model are computed
once. When a piece ends, its words are final.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from asrtool.data.features.cmvn import Cmvn
from asrtool.decode.words import Word
from asrtool.errors import AsrtoolError
from asrtool.transcribe.audio import Sound, open_sound
from asrtool.transcribe.overlap import Recognised, join_overlaps, shifted
from asrtool.transcribe.recogniser import Recogniser, SpeakerNormaliser
from asrtool.transcribe.segments import CHUNK_S, MAX_SEGMENT_S, Piece, Segment, Segmenter, choose_channels

EDGE_S = 0.05  # the last frames so close to the end need samples that have not arrived


@dataclass(frozen=True)
class Update:
    """Words of a segment after `audio_s` of audio, with times from its start."""

    words: tuple[Word, ...]
    audio_s: float
    is_final: bool


@dataclass
class OpenPiece:
    """Piece that has not ended: model rows so far, and the model's state."""

    begin_s: float
    rows: list[np.ndarray] = field(default_factory=list)
    num_frames: int = 0  # frames of these rows
    state: object = None


class Stream:
    """One channel of a recording, by a recogniser."""

    def __init__(self, recogniser: Recogniser, name: str, sampling_rate_hz: int) -> None:
        """Raise AsrtoolError if the model or its normalisation needs whole utterances."""
        cmvn = recogniser.features.cmvn
        if cmvn == "utterance":
            what = f"{recogniser.origin.origin}: features.cmvn = utterance needs whole utterances"
            raise AsrtoolError(
                what,
                "train with --set features.cmvn=global --set model.deltas=0 "
                "--set model.lstm.bidirectional=false --set model.lstm.conv_channels=0",
            )
        recogniser.acoustic.model.check_streams()
        self._recogniser, self._name, self._rate = recogniser, name, sampling_rate_hz
        self._segmenter = Segmenter(sampling_rate_hz, MAX_SEGMENT_S)
        self._normaliser = SpeakerNormaliser(Cmvn(recogniser.origin.cmvn_folder, cmvn))
        self._model = recogniser.acoustic.model.cpu().eval()
        self._open: OpenPiece | None = None
        self._held: Recognised | None = None  # piece that the next one overlaps
        self._audio_s = 0.0

    def add(self, samples_S: np.ndarray) -> Iterator[Update]:
        """Yield the updates after these samples."""
        self._audio_s += len(samples_S) / self._rate
        for segment in self._segmenter.add(samples_S):
            yield from self._finish(segment)
        if piece := self._segmenter.open_piece():
            words = self._search(piece, at_end=False)
            pieces = self._join(Recognised(piece.begin_s, self._audio_s, words, piece.overlap_s))
            yield Update(tuple(word for each in pieces for word in each.words), self._audio_s, False)

    def end(self) -> Iterator[Update]:
        """Yield the final updates at the end of the channel."""
        for segment in self._segmenter.end():
            yield from self._finish(segment)

    def _finish(self, segment: Segment) -> Iterator[Update]:
        end_s = segment.begin_s + len(segment.samples_S) / self._rate
        recognised = Recognised(segment.begin_s, end_s, self._search(segment, at_end=True), segment.overlap_s)
        feats_TF = self._recogniser.frames(segment.samples_S, self._rate)
        self._normaliser.update([Piece(self._name, segment.begin_s, end_s, 0.0, feats_TF)])
        pieces = self._join(recognised)
        self._held = pieces.pop() if segment.is_cut else None
        self._open = None
        for piece in pieces:
            yield Update(piece.words, self._audio_s, True)

    def _join(self, recognised: Recognised) -> list[Recognised]:
        """Return a segment, after the one before if that is not final."""
        return join_overlaps([self._held, recognised] if self._held else [recognised])

    def _search(self, segment: Segment, at_end: bool) -> tuple[Word, ...]:
        """Return the words of a segment so far, with times from the recording's start."""
        if self._open is None or self._open.begin_s != segment.begin_s:
            self._open = OpenPiece(segment.begin_s)
        self._compute(self._open, self._recogniser.frames(segment.samples_S, self._rate), at_end)
        if not self._open.rows:
            return ()
        scores_TV = np.concatenate(self._open.rows)
        return shifted(self._recogniser.search(scores_TV), segment.begin_s)

    def _compute(self, piece: OpenPiece, feats_TF: np.ndarray, at_end: bool) -> None:
        """Compute rows of frames that no later sample changes; of all frames at the end."""
        subsampling = self._model.subsampling
        num_frames = len(feats_TF)
        if not at_end:
            num_frames -= round(1000 * EDGE_S / self._recogniser.features.frame_shift_ms)
            num_frames = max(num_frames, 0) // subsampling * subsampling
        elif num_frames < piece.num_frames:  # cut at a place before the last samples that had come
            piece.rows, piece.num_frames, piece.state = [], 0, None
        if num_frames <= piece.num_frames:
            return
        new_TF = self._normaliser.cmvn.normalise(self._name, feats_TF[piece.num_frames : num_frames])
        with torch.inference_mode():
            scores_1TV, piece.state = self._model.stream(torch.from_numpy(new_TF)[None], piece.state)
        piece.rows.append(scores_1TV[0].float().numpy())
        piece.num_frames = num_frames


@dataclass
class Latency:
    """Seconds from the end of a word to the first display of its final form."""

    shown: list[tuple[str, float]] = field(default_factory=list)  # words of the open piece, with times of arrival
    seconds: list[float] = field(default_factory=list)

    def note(self, update: Update) -> None:
        """Record the first display of each word of the next update of the channel."""
        kept = 0
        texts = [word.text for word in update.words]
        open_words = self.shown[len(texts) :]
        while kept < min(len(texts), len(self.shown)) and self.shown[kept][0] == texts[kept]:
            kept += 1
        self.shown = self.shown[:kept] + [(text, update.audio_s) for text in texts[kept:]]
        if update.is_final:
            self.seconds += [at_s - word.end_s for (_, at_s), word in zip(self.shown, update.words, strict=True)]
            self.shown = open_words  # words of pieces that are not final yet

    def describe(self) -> str:
        """Return the median and 90 % quantile."""
        if not self.seconds:
            return "no words"
        middle, most = np.quantile(self.seconds, [0.5, 0.9])
        return f"words are shown {middle:.2f} s after they were said (median; 90 % within {most:.2f} s)"


def stream(recogniser: Recogniser, path: str | Path, channel: str, as_json: bool) -> None:
    """Print the words of one channel of a file or of ``-`` while it arrives.

    Prints a line a segment when it is final; on a terminal also its words so far. With `as_json` a line of JSON each
    time words change. Raises AsrtoolError if it cannot be read, and as Stream.
    """
    start_s, latency = time.monotonic(), Latency()
    with open_sound(path, CHUNK_S, live=True) as sound:
        row = _one_channel(sound, channel)
        channel_stream = Stream(recogniser, sound.name, sound.sampling_rate_hz)
        audio_s = 0.0
        for block_CS in sound.blocks:
            audio_s += block_CS.shape[1] / sound.sampling_rate_hz
            for update in channel_stream.add(block_CS[row]):
                _show(update, latency, as_json)
        for update in channel_stream.end():
            _show(update, latency, as_json)
    seconds = time.monotonic() - start_s
    logging.info(
        "%s: %.1f s, %s; real-time factor %.3f", path, audio_s, latency.describe(), seconds / max(audio_s, 0.01)
    )


def _one_channel(sound: Sound, channel: str) -> int:
    if channel == "each" and sound.num_channels == 1:
        return 0
    rows = choose_channels(sound, channel) if channel not in ("each", "mix") else ()
    if len(rows) != 1:
        what = f"{sound.name}: has {sound.num_channels} channels, one is listened to while it arrives"
        raise AsrtoolError(what, "choose it with --channels 1")
    return rows[0]


def _show(update: Update, latency: Latency, as_json: bool) -> None:
    latency.note(update)
    text = " ".join(word.text for word in update.words)
    if as_json:
        print(json.dumps({"text": text, "final": update.is_final, "at_s": round(update.audio_s, 3)}), flush=True)
    elif update.is_final:
        clear = "\r\x1b[K" if sys.stdout.isatty() else ""
        if text:
            print(f"{clear}{text}", flush=True)
    elif sys.stdout.isatty():
        print(f"\r\x1b[K{text[-100:]}", end="", flush=True)
