"""Join the words of overlapping segments; shared words are written once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from asrtool.decode.words import Word

SAME_WORD_S = 0.3  # largest distance between the middles of a word in two pieces


@dataclass(frozen=True)
class Recognised:
    """Piece with its words; times count from the start of the recording."""

    begin_s: float
    end_s: float
    words: tuple[Word, ...]
    overlap_s: float = 0.0  # at its start, with the piece before


def join_overlaps(pieces: Iterable[Recognised]) -> list[Recognised]:
    """Return the pieces of one channel in order, with each word in one of them.

    Two overlapping pieces are cut at a word that both have at nearly the same time: the one nearest to the middle of
    the overlap. Without such a word they are cut at that middle; a word of the second piece that begins before the
    last word of the first has ended is dropped.
    """
    done: list[Recognised] = []
    for piece in pieces:
        if piece.overlap_s and done:
            before, after = _split(done[-1].words, piece.words, piece.begin_s, piece.begin_s + piece.overlap_s)
            seam_s = piece.begin_s + piece.overlap_s / 2
            done[-1] = Recognised(done[-1].begin_s, seam_s, before, done[-1].overlap_s)
            piece = Recognised(seam_s, piece.end_s, after)
        done.append(piece)
    return done


def shifted(words: Iterable[Word], by_s: float) -> tuple[Word, ...]:
    """Return the same words, `by_s` later."""
    return tuple(word._replace(begin_s=word.begin_s + by_s, end_s=word.end_s + by_s) for word in words)


def _split(
    first: Sequence[Word], second: Sequence[Word], begin_s: float, end_s: float
) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    middle_s = (begin_s + end_s) / 2
    from_i = next((i for i, word in enumerate(first) if word.end_s > begin_s), len(first))
    to_j = next((j for j, word in enumerate(second) if word.begin_s >= end_s), len(second))
    if shared := _common(first[from_i:], second[:to_j]):
        nearest = min(shared, key=lambda pair: abs(_middle(first[from_i + pair[0]]) - middle_s))
        return tuple(first[: from_i + nearest[0] + 1]), tuple(second[nearest[1] + 1 :])
    before = tuple(word for word in first if _middle(word) < middle_s)
    last_s = before[-1].end_s if before else begin_s
    return before, tuple(word for word in second if _middle(word) >= middle_s and word.begin_s >= last_s - 1e-6)


def _common(first: Sequence[Word], second: Sequence[Word]) -> list[tuple[int, int]]:
    """Return pairs of indices of equal words, in the order of both.

    Repeated words can be paired in several ways; the alignment that is nearest in time as a whole is taken. A pair at
    the same time is worth 1, one SAME_WORD_S apart nothing.
    """
    best: list[list[tuple[float, tuple[tuple[int, int], ...]]]] = [[(0.0, ())] * (len(second) + 1)]
    for i, a in enumerate(first):
        row = [best[-1][0]]
        for j, b in enumerate(second):
            choices = [best[-1][j + 1], row[-1]]
            worth = 1 - abs(_middle(a) - _middle(b)) / SAME_WORD_S
            if a.text == b.text and worth > 0:
                value, pairs = best[-1][j]
                choices.append((value + worth, (*pairs, (i, j))))
            row.append(max(choices, key=lambda choice: choice[0]))
        best.append(row)
    return list(best[-1][-1][1])


def _middle(word: Word) -> float:
    return (word.begin_s + word.end_s) / 2
