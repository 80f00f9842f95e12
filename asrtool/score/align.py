"""Align reference and hypothesis at least cost, as NIST's sclite does.

Costs: correct 0, substitution 4, insertion and deletion 3; an optional word 2, the empty alternative 0.001. Among
moves of equal cost a substitution goes first, then an insertion, then a deletion. Sources: sclite's manual for the
costs, sclite itself (SCTK 2.4.10) for the rest.
"""

from __future__ import annotations

import functools
import math
import struct
from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from asrtool.score.network import Arcs, Network, Word, same_word
from asrtool.score.result import Alignment, Pair, gain_rows, num_equal

SUB, DEL, INS = range(3)
Row = Sequence[float]
_FLOAT = struct.Struct("f")


class _Single(float):
    """32-bit float: sclite adds these, and rounding decides between equal paths."""

    def __new__(cls, value: float) -> _Single:
        return super().__new__(cls, _FLOAT.unpack(_FLOAT.pack(value))[0])

    def __add__(self, other: float) -> _Single:
        return _Single(float(self) + other)


class _Costs(NamedTuple):
    zero: float
    nulls: float  # empty alternative for empty alternative
    optional: float
    gap: float
    sub: float
    null: float


_EXACT = _Costs(0, 1, 2, 3, 4, 0)  # for texts without the empty alternative, all of whose sums are whole numbers
_SINGLE = _Costs(*map(_Single, (0, 1, 2, 3, 4, 0.001)))


def align_words(ref: Sequence[str], hyp: Sequence[str]) -> Alignment:
    """Align two sequences of words; no word has a special meaning.

    Costs are least if gains are greatest: 3 for equal words, 1 for a substitution. Equal last words are paired: one
    word less on one side saves at most a gap. Among equal first words the gain is 3 for each of the shorter side.
    """
    start, backwards = num_equal(ref, hyp), ""
    rows: list[int] = []
    refs, hyps = list(ref), list(hyp)
    a, b = len(ref), len(hyp)
    while a != b or a > start:
        if a and b and ref[a - 1] == hyp[b - 1]:
            kind = "C"
        elif min(a, b) <= start:
            kind = "I" if a < b else "D"
        else:
            rows = rows or [-1, *gain_rows(ref[start:a], hyp[start:b], 3)]
            up, row, column = rows[a - start - 1], rows[a - start], b - start
            gain = _gain(row, column)
            kind = "S" if _gain(up, column - 1) + 1 == gain else "I" if _gain(row, column - 1) == gain else "D"
        backwards += kind
        if kind == "I":
            refs.insert(a, "")
        if kind == "D":
            hyps.insert(b, "")
        a, b = a - (kind != "I"), b - (kind != "D")
    return Alignment("C" * a + backwards[::-1], refs, hyps)


def _gain(row: int, b: int) -> int:
    """Return the gain of the first `b` words in a row of `gain_rows`."""
    return 3 * b - (row & ((1 << 3 * b) - 1)).bit_count()


def align_networks(ref: Network, hyp: Network) -> Alignment:
    """Align the best path through `ref` with the best path through `hyp`."""
    if ref.is_plain and hyp.is_plain:
        return align_words(*([word.text for word in network.words[1:]] for network in (ref, hyp)))
    return _Search(ref, hyp, _SINGLE if ref.has_null or hyp.has_null else _EXACT).run()


