"""Shared by tests of n-grams: texts, a model word by word, and its n-grams."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from asrtool.lang.ngram import kneser_ney
from asrtool.lang.ngram.model import NgramLm, Ngrams, empty_ngrams
from asrtool.lang.ngram.trie import Trie

Ngram = tuple[str, ...]
TEXT = st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=8), min_size=1, max_size=12)
VOCABULARY = ["<eps>", "<unk>", "a", "b", "c", "d", "never", "#0", "<s>", "</s>"]  # e is outside
PREDICTED = ("<unk>", "a", "b", "c", "d", "never", "</s>")


def write_text(path: Path, sentences: list[list[str]]) -> Path:
    path.write_text("".join(" ".join(words) + "\n" for words in sentences))
    return path


def estimate(text: Path, words: Sequence[str] | None, order: int, min_counts: Sequence[int]) -> Trie:
    """The model of the file `text` over the vocabulary `words`, or over all its words."""
    ids = kneser_ney.number_words(words)
    numbered = kneser_ney.read_text([text], ids, grow=words is None)
    return kneser_ney.estimate(kneser_ney.count_ngrams(numbered, len(ids), order), list(ids), min_counts)


def make_sentences(num: int, num_words: int, seed: int) -> list[list[str]]:
    """Sentences whose words depend on the two before, with Zipf-like frequencies."""
    choose = random.Random(seed)
    sentences = []
    for _ in range(num):
        words: list[int] = []
        for _ in range(choose.randint(1, 12)):
            if words and choose.random() < 0.7:
                follow = random.Random(sum(words[-2:]) * 10 + choose.randint(0, 3))
            else:
                follow = choose
            words.append(min(int(follow.paretovariate(0.7)), num_words) - 1)
        sentences.append([f"w{word}" for word in words])
    return sentences


def in_memory(model: Trie) -> Ngrams:
    """The model with all its digits, as it would be read from a file."""
    loaded = empty_ngrams(model.words)
    for level in model.levels:
        parent, prob = level.parent.astype(np.int64) + loaded.starts[-2], np.log10(np.maximum(level.prob, 1e-99))
        loaded = loaded.extended(parent, level.word.astype(np.int64), prob, np.log10(level.backoff))
    return loaded


def log10_prob(lm: NgramLm, word: str, history: Ngram) -> float:
    state = 0
    for earlier in history:
        state = lm.start() if earlier == "<s>" else lm.step(state, earlier)[1]
    return lm.step(state, word)[0] / math.log(10)


def prob(lm: NgramLm, word: str, history: Ngram) -> float:
    return 10 ** log10_prob(lm, word, history)


def histories(sentences: list[list[str]], order: int) -> set[Ngram]:
    """All that occur, and some that do not."""
    found: set[Ngram] = {(), ("a", "e"), ("e", "e", "a")}
    for words in sentences:
        padded = ("<s>", *words)
        found |= {padded[max(0, i - order + 1) : i] for i in range(1, len(padded) + 1)}
    return found


def ngrams(model: Ngrams) -> set[Ngram]:
    found: list[Ngram] = [()]  # by node; a history comes before what continues it
    for parent, word in zip(model.parent[1:].tolist(), model.word[1:].tolist(), strict=True):
        found.append((*found[parent], model.words[word]))
    return set(found[1:])


def same_bits(one: Trie, other: Trie) -> bool:
    """Return whether two models are equal to the last bit."""
    return (
        one.words == other.words
        and len(one.levels) == len(other.levels)
        and all(
            np.array_equal(getattr(a, name), getattr(b, name))
            for a, b in zip(one.levels, other.levels, strict=True)
            for name in ("parent", "word", "prob", "backoff")
        )
    )
