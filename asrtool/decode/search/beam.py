"""Method beam: CTC prefix beam search with the n-gram of the graph."""

from __future__ import annotations

import heapq
import itertools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from asrtool.decode.parameters import Axis, DecodingParameters, Weights, lm_axes
from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.decode.search.prefix_tree import PrefixTree
from asrtool.errors import AsrtoolError
from asrtool.lang.ngram.model import NgramLm
from asrtool.settings.decode import BEAM_SIZES

MAX_TOKENS = 12  # candidates of a frame
MIN_PROB = 1e-4  # a token less probable than this is no candidate
VANISHED = 1e-200  # a prefix so much less probable than the best is dropped before its probability becomes zero

Candidates = list[tuple[int, float]]  # tokens of a frame and p(token) / p(blank), which falls
Reached = list[tuple[float, int, float, float]]  # scores of nodes after a frame, with the next `blank` and `spoken`


class Nodes:
    """Tree of prefixes, a value a node in each list; node 0 is the root.

    Nodes are numbers, as Python's garbage collector would visit objects again and again.
    """

    def __init__(self, tree: PrefixTree, blank: int, weights: Weights) -> None:
        self.tree, self.weights = tree, weights
        self.parent, self.token = [0], [blank]
        self.children: dict[tuple[int, int], int] = {}  # by node and token
        self.blank, self.spoken = [1.0], [0.0]  # p of paths that end in blank, and in `token`; 0 outside the beam
        self.lm = [0.0]  # as Prefix.lm
        self.known = [tree.start]

    def child(self, node: int, token: int) -> int:
        """Return the child of a node by a token; make it if missing."""
        number = len(self.token)
        child = self.children.setdefault((node, token), number)
        if child == number:
            gain, known = self.tree.read(self.known[node], token, self.weights.word_penalty)
            self.parent.append(node)
            self.token.append(token)
            self.blank.append(0.0)
            self.spoken.append(0.0)
            self.lm.append(self.lm[node] + self.weights.lm_weight * gain)
            self.known.append(known)
        return child

    def tokens(self, node: int) -> tuple[int, ...]:
        """The sequence from the root to a node."""
        reverse = []
        while node:
            reverse.append(self.token[node])
            node = self.parent[node]
        return tuple(reverse[::-1])


class PrefixBeam:
    """Prefix beam search over posteriors of `pieces` with the n-gram `lm` of `words`.

    `min_prob` bounds the candidates of a frame; a frame with only blank costs nothing.
    """

    def __init__(
        self, pieces: Sequence[str], lm: NgramLm, words: Iterable[str], blank: int = 0, min_prob: float = MIN_PROB
    ) -> None:
        self.tree = PrefixTree(pieces, lm, words)
        self.blank = blank
        self.min_prob = min_prob

    def search(self, log_probs_TV: np.ndarray, weights: Weights) -> tuple[tuple[int, ...], float]:
        """Return the tokens of the best prefix from log posteriors, and ln of its score.

        `weights.beam` prefixes are kept after each frame.
        """
        nodes, beam = Nodes(self.tree, self.blank, weights), [0]
        log_scale = 0.0  # probabilities are scaled at every step, so that long utterances do not vanish
        for log_blank, candidates in self._frames(log_probs_TV):
            log_scale += log_blank
            if not candidates:
                for node in beam:
                    nodes.blank[node] += nodes.spoken[node]
                    nodes.spoken[node] = 0.0
                continue
            reached = _stay(nodes, beam, candidates)
            best = _grow(nodes, beam, candidates, reached)
            beam, scale = _keep(nodes, beam, reached, best)
            log_scale += math.log(scale)
        scores = [
            math.log(nodes.blank[node] + nodes.spoken[node])
            + log_scale
            + nodes.lm[node]
            + self.tree.end(nodes.known[node], weights)
            for node in beam
        ]
        highest = max(scores)
        return nodes.tokens(beam[scores.index(highest)]), highest

    def _frames(self, log_probs_TV: np.ndarray) -> list[tuple[float, Candidates]]:
        """Return ln p(blank) and the candidates of each frame."""
        log_blank_T = np.maximum(log_probs_TV[:, self.blank].astype(np.float64), -80.0)  # the ratios must stay finite
        least = np.float64(math.log(self.min_prob) if self.min_prob else -sys.float_info.max)
        keep_TV = log_probs_TV >= least
        keep_TV[:, self.blank] = False
        frames, tokens = np.nonzero(keep_TV)
        log_probs = log_probs_TV[frames, tokens].astype(np.float64)
        order = np.lexsort((-log_probs, frames))
        ratios = np.exp(log_probs[order] - log_blank_T[frames])
        candidates = list(zip(tokens[order].tolist(), ratios.tolist(), strict=True))
        first_T = np.searchsorted(frames, np.arange(len(log_probs_TV) + 1)).tolist()
        some_T = [candidates[begin:end][:MAX_TOKENS] for begin, end in itertools.pairwise(first_T)]
        return list(zip(log_blank_T.tolist(), some_T, strict=True))