class _Search:
    """Dynamic programming over pairs of arcs (a, b) of two networks, with traceback."""

    def __init__(self, ref: Network, hyp: Network, costs: _Costs) -> None:
        self._ref, self._hyp, self._costs = ref, hyp, costs
        self._table: list[Row] = []  # least cost of reaching each pair
        self._pairs: list[Pair] = []  # the last one first

    def run(self) -> Alignment:
        self._fill()
        self._trace()
        return Alignment(*zip(*reversed(self._pairs), strict=True))

    def _fill(self) -> None:
        costs, words = self._costs, self._hyp.words
        ins = [_gap(word, costs) for word in words]
        row: list[float] = [costs.zero]
        for b in range(1, len(words)):
            row.append(min([row[before] for before in self._hyp.before(b)]) + ins[b])
        places: defaultdict[str, list[int]] = defaultdict(list)
        if not any(word.fragment for word in words):
            for b, word in enumerate(words):
                places[word.text].append(b)
        joins = [self._hyp.joins.get(b) for b in range(len(words))]
        # All sums of _EXACT are whole numbers, which 32 bits hold: a tenth of the memory that a list takes.
        store: Callable[[Row], Row] = functools.partial(array, "f") if costs is _EXACT else list
        self._table.append(store(row))
        for a, word in enumerate(self._ref.words[1:], 1):
            before = self._ref.before(a)
            up = row if before == (a - 1,) else _least_row([self._table[arc] for arc in before])
            row = []
            _add_costs(row, up, _gap(word, costs), _subs(word, words, places, costs), ins, joins)
            self._table.append(store(row))

    def _trace(self) -> None:
        """Go back along the best path."""
        ref, hyp, costs, table = self._ref, self._hyp, self._costs, self._table
        a, b = self._first_least(ref.ends, hyp.ends)
        while a and b:
            cost, rows, columns = table[a][b], ref.before(a), hyp.before(b)
            move, (row, column) = SUB, self._first_least(rows, columns)
            if table[row][column] + _sub(ref.words[a], hyp.words[b], costs) != cost:
                move, (row, column) = INS, self._first_least((a,), columns)
                if table[row][column] + _gap(hyp.words[b], costs) != cost:
                    move, (row, column) = DEL, self._first_least(rows, (b,))
            self._add(move, a, b)
            a, b = row, column
        while a or b:
            self._add(DEL if a else INS, a, b)
            a, b = self._first_least(ref.before(a) if a else (0,), (0,) if a else hyp.before(b))

    def _first_least(self, rows: Arcs, columns: Arcs) -> tuple[int, int]:
        if len(rows) == 1 and len(columns) == 1:
            return rows[0], columns[0]
        table = self._table
        return min([(a, b) for a in rows for b in columns], key=lambda cell: table[cell[0]][cell[1]])

    def _add(self, move: int, a: int, b: int) -> None:
        pair = _pair(move, self._ref.words[a if move != INS else 0], self._hyp.words[b if move != DEL else 0])
        if pair:
            self._pairs.append(pair)


@functools.lru_cache(1 << 16)
def _pair(move: int, ref: Word, hyp: Word) -> Pair | None:
    """Return the outcome of a move; None for null against null."""
    if move == SUB:
        return Pair("C" if same_word(ref, hyp) else "S", str(ref), str(hyp))
    word = ref if move == DEL else hyp
    if word.null:
        return None
    if move == DEL:
        return Pair("C" if ref.optional else "D", str(ref), "")
    return Pair("C" if hyp.optional else "I", "", str(hyp))


def _least_row(rows: list[Row]) -> Row:
    return rows[0] if len(rows) == 1 else [min(column) for column in zip(*rows, strict=True)]


def _add_costs(row: list[float], up: Row, gap: float, subs: Row, ins: Row, joins: list[Arcs | None]) -> None:
    """Add the costs of a row below the row `up`."""
    corner = left = math.inf  # nothing but a deletion leads to the first column
    for sub, step, above, join in zip(subs, ins, up, joins, strict=False):
        if join:
            corner, left = min([up[arc] for arc in join]), min([row[arc] for arc in join])
        cost = corner + sub
        corner = above
        left = left + step
        if left < cost:
            cost = left
        above = above + gap
        left = above if above < cost else cost
        row.append(left)


def _subs(ref: Word, hyp: Sequence[Word], places: Mapping[str, list[int]], costs: _Costs) -> Row:
    """Return the costs of substitution by each of `hyp`.

    `places` has the indices of each text, and is empty if there are fragments.
    """
    if not places or ref.null or ref.fragment:
        return [_sub(ref, word, costs) for word in hyp]
    row = [costs.sub] * len(hyp)
    for b in places.get(ref.text, ()):
        row[b] = costs.zero
    return row


def _sub(ref: Word, hyp: Word, costs: _Costs) -> float:
    if ref.null:
        return costs.nulls if hyp.null else costs.sub
    return costs.zero if ref.text == hyp.text or same_word(ref, hyp) else costs.sub


def _gap(word: Word, costs: _Costs) -> float:
    if word.null:
        return costs.null
    return costs.optional if word.optional else costs.gap
