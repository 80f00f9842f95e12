"""Method beam: CTC prefix beam search with the n-gram of the graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from asrtool.decode.parameters import Axis, DecodingParameters, Weights, lm_axes
from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.decode.search.prefix_tree import Prefix, PrefixTree, WordLm
from asrtool.errors import AsrtoolError
from asrtool.settings.decode import BEAM_SIZES

MAX_TOKENS = 12  # candidates of a frame
MIN_PROB = 1e-4  # a token less probable than this is no candidate
VANISHED = 1e-200  # a prefix so much less probable than the best is dropped before its probability becomes zero

_first = itemgetter(0)


class CtcPrefix(Prefix):
    """The paths to it are summed here."""

    __slots__ = ("blank", "spoken")

    def __init__(self, parent: Prefix | None, token: int, lm_state: Any) -> None:
        super().__init__(parent, token, lm_state)
        self.blank = 0.0  # probability of the paths that end in blank
        self.spoken = 0.0  # and of those that end in `token`


class PrefixBeam:
    """Prefix beam search over posteriors of `pieces`, with or without an LM.

    `min_prob` bounds the candidates of a frame; a frame with only blank costs nothing.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        lm: WordLm | None,
        words: Iterable[str],
        blank: int = 0,
        min_prob: float = MIN_PROB,
    ) -> None:
        self.tree = PrefixTree(pieces, lm, words, CtcPrefix)
        self.blank = blank
        self.min_prob = min_prob

    def search(self, log_probs_TV: np.ndarray, weights: Weights) -> tuple[tuple[int, ...], float]:
        """Return the tokens of the best prefix from log posteriors, and ln of its score.

        `weights.beam` prefixes are kept after each frame.
        """
        root = self.tree.root(self.blank)
        root.blank = 1.0
        beam = [root]
        log_scale = 0.0  # probabilities are scaled at every step, so that long utterances do not vanish
        for log_blank, candidates in self._steps(log_probs_TV):
            log_scale += log_blank
            if candidates:
                beam, scale = self._extend(beam, candidates, weights)
                log_scale += math.log(scale)
            else:
                for prefix in beam:
                    prefix.blank, prefix.spoken = prefix.blank + prefix.spoken, 0.0
        return self._best(beam, weights, log_scale)

    def _steps(self, log_probs_TV: np.ndarray) -> Iterator[tuple[float, list[tuple[int, float]]]]:
        """Yield (ln p(blank), [(token, p(token) / p(blank))]) of frames.

        Consecutive frames of only blank are one step.
        """
        log_blank_T = np.maximum(log_probs_TV[:, self.blank].astype(np.float64), -80.0)  # the ratios must stay finite
        tokens_TK = _top_tokens(log_probs_TV, self.blank, MAX_TOKENS)
        top_TK = np.take_along_axis(log_probs_TV, tokens_TK, axis=1).astype(np.float64)
        keep_TK = top_TK >= math.log(self.min_prob) if self.min_prob > 0 else np.isfinite(top_TK)
        ratios_TK = np.exp(top_TK - log_blank_T[:, None])
        silence: float | None = None  # ln p of the run of blank frames before this one
        for t in range(len(log_probs_TV)):
            keep = keep_TK[t]
            if not keep.any():
                silence = (silence or 0.0) + log_blank_T[t]
                continue
            if silence is not None:
                yield silence, []
                silence = None
            yield log_blank_T[t], list(zip(tokens_TK[t, keep].tolist(), ratios_TK[t, keep].tolist(), strict=True))
        if silence is not None:
            yield silence, []

    def _extend(
        self, beam: list[CtcPrefix], candidates: list[tuple[int, float]], weights: Weights
    ) -> tuple[list[CtcPrefix], float]:
        """Return the beam after a frame with `candidates`, and its scale factor."""
        after = _stay(beam, dict(candidates))
        scored = [(math.log(sum(after[prefix])) + prefix.lm, prefix) for prefix in after]
        cutoff = min(score for score, _ in scored) if len(scored) >= weights.beam else -math.inf
        cutoff -= max(0.0, -weights.lm_weight * weights.word_penalty)  # a negative penalty is a gain of one closed word
        for prefix in beam:
            total = prefix.blank + prefix.spoken
            # No word has a probability above one, so a child can gain no more than its penalty, and all that is new
            # about a child outside the beam comes from its parent: what the bound leaves out could not have stayed.
            least = math.exp(min(cutoff - prefix.lm, 700.0)) / total
            for token, ratio in candidates:
                if ratio < least:
                    break
                child = prefix.children.get(token) or self.tree.add(prefix, token, weights)
                # The same token twice in a row is one token unless a blank is between.
                spoken = ratio * (prefix.blank if token == prefix.token else total)
                if child not in after and spoken > 0.0:
                    after[child] = (0.0, spoken)
                    scored.append((math.log(spoken) + child.lm, child))
        return self._prune(scored, after, int(weights.beam))

    def _prune(
        self, scored: list[tuple[float, CtcPrefix]], after: dict[CtcPrefix, tuple[float, float]], beam_size: int
    ) -> tuple[list[CtcPrefix], float]:
        scored.sort(key=_first, reverse=True)
        kept = [prefix for _, prefix in scored[:beam_size]]
        scale = max(sum(after[prefix]) for prefix in kept)
        for prefix in kept:
            blank, spoken = after[prefix]
            prefix.blank, prefix.spoken = blank / scale, spoken / scale
        return [prefix for prefix in kept if prefix.blank + prefix.spoken > VANISHED], scale

    def _best(self, beam: list[CtcPrefix], weights: Weights, log_scale: float) -> tuple[tuple[int, ...], float]:
        scored = []
        for prefix in beam:
            score = math.log(prefix.blank + prefix.spoken) + log_scale + prefix.lm + self.tree.end(prefix, weights)
            scored.append(score)
        best = max(range(len(beam)), key=scored.__getitem__)
        return beam[best].tokens(), scored[best]


def _stay(beam: list[CtcPrefix], ratio_of: dict[int, float]) -> dict[CtcPrefix, tuple[float, float]]:
    """(blank, spoken) after a frame of the prefixes that are in the beam already."""
    total_of = {prefix: prefix.blank + prefix.spoken for prefix in beam}
    after = {}
    for prefix, total in total_of.items():
        spoken = 0.0
        ratio = ratio_of.get(prefix.token)
        if ratio is not None:
            spoken = prefix.spoken * ratio
            parent = prefix.parent
            if parent in total_of:
                spoken += ratio * (parent.blank if parent.token == prefix.token else total_of[parent])
        after[prefix] = (total, spoken)
    return after


def _top_tokens(log_probs_TV: np.ndarray, blank: int, num: int) -> np.ndarray:
    """Return the `num` most probable tokens of each frame but `blank`, (T, num)."""
    others_V = np.delete(np.arange(log_probs_TV.shape[1]), blank)
    tokens_TV = -log_probs_TV[:, others_V]
    num = min(num, tokens_TV.shape[1])
    top_TK = np.argpartition(tokens_TV, num - 1, axis=1)[:, :num]
    order_TK = np.take_along_axis(tokens_TV, top_TK, axis=1).argsort(axis=1)
    return others_V[np.take_along_axis(top_TK, order_TK, axis=1)]


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
