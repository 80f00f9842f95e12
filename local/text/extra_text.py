"""Extra text for language models: transcripts of a corpus, or files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.text import extra_files, read_sentences
from asrtool.local.corpus import extra_corpora
from asrtool.local.text.own_text import Rule
from asrtool.local.text.text_rules import Unusable, normalise_plain


def write_extra_texts(corpus: Path, out: Path, names: Sequence[str], rule: Rule = normalise_plain) -> None:
    """Write the normalised sentences of each of `names`, a corpus or a file.

    `rule` is for files. Lines that cannot be normalised are left out and counted in the log. Raises AsrtoolError for
    an unreadable file, a corpus whose transcripts cannot be read alone, and if nothing is left of one.
    """
    corpora = {item.name: item for item in extra_corpora(names)}
    with write_folder(out, "*.txt") as temporary:
        for name, file in zip(names, extra_files(temporary, names), strict=True):
            if name in corpora:
                _write(name, file, *corpora[name].texts(corpus))
            else:
                _write(name, file, (" ".join(words) for words in read_sentences(Path(name))), rule)


def _write(name: str, file: Path, lines: Iterable[str], rule: Callable[[str], str]) -> None:
    num, num_left_out = 0, 0
    with file.open("w", encoding="utf-8") as out:
        for line in lines:
            try:
                text = rule(line)
            except Unusable:
                num_left_out += 1
                continue
            if text:
                num += 1
                out.write(f"{text}\n")
    if not num:
        raise AsrtoolError(f"lm.extra_text: {name} has no line of words", "name another text, or leave it out")
    logging.info("%s: %d sentences, %d left out that cannot be normalised", name, num, num_left_out)
