"""Normalise custom text by data.text_rules, and further text for language models.

docs/how-to/languages.md describes the rules. Words hold nothing that a reference (stm) or a hypothesis (ctm) would take
for mark-up.
"""

from __future__ import annotations

import functools
import logging
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.text import BACKOFF, extra_files, number_sentences
from asrtool.local.corpus import extra_corpora
from asrtool.local.text.text_rules import (
    OTHER_LETTERS,
    TAGS,
    TYPOGRAPHIC,
    Unusable,
    normalise_plain,
    read_mark,
    refuse_broken,
)
from asrtool.settings.data import Data
from asrtool.settings.lang import NOT_IN_WORDS

Rule = Callable[[str], str]

JOINERS = "\u200c\u200d"  # they join letters of Persian and Indian scripts
ZERO_WIDTH_SPACE = "\u200b"  # between words of Khmer or Thai


def text_rule(data: Data) -> Rule:
    """Return the rule; it raises Unusable, with the reason, for unusable text."""
    if data.text_rules == "english":
        return normalise_plain
    if data.text_rules == "none":
        return take_as_it_stands
    split = data.text_rules == "characters"
    return functools.partial(normalise_unicode, marks="" if split else data.word_marks, split=split)


def normalise_unicode(text: str, marks: str = "'", split: bool = False) -> str:
    """Return `text` in folded case and NFC, with only `marks` inside words.

    `split` makes each character a word, with its combining marks. Raises Unusable for an unknown mark in brackets,
    and for bytes that are not UTF-8.
    """
    refuse_broken(text)
    words: list[str] = []
    for word in text.split():
        mark = read_mark(word.lower())
        words += _words(fold(word), marks) if mark is None else mark
    if split:
        words = [piece for word in words for piece in ([word] if word in TAGS else split_characters(word))]
    return " ".join(words)


def fold(text: str) -> str:
    """Return `text` in folded case and NFC."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def split_characters(word: str) -> Iterator[str]:
    """Yield each character of `word` with its combining marks."""
    begin = 0
    for place in range(1, len(word)):
        combines = unicodedata.category(word[place])[0] == "M" or not set(JOINERS).isdisjoint(
            word[place - 1 : place + 1]
        )
        if not combines:
            yield word[begin:place]
            begin = place
    yield word[begin:]


def take_as_it_stands(text: str) -> str:
    """Return `text` with single spaces; Unusable for words that scorers misread."""
    refuse_broken(text)
    words = text.split()
    for word in words:
        if word == BACKOFF or (word not in TAGS and set(word) & set(NOT_IN_WORDS)):
            raise Unusable("unknown mark-up", word)
        if any(unicodedata.category(character) == "Cc" for character in word):
            raise Unusable(OTHER_LETTERS, repr(word))
    return " ".join(words)


def _words(text: str, marks: str) -> list[str]:
    """Return the words in folded case; `marks` stay between letters or digits."""
    formats = (*JOINERS, ZERO_WIDTH_SPACE)  # other ones, such as soft hyphens, are left out
    visible = [c for c in text.translate(TYPOGRAPHIC) if c in formats or unicodedata.category(c) != "Cf"]
    parts = [unicodedata.category(c)[0] in "LMN" for c in visible]  # letters, combining marks and digits
    inner = [False, *(before and after for before, after in zip(parts, parts[2:], strict=False)), False]
    kept = []
    for character, is_part, is_inner in zip(visible, parts, inner, strict=False):
        if is_part or (is_inner and (character in marks or character in JOINERS)):
            kept.append(character)
        elif character not in JOINERS:
            kept.append(" ")
    return "".join(kept).split()


def write_extra_texts(corpus: Path, out: Path, names: Sequence[str], rule: Rule = normalise_plain) -> None:
    """Write the normalised sentences of each of `names`, a corpus or a file.

    `rule` is for files. Lines that cannot be normalised are left out and counted in the log. Raises AsrtoolError for
    an unreadable file, a corpus whose transcripts cannot be read alone, and if nothing is left of one.
    """
    corpora = {item.name: item for item in extra_corpora(names)}
    with write_folder(out, "*.txt") as temporary:
        for name, file in zip(names, extra_files(temporary, names), strict=True):
            if name in corpora:
                lines, rule_of_corpus = corpora[name].texts(corpus)
                _write(name, file, enumerate(lines, 1), rule_of_corpus)
            else:
                numbered = ((number, " ".join(words)) for number, words in number_sentences(Path(name)))
                _write(name, file, numbered, rule)


def _write(name: str, file: Path, lines: Iterable[tuple[int, str]], rule: Rule) -> None:
    num, num_left_out, first = 0, 0, ""
    with file.open("w", encoding="utf-8") as out:
        for number, line in lines:
            try:
                text = rule(line)
            except Unusable as error:
                num_left_out += 1
                first = first or f", the first is line {number}: {error}"
                continue
            if text:
                num += 1
                out.write(f"{text}\n")
    if not num:
        raise AsrtoolError(f"lm.extra_text: {name} has no line of words{first}", "name another text, or leave it out")
    logging.info("%s: %d sentences, %d left out that cannot be normalised%s", name, num, num_left_out, first)