def _stay(nodes: Nodes, beam: list[int], candidates: Candidates) -> Reached:
    """Return the prefixes of the beam after a frame, without longer ones."""
    blank, spoken, ratio_of = nodes.blank, nodes.spoken, dict(candidates)
    reached = []
    for node in beam:
        total, said = blank[node] + spoken[node], 0.0
        if ratio := ratio_of.get(nodes.token[node]):
            # The same token twice in a row is one token unless a blank is between.
            before = nodes.parent[node]
            said = spoken[node] * ratio
            is_repeat = nodes.token[before] == nodes.token[node]
            said += ratio * (blank[before] if is_repeat else blank[before] + spoken[before])
        reached.append((math.log(total + said) + nodes.lm[node], node, total, said))
    return reached


def _grow(nodes: Nodes, beam: list[int], candidates: Candidates, reached: Reached) -> list[float]:
    """Add the prefixes that are one token longer and may stay.

    Returns a heap of the highest scores, as many as the beam keeps.
    """
    blank, spoken, weights = nodes.blank, nodes.spoken, nodes.weights
    beam_size = int(weights.beam)
    gain = max(0.0, -weights.lm_weight * weights.word_penalty)  # by one closed word, with a negative penalty
    best = [score for score, *_ in reached]
    heapq.heapify(best)
    for node in beam:
        total = blank[node] + spoken[node]
        # No word has a probability above one, so a child can gain no more than its penalty, and all that is new
        # about a child outside the beam comes from its parent: what the bound leaves out could not have stayed.
        least = 0.0
        if len(best) == beam_size:
            least = math.exp(min(best[0] - gain - nodes.lm[node], 700.0))
        for token, ratio in candidates:
            if ratio * total < least:
                break
            said = ratio * (blank[node] if token == nodes.token[node] else total)
            if said < least or said == 0.0:
                continue
            child = nodes.child(node, token)
            if blank[child] + spoken[child] > 0.0:
                continue  # it is in the beam
            score = math.log(said) + nodes.lm[child]
            if len(best) < beam_size:
                heapq.heappush(best, score)
            elif score > best[0]:
                heapq.heapreplace(best, score)
            elif score < best[0]:
                continue
            reached.append((score, child, 0.0, said))
    return best


def _keep(nodes: Nodes, beam: list[int], reached: Reached, best: list[float]) -> tuple[list[int], float]:
    """Return the next beam, and the scale factor of its probabilities."""
    for node in beam:
        nodes.blank[node] = nodes.spoken[node] = 0.0
    worst = best[0]
    ties = best.count(worst)
    kept, scale = [], 0.0
    for score, node, blank, spoken in reached:
        if score == worst:
            ties -= 1
        if score > worst or (score == worst and ties >= 0):
            kept.append((node, blank, spoken))
            scale = max(scale, blank + spoken)
    after = []
    for node, blank, spoken in kept:
        if blank / scale + spoken / scale > VANISHED:
            nodes.blank[node], nodes.spoken[node] = blank / scale, spoken / scale
            after.append(node)
    return after, scale


def prefix_axes(settings: Any) -> Sequence[Axis]:
    """Return the axes of a search that keeps the best `beam_sizes` sequences."""
    sizes = settings.beam_sizes
    return *lm_axes(settings), Axis("beam", sizes, start=max(sizes), limits=BEAM_SIZES, whole=True)


class Beam(SearchMethod):
    """Method beam; times come from the best path of the tokens."""

    def axes(self) -> Sequence[Axis]:
        return prefix_axes(self.settings)

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        resources = self.resources
        blank = getattr(resources.topology, "blank", None)
        if blank is None:
            raise AsrtoolError(
                f"method {self.name} searches scores that have a blank, {resources.acoustic.path} gives none",
                "choose other decode.methods",
            )
        self.reader = resources.word_reader_by_marks(self.name)
        self.prefix_beam = PrefixBeam(resources.pieces, resources.ngram, resources.words, blank)

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        tokens, _ = self.prefix_beam.search(scores_TV, Weights.of(parameters))
        return SearchResult(self.reader.read(self.resources.topology.align(scores_TV, tokens), scores_TV))
