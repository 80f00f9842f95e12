"""Method beam: CTC prefix beam search with the n-gram of the graph.

A prefix is the number of a node; lists hold the values of all nodes.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from asrtool.decode.parameters import Axis, DecodingParameters, Weights, lm_axes
from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.decode.search.prefix_tree import WordTables, add_token, end_sentence, make_tables
from asrtool.errors import AsrtoolError
from asrtool.lang.ngram.model import NgramLm
from asrtool.settings.decode import BEAM_SIZES

MAX_TOKENS = 12  # candidates of a frame
MIN_PROB = 1e-4  # a token less probable than this is no candidate
VANISHED = 1e-200  # a prefix so much less probable than the best is dropped before its probability becomes zero
NONE = -1  # no node


class Candidates(NamedTuple):
    """Candidates of all frames in one list; frame t begins at first_T[t]."""

    log_blank_T: Sequence[float]
    first_T: Sequence[int]
    token: Sequence[int]
    ratio: Sequence[float]  # p(token) / p(blank), falling in a frame


class Nodes(NamedTuple):
    """Tree of prefixes, a value a node; node 0 is the root."""

    parent: list[int]
    token: list[int]
    child: list[int]  # the last one made
    sibling: list[int]  # the one made before
    blank: list[float]  # probability of the paths that end in blank; 0 outside the beam
    spoken: list[float]  # and of those that end in `token`
    lm: list[float]  # lm_weight * (ln p - penalty of closed words and pieces of unknown ones)
    beginning: list[int]  # as in add_token
    unpaid: list[int]
    state: list[int]


class Reached(NamedTuple):
    """Prefixes after a frame, before all but the best are dropped."""

    node: list[int]
    blank: list[float]
    spoken: list[float]
    score: list[float]
    best: list[float]  # the highest scores, as many as the beam keeps; a heap


class PrefixBeam:
    """Prefix beam search over posteriors of `pieces`, with or without an LM.

    `min_prob` bounds the candidates of a frame; a frame with only blank costs nothing.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        lm: NgramLm | None,
        words: Iterable[str],
        blank: int = 0,
        min_prob: float = MIN_PROB,
    ) -> None:
        self.tables = make_tables(pieces, lm, words)
        self.has_lm = lm is not None
        self.blank = blank
        self.min_prob = min_prob

    def search(self, log_probs_TV: np.ndarray, weights: Weights) -> tuple[tuple[int, ...], float]:
        """Return the tokens of the best prefix from log posteriors, and ln of its score.

        `weights.beam` prefixes are kept after each frame.
        """
        candidates = self._candidates(log_probs_TV)
        lm_weight = weights.lm_weight if self.has_lm else 0.0
        weights = weights._replace(lm_weight=lm_weight)
        tokens, score = find_best(self.tables, self.blank, candidates, weights)
        return tuple(tokens), score

    def _candidates(self, log_probs_TV: np.ndarray) -> Candidates:
        """Return the candidates; a frame may have more than MAX_TOKENS."""
        log_blank_T = np.maximum(log_probs_TV[:, self.blank].astype(np.float64), -80.0)  # the ratios must stay finite
        least = np.float64(math.log(self.min_prob) if self.min_prob else -sys.float_info.max)
        keep_TV = log_probs_TV >= least
        keep_TV[:, self.blank] = False
        frames, tokens = np.nonzero(keep_TV)
        log_probs = log_probs_TV[frames, tokens].astype(np.float64)
        order = np.lexsort((-log_probs, frames))
        first_T = np.searchsorted(frames, np.arange(len(log_probs_TV) + 1))
        ratios = np.exp(log_probs[order] - log_blank_T[frames])
        return Candidates(*(values.tolist() for values in (log_blank_T, first_T, tokens[order], ratios)))


def find_best(tables: WordTables, blank: int, candidates: Candidates, weights: Weights) -> tuple[list[int], float]:
    """Return the tokens of the best prefix of an utterance, and ln of its score."""
    nodes = Nodes([NONE], [blank], [NONE], [NONE], [1.0], [0.0], [0.0], [0], [0], [tables.start])
    beam = [0]
    ratio_of = [0.0] * len(tables.opens)  # by token; 0 for those that are no candidates
    log_scale = 0.0  # probabilities are scaled at every step, so that long utterances do not vanish
    for t in range(len(candidates.log_blank_T)):
        log_scale += candidates.log_blank_T[t]
        begin = candidates.first_T[t]
        end = min(begin + MAX_TOKENS, candidates.first_T[t + 1])
        if begin == end:
            _end_in_blank(nodes, beam)
            continue
        for i in range(begin, end):
            ratio_of[candidates.token[i]] = candidates.ratio[i]
        reached = _stay(nodes, beam, ratio_of)
        for i in range(begin, end):
            ratio_of[candidates.token[i]] = 0.0
        _grow(tables, nodes, reached, candidates, begin, end, weights)
        beam, scale = _keep(nodes, beam, reached)
        log_scale += math.log(scale)
    found, highest = 0, -math.inf
    for node in beam:
        last = end_sentence(tables, nodes.beginning[node], nodes.unpaid[node], nodes.state[node], weights.word_penalty)
        score = math.log(nodes.blank[node] + nodes.spoken[node]) + log_scale + nodes.lm[node]
        score += weights.lm_weight * last
        if score > highest:
            found, highest = node, score
    reverse = [found]
    while nodes.parent[reverse[-1]] != NONE:
        reverse.append(nodes.parent[reverse[-1]])
    return [nodes.token[node] for node in reverse[-2::-1]], highest


