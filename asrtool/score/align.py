"""Alignment of least cost between reference and hypothesis, with the costs and the tie rules of NIST's sclite.

Correct 0, substitution 4, insertion and deletion 3; of an optional word 2, of the empty alternative 0.001. Between
moves of equal cost a substitution goes first, then an insertion, then a deletion. Source: sclite's manual for the
costs, sclite itself (SCTK 2.4.10) for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from asrtool.score.network import Network, Word, make_network, same_word
from asrtool.score.result import Alignment, Pair

SUB, DEL, INS = range(3)
Arcs = tuple[int, ...]
Cost = Any  # int, or numpy.float32 where the empty alternative occurs


class _Costs(NamedTuple):
    zero: Cost
    nulls: Cost  # empty alternative for empty alternative
    optional: Cost
    gap: Cost
    sub: Cost
    null: Cost


_EXACT = _Costs(0, 1, 2, 3, 4, 0)  # for texts without the empty alternative


def align_words(ref: Sequence[str], hyp: Sequence[str]) -> Alignment:
    """Align two sequences of words that are equal or not; no word has a special meaning."""
    return _align(make_network(map(Word, ref)), make_network(map(Word, hyp)), _EXACT)


def align_networks(ref: Network, hyp: Network) -> Alignment:
    """Align the best path through `ref` with the best path through `hyp`."""
    return _align(ref, hyp, _single_precision() if ref.has_null or hyp.has_null else _EXACT)


def _single_precision() -> _Costs:
    """sclite adds in single precision, where the order of terms like 0.001 decides between paths of equal cost."""
    from numpy import float32

    return _Costs(*map(float32, (0, 1, 2, 3, 4, 0.001)))


def _align(ref: Network, hyp: Network, costs: _Costs) -> Alignment:
    pairs: list[Pair] = []
    rows, columns = _skip_equal_end(ref, hyp, pairs) if costs is _EXACT else (ref.ends, hyp.ends)
    table, moves = _fill(ref, hyp, max(rows) + 1, max(columns) + 1, costs)
    a, b = _first_least(table, rows, columns)
    while a or b:
        move = moves[a][b]
        pair = _pair(move, ref.words[a], hyp.words[b])
        if pair:
            pairs.append(pair)
        a, b = _first_least(table, ref.before[a] if move != INS else (a,), hyp.before[b] if move != DEL else (b,))
    return Alignment(tuple(reversed(pairs)))


def _skip_equal_end(ref: Network, hyp: Network, pairs: list[Pair]) -> tuple[Arcs, Arcs]:
    """Pair the last words as long as they are equal; the arcs that lead to what remains.

    No other move there is cheaper, because one word less on one side costs or saves at most a gap, and among moves of
    equal cost that of equal words goes first.
    """
    rows, columns = ref.ends, hyp.ends
    while len(rows) == len(columns) == 1 and rows[0] and columns[0]:
        word = ref.words[rows[0]]
        if word.optional or word != hyp.words[columns[0]]:
            break
        pairs.append(Pair("C", word.text, word.text))
        rows, columns = ref.before[rows[0]], hyp.before[columns[0]]
    return rows, columns


def _first_least(table: list[list[Cost]], rows: Arcs, columns: Arcs) -> tuple[int, int]:
    if len(rows) == 1 and len(columns) == 1:
        return rows[0], columns[0]
    return min(((a, b) for a in rows for b in columns), key=lambda cell: table[cell[0]][cell[1]])


def _fill(
    ref: Network, hyp: Network, num_rows: int, num_columns: int, costs: _Costs
) -> tuple[list[list[Cost]], list[list[int]]]:
    """Least cost of reaching each pair of the first arcs, and the last move there."""
    words = hyp.words[:num_columns]
    ins = [_gap(word, costs) for word in words]
    row = [costs.zero]
    for b in range(1, num_columns):
        row.append(min(row[before] for before in hyp.before[b]) + ins[b])
    # Most arcs follow the one before them, whose costs are at hand.
    joins = [None if arcs == (b - 1,) else arcs for b, arcs in enumerate(hyp.before[:num_columns])]
    table, moves = [row], [[INS] * num_columns]
    for a in range(1, num_rows):
        up = _least_row([table[before] for before in ref.before[a]])
        row, row_moves = _next_row(up, _gap(ref.words[a], costs), _subs(ref.words[a], words, costs), ins, joins)
        table.append(row)
        moves.append(row_moves)
    return table, moves


def _least_row(rows: list[list[Cost]]) -> list[Cost]:
    return rows[0] if len(rows) == 1 else [min(column) for column in zip(*rows, strict=True)]


def _next_row(
    up: list[Cost], gap: Cost, subs: list[Cost], ins: list[Cost], joins: list[Arcs | None]
) -> tuple[list[Cost], list[int]]:
    corner, left = up[0], up[0] + gap
    row, moves = [left], [DEL]
    for b in range(1, len(ins)):
        join = joins[b]
        if join:
            corner, left = min([up[arc] for arc in join]), min([row[arc] for arc in join])
        by_sub, by_ins = corner + subs[b], left + ins[b]
        corner = up[b]
        by_del = corner + gap
        if by_sub <= by_del and by_sub <= by_ins:
            left, move = by_sub, SUB
        elif by_del < by_ins:
            left, move = by_del, DEL
        else:
            left, move = by_ins, INS
        row.append(left)
        moves.append(move)
    return row, moves


def _gap(word: Word, costs: _Costs) -> Cost:
    if word.null:
        return costs.null
    return costs.optional if word.optional else costs.gap


def _subs(ref: Word, hyp: Sequence[Word], costs: _Costs) -> list[Cost]:
    if ref.null:
        return [costs.nulls if word.null else costs.sub for word in hyp]
    text, fragment, same, sub = ref.text, ref.fragment, costs.zero, costs.sub
    return [
        same if word.text == text or ((fragment or word.fragment) and same_word(ref, word)) else sub for word in hyp
    ]


def _pair(move: int, ref: Word, hyp: Word) -> Pair | None:
    """The outcome of a move; None where nothing stands against nothing."""
    if move == SUB:
        return Pair("C" if same_word(ref, hyp) else "S", str(ref), str(hyp))
    word = ref if move == DEL else hyp
    if word.null:
        return None
    if move == DEL:
        return Pair("C" if ref.optional else "D", str(ref), "")
    return Pair("C" if hyp.optional else "I", "", str(hyp))
