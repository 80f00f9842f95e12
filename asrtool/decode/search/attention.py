"""Searches of an encoder-decoder: the decoder attends to rows token by token.

Letters in names: T rows, C channels, V tokens, H cells, A values of an energy, B hypotheses, K tokens of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asrtool.decode.parameters import Axis, DecodingParameters, Weights
from asrtool.decode.search.beam import prefix_axes
from asrtool.decode.search.method import ModelSearch, SearchResult, log_softmax
from asrtool.decode.search.prefix_tree import Prefix, PrefixTree
from asrtool.decode.words import Word
from asrtool.models.objectives.topology import Span
from asrtool.settings.decode import CTC_WEIGHTS

BLANK = 0


class PrefixState(NamedTuple):
    """Log probabilities of some prefixes up to each row, by their end."""

    blank_BT: np.ndarray
    spoken_BT: np.ndarray  # the last token

    def take(self, rows: np.ndarray) -> PrefixState:
        """Return the states of some prefixes."""
        return PrefixState(self.blank_BT[rows], self.spoken_BT[rows])


class PrefixScorer:
    """CTC prefix scores of one utterance, from log posteriors (T, V), T at least 1."""

    def __init__(self, log_probs_TV: np.ndarray) -> None:
        self.log_probs_TV = log_probs_TV.astype(np.float64)

    def start(self) -> PrefixState:
        """Return the state of the empty prefix."""
        blank_T = np.cumsum(self.log_probs_TV[:, BLANK])
        return PrefixState(blank_T[None], np.full((1, len(blank_T)), -np.inf))

    def extend(self, state: PrefixState, last_B: np.ndarray, tokens_BK: np.ndarray) -> tuple[np.ndarray, PrefixState]:
        """Return ln P that the tokens begin with each prefix plus one of `tokens_BK`.

        Shape (B, K), with the states of these (B K). `last_B` is the last token of each prefix, BLANK of the empty
        one.
        """
        num_rows = len(self.log_probs_TV)
        both_BT = np.logaddexp(state.blank_BT, state.spoken_BT)
        # The same token twice in a row is one token unless a blank is between.
        repeats_BK1 = (tokens_BK == last_B[:, None])[:, :, None]
        ends_BKT = np.where(repeats_BK1, state.blank_BT[:, None], both_BT[:, None])
        before_BKT = np.empty_like(ends_BKT)  # paths of the prefix that end in the row before each
        before_BKT[:, :, 0] = np.where(last_B == BLANK, 0.0, -np.inf)[:, None]
        before_BKT[:, :, 1:] = ends_BKT[:, :, :-1]
        token_BKT = self.log_probs_TV.T[tokens_BK]
        blank_BKT, spoken_BKT = np.empty_like(before_BKT), np.empty_like(before_BKT)
        blank_BK = spoken_BK = np.full(tokens_BK.shape, -np.inf)
        for t in range(num_rows):
            blank_BK, spoken_BK = (
                np.logaddexp(blank_BK, spoken_BK) + self.log_probs_TV[t, BLANK],
                np.logaddexp(spoken_BK, before_BKT[:, :, t]) + token_BKT[:, :, t],
            )
            blank_BKT[:, :, t], spoken_BKT[:, :, t] = blank_BK, spoken_BK
        begins_BK = np.logaddexp.reduce(before_BKT + token_BKT, axis=2)
        flat = (-1, num_rows)
        return begins_BK, PrefixState(blank_BKT.reshape(flat), spoken_BKT.reshape(flat))

    def end(self, state: PrefixState) -> np.ndarray:
        """Return ln P (B,) that the tokens are exactly each prefix."""
        total_B: np.ndarray = np.logaddexp(state.blank_BT[:, -1], state.spoken_BT[:, -1])
        return total_B


END = 0
MAX_TOKENS = 12  # tokens that each hypothesis is tried with


class State(NamedTuple):
    """Decoder state of some hypotheses."""

    lower: tuple[np.ndarray, np.ndarray]  # output and cells (B, H)
    upper: tuple[np.ndarray, np.ndarray]
    context_BC: np.ndarray
    sum_BT: np.ndarray  # sum of the attention weights so far

    def take(self, rows: np.ndarray) -> State:
        """Return the states of some hypotheses."""
        lower, upper = ((output_BH[rows], cells_BH[rows]) for output_BH, cells_BH in (self.lower, self.upper))
        return State(lower, upper, self.context_BC[rows], self.sum_BT[rows])


class Decoder:
    """Decoder of a model for one utterance, in NumPy."""

    def __init__(self, weights: Mapping[str, np.ndarray], rows_TC: np.ndarray) -> None:
        """Take the weights of asrtool.models.objectives.attention.Attention."""
        self.weights = weights
        self.rows_TC = rows_TC
        self.keys_TA = rows_TC @ weights["energies.key.weight"].T + weights["energies.key.bias"]
        self.kernel_KA = weights["energies.location.weight"][:, 0].T
        self.padding = (len(self.kernel_KA) // 2,) * 2

    def start(self) -> State:
        """Return the state of one hypothesis before the first token."""
        zeros_1H = np.zeros((1, self.weights["embedding.weight"].shape[1]), dtype=np.float32)
        num_rows, num_channels = self.rows_TC.shape
        context_1C, sum_1T = np.zeros((1, num_channels), np.float32), np.zeros((1, num_rows), np.float32)
        return State((zeros_1H, zeros_1H), (zeros_1H, zeros_1H), context_1C, sum_1T)

    def step(self, tokens_B: np.ndarray, state: State) -> tuple[np.ndarray, np.ndarray, State]:
        """Return log probabilities after `tokens_B` (B, V), attention (B, T), and state."""
        lower = self._cell("lower", self.weights["embedding.weight"][tokens_B], state.lower)
        upper = self._cell("upper", np.concatenate([lower[0], state.context_BC], axis=1), state.upper)
        weights_BT = self._attend(upper[0], state.sum_BT)
        context_BC = weights_BT @ self.rows_TC
        output_BO = np.concatenate([upper[0], context_BC], axis=1)
        log_probs_BV = log_softmax(output_BO @ self.weights["output.weight"].T + self.weights["output.bias"])
        return log_probs_BV, weights_BT, State(lower, upper, context_BC, state.sum_BT + weights_BT)

    def _cell(
        self, name: str, inputs_BI: np.ndarray, state: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Apply an LSTM cell, with its gates in the order of torch."""
        of = {part: self.weights[f"{name}.{part}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        gates_BG = inputs_BI @ of["weight_ih"].T + of["bias_ih"] + state[0] @ of["weight_hh"].T + of["bias_hh"]
        enter_BH, keep_BH, new_BH, show_BH = np.split(gates_BG, 4, axis=1)
        cells_BH = _sigmoid(keep_BH) * state[1] + _sigmoid(enter_BH) * np.tanh(new_BH)
        return _sigmoid(show_BH) * np.tanh(cells_BH), cells_BH

    def _attend(self, query_BH: np.ndarray, sum_BT: np.ndarray) -> np.ndarray:
        query_BA = query_BH @ self.weights["energies.query.weight"].T
        windows_BTK = np.lib.stride_tricks.sliding_window_view(
            np.pad(sum_BT, ((0, 0), self.padding)), len(self.kernel_KA), axis=1
        )
        values_BTA = np.tanh(query_BA[:, None] + self.keys_TA + windows_BTK @ self.kernel_KA)
        weights_BT: np.ndarray = np.exp(log_softmax(values_BTA @ self.weights["energies.energy.weight"][0]))
        return weights_BT


class AttentionSearch(ModelSearch):
    """Base of both searches."""

    def words_of(self, spans: Sequence[Span], num_rows: int) -> tuple[Word, ...]:
        """Return words and their times.

        A token is in the row of most attention, never before the previous token.
        """
        moved: list[Span] = []
        for token, row, _, log_prob in spans:
            row = max(row, moved[-1][1] if moved else 0)
            moved.append((token, row, row + 1, log_prob))
        return super().words_of(moved, num_rows)


class Greedy(AttentionSearch):
    """Greedy search: the best token until the end, at most one for each row."""

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        decoder = Decoder(self.weights, scores_TV)
        state, token = decoder.start(), END
        spans: list[Span] = []
        for _ in range(len(scores_TV)):
            (log_probs_V,), (weights_T,), state = decoder.step(np.array([token]), state)
            token = int(log_probs_V.argmax())
            if token == END:
                break
            row = int(weights_T.argmax())
            spans.append((token, row, row + 1, float(log_probs_V[token])))
        return SearchResult(self.words_of(spans, len(scores_TV)))


@dataclass(slots=True, eq=False)
class Attended(Prefix):
    """Node with its scores, and the row where its token was attended."""

    spoken: float = 0.0  # ln P by the decoder
    begins: float = 0.0  # ln P by CTC that an utterance begins so


class Scorer:
    """Decoder and CTC scores of one utterance, for the hypotheses of a beam."""

    def __init__(self, decoder: Decoder, ctc: PrefixScorer | None, ctc_weight: float) -> None:
        self.decoder, self.ctc, self.ctc_weight = decoder, ctc, ctc_weight
        self.state = decoder.start()
        self.paths: PrefixState | None = ctc.start() if ctc else None

    def of(self, spoken: Any, begins: Any) -> Any:
        """Combine both scores."""
        return (1 - self.ctc_weight) * spoken + self.ctc_weight * begins if self.ctc else spoken

    def step(self, beam: Sequence[Attended]) -> np.ndarray:
        """Read the last tokens of the `beam`; return scores (B,) if they end here."""
        self.last_B = np.array([node.token for node in beam])
        self.log_probs_BV, weights_BT, self.state = self.decoder.step(self.last_B, self.state)
        self.rows_B = weights_BT.argmax(axis=1)
        ends_B = np.array([node.spoken for node in beam]) + self.log_probs_BV[:, END]
        result: np.ndarray = self.of(ends_B, self.ctc.end(self.paths) if self.ctc and self.paths else 0.0)
        return result

    def extend(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the best next tokens (B, K), their ln P by the decoder, and by CTC."""
        self.num = min(MAX_TOKENS, self.log_probs_BV.shape[1] - 1)
        tokens_BK = 1 + np.argpartition(-self.log_probs_BV[:, 1:], self.num - 1, axis=1)[:, : self.num]
        begins_BK = np.zeros(tokens_BK.shape)
        if self.ctc and self.paths:
            begins_BK, self.paths = self.ctc.extend(self.paths, self.last_B, tokens_BK)
        return tokens_BK, np.take_along_axis(self.log_probs_BV, tokens_BK, axis=1), begins_BK

    def keep(self, numbers: Sequence[int]) -> None:
        """Keep some of the B times K sequences of `extend` as the beam."""
        kept = np.array(numbers)
        self.state = self.state.take(kept // self.num)
        self.paths = self.paths.take(kept) if self.paths else None


class Beam(AttentionSearch):
    """Beam search over tokens with CTC and a word n-gram.

    Hypotheses of equal length compete by (1 - ctc_weight) ln p of the decoder + ctc_weight ln p of CTC, and by the
    n-gram as in the prefix beam. CTC, which has to explain each row, and the word penalty (a reward if negative)
    control the length.
    """

    def axes(self) -> Sequence[Axis]:
        objective: Any = self.resources.acoustic.model.objective
        weights = self.settings.ctc_weights
        by_ctc = Axis("ctc_weight", weights, start=max(weights), limits=CTC_WEIGHTS)
        if not objective.ctc:
            expected = "0, because model.attention.ctc_weight of the model is 0"
            by_ctc = Axis("ctc_weight", (0.0,), limits=(0, 0), expected=expected)
        return (*prefix_axes(self.settings), by_ctc)

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        super().open(values)
        self.tree = PrefixTree(self.resources.pieces, self.resources.ngram, self.resources.words)

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        best = self.best(scores_TV, Weights.of(parameters), parameters["ctc_weight"])
        return SearchResult(self.words_of(best.spans(), len(scores_TV)))

    def best(self, rows_TC: np.ndarray, weights: Weights, ctc_weight: float) -> Attended:
        """Return the best finished sequence, with at most one token for each row."""
        score = Scorer(Decoder(self.weights, rows_TC), self.ctc_scorer(rows_TC) if ctc_weight else None, ctc_weight)
        gain = max(0.0, -weights.lm_weight * weights.word_penalty)  # largest gain by another word; nothing else gains
        beam = [Attended(None, END, self.tree.start)]
        best, found = -np.inf, beam[0]
        for more in range(len(rows_TC), -1, -1):
            for node, end in zip(beam, score.step(beam).tolist(), strict=True):
                if (total := end + node.lm + self.tree.end(node.known, weights)) > best:
                    best, found = total, node
            if not more:
                break
            grown = self._grow(beam, score, weights)
            totals = [score.of(node.spoken, node.begins) + node.lm for node in grown]
            order = sorted(range(len(grown)), key=totals.__getitem__, reverse=True)[: int(weights.beam)]
            if totals[order[0]] + gain * (more + 1) <= best:
                break
            beam = [grown[i] for i in order]
            score.keep(order)
        return found

    def _grow(self, beam: Sequence[Attended], score: Scorer, weights: Weights) -> list[Attended]:
        """Return the hypotheses of `beam` with one more token each."""
        tokens_BK, log_probs_BK, begins_BK = score.extend()
        grown = []
        for b, node in enumerate(beam):
            candidates = zip(tokens_BK[b].tolist(), log_probs_BK[b].tolist(), begins_BK[b].tolist(), strict=True)
            for token, log_prob, begins in candidates:
                child = self.tree.add(node, token, weights)
                child.row, child.log_prob = int(score.rows_B[b]), log_prob
                child.spoken, child.begins = node.spoken + log_prob, begins
                grown.append(child)
        return grown

    def ctc_scorer(self, rows_TC: np.ndarray) -> PrefixScorer:
        """Make the scorer of CTC for the rows of an utterance."""
        logits_TV = rows_TC @ self.weights["ctc.output.weight"].T + self.weights["ctc.output.bias"]
        return PrefixScorer(log_softmax(logits_TV))


def _sigmoid(values: np.ndarray) -> np.ndarray:
    result: np.ndarray = 0.5 * (1 + np.tanh(0.5 * values))  # no overflow
    return result
