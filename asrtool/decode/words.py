"""Tokens to words: where a word begins and ends, and how sure the recogniser is of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from asrtool.decode.path import Span
from asrtool.lang.tokenizer import WORD_MARK

MARGIN_S = 0.1  # a CTC model emits a piece for a moment inside it, so a word reaches further than its emissions


class Word(NamedTuple):
    """A recognised word; times in seconds, `confidence` in [0, 1]."""

    text: str
    begin_s: float
    end_s: float
    confidence: float


def opens_word(piece: str) -> bool:
    """Whether `piece` is the first one of a word."""
    return piece.startswith(WORD_MARK)


def is_spoken(piece: str) -> bool:
    """Whether `piece` spells speech: a tag such as ``[noise]`` and ``<unk>`` do not, and no ctm holds them."""
    return piece[:1] not in ("[", "<")


def find_words(spans: Sequence[Span], pieces: Sequence[str], frame_s: float, num_frames: int) -> list[Word]:
    """Words of an utterance whose `pieces` mark where a word begins; see place_words."""
    groups: list[tuple[list[str], list[Span]]] = []
    for span in spans:
        piece = pieces[span.token]
        if not groups or opens_word(piece):
            groups.append(([], []))
        if is_spoken(piece):
            groups[-1][0].append(piece)
            groups[-1][1].append(span)
    spelled = (("".join(spoken).replace(WORD_MARK, ""), group) for spoken, group in groups)
    return place_words([(text, group) for text, group in spelled if text], frame_s, num_frames)


def place_words(groups: Iterable[tuple[str, Sequence[Span]]], frame_s: float, num_frames: int) -> list[Word]:
    """Words of an utterance, in order and without overlap, times from its begin; `groups` are words and their tokens.

    A word runs from the begin of its first token to the end of its last, and at most MARGIN_S further on either side:
    to the ends of the utterance (`num_frames` frames of `frame_s`), and to the middle of the gap to the neighbour.
    Its confidence is the lowest among its tokens.
    """
    placed = [(text, group, group[0].begin * frame_s, group[-1].end * frame_s) for text, group in groups]
    middles = [(left[3] + right[2]) / 2 for left, right in pairwise(placed)]
    lows, highs = [0.0, *middles], [*middles, num_frames * frame_s]
    return [
        Word(text, max(low, begin_s - MARGIN_S), min(high, end_s + MARGIN_S), min(1.0, *[s.confidence for s in group]))
        for (text, group, begin_s, end_s), low, high in zip(placed, lows, highs, strict=False)
    ]
