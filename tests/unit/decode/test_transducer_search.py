"""Searches of a transducer against all sequences and alignments of a small one."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_up import draw_bigrams

from asrtool.decode.parameters import DecodingParameters, Weights
from asrtool.decode.search import transducer
from asrtool.decode.search.prefix_tree import PrefixTree
from asrtool.decode.search.transducer import Beam, Emitted, Greedy, Joint
from asrtool.decode.words import WordPieces
from asrtool.models.objectives.transducer import Transducer
from asrtool.settings.models import Transducer as TransducerSettings

PIECES = ["<blank>", "▁a", "b", "▁c"]
FRAME_S = 0.03
WORDS = ("a", "ab", "c")
BIGRAMS = draw_bigrams(WORDS, seed=1)


def random_joint(seed: int, joint_size: int = 5, context: int = 2, scale: float = 2.0) -> Joint:
    random = np.random.default_rng(seed)
    shapes = {
        "predictor.embedding.weight": (len(PIECES), joint_size),
        "predictor.output.weight": (joint_size, context * joint_size),
        "predictor.output.bias": (joint_size,),
        "output.weight": (len(PIECES), joint_size),
        "output.bias": (len(PIECES),),
    }
    return Joint({name: scale * random.standard_normal(shape) for name, shape in shapes.items()}, context)


def search_of(kind: type, joint: Joint) -> Any:
    search = object.__new__(kind)
    search.joint, search.grouping = joint, WordPieces(PIECES)
    search.most_a_row = transducer.MAX_TOKENS_A_ROW
    search.resources = SimpleNamespace(acoustic=SimpleNamespace(frame_s=FRAME_S))
    search.tree = PrefixTree(PIECES, BIGRAMS, WORDS)
    return search


def best_of_all(joint: Joint, rows_TJ: np.ndarray, tree: PrefixTree, weights: Weights) -> tuple[int, ...]:
    """The best sequence by the sum over all its alignments with at most one token a row."""
    found: dict[tuple[int, ...], list[float]] = {}
    for path in itertools.product(range(len(PIECES)), repeat=len(rows_TJ)):
        context, score = joint.start(), 0.0
        for row_J, token in zip(rows_TJ, path, strict=True):
            score += float(joint.log_probs(row_J, [context])[0, token])
            context = (*context[1:], token) if token else context
        found.setdefault(tuple(filter(None, path)), []).append(score)

    def total(tokens: tuple[int, ...]) -> float:
        node = Emitted(None, 0, tree.start)
        for token in tokens:
            node = tree.add(node, token, weights)
        return float(np.logaddexp.reduce(found[tokens])) + node.lm + tree.end(node.known, weights)

    return max(found, key=total)


@pytest.mark.parametrize("lm_weight", [0.0, 0.7])
@pytest.mark.parametrize("seed", range(6))
def test_a_beam_that_holds_all_finds_the_best_sequence(seed: int, lm_weight: float) -> None:
    joint = random_joint(seed, scale=0.8)  # so flat that sums of alignments decide
    rows_TJ = 2 * np.random.default_rng(100 + seed).standard_normal((4, 5))
    weights = Weights(lm_weight, 0.5, beam=10**6)
    search = search_of(Beam, joint)
    assert search.best(rows_TJ, weights).tokens() == best_of_all(joint, rows_TJ, search.tree, weights)


def test_a_beam_is_kept_by_the_language_model_as_well() -> None:
    """Behind `a` a new word is more probable than `b`, but it costs the word that it closes."""
    joint: Any = SimpleNamespace(start=lambda: (0,))
    probs_TV = np.array([[0.05, 0.9, 0.03, 0.02], [0.15, 0.05, 0.3, 0.5]])
    joint.log_probs = lambda row_J, contexts: np.log(np.repeat(probs_TV[[int(row_J[0])]], len(contexts), axis=0))
    rows_TJ = np.arange(2.0)[:, None]
    found = [search_of(Beam, joint).best(rows_TJ, Weights(weight, 0.0, beam=1)) for weight in (0.0, 2.0)]
    assert [best.tokens() for best in found] == [(1, 3), (1, 2)]


def spoken(token_of_row: list[list[int]]) -> Any:
    """A joint network that emits these tokens, then blank, in each row; row t is [t]."""

    class Fixed:
        def __init__(self) -> None:
            self.num_emitted: dict[int, int] = {}

        def start(self) -> tuple[int, ...]:
            return (0,)

        def log_probs(self, row_J: np.ndarray, contexts: Any) -> np.ndarray:
            t = int(row_J[0])
            num = self.num_emitted.get(t, 0)
            self.num_emitted[t] = num + 1
            wanted = token_of_row[t][num] if num < len(token_of_row[t]) else 0
            log_probs_V = np.full(len(PIECES), math.log(0.1))
            log_probs_V[wanted] = math.log(0.7)
            return log_probs_V[None]

    return Fixed()


def test_greedy_emits_tokens_until_the_blank_is_best_or_one_a_row() -> None:
    search = search_of(Greedy, spoken([[], [1, 2], [], [], [3], []]))
    words = search.search(np.arange(6.0)[:, None], DecodingParameters.of("transducer-greedy")).words
    assert [word.text for word in words] == ["ab", "c"]
    assert [word.confidence for word in words] == pytest.approx([0.7, 0.7])
    begins, ends = zip(*[(word.begin_s, word.end_s) for word in words], strict=True)
    assert begins[0] <= 1 * FRAME_S < 2 * FRAME_S <= ends[0] <= begins[1] <= 4 * FRAME_S < 5 * FRAME_S <= ends[1]
    search = search_of(Greedy, spoken([[1], [2], [], [3, 3], []]))
    search.most_a_row = 1
    words = search.search(np.arange(5.0)[:, None], DecodingParameters.of("transducer-greedy")).words
    assert [word.text for word in words] == ["ab", "c"]


@pytest.mark.parametrize(("one_a_row", "most"), [(True, 1), (False, transducer.MAX_TOKENS_A_ROW)])
def test_how_many_tokens_greedy_emits_in_a_row_is_that_of_the_training(one_a_row: bool, most: int) -> None:
    search = object.__new__(Greedy)
    model = SimpleNamespace(objective=Transducer(TransducerSettings(joint_size=3, one_a_row=one_a_row), 4, len(PIECES)))
    search.name = "transducer-greedy"
    search.resources = SimpleNamespace(  # type: ignore[assignment]
        acoustic=SimpleNamespace(model=model), pieces=PIECES, check_marks=lambda name: None
    )
    search.open({})
    assert search.most_a_row == most
    assert search.joint.context == 2


def test_greedy_ends_where_a_model_never_gives_the_blank() -> None:
    search = search_of(Greedy, spoken([[3] * 1000] * 2))
    words = search.search(np.arange(2.0)[:, None], DecodingParameters.of("transducer-greedy")).words
    assert len(words) == 2 * transducer.MAX_TOKENS_A_ROW


def test_a_token_is_placed_in_the_row_that_most_of_its_probability_comes_from() -> None:
    """Row 1 emits the token nearly for sure, row 0 seldom."""
    joint = random_joint(1, scale=0.0)
    joint.output_VJ = np.zeros((len(PIECES), 5))
    joint.output_VJ[1, 0] = 9.0
    joint.output_V = np.array([0.0, -5.0, -50.0, -50.0])
    rows_TJ = np.zeros((3, 5))
    rows_TJ[1, 0] = 50.0  # of which tanh gives 1
    best = search_of(Beam, joint).best(rows_TJ, Weights(0.0, 0.0, beam=8))
    assert (best.tokens(), best.row) == ((1,), 1)


def test_predictions_are_kept_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    joint, fresh = random_joint(2), random_joint(2)
    monkeypatch.setattr(transducer, "MAX_CONTEXTS", 3)
    row_J = np.ones(5)
    for context in itertools.product(range(4), repeat=2):
        np.testing.assert_array_equal(joint.log_probs(row_J, [context]), fresh.log_probs(row_J, [context]))
