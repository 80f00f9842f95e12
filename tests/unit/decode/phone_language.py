"""The folders of a language over phones, made of a few sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from asrtool.lang.lexicon import build_lang
from asrtool.lang.ngram.arpa import write_arpa
from asrtool.lang.ngram.kneser_ney import estimate
from asrtool.lang.phones import write_phones
from asrtool.lang.text import read_symbols


def write_phone_language(work: Path, sentences: Sequence[str]) -> None:
    """Write `work`/tokenizer, lang and lm/G.arpa, a trigram of `sentences`."""
    text = work / "sentences.txt"
    text.write_text("\n".join(sentences) + "\n")
    write_phones(text, work / "tokenizer")
    build_lang(text, work / "tokenizer", work / "lang", max_words=0)
    words = read_symbols(work / "lang" / "words.txt", "lang")
    write_arpa(work / "lm" / "G.arpa", estimate([text], words, order=3, min_counts=(1,)))
