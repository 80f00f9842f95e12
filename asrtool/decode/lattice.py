"""Lattices of graph search: every path through the graph that stays near the best one, frame by frame.

Arcs of a lattice carry the cost of the graph apart, so that other language models can later take its place. The search
is over arrays: a token is a state of the graph after a frame, and the tokens of a frame are sorted by state.

Letters in names: T frames, V tokens of the model, K tokens of the search in a frame.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asrtool.decode.graph_arrays import GraphArrays
from asrtool.decode.nbest import FINAL, Arc, find_nbest
from asrtool.decode.trial import Trial

MIN_ACTIVE = 20  # tokens followed whatever the beam, and how much further the beam then is; both as in kaldi-decoder
BEAM_DELTA = 0.5
MIN_ARCS = 5 * MIN_ACTIVE  # arcs followed whatever the beam, so that there are so many tokens
SLACK = 1e-6  # of sums in different orders


@dataclass(frozen=True)
class Path:
    """A sentence of a lattice and the best path that spells it; scores are natural logarithms, not scaled."""

    words: tuple[int, ...]  # output labels of the graph
    tokens_T: np.ndarray  # one token a frame
    acoustic: float  # ln p of the path
    lm: float  # ln of the graph's weight, without word penalties


@dataclass(frozen=True)
class Links:
    """Arcs of the graph between tokens: one value an arc in each array."""

    source: np.ndarray  # position of the token that is left
    arc: np.ndarray  # of the graph
    target: np.ndarray  # position of the token that is entered
    cost: np.ndarray


@dataclass(frozen=True)
class Frame:
    """The tokens after a frame, and the links that lead to them."""

    state_K: np.ndarray  # rising
    cost_K: np.ndarray  # of the best path to each
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

    def search(self, log_probs_TV: np.ndarray, trial: Trial) -> list[Path]:
        """The sentences that rank highest, best first; none when the graph accepts no path.

        The posteriors are scaled by 1 / lm_weight and `trial.beam` is in the scale of the graph, as in GraphSearch.
        """
        frames = [self._frame(np.array([self.start]), np.zeros(1), NO_LINKS, trial, trial.beam)]
        for row_V in log_probs_TV.astype(np.float64) / trial.lm_weight:
            frames.append(self._advance(frames[-1], row_V, trial))
        paths = []
        for entry in find_nbest(
            int(np.searchsorted(frames[0].state_K, self.start)), self._prune(frames), self.num_paths
        ):
            tokens_T = np.array(entry.labels(), dtype=np.int64) - 1
            assert len(tokens_T) == len(log_probs_TV), f"{len(tokens_T)} labels on {len(log_probs_TV)} frames"
            acoustic = float(log_probs_TV[np.arange(len(tokens_T)), tokens_T].sum(dtype=np.float64))
            paths.append(Path(entry.words, tokens_T, acoustic, -entry.graph))
        return paths

    def _advance(self, before: Frame, row_V: np.ndarray, trial: Trial) -> Frame:
        """The tokens after the next frame, whose scaled posteriors are `row_V`."""
        cutoff, beam = self._find_cutoff(before.cost_K, trial.beam)
        kept = np.flatnonzero(before.cost_K <= cutoff)
        source, arc = self._leave(before.state_K[kept])
        label = self.arcs["input"][arc]
        reads = label > 0
        source, arc, label = kept[source[reads]], arc[reads], label[reads]
        cost = self._cost(arc, trial) - row_V[label - 1]
        total = before.cost_K[source] + cost
        near = total <= _nearby(total, beam)
        links = Links(source[near], arc[near], _NONE, cost[near])
        state_K, cost_K = _merge(self.arcs["to"][links.arc], total[near])
        return self._frame(state_K, cost_K, links, trial, beam)

    def _find_cutoff(self, cost_K: np.ndarray, beam: float) -> tuple[float, float]:
        """Which tokens of a frame are followed, and the beam of the next one: wider where there are few, or narrower.

        These are the rules of kaldi-decoder.
        """
        lowest = cost_K.min(initial=np.inf)
        cutoff = lowest + beam
        for num, chosen in ((self.max_active, min), (MIN_ACTIVE, max)):
            if len(cost_K) > num:
                other = float(np.partition(cost_K, num)[num])
                if chosen(other, cutoff) != cutoff:
                    return other, other - lowest + BEAM_DELTA
        return cutoff, beam

    def _frame(self, state_K: np.ndarray, cost_K: np.ndarray, entering: Links, trial: Trial, beam: float) -> Frame:
        """These tokens and those they reach without reading; the targets of `entering` are found here."""
        cutoff = max(_nearby(cost_K, beam), cost_K.max(initial=-np.inf))
        ahead_K = np.ones(len(state_K), dtype=bool)  # cheaper than when their arcs were last followed
        while ahead_K.any():
            source, arc = self._leave_silently(state_K, ahead_K)
            total = cost_K[source] + self._cost(arc, trial)
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
        within = Links(source, arc, np.searchsorted(state_K, self.arcs["to"][arc]), self._cost(arc, trial))
        target = np.searchsorted(state_K, self.arcs["to"][entering.arc])
        return Frame(state_K, cost_K, Links(entering.source, entering.arc, target, entering.cost), within)

    def _leave(self, state_K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All arcs that leave these states, each with the position of its state."""
        num_K = self.states["num_arcs"][state_K].astype(np.int64)
        first_K = self.states["begin"][state_K] - (np.cumsum(num_K) - num_K)
        return np.repeat(np.arange(len(state_K)), num_K), np.repeat(first_K, num_K) + np.arange(num_K.sum())

    def _leave_silently(self, state_K: np.ndarray, chosen_K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those arcs of the chosen states that read nothing."""
        position = np.flatnonzero(chosen_K & (self.states["epsilons"][state_K, 0] > 0))
        source, arc = self._leave(state_K[position])
        silent = self.arcs["input"][arc] == 0
        return position[source[silent]], arc[silent]

    def _cost(self, arc: np.ndarray, trial: Trial) -> np.ndarray:
        return self.arcs["cost"][arc].astype(np.float64) + trial.word_penalty * (self.arcs["output"][arc] > 0)

    def _prune(self, frames: Sequence[Frame]) -> dict[int, list[Arc]]:
        """The arcs of paths that stay near the best one, by the state of the lattice they enter.

        States are the positions of tokens, counted over all frames. Without a path into a final state of the graph all
        tokens after the last frame are final, as in Kaldi.
        """
        first = np.cumsum([0, *(len(frame.state_K) for frame in frames)]).tolist()
        last = frames[-1]
        final_K = self.states["final"][last.state_K].astype(np.float64)
        if not np.isfinite(final_K).any():
            final_K = np.zeros(len(final_K))
        cutoff = (last.cost_K + final_K).min(initial=np.inf) + self.lattice_beam + SLACK
        arcs: dict[int, list[Arc]] = defaultdict(list)
        for k in np.flatnonzero(last.cost_K + final_K <= cutoff).tolist():
            arcs[FINAL].append(Arc(first[len(frames) - 1] + k, 0, 0, float(final_K[k]), float(final_K[k])))
        rest_K = final_K  # the cost of the best way to the end
        for t in range(len(frames) - 1, -1, -1):
            frame = frames[t]
            rest_K = _relax(rest_K, frame.within)
            self._keep(arcs, frame.within, cutoff - frame.cost_K[frame.within.source], rest_K, (first[t], first[t]))
            if t > 0:
                slack = cutoff - frames[t - 1].cost_K[frame.entering.source]
                self._keep(arcs, frame.entering, slack, rest_K, (first[t - 1], first[t]))
                before_K = np.full(len(frames[t - 1].state_K), np.inf)
                np.minimum.at(before_K, frame.entering.source, frame.entering.cost + rest_K[frame.entering.target])
                rest_K = before_K
        return arcs

    def _keep(
        self, arcs: dict[int, list[Arc]], links: Links, slack: np.ndarray, rest_K: np.ndarray, first: tuple[int, int]
    ) -> None:
        """Add those `links` whose cost and best way to the end are within their `slack`."""
        for i in np.flatnonzero(links.cost + rest_K[links.target] <= slack).tolist():
            arc = self.arcs[links.arc[i]]
            source, target = first[0] + int(links.source[i]), first[1] + int(links.target[i])
            arcs[target].append(
                Arc(source, int(arc["input"]), int(arc["output"]), float(links.cost[i]), float(arc["cost"]))
            )


def _merge(states: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each state once, rising, with its lowest cost."""
    merged_K, position = np.unique(states, return_inverse=True)
    cost_K = np.full(len(merged_K), np.inf)
    np.minimum.at(cost_K, position, costs)
    return merged_K, cost_K


def _nearby(costs: np.ndarray, beam: float) -> float:
    """The highest cost within `beam` of the lowest, or among the MIN_ARCS lowest; -inf where none is finite."""
    costs = costs[np.isfinite(costs)]
    if not len(costs):
        return -np.inf
    last = min(MIN_ARCS, len(costs)) - 1
    return max(float(costs.min()) + beam, float(np.partition(costs, last)[last]))


def _relax(rest_K: np.ndarray, within: Links) -> np.ndarray:
    """The costs `rest_K` of the best ways to the end, where these may begin with arcs that read nothing."""
    while True:
        better_K = rest_K.copy()
        np.minimum.at(better_K, within.source, within.cost + rest_K[within.target])
        if (better_K == rest_K).all():
            return rest_K
        rest_K = better_K


_NONE = np.zeros(0, dtype=np.int64)
NO_LINKS = Links(_NONE, _NONE, _NONE, np.zeros(0))
