"""Searches of a transducer: the joint network gives the next token of each row.

Letters in names: T rows, J joint values, V tokens and blank, B hypotheses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asrtool.decode.parameters import Axis, DecodingParameters, Weights
from asrtool.decode.search.beam import prefix_axes
from asrtool.decode.search.method import ModelSearch, SearchResult, log_softmax
from asrtool.decode.search.prefix_tree import Prefix, PrefixTree
from asrtool.models.objectives.topology import Span

BLANK = 0
MAX_TOKENS_A_ROW = 5  # tokens that greedy search emits in a row at most: of a model without blanks it would not end
MAX_TOKENS = 12  # tokens that each hypothesis is tried with in a row
MAX_CONTEXTS = 100_000  # whose predictions are kept


class Joint:
    """Predictor and joint network in NumPy."""

    def __init__(self, weights: Mapping[str, np.ndarray], context: int) -> None:
        """Take weights of objectives.transducer.Transducer, and its `context`."""
        self.context = context
        self.embedding_VJ = weights["predictor.embedding.weight"]
        self.predict_JC, self.predict_J = weights["predictor.output.weight"], weights["predictor.output.bias"]
        self.output_VJ, self.output_V = weights["output.weight"], weights["output.bias"]
        self._kept: dict[tuple[int, ...], np.ndarray] = {}

    def log_probs(self, row_J: np.ndarray, contexts: Iterable[tuple[int, ...]]) -> np.ndarray:
        """Return log probabilities (B, V) of a row after each of `contexts`."""
        predicted_BJ = np.stack([self._predict(context) for context in contexts])
        return log_softmax(np.tanh(row_J + predicted_BJ) @ self.output_VJ.T + self.output_V)

    def start(self) -> tuple[int, ...]:
        """Return the context before the first token."""
        return (BLANK,) * self.context

    def _predict(self, context: tuple[int, ...]) -> np.ndarray:
        found = self._kept.get(context)
        if found is None:
            if len(self._kept) == MAX_CONTEXTS:
                self._kept.clear()
            found = self.predict_JC @ self.embedding_VJ[list(context)].ravel() + self.predict_J
            self._kept[context] = found
        return found


class TransducerSearch(ModelSearch):
    """Base of both searches."""

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        super().open(values)
        objective: Any = self.resources.acoustic.model.objective
        self.joint = Joint(self.weights, objective.predictor.context)
        self.most_a_row = 1 if objective.one_a_row else MAX_TOKENS_A_ROW  # by greedy search


class Greedy(TransducerSearch):
    """Best token of each row; repeated until blank if the model was trained so."""

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        spans: list[Span] = []
        context = self.joint.start()
        for t, row_J in enumerate(scores_TV):
            for _ in range(self.most_a_row):
                (log_probs_V,) = self.joint.log_probs(row_J, [context])
                token = int(log_probs_V.argmax())
                if token == BLANK:
                    break
                spans.append((token, t, t + 1, float(log_probs_V[token])))
                context = (*context[1:], token)
        return SearchResult(self.words_of(spans, len(scores_TV)))


@dataclass(slots=True, eq=False)
class Emitted(Prefix):
    """Node with the row where its token was emitted, and the last tokens."""

    context: tuple[int, ...] = ()


class Beam(TransducerSearch):
    """Beam search of at most one token a row, with a word n-gram.

    Source: Kang et al. 2023, arXiv 2211.00484. Alignments of a sequence are summed within the beam. Hypotheses are
    ranked as by the prefix beam.
    """

    def axes(self) -> Sequence[Axis]:
        return prefix_axes(self.settings)

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        super().open(values)
        self.tree = PrefixTree(self.resources.pieces, self.resources.ngram, self.resources.words)

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        best = self.best(scores_TV, Weights.of(parameters))
        return SearchResult(self.words_of(best.spans(), len(scores_TV)))

    def best(self, rows_TJ: np.ndarray, weights: Weights) -> Emitted:
        """Return the best sequence."""
        root = Emitted(None, BLANK, self.tree.start, context=self.joint.start())
        beam: dict[Emitted, float] = {root: 0.0}  # ln of the probability of the alignments that are summed
        for t, row_J in enumerate(rows_TJ):
            after = self._extend(beam, row_J, t, weights)
            kept = sorted(after, key=lambda node: after[node] + node.lm, reverse=True)[: int(weights.beam)]
            beam = {node: after[node] for node in kept}
        return max(beam, key=lambda node: beam[node] + node.lm + self.tree.end(node.known, weights))

    def _extend(
        self, beam: Mapping[Emitted, float], row_J: np.ndarray, t: int, weights: Weights
    ) -> dict[Emitted, float]:
        """Return the sequences after a row."""
        log_probs_BV = self.joint.log_probs(row_J, [node.context for node in beam])
        after = {node: score + float(log_probs_BV[b, BLANK]) for b, (node, score) in enumerate(beam.items())}
        num = min(MAX_TOKENS, log_probs_BV.shape[1] - 1)
        tokens_BK = 1 + np.argpartition(-log_probs_BV[:, 1:], num - 1, axis=1)[:, :num]
        for b, (node, score) in enumerate(beam.items()):
            for token in tokens_BK[b].tolist():
                log_prob = float(log_probs_BV[b, token])
                child = node.children.get(token) or self._add(node, token, weights)
                before = after.get(child, -math.inf)
                if score + log_prob > before:
                    child.row, child.log_prob = t, log_prob
                after[child] = float(np.logaddexp(before, score + log_prob))
        return after

    def _add(self, node: Emitted, token: int, weights: Weights) -> Emitted:
        child = self.tree.add(node, token, weights)
        child.context = (*node.context[1:], token)
        return child
