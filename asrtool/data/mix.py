"""Training on several corpora: the utterances of each in an epoch.

A corpus is walked pass after pass, and each epoch continues the walk. So all its utterances are used equally often,
within one pass.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from asrtool.settings.data import Mix

RNG_STREAM = 3  # keeps these random numbers apart from others of the seed


def fractions_of(mix: Mix, num_utterances: Mapping[str, int], num_frames: Mapping[str, int]) -> dict[str, float]:
    """Return the fraction of an epoch's utterances for each corpus.

    By temperature T it is proportional to n^(1/T) for n utterances (Arivazhagan et al. 2019, "Massively Multilingual
    Neural Machine Translation in the Wild", arXiv:1907.05019). Raises ValueError unless given weights are for these
    corpora.
    """
    mix.check_names(num_utterances)
    weights: Mapping[str, float]
    if mix.rule == "given":
        weights = mix.weights
    elif mix.rule == "hours":
        weights = num_frames
    else:
        largest = max(num_utterances.values())  # keeps powers within the range of floats
        weights = {name: (num / largest) ** (1 / mix.temperature) for name, num in num_utterances.items()}
    total = sum(weights.values())
    return {name: weights[name] / total for name in num_utterances}


def apportion(total: int, fractions: Mapping[str, float]) -> dict[str, int]:
    """Divide `total` by `fractions`, rounding up the largest remainders."""
    quotas = {name: total * fraction for name, fraction in fractions.items()}
    numbers = {name: int(quota) for name, quota in quotas.items()}
    by_remainder = sorted(quotas, key=lambda name: numbers[name] - quotas[name])
    for name in by_remainder[: total - sum(numbers.values())]:
        numbers[name] += 1
    return numbers


class Walk:
    """Endless walk over a corpus: shards and utterances shuffled in each pass."""

    def __init__(self, rows: np.ndarray, first: np.ndarray, key: tuple[int, int]) -> None:
        """Take utterances `rows`, first rows of shards, and the seed with a number."""
        self._shards = [shard for shard in np.split(rows, np.searchsorted(rows, first[1:])) if len(shard)]
        self._size = len(rows)
        self._key = key
        self._pass = functools.lru_cache(1)(self._draw)

    def take(self, begin: int, end: int) -> np.ndarray:
        """Return the walk from position `begin` to `end`."""
        parts = [np.empty(0, np.uint32)]
        while begin < end:
            number, offset = divmod(begin, self._size)
            parts.append(self._pass(number)[offset : offset + end - begin])
            begin += len(parts[-1])
        return np.concatenate(parts)

    def _draw(self, number: int) -> np.ndarray:
        seed, corpus = self._key
        random = np.random.default_rng((seed, number, corpus, RNG_STREAM))
        order = random.permutation(len(self._shards))
        return np.concatenate([shard[random.permutation(len(shard))] for shard in (self._shards[i] for i in order)])


class Mixture:
    """Utterances of each epoch, as many as in all corpora, apportioned by the mix."""

    def __init__(
        self, mix: Mix, names: Sequence[str], corpora: np.ndarray, num_frames: np.ndarray, first: np.ndarray, seed: int
    ) -> None:
        """Take the corpus of each utterance (a position in `names`), and shard starts.

        Raises ValueError as fractions_of.
        """
        walked = [np.flatnonzero(corpora == i).astype(np.uint32) for i in range(len(names))]
        num_utterances = {name: len(rows) for name, rows in zip(names, walked, strict=True)}
        frames = {name: int(num_frames[rows].sum()) for name, rows in zip(names, walked, strict=True)}
        numbers = apportion(len(corpora), fractions_of(mix, num_utterances, frames))
        self._numbers = [numbers[name] for name in names]
        self._walks = [Walk(rows, first, (seed, i)) for i, rows in enumerate(walked)]

    def windows(self, epoch: int, num_windows: int) -> Iterator[np.ndarray]:
        """Yield the utterances of `epoch` in windows with like shares of each corpus."""
        for window in range(num_windows):
            parts = []
            for walk, num in zip(self._walks, self._numbers, strict=True):
                begin, end = (epoch * num + num * border // num_windows for border in (window, window + 1))
                parts.append(walk.take(begin, end))
            yield np.concatenate(parts)
