"""Build the decoding graph HLG: from scores to words, weighted by the n-gram.

    LG  = det(L o G)     lexicon and grammar, with disambiguation symbols; kaldifst minimises it as well
    HLG = H o LG         those symbols turned to epsilon first; H comes from the objective's topology

Input label i + 1 reads column i of the scores, 0 is epsilon; output labels number ``words.txt``. Weights are negative
natural logarithms. Writes ``HLG.fst`` (OpenFst), ``words.txt`` and ``tokens.txt``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import kaldifst

from asrtool.errors import AsrtoolError, require_k2
from asrtool.files import write_folder
from asrtool.lang.graph.automata import Automata, Transducer, make_automata
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.text import BACKOFF, BOS, EOS, EPSILON, read_symbols
from asrtool.lang.tokens.lexicon import read_lexicon
from asrtool.lang.tokens.tokenizer import NO_TOKEN


def build_graph(
    lang: Path, arpa: Path, out: Path, transducer: Transducer, backend: str = "kaldifst", kept: Sequence[Path] = ()
) -> None:
    """Compose the lexicon in `lang` with the n-gram `arpa` into the folder `out`.

    `transducer` makes H from the files `kept`, which are copied. The graph accepts words of the lexicon only.
    `backend` is kaldifst or k2. Raises AsrtoolError for a missing or malformed file, for files that do not belong
    together, and if k2 is asked for and missing.
    """
    compose_hlg = _choose_backend(backend)
    words = _read_symbols(lang / "words.txt", (EPSILON, BACKOFF))
    tokens = _read_symbols(lang / "tokens.txt", (EPSILON, NO_TOKEN, BACKOFF))
    lexicon = read_lexicon(lang / "lexicon.txt", list(words), list(tokens))
    model = read_arpa(arpa)
    for symbol in (BOS, EOS):
        if symbol not in model.words:
            raise AsrtoolError(f"{arpa}: no {symbol} among the unigrams", "estimate it on sentences with `asrtool lm`")
    if {word for word, _ in lexicon}.isdisjoint(model.words):
        raise AsrtoolError(
            f"{arpa}: predicts no word of {lang / 'lexicon.txt'}", "run `asrtool lm` with this words.txt"
        )
    automata = make_automata(lexicon, model, tokens, words, transducer)
    del model  # hundreds of MB where there are millions of n-grams
    hlg = compose_hlg(automata)
    if hlg.num_states == 0:
        raise AsrtoolError(f"{arpa}: gives no sentence a probability", "estimate it on sentences with `asrtool lm`")
    with write_folder(out, "HLG.fst") as temporary:
        for path in (lang / "words.txt", lang / "tokens.txt", *kept):
            shutil.copyfile(path, temporary / path.name)
        if not kaldifst.StdConstFst(hlg).write(str(temporary / "HLG.fst")):
            raise AsrtoolError(f"{out / 'HLG.fst'}: cannot be written", "free some space, then run the command again")


def _choose_backend(name: str) -> Callable[[Automata], kaldifst.StdVectorFst]:
    if name == "k2":
        require_k2("graph.backend = k2")
        from asrtool.lang.graph.k2_graph import compose_hlg
    else:
        from asrtool.lang.graph.kaldifst_graph import compose_hlg
    return compose_hlg


def _read_symbols(path: Path, needed: Sequence[str]) -> dict[str, int]:
    symbols = {symbol: label for label, symbol in enumerate(read_symbols(path, "lang"))}
    for symbol in needed:
        if symbol not in symbols:
            raise AsrtoolError(f"{path}: no symbol {symbol}", "run `asrtool lang` again")
    return symbols
