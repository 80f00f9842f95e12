"""An n-gram as a scorer that takes one word at a time, for search."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from asrtool.lang.arpa import read_arpa
from asrtool.lang.ngram import Ngrams
from asrtool.lang.symbols import BOS, EOS, UNK

LOG10_NEVER = -99.0  # of a word outside a model that has no <unk>, as ARPA files write probability zero
MAX_REMEMBERED = 1_000_000  # steps kept, about 200 MB


class NgramLm:
    """States are small integers: two histories the model cannot tell apart have the same one."""

    def __init__(self, model: Ngrams) -> None:
        self._model = model
        self._ids = {word: number for number, word in enumerate(model.words)}
        self._keys = model.keys
        self._suffix = model.suffix
        self._history = model.history
        self._steps: dict[tuple[int, str], tuple[float, int]] = {}

    @classmethod
    def load(cls, path: Path | str) -> NgramLm:
        """Read an ARPA file; AsrtoolError when it is missing or malformed."""
        return cls(read_arpa(Path(path)))

    def start(self) -> int:
        """The state before the first word of a sentence."""
        return int(self._history[self._find(0, self._ids[BOS])]) if BOS in self._ids else 0

    def step(self, state: int, word: str) -> tuple[float, int]:
        """Natural log probability of `word` after `state`, and the state after `word`.

        ``</s>`` ends the sentence. A word the model does not know is ``<unk>``.
        """
        result = self._steps.get((state, word))
        if result is None:
            if len(self._steps) >= MAX_REMEMBERED:
                self._steps.clear()
            result = self._steps[state, word] = self._step(state, word)
        return result

    def log_prob(self, words: list[str]) -> float:
        """Natural log probability of a sentence, its end included."""
        total, state = 0.0, self.start()
        for word in (*words, EOS):
            log_prob, state = self.step(state, word)
            total += log_prob
        return total

    def _step(self, state: int, word: str) -> tuple[float, int]:
        number = self._ids.get(word, self._ids.get(UNK))
        if number is None:
            return LOG10_NEVER * math.log(10), 0
        log10_prob = 0.0
        node = self._find(state, number)
        while not node and state:
            log10_prob += self._model.log10_backoff[state]
            state = int(self._suffix[state])
            node = self._find(state, number)
        log10_prob += self._model.log10_prob[node]
        return float(log10_prob) * math.log(10), int(self._history[node])

    def _find(self, state: int, number: int) -> int:
        """The node of word `number` after the history `state`, 0 if there is none."""
        key = state * len(self._model.words) + number
        node = int(np.searchsorted(self._keys, key))
        return node if node < len(self._keys) and self._keys[node] == key else 0
