"""Align a known text to a recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from asrtool.data.features.from_samples import frames_of
from asrtool.decode.align.align import Aligner, tokenize
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.transcribe.audio import open_sound
from asrtool.transcribe.listen import choose_channels
from asrtool.transcribe.recogniser import Piece, Recogniser
from asrtool.transcribe.transcript import Line, Transcript


def align(recogniser: Recogniser, path: str | Path, text: str, channel: int) -> Transcript:
    """Align `text` to a channel, from 1 on; returns one line with times of words.

    The channel is computed at once, so memory grows with its length. Raises AsrtoolError if the file cannot be read,
    a word has no tokens, or the recording is too short for the text.
    """
    folder = recogniser.origin.folders["tokenizer"]
    assert folder is not None, "every search has read it"
    tokenizer = Tokenizer.load(folder)
    with open_sound(path) as sound:
        (row,) = choose_channels(sound, str(channel))
        samples_S = np.concatenate([np.zeros(0, np.float32), *(block_CS[row] for block_CS in sound.blocks)])
        feats_TF = frames_of(samples_S, sound.sampling_rate_hz, recogniser.features)
    piece = Piece(sound.name, 0.0, len(samples_S) / sound.sampling_rate_hz, 0.0, feats_TF)
    (scored,) = recogniser.scored([piece])
    aligner = Aligner(recogniser.acoustic.topology, tokenizer.pieces, recogniser.acoustic.frame_s)
    found = aligner((scored.scores_TV, tokenize(text, tokenizer)))
    if isinstance(found, str):
        raise AsrtoolError(f"{path}: cannot be aligned: {found}", "check that text and recording belong together")
    words = tuple(found.words)
    line = Line(channel, words[0].begin_s, words[-1].end_s, words)
    return Transcript(piece.speaker, piece.end_s, 1, (line,))
