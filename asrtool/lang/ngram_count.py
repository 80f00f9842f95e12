"""Counting n-grams of all orders up to one, as nodes numbered like those of `Ngrams`."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.lang.ngram import Ints
from asrtool.lang.symbols import BACKOFF, BOS, EOS, EPSILON, UNK
from asrtool.lang.text import read_sentences

UNK_ID, BOS_ID, EOS_ID = 0, 1, 2


@dataclass(frozen=True)
class Counts:
    """The n-grams of one order, sorted by `parent` and `word`; one value each.

    `first` is the node of the first one. `suffix` is the node without the first word; `from_bos` says whether the first
    word is ``<s>``.
    """

    first: int
    parent: Ints
    word: Ints
    suffix: Ints
    count: Ints
    from_bos: np.ndarray


def read_text(files: Iterable[Path], words: Sequence[str] | None) -> tuple[Ints, list[str]]:
    """All sentences as one array of word ids, each as ``<s> ... </s>``, and the vocabulary that the ids number.

    Words outside `words` become ``<unk>``; without `words` the vocabulary is that of the text. Raises AsrtoolError for
    a file that cannot be read and for ``<s>`` or ``</s>`` in the text.
    """
    ids = {UNK: UNK_ID, BOS: BOS_ID, EOS: EOS_ID}
    for word in words or ():
        if word not in (EPSILON, BACKOFF):
            ids.setdefault(word, len(ids))
    text = array("i")
    for file in files:
        for sentence in read_sentences(file):
            if BOS in sentence or EOS in sentence:
                raise AsrtoolError(f"{file}: holds {BOS} or {EOS} as a word", "remove it, every line is a sentence")
            text.append(BOS_ID)
            if words is None:
                text.extend([ids.setdefault(word, len(ids)) for word in sentence])
            else:
                text.extend([ids.get(word, UNK_ID) for word in sentence])
            text.append(EOS_ID)
    return np.frombuffer(text, np.int32).astype(np.int64), list(ids)


def count_ngrams(text: Ints, num_words: int, order: int) -> list[Counts]:
    """Counts of the n-grams of length 1 to `order` in `text`, as `read_text` returns it.

    Every word of the vocabulary is a unigram, seen or not. An order that no sentence is long enough for has none.
    """
    word = np.arange(num_words)
    zeros = np.zeros(num_words, np.int64)
    counts = [Counts(1, zeros, word, zeros, np.bincount(text, minlength=num_words), word == BOS_ID)]
    node = text + 1  # at each position of `begin` the node of the n-gram that begins there
    begin = np.arange(len(text))
    for length in range(2, order + 1):
        shorter = counts[-1]
        node_at = np.zeros(len(text), np.int64)
        node_at[begin] = node
        begin = begin[text[begin + length - 2] != EOS_ID]  # the sentence goes on
        keys = node_at[begin] * num_words + text[begin + length - 1]
        keys, where, index, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        parent, word = np.divmod(keys, num_words)
        from_bos = shorter.from_bos[parent - shorter.first]
        first = shorter.first + len(shorter.word)
        counts.append(Counts(first, parent, word, node_at[begin[where] + 1], count, from_bos))
        node = first + index
    return counts
