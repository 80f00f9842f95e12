"""Pieces of work: what every executor does with one that fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.files import FULL

MapPieces = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]  # results in the order of the items
TRIES = 3  # of a piece that fails for a reason that may pass
AHEAD = 4  # pieces for each process that are begun before the first of them is finished


@dataclass
class Piece:
    """An item, and how often it was lost with the process that had it."""

    number: int
    item: Any
    tries: int = 0

    @property
    def name(self) -> str:
        """Title for error messages."""
        return str(getattr(self.item, "name", f"piece {self.number}"))


def numbered(items: Iterable[Any]) -> Iterator[Piece]:
    """Items as pieces."""
    return itertools.starmap(Piece, enumerate(items))


def attempt(function: Callable[[Any], Any], piece: Piece) -> Any:
    """Call `function`; retry after an I/O error, TRIES times in all.

    Raises AsrtoolError naming the piece after the last, OSError at once if the disk is full.
    """
    for number in range(1, TRIES + 1):
        try:
            return function(piece.item)
        except OSError as error:
            if error.errno in FULL:
                raise
            if number == TRIES:
                raise given_up(piece, str(error)) from error
    raise AssertionError(piece)


def given_up(piece: Piece, why: str, times: int = TRIES) -> AsrtoolError:
    """The error for a piece that has failed so many times."""
    reason = " ".join(why.split())
    return AsrtoolError(
        f"{piece.name} failed {times} times, the last time because {reason}",
        "run the same command again; where memory is short, with fewer processes or workers",
    )