def _end_in_blank(nodes: Nodes, beam: list[int]) -> None:
    """Move the beam past a frame of only blank."""
    for node in beam:
        nodes.blank[node] += nodes.spoken[node]
        nodes.spoken[node] = 0.0


def _stay(nodes: Nodes, beam: list[int], ratio_of: list[float]) -> Reached:
    """Return the prefixes of the beam after a frame, without longer ones."""
    parent, token, blank, spoken = nodes.parent, nodes.token, nodes.blank, nodes.spoken
    blanks, spokens, scores = [0.0] * len(beam), [0.0] * len(beam), [0.0] * len(beam)
    for i, node in enumerate(beam):
        total, said = blank[node] + spoken[node], 0.0
        ratio = ratio_of[token[node]]
        if ratio > 0.0:
            # The same token twice in a row is one token unless a blank is between.
            before = parent[node]
            said = spoken[node] * ratio
            said += ratio * (blank[before] if token[before] == token[node] else blank[before] + spoken[before])
        blanks[i], spokens[i] = total, said
        scores[i] = math.log(total + said) + nodes.lm[node]
    best = scores.copy()
    heapq.heapify(best)
    return Reached(beam.copy(), blanks, spokens, scores, best)


def _grow(
    tables: WordTables, nodes: Nodes, reached: Reached, candidates: Candidates, begin: int, end: int, weights: Weights
) -> None:
    """Add the prefixes that are one token longer and may stay."""
    blank, spoken, best, beam_size = nodes.blank, nodes.spoken, reached.best, int(weights.beam)
    gain = max(0.0, -weights.lm_weight * weights.word_penalty)  # by one closed word, with a negative penalty
    for b in range(len(reached.node)):
        node = reached.node[b]
        total = blank[node] + spoken[node]
        # No word has a probability above one, so a child can gain no more than its penalty, and all that is new
        # about a child outside the beam comes from its parent: what the bound leaves out could not have stayed.
        least = 0.0
        if len(best) == beam_size:
            least = math.exp(min(best[0] - gain - nodes.lm[node], 700.0))
        for i in range(begin, end):
            token, ratio = candidates.token[i], candidates.ratio[i]
            if ratio * total < least:
                break
            said = ratio * (blank[node] if token == nodes.token[node] else total)
            if said < least or said == 0.0:
                continue
            child = _child_of(tables, nodes, node, token, weights)
            if blank[child] + spoken[child] > 0.0:
                continue  # it is in the beam
            score = math.log(said) + nodes.lm[child]
            if len(best) < beam_size:
                heapq.heappush(best, score)
            elif score > best[0]:
                heapq.heapreplace(best, score)
            elif score < best[0]:
                continue
            reached.node.append(child)
            reached.blank.append(0.0)
            reached.spoken.append(said)
            reached.score.append(score)


def _child_of(tables: WordTables, nodes: Nodes, node: int, token: int, weights: Weights) -> int:
    """Return the child of a node by a token; make it if missing."""
    child = nodes.child[node]
    while child != NONE and nodes.token[child] != token:
        child = nodes.sibling[child]
    if child != NONE:
        return child
    log_prob, beginning, unpaid, state = add_token(
        tables, nodes.beginning[node], nodes.unpaid[node], nodes.state[node], token, weights.word_penalty
    )
    child = len(nodes.token)
    nodes.parent.append(node)
    nodes.token.append(token)
    nodes.child.append(NONE)
    nodes.sibling.append(nodes.child[node])
    nodes.blank.append(0.0)
    nodes.spoken.append(0.0)
    nodes.lm.append(nodes.lm[node] + weights.lm_weight * log_prob)
    nodes.beginning.append(beginning)
    nodes.unpaid.append(unpaid)
    nodes.state.append(state)
    nodes.child[node] = child
    return child


def _keep(nodes: Nodes, beam: list[int], reached: Reached) -> tuple[list[int], float]:
    """Return the next beam, and the scale factor of its probabilities."""
    for node in beam:
        nodes.blank[node] = nodes.spoken[node] = 0.0
    worst = reached.best[0]
    ties = reached.best.count(worst)
    kept, scale = beam[:0], 0.0
    for i, score in enumerate(reached.score):
        if score == worst:
            ties -= 1
        if score > worst or (score == worst and ties >= 0):
            kept.append(i)
            scale = max(scale, reached.blank[i] + reached.spoken[i])
    after = beam[:0]
    for i in kept:
        blank, spoken = reached.blank[i] / scale, reached.spoken[i] / scale
        if blank + spoken > VANISHED:
            node = reached.node[i]
            nodes.blank[node], nodes.spoken[node] = blank, spoken
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
