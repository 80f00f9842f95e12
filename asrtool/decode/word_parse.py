"""Find words in tokens without word boundaries, by lexicon and language model.

The cost of a path through the decoding graph is the cost of its tokens plus the cost of its words. Its words are
therefore the most probable ones of its tokens, and can be found from the tokens alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from asrtool.decode.words import is_spoken
from asrtool.lang.text import EOS
from asrtool.models.objectives.topology import Span

Tokens = tuple[int, ...]
UNREACHED = (-math.inf, None)
Chain = Any  # None or a tuple: the chain before, a word and the number of its tokens


class WordLm(Protocol):
    """Interface of a language model; states are opaque."""

    def start(self) -> Any:
        """The state before the first word."""

    def step(self, state: Any, word: str) -> tuple[float, Any]:
        """Return ln p of `word` (``</s>`` ends the sentence) and the next state."""


class FixedSentenceLm:
    """Language model of one sentence: any other has probability zero.

    Its states count the words.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = (*words, EOS)

    def start(self) -> int:
        return 0

    def step(self, state: int, word: str) -> tuple[float, int]:
        return (0.0 if self.words[state] == word else -math.inf), state + 1


class WordParser:
    """Parser of tokens to words of `lexicon`, pairs of a word and its token ids."""

    def __init__(self, lexicon: Iterable[tuple[str, Tokens]], lm: WordLm) -> None:
        self.lm = lm
        self.words: dict[Tokens, list[str]] = {}
        for word, word_tokens in lexicon:
            self.words.setdefault(word_tokens, []).append(word)
        self.lengths = sorted({len(word_tokens) for word_tokens in self.words})

    def group(
        self, spans: Sequence[Span], word_penalty: float = 0.0, words: Sequence[str] | None = None
    ) -> list[tuple[str, Sequence[Span]]]:
        """Return the words of `spans` but tags, each with its spans.

        They are `words` if given, else the most probable ones.
        """
        tokens = [token for token, _, _, _ in spans]
        parsed = self._parse(tokens, self.lm if words is None else FixedSentenceLm(words), word_penalty)
        ends = list(itertools.accumulate(length for _, length in parsed))
        return [
            (word, spans[end - length : end])
            for (word, length), end in zip(parsed, ends, strict=True)
            if is_spoken(word)
        ]

    def _parse(self, tokens: Sequence[int], lm: WordLm, word_penalty: float = 0.0) -> list[tuple[str, int]]:
        """Return words of highest ln p(words) - word_penalty * number, with token counts.

        If the tokens end amid a word, as in an incomplete path, it is left out.
        """
        # Viterbi over tokens read and state of the language model.
        reached: list[dict[Any, tuple[float, Chain]]] = [{} for _ in range(len(tokens) + 1)]
        reached[0][lm.start()] = (0.0, None)
        for begin in range(len(tokens)):
            for length, word in self._words_at(tokens, begin) if reached[begin] else ():
                after = reached[begin + length]
                for state, (score, chain) in reached[begin].items():
                    log_prob, to = lm.step(state, word)
                    total = score + log_prob - word_penalty
                    if total > after.get(to, UNREACHED)[0]:
                        after[to] = (total, (chain, word, length))
        return _unroll(_best(reached, lm))

    def _words_at(self, tokens: Sequence[int], begin: int) -> Iterator[tuple[int, str]]:
        for length in self.lengths:
            if begin + length <= len(tokens):
                for word in self.words.get(tuple(tokens[begin : begin + length]), ()):
                    yield length, word


def _best(reached: Sequence[dict[Any, tuple[float, Chain]]], lm: WordLm) -> Chain:
    last = max(position for position, states in enumerate(reached) if states)
    complete = last == len(reached) - 1
    scored = [
        (score + (lm.step(state, EOS)[0] if complete else 0.0), chain)
        for state, (score, chain) in reached[last].items()
    ]
    return max(scored, key=lambda item: item[0])[1]


def _unroll(chain: Chain) -> list[tuple[str, int]]:
    words = []
    while chain is not None:
        chain, word, length = chain
        words.append((word, length))
    return words[::-1]
