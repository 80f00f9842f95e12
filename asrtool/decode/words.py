"""Convert tokens to words with times and confidences.

Tokens mark where a word begins, or words are found by lexicon and language model. The cost of a path through the
decoding graph is the cost of its tokens plus the cost of its words. Its words are therefore the most probable ones of
its tokens, and can be found from the tokens alone.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from asrtool.lang.text import EOS
from asrtool.lang.tokenizer import WORD_MARK
from asrtool.models.objectives.topology import Span, Topology
from asrtool.settings.lang import NOT_IN_WORDS


class Word(NamedTuple):
    """A recognised word; times in seconds, `confidence` in [0, 1]."""

    text: str
    begin_s: float
    end_s: float
    confidence: float


_BYTE = re.compile("<0x([0-9A-F]{2})>")  # a token of SentencePiece


def starts_word(piece: str) -> bool:
    """Return whether `piece` is the first one of a word."""
    return piece.startswith(WORD_MARK)


def is_spoken(piece: str) -> bool:
    """Return whether `piece` is speech; tags (``[noise]``) and ``<unk>`` are not."""
    return piece[:1] not in ("[", "<")


def piece_text(piece: str) -> bytes:
    """Return the text of `piece` in UTF-8 without word marks, or a byte token's byte."""
    byte = _BYTE.fullmatch(piece)
    return bytes.fromhex(byte[1]) if byte else piece.replace(WORD_MARK, "").encode()


def read_bytes(data: bytes) -> str:
    """Decode UTF-8 bytes without invalid, invisible or mark-up characters."""
    text = data.decode("utf-8", errors="ignore")
    return "".join(c for c in text if c.isprintable() and not c.isspace() and c not in NOT_IN_WORDS)


class WordPieces:
    """Parser of tokens to words by `pieces`, which mark the starts of words."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._opens = [starts_word(piece) for piece in pieces]
        in_bytes = [bool(_BYTE.fullmatch(piece)) for piece in pieces]
        spoken = zip(pieces, in_bytes, strict=True)
        self._texts = [piece_text(piece) if is_spoken(piece) or is_byte else b"" for piece, is_byte in spoken]
        self._read = read_bytes if any(in_bytes) else bytes.decode

    def group(
        self, spans: Sequence[Span], word_penalty: float = 0.0, words: Sequence[str] | None = None
    ) -> list[tuple[str, Sequence[Span]]]:
        """Return the words of `spans`, as WordParser.group; the tokens alone decide."""
        groups: list[tuple[bytes, list[Span]]] = [(b"", [])]
        for span in spans:
            token = span[0]
            if self._opens[token]:
                groups.append((self._texts[token], [span]))
            elif self._texts[token]:
                text, group = groups[-1]
                group.append(span)
                groups[-1] = text + self._texts[token], group
        return [(word, group) for text, group in groups if (word := self._read(text))]


Tokens = tuple[int, ...]
Chain = Any  # None or a tuple: the chain before, a word and the number of its tokens
UNREACHED = (-math.inf, None)


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
    """Parser of tokens to words of `lexicon`, pairs of a word and its token ids.

    `lm` has start() and step(state, word), as NgramLm.
    """

    def __init__(self, lexicon: Iterable[tuple[str, Tokens]], lm: Any) -> None:
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

    def _parse(self, tokens: Sequence[int], lm: Any, word_penalty: float) -> list[tuple[str, int]]:
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
        last = max(position for position, states in enumerate(reached) if states)
        scored = [
            (score + (lm.step(state, EOS)[0] if last == len(tokens) else 0.0), chain)
            for state, (score, chain) in reached[last].items()
        ]
        _, chain = max(scored, key=lambda item: item[0])
        words = []
        while chain is not None:
            chain, word, length = chain
            words.append((word, length))
        return words[::-1]

    def _words_at(self, tokens: Sequence[int], begin: int) -> Iterator[tuple[int, str]]:
        for length in self.lengths:
            if begin + length <= len(tokens):
                for word in self.words.get(tuple(tokens[begin : begin + length]), ()):
                    yield length, word


class WordReader:
    """Reader of words from paths of `topology`, whose rows are `frame_s` apart."""

    def __init__(self, topology: Topology, grouping: WordPieces | WordParser, frame_s: float) -> None:
        self.topology = topology
        self.grouping = grouping
        self.frame_s = frame_s

    def read(
        self,
        path: Sequence[int],
        scores_TV: np.ndarray,
        word_penalty: float = 0.0,
        words: Sequence[str] | None = None,
    ) -> tuple[Word, ...]:
        """Return the words of a path, a column a row; they are `words` if given."""
        groups = self.grouping.group(self.topology.spans(path, scores_TV), word_penalty, words)
        return tuple(place_words(groups, self.frame_s, len(scores_TV), self.topology.margin_s))


def to_confidence(group: Sequence[Span]) -> float:
    """Return the lowest posterior of these tokens, each at its peak."""
    return math.exp(min(0.0, *[log_prob for _, _, _, log_prob in group]))


def place_words(
    groups: Sequence[tuple[str, Sequence[Span]]], frame_s: float, num_frames: int, margin_s: float = Topology.margin_s
) -> list[Word]:
    """Return the words of an utterance in order, without overlap, with times.

    `groups` are words and their tokens. A word runs from its first token's start to its last one's end, and up to
    `margin_s` further on either side: to the ends of the utterance (`num_frames` frames of `frame_s`), and to the
    middle of the gap to a neighbour.
    """
    words: list[Word] = []
    low_s, last = 0.0, len(groups) - 1
    for i, (text, group) in enumerate(groups):
        begin, end = group[0][1], group[-1][2]
        high_s = frame_s * (num_frames if i == last else (end + groups[i + 1][1][0][1]) / 2)
        begin_s, end_s = max(low_s, begin * frame_s - margin_s), min(high_s, end * frame_s + margin_s)
        words.append(Word(text, begin_s, end_s, to_confidence(group)))
        low_s = high_s
    return words
