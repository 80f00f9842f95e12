"""Tokens to words: where a word begins and ends, and how sure the recogniser is of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from asrtool.decode.path import Span
from asrtool.lang.tokenizer import WORD_MARK

MARGIN_S = 0.1  # a CTC model emits a piece for a moment inside it, so a word reaches further than its emissions


@dataclass(frozen=True)
class Word:
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
    spelled = ([span for span in group if is_spoken(pieces[span.token])] for group in _group(spans, pieces))
    texts = (("".join(pieces[span.token] for span in group).replace(WORD_MARK, ""), group) for group in spelled)
    return place_words([(text, group) for text, group in texts if text], frame_s, num_frames)


def place_words(groups: Iterable[tuple[str, Sequence[Span]]], frame_s: float, num_frames: int) -> list[Word]:
    """Words of an utterance, in order and without overlap, times from its begin; `groups` are words and their tokens.

    A word runs from the begin of its first token to the end of its last, and at most MARGIN_S further on either side:
    to the ends of the utterance (`num_frames` frames of `frame_s`), and to the middle of the gap to the neighbour.
    Its confidence is the lowest among its tokens.
    """
    words = [
        Word(text, spans[0].begin * frame_s, spans[-1].end * frame_s, min(1.0, *(span.confidence for span in spans)))
        for text, spans in groups
    ]
    middles = [(left.end_s + right.begin_s) / 2 for left, right in pairwise(words)]
    lows, highs = [0.0, *middles], [*middles, num_frames * frame_s]
    return [
        Word(word.text, max(low, word.begin_s - MARGIN_S), min(high, word.end_s + MARGIN_S), word.confidence)
        for word, low, high in zip(words, lows, highs, strict=False)
    ]


def _group(spans: Sequence[Span], pieces: Sequence[str]) -> list[list[Span]]:
    groups: list[list[Span]] = []
    for span in spans:
        if not groups or opens_word(pieces[span.token]):
            groups.append([])
        groups[-1].append(span)
    return groups
