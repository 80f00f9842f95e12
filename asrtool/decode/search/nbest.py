"""N-best lists from lattices: distinct sentences, each with its best path."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

SLACK = 1e-6  # tolerance for sums in different orders
FINAL = -1  # the one state behind all final ones
Chain = tuple[Any, int] | None  # labels read, the last one outside
_cost = attrgetter("cost")


@dataclass(frozen=True, slots=True)
class Arc:
    """Arc of a lattice; costs are negative logarithms, `graph` is a part of them."""

    source: int
    label: int  # 0 reads no frame
    word: int  # 0: none
    cost: float
    graph: float


@dataclass(frozen=True, slots=True)
class Entry:
    """Best way to say `words` up to a joining state, from `before` through `chain`."""

    cost: float
    graph: float
    words: tuple[int, ...]
    before: Entry | None
    chain: Chain

    def labels(self) -> list[int]:
        """Return one label for each frame."""
        reverse = []
        node: Entry | None = self
        while node is not None:
            chain = node.chain
            while chain is not None:
                chain, label = chain
                if label:
                    reverse.append(label)
            node = node.before
        return reverse[::-1]


@dataclass(frozen=True, slots=True)
class View:
    """Entries of a state: an earlier state's entries extended by the same arcs."""

    entries: Sequence[Entry]
    cost: float
    graph: float
    chain: Chain


def find_nbest(start: int, arcs: Mapping[int, Sequence[Arc]], num: int, beam: float) -> list[Entry]:
    """Return the `num` cheapest distinct sentences from `start` to FINAL in `beam`.

    `arcs` are given by the state they enter. At joining states the `num` cheapest distinct prefixes within the beam
    are kept, which is exact: all have the same continuations.
    """
    order = _in_order(arcs)
    rest = _cost_to_end(order, arcs)
    limit = rest.get(start, 0.0) + beam + SLACK
    views = {start: View([Entry(0.0, 0.0, (), None, None)], 0.0, 0.0, None)}
    for state in order:
        entering = [(views[arc.source], arc) for arc in arcs[state] if arc.source in views]
        if len(entering) == 1 and not entering[0][1].word:
            view, arc = entering[0]
            views[state] = View(view.entries, view.cost + arc.cost, view.graph + arc.graph, (view.chain, arc.label))
        elif entering:
            entries = _merge(entering, num, limit - rest[state])
            if entries:
                views[state] = View(entries, 0.0, 0.0, None)
    end = views.get(FINAL)
    return _merge([(end, Arc(FINAL, 0, 0, 0.0, 0.0))], num, limit) if end else []


def _merge(entering: Iterable[tuple[View, Arc]], num: int, limit: float) -> list[Entry]:
    """Return the cheapest prefixes entering a state, up to a cost of `limit`."""
    best: dict[tuple[int, ...], Entry] = {}
    for view, arc in entering:
        cost, graph = view.cost + arc.cost, view.graph + arc.graph
        chain = (view.chain, arc.label)
        for entry in view.entries:
            if entry.cost + cost > limit:
                break  # the others cost more
            words = (*entry.words, arc.word) if arc.word else entry.words
            known = best.get(words)
            if known is None or entry.cost + cost < known.cost:
                best[words] = Entry(entry.cost + cost, entry.graph + graph, words, entry, chain)
    return sorted(best.values(), key=_cost)[:num]


def _cost_to_end(order: Sequence[int], arcs: Mapping[int, Sequence[Arc]]) -> dict[int, float]:
    """Return the cost of the cheapest way from each state to FINAL."""
    rest = {FINAL: 0.0}
    for state in reversed(order):
        for arc in arcs[state]:
            cost = arc.cost + rest[state]
            if cost < rest.get(arc.source, math.inf):
                rest[arc.source] = cost
    return rest


def _in_order(arcs: Mapping[int, Sequence[Arc]]) -> list[int]:
    """Return the states between the start and FINAL in topological order."""
    order: list[int] = []
    done: set[int] = set()
    stack = [FINAL]
    while stack:
        waiting = [arc.source for arc in arcs.get(stack[-1], ()) if arc.source not in done]
        if waiting:
            stack += waiting
            continue
        state = stack.pop()
        if state not in done:
            done.add(state)
            order.append(state)
    return [state for state in order if state in arcs]
