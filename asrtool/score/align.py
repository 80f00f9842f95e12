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
from collections.abc import Callable, Sequence
from typing import NamedTuple

from asrtool.score.network import Arcs, Network, Word, make_chain, same_word
from asrtool.score.result import Alignment, Pair

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
    """Align two sequences of words; no word has a special meaning."""
    return _Search(make_chain([Word(word) for word in ref]), make_chain([Word(word) for word in hyp]), _EXACT).run()


def align_networks(ref: Network, hyp: Network) -> Alignment:
    """Align the best path through `ref` with the best path through `hyp`."""
    return _Search(ref, hyp, _SINGLE if ref.has_null or hyp.has_null else _EXACT).run()


class _Search:
    """Dynamic programming over pairs of arcs (a, b) of two networks, with traceback."""

    def __init__(self, ref: Network, hyp: Network, costs: _Costs) -> None:
        self._ref, self._hyp, self._costs = ref, hyp, costs
        self._ends = ref.ends, hyp.ends
        self._first = 0  # number of first words that need no table
        self._table: list[Row] = []  # least cost of reaching each pair; from (first, first) on
        self._pairs: list[Pair] = []  # the last one first

    def run(self) -> Alignment:
        if self._costs is _EXACT:
            self._skip_equal_end()
            self._first = self._len_equal_start()
        self._fill()
        self._trace_start(*self._trace_table())
        return Alignment(tuple(reversed(self._pairs)))

    def _skip_equal_end(self) -> None:
        """Pair the last words as long as they are equal.

        No other move is cheaper there: one word less on one side costs or saves at most a gap, and among moves of
        equal cost the pair of equal words goes first.
        """
        ref, hyp, (rows, columns) = self._ref, self._hyp, self._ends
        while len(rows) == len(columns) == 1 and rows[0] and columns[0]:
            word = ref.words[rows[0]]
            if word.optional or word != hyp.words[columns[0]]:
                break
            self._add(SUB, rows[0], columns[0])
            rows, columns = ref.before(rows[0]), hyp.before(columns[0])
        self._ends = rows, columns

    def _len_equal_start(self) -> int:
        """Return the length of the equal prefix, before any alternatives."""
        ref, hyp = self._ref, self._hyp
        stop = min(*self._ends[0], *self._ends[1], ref.len_start, hyp.len_start)
        for arc in range(1, stop + 1):
            word = ref.words[arc]
            if word.optional or word != hyp.words[arc]:
                return arc - 1
        return stop

    def _fill(self) -> None:
        first, costs = self._first, self._costs
        num_rows, num_columns = max(self._ends[0]) + 1, max(self._ends[1]) + 1
        words = self._hyp.words[first:num_columns]
        ins = [_gap(word, costs) for word in words]
        row = [math.inf] * first + [costs.zero]
        for b in range(first + 1, num_columns):
            row.append(min([row[before] for before in self._hyp.before(b)]) + ins[b - first])
        columns = _Columns(words, costs)
        joins = [self._hyp.joins.get(b) for b in range(first, num_columns)]
        # All sums of _EXACT are whole numbers, which 32 bits hold: a tenth of the memory that a list takes.
        store: Callable[[Row], Row] = functools.partial(array, "f") if costs is _EXACT else list
        table: list[Row] = [[]] * first + [store(row)]
        for a in range(first + 1, num_rows):
            word = self._ref.words[a]
            before = self._ref.before(a)
            up = row if before == (a - 1,) else _least_row([table[arc] for arc in before])
            row = [math.inf] * first
            _add_costs(row, up, _gap(word, costs), columns.subs(word), ins, joins)
            table.append(store(row))
        self._table = table

    def _trace_table(self) -> tuple[int, int]:
        """Go back along the best path as far as the table goes."""
        ref, hyp, costs, table = self._ref, self._hyp, self._costs, self._table
        a, b = self._first_least(*self._ends)
        while a > self._first and b > self._first:
            cost, rows, columns = table[a][b], ref.before(a), hyp.before(b)
            move, (row, column) = SUB, self._first_least(rows, columns)
            if table[row][column] + _sub(ref.words[a], hyp.words[b], costs) != cost:
                move, (row, column) = INS, self._first_least((a,), columns)
                if table[row][column] + _gap(hyp.words[b], costs) != cost:
                    move, (row, column) = DEL, self._first_least(rows, (b,))
            self._add(move, a, b)
            a, b = row, column
        return a, b

    def _trace_start(self, a: int, b: int) -> None:
        """Trace back the equal first words of one side; the rest are gaps.

        A substitution is as cheap as a gap there only between equal words, one of which takes the place of the other.
        """
        ref, hyp, first = self._ref, self._hyp, self._first
        while a or b:
            one, other = ref.words[a], hyp.words[b]
            if a and b and same_word(one, other) and not one.optional and not other.optional:
                move = SUB
            else:
                move = INS if b > a else DEL
            self._add(move, a, b)
            if move != INS:
                a, _ = self._first_least(ref.before(a), (first,))
            if move != DEL:
                _, b = self._first_least((first,), hyp.before(b))

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
    first = len(row)
    corner = left = math.inf  # nothing but a deletion leads to the first column
    for sub, step, above, join in zip(subs, ins, up[first:] if first else up, joins, strict=False):
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


class _Columns:
    """Costs of substitution by each of some hypothesis words."""

    def __init__(self, words: Sequence[Word], costs: _Costs) -> None:
        self._words, self._costs = words, costs
        self._different = [costs.sub] * len(words)
        self._fragments = [b for b, word in enumerate(words) if word.fragment]
        self._places: dict[str, list[int]] = {}
        for b, word in enumerate(words):
            self._places.setdefault(word.text, []).append(b)

    def subs(self, ref: Word) -> Row:
        if ref.null or ref.fragment:
            return [_sub(ref, word, self._costs) for word in self._words]
        row = self._different[:]
        for b in self._places.get(ref.text, ()):
            row[b] = self._costs.zero
        for b in self._fragments:
            row[b] = _sub(ref, self._words[b], self._costs)
        return row


def _sub(ref: Word, hyp: Word, costs: _Costs) -> float:
    if ref.null:
        return costs.nulls if hyp.null else costs.sub
    return costs.zero if ref.text == hyp.text or same_word(ref, hyp) else costs.sub


def _gap(word: Word, costs: _Costs) -> float:
    if word.null:
        return costs.null
    return costs.optional if word.optional else costs.gap
