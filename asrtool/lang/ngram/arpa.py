"""Read and write ARPA files: log10 probabilities and back-off weights."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from asrtool.errors import AsrtoolError
from asrtool.files import write_beside
from asrtool.lang.ngram.model import Floats, Ints, Ngrams, empty_ngrams
from asrtool.lang.ngram.trie import Trie, release

CHUNK = 20_000  # n-grams formatted at a time
PAD = b"\xff"  # is not in UTF-8, and neither is 0xfe
MAX_WORD_BYTES = 40  # bytes of a word
LOG10_ZERO = -99.0  # log10 probability of <s> in ARPA files, never predicted
MAX_BACKOFF = 1000.0  # kaldifst never ends on back-off arcs whose weight is infinite as float32
_COUNT = re.compile(r"ngram +(\d+) *= *(\d+)")

HINT = "correct it, or run `asrtool lm` again"


def write_arpa(path: Path, model: Trie) -> None:
    """Write `model` with six decimals; a back-off weight of one is left out.

    Raises AsrtoolError if the disk is full.
    """
    with write_beside(path) as temporary, temporary.open("wb") as out:
        counts = (f"ngram {order}={len(level.word)}\n" for order, level in enumerate(model.levels, 1))
        out.write(f"\n\\data\\\n{''.join(counts)}".encode())
        writer = _Writer(model)
        for order, level in enumerate(model.levels, 1):
            out.write(f"\n\\{order}-grams:\n".encode())
            for start in range(0, len(level.word), CHUNK):
                out.write(writer.lines(order, slice(start, start + CHUNK)))
                for lower in model.levels[:order]:
                    release(lower.parent, lower.word, lower.prob, lower.backoff)
        out.write(b"\n\\end\\\n")


class _Writer:
    """Writer of n-grams as columns of bytes of equal width, without PAD."""

    def __init__(self, model: Trie) -> None:
        self._levels = model.levels
        words = [word.encode() for word in model.words]
        # Long ones would widen the columns of all: their numbers stand in their place first.
        self._long = {number: word for number, word in enumerate(words) if len(word) > MAX_WORD_BYTES}
        self._words = _padded(b"\xfe%d\xfe" % i if i in self._long else word for i, word in enumerate(words))
        self._whole = _padded(b"%s%d." % (sign, number) for sign in (b"", b"-") for number in range(1000))
        self._digits = _padded(b"%03d" % number for number in range(1000))

    def lines(self, order: int, rows: slice) -> bytes:
        """Format the n-grams `rows` of `order`."""
        level = self._levels[order - 1]
        prob, at = level.prob[rows], level.parent[rows]
        log10_weights = np.log10(level.backoff[rows])
        words = [self._words[level.word[rows]]]
        for lower in reversed(self._levels[: order - 1]):
            words[:0] = self._words[lower.word[at]], np.full(len(at), b" ")
            at = lower.parent[at]
        weights = [np.full(len(at), b"\t"), *self._decimals(log10_weights)]
        for column in weights:
            column[log10_weights == 0] = PAD * column.itemsize
        log10_probs = np.log10(prob, where=prob > 0, out=np.full(len(prob), LOG10_ZERO))
        tabs, ends = np.full(len(at), b"\t"), np.full(len(at), b"\n")
        columns = [*self._decimals(log10_probs), tabs, *words, *weights, ends]
        lines = np.rec.fromarrays(columns).tobytes().translate(None, PAD)
        return re.sub(rb"\xfe(\d+)\xfe", lambda found: self._long[int(found[1])], lines) if self._long else lines

    def _decimals(self, values: Floats) -> list[NDArray[np.bytes_]]:
        """Return `values` with six decimals as columns."""
        thousands, last = np.divmod(np.rint(np.abs(values) * 1e6).astype(np.int64), 1000)
        whole, first = np.divmod(thousands, 1000)
        return [self._whole[whole + 1000 * np.signbit(values)], self._digits[first], self._digits[last]]


def _padded(texts: Iterable[bytes]) -> NDArray[np.bytes_]:
    found = [*texts]
    width = max(map(len, found))
    return np.fromiter((text.ljust(width, PAD) for text in found), f"S{width}", len(found))


def read_arpa(path: Path) -> Ngrams:
    """Read an ARPA file of any order.

    Raises AsrtoolError naming file, line and what was expected for anything malformed: counts that do not hold, a
    probability above one, an infinite back-off weight, a word not among the unigrams, an n-gram whose history is
    missing or that is there twice.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            return _Parser(path, lines).parse()
    except UnicodeDecodeError as error:
        raise AsrtoolError(f"{path}: not UTF-8 text, {error.reason}", HINT) from error
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", "run `asrtool lm` first") from error


