"""Where a long utterance is cut: at pauses between its words, in as few pieces as the largest length allows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from asrtool.decode.words import Word, is_spoken

KEPT_S = 0.2  # of a pause on either side of a cut, at most


@dataclass(frozen=True)
class Lengths:
    """Seconds of a piece, and of a pause to cut at."""

    least_s: float
    largest_s: float
    pause_s: float


@dataclass(frozen=True)
class Piece:
    """Words that follow each other, and when they were said, in seconds from the start of the utterance."""

    begin_s: float
    end_s: float
    text: str


def cut_at_pauses(words: Sequence[Word], duration_s: float, lengths: Lengths) -> list[Piece]:
    """The pieces of an utterance of `words`, tags among them; none where its pauses do not allow it.

    They are the fewest, of these those with the longest pauses in all. A piece keeps half of a pause, KEPT_S at most,
    and what is before the first and behind the last word. There is no cut beside a tag: how long its sound lasts is not
    known.
    """
    cuts = [0, *_pauses(words, lengths.pause_s), len(words)]
    best: dict[int, tuple[int, float, int]] = {0: (0, 0.0, 0)}  # place -> pieces up to it, minus pauses, place before
    for number, end in enumerate(cuts[1:], 1):
        ways = []
        for begin in cuts[:number]:
            if begin in best:
                begin_s, end_s = _span(words, begin, end, duration_s)
                if lengths.least_s <= end_s - begin_s <= lengths.largest_s:
                    pause_s = _gap(words, end) if end < len(words) else 0.0
                    ways.append((best[begin][0] + 1, best[begin][1] - pause_s, begin))
        if ways:
            best[end] = min(ways)
    places = [len(words)] if len(words) in best else []
    while places and places[-1]:
        places.append(best[places[-1]][2])
    spans = itertools.pairwise(reversed(places))
    return [Piece(*_span(words, i, j, duration_s), " ".join(word.text for word in words[i:j])) for i, j in spans]


def _pauses(words: Sequence[Word], pause_s: float) -> list[int]:
    """Places of the words before which there is a pause of that length."""
    return [
        i
        for i in range(1, len(words))
        if is_spoken(words[i - 1].text) and is_spoken(words[i].text) and _gap(words, i) >= pause_s
    ]


def _gap(words: Sequence[Word], i: int) -> float:
    return words[i].begin_s - words[i - 1].end_s


def _span(words: Sequence[Word], begin: int, end: int, duration_s: float) -> tuple[float, float]:
    """Of the words from `begin` to `end` (exclusive), with what they keep of the pauses around."""
    begin_s = words[begin].begin_s - min(_gap(words, begin) / 2, KEPT_S) if begin else 0.0
    end_s = words[end - 1].end_s + min(_gap(words, end) / 2, KEPT_S) if end < len(words) else duration_s
    return begin_s, end_s
