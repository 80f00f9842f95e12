"""Estimate, mix and prune n-gram models from sentences to an ARPA file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from asrtool.errors import AsrtoolError
from asrtool.files import check_file_name, disk_full, make_folder_of
from asrtool.lang.ngram.arpa import write_arpa
from asrtool.lang.ngram.kneser_ney import count_ngrams, estimate, number_words, read_text
from asrtool.lang.ngram.mixture import find_weights, mix, perplexity, word_probs
from asrtool.lang.ngram.trie import Rows, Trie, prune
from asrtool.lang.text import read_symbols
from asrtool.settings.lang import Lm

MIN_WEIGHT = 0.001  # of a text that changes something
LARGE = "large.arpa"  # beside the pruned model, what it was pruned from


def build_lm(
    texts: Sequence[Path], arpa: Path, settings: Lm, words: Path | None = None, held_out: Path | None = None
) -> None:
    """Estimate an n-gram on `texts`, a sentence a line, and write `arpa`.

    A folder among `texts` stands for its ``sentences.CORPUS.txt``. Several texts are mixed with weights that are
    tuned on the text `held_out`; without it, or without ``lm.mix``, they are one text. `words` is a symbol
    table, other words become ``<unk>``; None takes all words of the texts. With ``lm.large`` the model before pruning
    is written as well, to ``large.arpa`` beside `arpa`. Logs the perplexity of `held_out`.

    Raises AsrtoolError if a file cannot be read, a file to write is one that is read or a folder, or the disk is
    full.
    """
    files = _find_texts(texts)
    for out in (arpa, arpa.parent / LARGE) if settings.large else (arpa,):
        _check_place(out, [*files, *filter(None, (words, held_out))])
    mixes = settings.mix and len(files) > 1 and held_out is not None
    corpora = [[file] for file in files] if mixes else [files]
    make_folder_of(arpa)
    ids = number_words(read_symbols(words, "lang") if words else None)
    numbered = [read_text(corpus, ids, grow=words is None) for corpus in corpora]
    held = read_text([held_out], ids) if held_out else None
    vocabulary = list(ids)
    ids.clear()  # frees its memory
    models = []
    try:
        for corpus in corpora:
            logging.info("model of %s", ", ".join(map(str, corpus)))
            counts = count_ngrams(numbered.pop(0), len(vocabulary), settings.order, arpa.parent)
            models.append(estimate(counts, vocabulary, settings.min_counts, arpa.parent))
    except OSError as error:  # of a temporary file
        raise disk_full(arpa, error) from error
    model = _mix(models, files, held) if mixes and held is not None else models[0]
    if settings.large:
        write_arpa(arpa.with_name(LARGE), model)
    if settings.prune:
        model = prune(model, settings.prune)
    if held is not None:
        logging.info("perplexity of %s: %.2f", held_out, perplexity(word_probs(model, held)))
    write_arpa(arpa, model)


def _find_texts(texts: Sequence[Path]) -> list[Path]:
    files = []
    for text in texts:
        found = sorted(text.glob("sentences.*.txt")) if text.is_dir() else [text]
        if not found:
            raise AsrtoolError(f"{text}: holds no sentences.CORPUS.txt", "name files, or run `asrtool prepare split`")
        files += found
    return files


def _check_place(out: Path, read: Sequence[Path]) -> None:
    check_file_name(out)
    for path in read:
        if path.resolve() == out.resolve():
            raise AsrtoolError(f"{out}: is read as {path} and would be overwritten", "choose another file for --arpa")


def _mix(models: Sequence[Trie], files: Sequence[Path], held: Rows) -> Trie:
    """Mix the models of `files` with weights tuned on the held-out text."""
    probs = [word_probs(model, held) for model in models]
    weights = find_weights(probs)
    for file, weight, prob in zip(files, weights, probs, strict=True):
        logging.info("%s: weight %.4f, perplexity of its own model %.2f", file, weight, perplexity(prob))
        if weight < MIN_WEIGHT:
            logging.warning(
                "%s: hardly counts, as the held-out text is unlike it; --set lm.mix=false takes all texts as one", file
            )
    return mix(models, weights)
