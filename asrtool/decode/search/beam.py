"""Method beam: CTC prefix beam search with the n-gram of the graph."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from asrtool.compiled import compiled
from asrtool.decode.parameters import Axis, DecodingParameters, Weights, lm_axes
from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.decode.search.prefix_tree import Known, Language, PrefixTree, close_word, end_sentence, extend_word
from asrtool.errors import AsrtoolError
from asrtool.lang.ngram.model import NgramLm
from asrtool.settings.decode import BEAM_SIZES

MAX_TOKENS = 12  # candidates of a frame
MIN_PROB = 1e-4  # a token less probable than this is no candidate
VANISHED = 1e-200  # a prefix so much less probable than the best is dropped before its probability becomes zero
UNKNOWN = -1  # no state
FIRST_NODES = 4096  # room for so many at first

# A prefix. Node 0 is the root, and stands for none among children and siblings. `lm` is as Prefix.lm; `blank` and
# `spoken` are p of paths that end in blank, and in `token`, 0 outside the beam. `gain` and `closed` are the results of
# close_word, and `closed` is UNKNOWN before the first use.
NODE = np.dtype(
    [(name, np.int64) for name in ("parent", "token", "child", "sibling", "state", "prefix", "unpaid", "closed")]
    + [(name, np.float64) for name in ("lm", "blank", "spoken", "gain")]
)
# A prefix after a frame: its score and its next `blank` and `spoken`.
REACHED = np.dtype([("node", np.int64), ("score", np.float64), ("blank", np.float64), ("spoken", np.float64)])


class PrefixBeam:
    """Prefix beam search over posteriors of `pieces` with the n-gram `lm` of `words`.

    `min_prob` bounds the candidates of a frame; a frame with only blank costs nothing.
    """

    def __init__(
        self, pieces: Sequence[str], lm: NgramLm, words: Iterable[str], blank: int = 0, min_prob: float = MIN_PROB
    ) -> None:
        self.tree = PrefixTree(pieces, lm, words)
        self.blank = blank
        self.least = math.log(min_prob) if min_prob else -sys.float_info.max
        # Compiles the search before processes are forked.
        self.search(np.zeros((1, len(pieces))), Weights(0.0, beam=1.0))

    def search(self, log_probs_TV: np.ndarray, weights: Weights) -> tuple[tuple[int, ...], float]:
        """Return the tokens of the best prefix from log posteriors, and ln of its score.

        `weights.beam` prefixes are kept after each frame.
        """
        rows_TV = np.require(log_probs_TV, np.float32, ["C", "A", "W"])
        weights = Weights(*map(float, weights))
        search = compiled(_search, counted=False)
        tokens, score = search(self.tree.language, self.tree.start, rows_TV, self.blank, self.least, weights)
        return tuple(tokens.tolist()), score


# Functions that numba compiles


def _search(
    language: Language, start: Known, log_probs_TV: np.ndarray, blank: int, least: float, weights: Weights
) -> tuple[np.ndarray, float]:
    """Return the tokens of the best prefix, and ln of its score."""
    num_rows, num_tokens = log_probs_TV.shape
    nodes: Any = np.zeros(FIRST_NODES, NODE)
    nodes[0].token, nodes[0].blank, nodes[0].closed = blank, 1.0, UNKNOWN
    nodes[0].state, nodes[0].prefix, nodes[0].unpaid = start
    best = np.empty(int(weights.beam))
    kept: Any = np.zeros(len(best), np.int64)
    num_nodes = num_kept = 1
    reached: Any = np.empty(len(best) * (1 + MAX_TOKENS), REACHED)
    candidates, ratio_V = np.empty(MAX_TOKENS, np.int64), np.empty(num_tokens)
    log_scale = 0.0  # probabilities are scaled at every step, so that long utterances do not vanish
    for log_probs_V in log_probs_TV:
        log_blank = max(float(log_probs_V[blank]), -80.0)  # the ratios must stay finite
        log_scale += log_blank
        beam = kept[:num_kept]
        num = _find_candidates(log_probs_V, blank, least, candidates)
        if num == 0:
            for node in beam:
                nodes[node].blank += nodes[node].spoken
                nodes[node].spoken = 0.0
            continue
        ratio_V[:] = 0.0
        for token in candidates[:num]:
            ratio_V[token] = math.exp(log_probs_V[token] - log_blank)
        most = num_nodes + num * len(beam)
        if most > len(nodes):
            more = np.zeros(2 * most, NODE)
            for node in range(num_nodes):
                more[node] = nodes[node]
            nodes = more
        _stay(nodes, beam, ratio_V, reached, best)
        num_reached, num_nodes = _grow(
            language, weights, nodes, num_nodes, beam, candidates[:num], ratio_V, reached, best
        )
        num_kept, scale = _keep(nodes, beam, reached[:num_reached], best, kept)
        log_scale += math.log(scale)
    highest, found = -math.inf, 0
    for node in kept[:num_kept]:
        last = nodes[node]
        known = last.state, last.prefix, last.unpaid
        end = weights.lm_weight * end_sentence(language, known, weights.word_penalty)
        score = math.log(last.blank + last.spoken) + log_scale + last.lm + end
        if score > highest:
            highest, found = score, node
    tokens, begin = np.empty(num_rows, np.int64), num_rows
    while found > 0:
        begin -= 1
        tokens[begin] = nodes[found].token
        found = nodes[found].parent
    return tokens[begin:], highest


def _find_candidates(log_probs_V: np.ndarray, blank: int, least: float, candidates: np.ndarray) -> int:
    """Write the most probable tokens of a frame, the best first; return their number."""
    num = 0
    for token, log_prob in enumerate(log_probs_V):
        if token != blank and log_prob >= least:
            at = num
            while at > 0 and log_probs_V[candidates[at - 1]] < log_prob:
                if at < MAX_TOKENS:
                    candidates[at] = candidates[at - 1]
                at -= 1
            if at < MAX_TOKENS:
                candidates[at] = token
                num = min(num + 1, MAX_TOKENS)
    return num


def _stay(nodes: Any, beam: np.ndarray, ratio_V: np.ndarray, reached: Any, best: np.ndarray) -> None:
    """Write the prefixes of the beam after a frame, and a heap of their scores."""
    best[:] = -math.inf
    for i, number in enumerate(beam):
        node, after = nodes[number], reached[i]
        total, said, ratio = node.blank + node.spoken, 0.0, ratio_V[node.token]
        if ratio > 0.0:
            # The same token twice in a row is one token unless a blank is between.
            before = nodes[node.parent]
            said = node.spoken * ratio
            said += ratio * (before.blank if before.token == node.token else before.blank + before.spoken)
        after.node, after.score, after.blank, after.spoken = number, math.log(total + said) + node.lm, total, said
        _replace_least(best, after.score)


def _grow(
    language: Language, weights: Weights, nodes: Any, num_nodes: int, beam: np.ndarray, candidates: np.ndarray,
    ratio_V: np.ndarray, reached: Any, best: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    """Add the prefixes that are one token longer and may stay.

    `best` is a heap of the highest scores, as many as the beam keeps. Returns how many prefixes are reached, and how
    many nodes there are.
    """
    gain = max(0.0, -weights.lm_weight * weights.word_penalty)  # by one closed word, with a negative penalty
    num_reached = len(beam)
    for number in beam:
        node = nodes[number]
        total = node.blank + node.spoken
        # No word has a probability above one, so a child can gain no more than its penalty, and all that is new
        # about a child outside the beam comes from its parent: what the bound leaves out could not have stayed.
        least = math.exp(min(best[0] - gain - node.lm, 700.0))
        for token in candidates:
            if ratio_V[token] * total < least:
                break
            said = ratio_V[token] * (node.blank if token == node.token else total)
            if said < least or said == 0.0:
                continue
            log_said, log_prob, known = math.log(said), 0.0, (node.state, node.prefix, node.unpaid)
            if language.opens[token]:
                if node.closed == UNKNOWN:
                    node.gain, node.closed = close_word(language, known, weights.word_penalty)
                log_prob, known = node.gain, (node.closed, 0, 0)
            # A piece gains nothing, and may cost: the score is no higher than this, rounded or not.
            if log_said + (node.lm + weights.lm_weight * log_prob) < best[0]:
                continue
            place = node.child
            while place > 0 and nodes[place].token != token:
                place = nodes[place].sibling
            child = nodes[place or num_nodes]
            if place == 0:
                log_prob, known = extend_word(language, log_prob, known, token)
                child.lm = node.lm + weights.lm_weight * log_prob
            elif child.blank + child.spoken > 0.0:
                continue  # it is in the beam
            score = log_said + child.lm
            if score >= best[0]:
                if place == 0:
                    child.parent, child.token, child.sibling, child.closed = number, token, node.child, UNKNOWN
                    child.state, child.prefix, child.unpaid = known
                    node.child = place = num_nodes
                    num_nodes += 1
                after = reached[num_reached]
                after.node, after.score, after.blank, after.spoken = place, score, 0.0, said
                num_reached += 1
                _replace_least(best, score)
    return num_reached, num_nodes


def _replace_least(heap: np.ndarray, value: float) -> None:
    """Put `value` in place of the least value of a heap."""
    at, child = 0, 1
    while child < len(heap):
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = value


def _keep(nodes: Any, beam: np.ndarray, reached: Any, best: np.ndarray, kept: np.ndarray) -> tuple[int, float]:
    """Write the next beam to `kept`, where `beam` may be; return its size and scale.

    The scale is the factor of its probabilities.
    """
    for number in beam:
        nodes[number].blank = nodes[number].spoken = 0.0
    ties = 0  # number of ties that may stay: the first ones
    for score in best:
        ties += score == best[0]
    num, scale = 0, 0.0
    for after in reached:
        ties -= after.score == best[0]
        if after.score > best[0] or (after.score == best[0] and ties >= 0):
            scale = max(scale, after.blank + after.spoken)
            reached[num] = after
            num += 1
    num_kept = 0
    for after in reached[:num]:
        node = nodes[after.node]
        if after.blank / scale + after.spoken / scale > VANISHED:
            node.blank, node.spoken = after.blank / scale, after.spoken / scale
            kept[num_kept] = after.node
            num_kept += 1
    return num_kept, scale


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
