"""The decoding graph HLG: from frames of a CTC model to words, weighted by the n-gram.

    LG  = min(det(L o G))     lexicon and grammar, with disambiguation symbols
    HLG = H o LG              those symbols turned to epsilon first; H is the CTC topology

Input label i + 1 is token i (so the blank is 1), 0 is epsilon; output labels number ``words.txt``. Weights are negative
natural logarithms. Writes ``HLG.fst`` (OpenFst), ``words.txt`` and ``tokens.txt``.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import kaldifst

from asrtool.errors import AsrtoolError
from asrtool.files import write_folder
from asrtool.lang.arpa import read_arpa
from asrtool.lang.fst import make_ctc_fst, make_grammar_fst, make_lexicon_fst, make_relabel_fst
from asrtool.lang.lexicon import Pronunciation, read_lexicon
from asrtool.lang.ngram import Ngrams
from asrtool.lang.symbols import BACKOFF, BOS, EOS, EPSILON, read_symbols
from asrtool.lang.tokenizer import BLANK

DELTA = 1e-5  # weights closer than this are the same; the usual 1/1024 changes scores and saves 0.2 % of the states


def build_graph(lang: Path, arpa: Path, out: Path) -> None:
    """Compose the lexicon in the folder `lang` with the n-gram `arpa` into the folder `out`.

    The graph accepts words of the lexicon only. Raises AsrtoolError for a file that is missing or malformed, and for
    files that do not belong together.
    """
    words = _read_symbols(lang / "words.txt", (EPSILON, BACKOFF))
    tokens = _read_symbols(lang / "tokens.txt", (EPSILON, BLANK, BACKOFF))
    lexicon = read_lexicon(lang / "lexicon.txt", list(words), list(tokens))
    model = read_arpa(arpa)
    for symbol in (BOS, EOS):
        if symbol not in model.words:
            raise AsrtoolError(f"{arpa}: no {symbol} among the unigrams", "estimate it on sentences with `asrtool lm`")
    hlg = compose_hlg(lexicon, model, tokens, words)
    if hlg.num_states == 0:
        raise AsrtoolError(
            f"{arpa}: predicts no word of {lang / 'lexicon.txt'}", "run `asrtool lm` with this words.txt"
        )
    with write_folder(out, "HLG.fst") as temporary:
        for name in ("words.txt", "tokens.txt"):
            shutil.copyfile(lang / name, temporary / name)
        if not kaldifst.StdConstFst(hlg).write(str(temporary / "HLG.fst")):
            raise AsrtoolError(f"{out / 'HLG.fst'}: cannot be written", "free some space, then run the command again")


def load_graph(directory: Path | str) -> kaldifst.StdConstFst:
    """Read ``HLG.fst`` in `directory`; AsrtoolError when it is missing or broken."""
    path = Path(directory) / "HLG.fst"
    if not path.is_file():
        raise AsrtoolError(f"{path}: no decoding graph", "run `asrtool graph` first")
    graph = kaldifst.StdConstFst.read(str(path))
    if graph is None:
        raise AsrtoolError(f"{path}: not a complete graph", "run `asrtool graph` again")
    return graph


def compose_hlg(
    lexicon: Sequence[Pronunciation], model: Ngrams, tokens: Mapping[str, int], words: Mapping[str, int]
) -> kaldifst.StdVectorFst:
    """HLG, arcs sorted by input label; `tokens` and `words` are symbol tables."""
    lg = _compose(make_lexicon_fst(lexicon, tokens, words), make_grammar_fst(model, words))
    _log("LoG", lg)
    kaldifst.determinize_star(lg, delta=DELTA, use_log=True)
    kaldifst.minimize_encoded(lg, delta=DELTA)
    _log("LG", lg)
    spoken = sorted({tokens[token] for _, spelling in lexicon for token in spelling})
    disambig = [label for token, label in tokens.items() if token.startswith("#") and label not in spoken]
    lg = _compose(make_relabel_fst(spoken, disambig), lg)
    hlg = _compose(make_ctc_fst(tokens[BLANK], spoken), lg)
    kaldifst.arcsort(hlg, "ilabel")
    _log("HLG", hlg)
    return hlg


def _compose(left: kaldifst.StdVectorFst, right: kaldifst.StdVectorFst) -> kaldifst.StdVectorFst:
    kaldifst.arcsort(left, "olabel")
    kaldifst.arcsort(right, "ilabel")
    return kaldifst.compose(left, right)


def _read_symbols(path: Path, needed: Sequence[str]) -> dict[str, int]:
    symbols = {symbol: label for label, symbol in enumerate(read_symbols(path, "lang"))}
    for symbol in needed:
        if symbol not in symbols:
            raise AsrtoolError(f"{path}: no symbol {symbol}", "run `asrtool lang` again")
    return symbols


def _log(name: str, fst: kaldifst.StdVectorFst) -> None:
    num_arcs = sum(fst.num_arcs(state) for state in range(fst.num_states))
    logging.info("%s: %d states, %d arcs", name, fst.num_states, num_arcs)
