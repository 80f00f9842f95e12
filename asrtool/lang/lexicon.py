"""Words as sequences of tokens, and the symbol tables of the decoding graph.

``lexicon.txt`` has one pronunciation a line: a word and its tokens. A word may have several lines. ``words.txt``
numbers the words; ``tokens.txt`` numbers the tokens one higher than the tokenizer does (0 is epsilon in a graph),
followed by the disambiguation symbols ``#0``, ``#1`` ...
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.text import BACKOFF, BOS, EOS, EPSILON, RESERVED, UNK, read_sentences, read_table, write_symbols
from asrtool.lang.tokenizer import Tokenizer

Pronunciation = tuple[str, tuple[str, ...]]  # word, tokens


def build_lang(sentences: Path, tokenizer: Path, out: Path, max_words: int, further: Sequence[Path] = ()) -> None:
    """Write lexicon and symbol tables of the words in texts to the folder `out`.

    The texts are `sentences` and `further`. Keeps the `max_words` most frequent words, 0 keeps all. A word without a
    tokenization is left out and logged. Raises AsrtoolError if text or tokenizer cannot be read, or no word can be
    tokenized.
    """
    tokens = Tokenizer.load(tokenizer)
    counts = Counter(word for text in (sentences, *further) for words in read_sentences(text) for word in words)
    for symbol in RESERVED:
        if symbol in counts:
            raise AsrtoolError(f"{sentences}: holds {symbol}, which stands for no word", "remove it from the text")
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    tokenizations = {word: _tokenize(word, tokens) for word in sorted(ranked[: max_words or None])}
    untokenized = [word for word, found in tokenizations.items() if not found]
    if untokenized:
        logging.info("%d words left out, no tokens for them: %s", len(untokenized), " ".join(untokenized[:10]))
    lexicon = [(word, tokenization) for word, found in tokenizations.items() for tokenization in found]
    if not lexicon:
        raise AsrtoolError(f"{sentences}: {tokenizer} tokenizes none of its words", "train the tokenizer on this text")
    _write(lexicon, tokens.pieces, tokenizer, out)
    num_words = len(tokenizations) - len(untokenized)
    logging.info("%s: %d words, %d pronunciations, %d tokens", out, num_words, len(lexicon), tokens.num_tokens)


def _tokenize(word: str, tokenizer: Tokenizer) -> list[tuple[str, ...]]:
    """Return the tokenizations of `word`; none if a character has no token."""
    try:
        return tokenizer.tokenizations(word)
    except AsrtoolError:
        return []


def _write(lexicon: Sequence[Pronunciation], pieces: Sequence[str], tokenizer: Path, out: Path) -> None:
    _, highest = disambiguate(lexicon)
    disambig = [f"#{number}" for number in range(highest + 1)]
    if both := sorted(set(pieces) & set(disambig)):
        what = f"{tokenizer}: has the token {both[0]}, which is a disambiguation symbol of graphs"
        raise AsrtoolError(what, "run `asrtool tokenizer` again, which makes none of these")
    with write_folder(out, "lexicon.txt") as temporary:
        lines = (f"{word} {' '.join(tokenization)}\n" for word, tokenization in lexicon)
        (temporary / "lexicon.txt").write_text("".join(lines), encoding="utf-8")
        words = dict.fromkeys(word for word, _ in lexicon)
        write_symbols(temporary / "words.txt", [EPSILON, UNK, *words, BACKOFF, BOS, EOS])
        write_symbols(temporary / "tokens.txt", [EPSILON, *pieces, *disambig])


def read_lexicon(path: Path, words: Sequence[str], tokens: Sequence[str]) -> list[Pronunciation]:
    """Read the pronunciations of ``lexicon.txt``.

    Raises AsrtoolError naming file and line of a word without tokens, of a word not among `words` or a token not
    among `tokens`, and of a repeated pronunciation.
    """
    known_words, known_tokens = set(words), set(tokens)
    lexicon: dict[Pronunciation, int] = {}
    for number, fields in read_table(path, "lang"):
        if len(fields) < 2:
            raise AsrtoolError(f"{path}:{number}: {' '.join(fields)!r}, expected a word and its tokens", "fix the line")
        word, tokenization = fields[0], tuple(fields[1:])
        if word not in known_words:
            raise AsrtoolError(f"{path}:{number}: {word} is not in words.txt", "run `asrtool lang` again")
        unknown = [token for token in tokenization if token not in known_tokens]
        if unknown:
            raise AsrtoolError(f"{path}:{number}: token {unknown[0]} is not in tokens.txt", "run `asrtool lang` again")
        first = lexicon.setdefault((word, tokenization), number)
        if first != number:
            raise AsrtoolError(f"{path}:{number}: the same as line {first}", "remove one of the two")
    if not lexicon:
        raise AsrtoolError(f"{path}: empty, expected a word and its tokens a line", "run `asrtool lang` again")
    return list(lexicon)


def disambiguate(lexicon: Sequence[Pronunciation]) -> tuple[list[Pronunciation], int]:
    """Add ``#1``, ``#2`` ... to tokenizations that are shared or begin another one.

    Also returns the highest number used, or 0. Without these symbols the repeated union could not be determinised
    (Mohri, Pereira, Riley 2002, section 4.2).
    """
    num_words = Counter(tokens for _, tokens in lexicon)
    prefixes = {tokens[:length] for tokens in num_words for length in range(1, len(tokens))}
    num_given: Counter[tuple[str, ...]] = Counter()
    result = []
    for word, tokens in lexicon:
        if num_words[tokens] > 1 or tokens in prefixes:
            num_given[tokens] += 1
            result.append((word, (*tokens, f"#{num_given[tokens]}")))
        else:
            result.append((word, tokens))
    return result, max(num_given.values(), default=0)