class _Parser:
    """Parser of one ARPA file; `number` is the current line."""

    def __init__(self, path: Path, lines: TextIO) -> None:
        self.path = path
        self.lines = lines
        self.number = 0
        self.line = ""
        self.ids: dict[str, int] = {}

    def parse(self) -> Ngrams:
        while self.line != "\\data\\":
            self._next("\\data\\")
        counts = self._parse_counts()
        model = empty_ngrams([])
        for order, count in enumerate(counts, 1):
            self._expect(f"\\{order}-grams:")
            model = self._parse_ngrams(model, order, count)
            self._next(f"\\{order + 1}-grams:" if order < len(counts) else "\\end\\")
        self._expect("\\end\\")
        return model

    def _parse_counts(self) -> list[int]:
        counts: list[int] = []
        expected = "ngram 1=COUNT"
        self._next(expected)
        while match := _COUNT.fullmatch(self.line):
            if int(match[1]) != len(counts) + 1:
                raise self._error(expected)
            counts.append(int(match[2]))
            expected = f"ngram {len(counts) + 1}=COUNT or \\1-grams:"
            self._next(expected)
        if not counts:
            raise self._error(expected)
        return counts

    def _parse_ngrams(self, model: Ngrams, order: int, count: int) -> Ngrams:
        first = self.number + 1
        probs, backoffs, ids = array("d"), array("d"), array("q")
        for i in range(count):
            self._read()
            fields = self.line.split()
            if not order + 1 <= len(fields) <= order + 2:
                raise self._error(f"{order}-gram {i + 1} of {count}: log10 probability, {order} words, back-off weight")
            probs.append(self._log10_prob(fields[0]))
            backoffs.append(self._log10_weight(fields[-1]) if len(fields) == order + 2 else 0.0)
            ids.extend(self._word_ids(fields[1 : order + 1], order))
        if order == 1:
            model = empty_ngrams(list(self.ids))
        words = np.frombuffer(ids, np.int64).reshape(count, order)
        parent = self._find_histories(model, words, first)
        return model.extended(parent, words[:, -1], np.frombuffer(probs), np.frombuffer(backoffs))

    def _word_ids(self, words: list[str], order: int) -> list[int]:
        if order == 1:
            if words[0] in self.ids:
                raise self._error(f"each unigram once, found {words[0]} twice")
            self.ids[words[0]] = len(self.ids)
        try:
            return [self.ids[word] for word in words]
        except KeyError as error:
            raise self._error(f"words among the unigrams, {error.args[0]} is not") from None

    def _find_histories(self, model: Ngrams, words: Ints, first: int) -> Ints:
        """Return the history node of each n-gram; they begin at line `first`."""
        parent = np.zeros(len(words), np.int64)
        for column in range(words.shape[1] - 1):
            parent = model.find(parent, words[:, column])
            if not parent.all():
                self.number = first + int(np.argmin(parent))
                raise self._error("its first words among the shorter n-grams", "")
        by_key = np.lexsort((words[:, -1], parent))
        same = (np.diff(parent[by_key]) == 0) & (np.diff(words[by_key, -1]) == 0)
        if same.any():
            self.number = first + int(by_key[1:][same].min())
            raise self._error("each n-gram once, found this one twice", "")
        return parent

    def _log10_prob(self, text: str) -> float:
        value = _to_float(text)
        if not value <= 0:
            raise self._error("a log10 probability, 0 or less")
        return value

    def _log10_weight(self, text: str) -> float:
        value = _to_float(text)
        if not abs(value) <= MAX_BACKOFF:
            raise self._error(f"a number from {-MAX_BACKOFF:g} to {MAX_BACKOFF:g} as back-off weight")
        return value

    def _read(self) -> None:
        self.line = self.lines.readline()
        self.number += 1

    def _next(self, expected: str) -> None:
        """Go to the next line that is not blank."""
        self._read()
        while self.line.isspace():
            self._read()
        if not self.line:
            raise AsrtoolError(f"{self.path}:{self.number}: the file ends, expected {expected}", HINT)
        self.line = self.line.strip()

    def _expect(self, expected: str) -> None:
        if self.line != expected:
            raise self._error(expected)

    def _error(self, expected: str, found: str | None = None) -> AsrtoolError:
        found = f" {self.line.strip()!r}," if found is None else found
        return AsrtoolError(f"{self.path}:{self.number}:{found} expected {expected}", HINT)


def _to_float(text: str) -> float:
    """Parse a number; NaN for other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan
