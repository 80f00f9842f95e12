"""Lattices of graph search: all paths near the best one.

Arcs of a lattice keep the graph's cost apart, so that other language models can replace it. The search works on
arrays: a token is a state of the graph after a frame, and the tokens of a frame are sorted by state.

Letters in names: T rows, V columns of the scores, K tokens of the search in a frame.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asrtool.decode.parameters import Weights
from asrtool.decode.search.nbest import FINAL, SLACK, Arc, Entry, find_nbest
from asrtool.lang.graph_file import GraphArrays

MIN_ACTIVE = 20  # tokens followed whatever the beam, and how much further the beam then is; both as in kaldi-decoder
BEAM_DELTA = 0.5
MIN_ARCS = 5 * MIN_ACTIVE  # arcs followed whatever the beam, so that there are so many tokens
NUM_WIDENED = 5  # most times that the width of a lattice is doubled


@dataclass(frozen=True)
class Path:
    """Sentence of a lattice with its best path; unscaled natural logarithms."""

    words: tuple[int, ...]  # output labels of the graph
    tokens: list[int]  # a column of the scores for each row
    acoustic: float  # ln p of the path
    lm: float  # ln of the graph's weight, without word penalties


@dataclass(frozen=True)
class Links:
    """Arcs of the graph between tokens: one value an arc in each array."""

    source: np.ndarray  # position of the token that is left
    arc: np.ndarray  # arc of the graph
    target: np.ndarray  # position of the token that is entered
    cost: np.ndarray


@dataclass(frozen=True)
class Frame:
    """The tokens after a frame, and the links that lead to them."""

    state_K: np.ndarray  # rising
    cost_K: np.ndarray  # cost of the best path to each
    entering: Links  # from the tokens of the frame before
    within: Links  # from tokens of this frame, through arcs that read nothing


class LatticeSearch:
    """N-best search on `graph`; `max_active` bounds the tokens of a frame.

    Lattices reach `lattice_beam` below the best path, in the scale of the graph; `num_paths` sentences are kept.
    """

    def __init__(self, graph: GraphArrays, max_active: int, lattice_beam: float, num_paths: int) -> None:
        self.states, self.arcs, self.start = graph.states, graph.arcs, graph.start
        self.max_active = max_active
        self.lattice_beam = lattice_beam
        self.num_paths = num_paths

    def search(self, scores_TV: np.ndarray, weights: Weights) -> list[Path]:
        """Return the highest ranked sentences, best first; none if there is no path.

        The scores are scaled by 1 / lm_weight and `weights.beam` is in the scale of the graph, as in GraphSearch.
        """
        frames = [self._frame(np.array([self.start]), np.zeros(1), NO_LINKS, weights, weights.beam)]
        for row_V in scores_TV.astype(np.float64) / weights.lm_weight:
            frames.append(self._advance(frames[-1], row_V, weights))
        if not len(frames[-1].state_K):
            return []
        paths = []
        start = int(np.searchsorted(frames[0].state_K, self.start))
        for entry in self._find_nbest(start, self._join(frames)):
            tokens = [label - 1 for label in entry.labels()]
            assert len(tokens) == len(scores_TV), f"{len(tokens)} labels on {len(scores_TV)} frames"
            acoustic = float(scores_TV[np.arange(len(tokens)), tokens].sum(dtype=np.float64))
            paths.append(Path(entry.words, tokens, acoustic, -entry.graph))
        return paths

    def _find_nbest(self, start: int, columns: Sequence[np.ndarray]) -> list[Entry]:
        """Return the cheapest sentences of a lattice in the `columns` of `_join`.

        Narrow lattices are searched first. What is found within a narrow beam is exact, so a full list needs no wider
        one.
        """
        entries: list[Entry] = []
        for narrow in (self.lattice_beam / 2**i for i in range(NUM_WIDENED, -1, -1)):
            near = columns[-1] <= narrow + SLACK
            arcs: dict[int, list[Arc]] = defaultdict(list)
            for source, target, *rest in zip(*(column[near].tolist() for column in columns[:-1]), strict=True):
                arcs[target].append(Arc(source, *rest))
            entries = find_nbest(start, arcs, self.num_paths, narrow)
            if len(entries) == self.num_paths:
                break
        return entries

    def _advance(self, before: Frame, row_V: np.ndarray, weights: Weights) -> Frame:
        """Return the tokens after the next frame, whose scaled scores are `row_V`."""
        cutoff, beam = self._find_cutoff(before.cost_K, weights.beam)
        kept = np.flatnonzero(before.cost_K <= cutoff)
        source, arc = self._leave(before.state_K[kept])
        label = self.arcs["input"][arc]
        reads = label > 0
        source, arc, label = kept[source[reads]], arc[reads], label[reads]
        cost = self._cost(arc, weights) - row_V[label - 1]
        total = before.cost_K[source] + cost
        near = total <= _nearby(total, beam)
        links = Links(source[near], arc[near], _NONE, cost[near])
        state_K, cost_K = _merge(self.arcs["to"][links.arc], total[near])
        return self._frame(state_K, cost_K, links, weights, beam)

    def _find_cutoff(self, cost_K: np.ndarray, beam: float) -> tuple[float, float]:
        """Return the cutoff of a frame's tokens, and the beam of the next frame.

        The rules are the ones of kaldi-decoder.
        """
        lowest = cost_K.min(initial=np.inf)
        cutoff = lowest + beam
        for num, chosen in ((self.max_active, min), (MIN_ACTIVE, max)):
            if len(cost_K) > num:
                other = float(np.partition(cost_K, num)[num])
                if chosen(other, cutoff) != cutoff:
                    return other, other - lowest + BEAM_DELTA
        return cutoff, beam

    def _frame(self, state_K: np.ndarray, cost_K: np.ndarray, entering: Links, weights: Weights, beam: float) -> Frame:
        """Return these tokens and all they reach by epsilons, with targets of `entering`."""
        cutoff = max(_nearby(cost_K, beam), cost_K.max(initial=-np.inf))
        ahead_K = np.ones(len(state_K), dtype=bool)  # cheaper than when their arcs were last followed
        while ahead_K.any():
            source, arc = self._leave_silently(state_K, ahead_K)
            total = cost_K[source] + self._cost(arc, weights)
            near = total <= cutoff
            states, totals = self.arcs["to"][arc[near]], total[near]
            reached_K, reached_cost_K = _merge(np.concatenate([state_K, states]), np.concatenate([cost_K, totals]))
            old_cost_K = np.full(len(reached_K), np.inf)
            old_cost_K[np.searchsorted(reached_K, state_K)] = cost_K
            ahead_K = reached_cost_K < old_cost_K
            state_K, cost_K = reached_K, reached_cost_K
        source, arc = self._leave_silently(state_K, np.ones(len(state_K), dtype=bool))
        known = np.isin(self.arcs["to"][arc], state_K)
        source, arc = source[known], arc[known]
        within = Links(source, arc, np.searchsorted(state_K, self.arcs["to"][arc]), self._cost(arc, weights))
        target = np.searchsorted(state_K, self.arcs["to"][entering.arc])
        return Frame(state_K, cost_K, Links(entering.source, entering.arc, target, entering.cost), within)

    def _leave(self, state_K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all arcs that leave these states, with the positions of the states."""
        num_K = self.states["num_arcs"][state_K].astype(np.int64)
        first_K = self.states["begin"][state_K] - (np.cumsum(num_K) - num_K)
        return np.repeat(np.arange(len(state_K)), num_K), np.repeat(first_K, num_K) + np.arange(num_K.sum())

    def _leave_silently(self, state_K: np.ndarray, chosen_K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epsilon arcs of the chosen states."""
        position = np.flatnonzero(chosen_K & (self.states["epsilons"][state_K, 0] > 0))
        source, arc = self._leave(state_K[position])
        silent = self.arcs["input"][arc] == 0
        return position[source[silent]], arc[silent]

    def _cost(self, arc: np.ndarray, weights: Weights) -> np.ndarray:
        return self.arcs["cost"][arc].astype(np.float64) + weights.word_penalty * (self.arcs["output"][arc] > 0)

    def _join(self, frames: Sequence[Frame]) -> list[np.ndarray]:
        """Return all links and final states within the lattice beam as arcs.

        The columns are source, target, label, word, cost, graph cost, and the excess cost of the best path through it.
        Without a path into a final state of the graph all tokens after the last frame are final, as in Kaldi.
        """
        last = frames[-1]
        final_K = self.states["final"][last.state_K].astype(np.float64)
        if not np.isfinite(final_K).any():
            final_K = np.zeros(len(final_K))
        first = np.cumsum([0, *(len(frame.state_K) for frame in frames)]).tolist()
        lowest = (last.cost_K + final_K).min(initial=np.inf)
        ends = np.flatnonzero(last.cost_K + final_K <= lowest + self.lattice_beam)
        excess = (last.cost_K + final_K)[ends] - lowest
        no_label = np.zeros_like(ends)
        to_end = (ends + first[-2], np.full(len(ends), FINAL), no_label, no_label)
        parts: list[tuple[np.ndarray, ...]] = [(*to_end, final_K[ends], final_K[ends], excess)]
        rest_K = final_K  # the cost of the best way to the end
        for t in range(len(frames) - 1, -1, -1):
            frame = frames[t]
            rest_K = _relax(rest_K, frame.within)
            parts.append(self._near(frame.within, frame.cost_K - lowest, rest_K, (first[t], first[t])))
            if t > 0:
                before = frames[t - 1]
                parts.append(self._near(frame.entering, before.cost_K - lowest, rest_K, (first[t - 1], first[t])))
                before_K = np.full(len(before.state_K), np.inf)
                np.minimum.at(before_K, frame.entering.source, frame.entering.cost + rest_K[frame.entering.target])
                rest_K = before_K
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _near(
        self, links: Links, cost_K: np.ndarray, rest_K: np.ndarray, first: tuple[int, int]
    ) -> tuple[np.ndarray, ...]:
        """Return `links` within the beam, from tokens of costs `cost_K`.

        Tokens are numbered from `first` on.
        """
        excess = cost_K[links.source] + links.cost + rest_K[links.target]
        near = np.flatnonzero(excess <= self.lattice_beam + SLACK)
        arc = self.arcs[links.arc[near]]
        ends = (links.source[near] + first[0], links.target[near] + first[1])
        return *ends, arc["input"], arc["output"], links.cost[near], arc["cost"], excess[near]


def _merge(states: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each state once, ascending, with its lowest cost."""
    merged_K, position = np.unique(states, return_inverse=True)
    cost_K = np.full(len(merged_K), np.inf)
    np.minimum.at(cost_K, position, costs)
    return merged_K, cost_K


def _nearby(costs: np.ndarray, beam: float) -> float:
    """Return the highest cost within `beam` or among the MIN_ARCS lowest; or -inf."""
    costs = costs[np.isfinite(costs)]
    if not len(costs):
        return -np.inf
    last = min(MIN_ARCS, len(costs)) - 1
    return max(float(costs.min()) + beam, float(np.partition(costs, last)[last]))


def _relax(rest_K: np.ndarray, within: Links) -> np.ndarray:
    """Return the costs to the end if paths may begin with epsilon arcs."""
    while True:
        better_K = rest_K.copy()
        np.minimum.at(better_K, within.source, within.cost + rest_K[within.target])
        if (better_K == rest_K).all():
            return rest_K
        rest_K = better_K


_NONE = np.zeros(0, dtype=np.int64)
NO_LINKS = Links(_NONE, _NONE, _NONE, np.zeros(0))
