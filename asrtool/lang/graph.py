"""Build the decoding graph HLG: from scores to words, weighted by the n-gram.

    LG  = det(L o G)     lexicon and grammar, with disambiguation symbols; kaldifst minimises it as well
    HLG = H o LG         those symbols become epsilon first; H comes from the objective's topology

Input label i + 1 reads column i of the scores, 0 is epsilon; output labels number ``words.txt``. Weights are negative
natural logarithms. Writes ``HLG.fst`` (OpenFst), ``words.txt`` and ``tokens.txt``.

H, L and G are made as text that OpenFst, kaldifst and k2 read. A line is an arc, ``from to input output cost``, or a
final state, ``state cost``; the cost is 0 if left out. State 0 is the start, and the first line begins with it.
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kaldifst
import numpy as np

from asrtool.errors import AsrtoolError, require_k2
from asrtool.files import write_folder
from asrtool.lang.lexicon import Pronunciation, disambiguate, read_lexicon
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.model import Ngrams
from asrtool.lang.text import BACKOFF, BOS, EOS, EPSILON, read_symbols
from asrtool.lang.tokenizer import NO_TOKEN

EPSILON_LABEL = 0
FINAL_LABEL = -1  # label of k2's arcs into its one final state
CHUNK_LINES = 2**16
DELTA = 1e-5  # weights closer than this are equal; the default 1/1024 changes scores and saves 0.2 % of the states
Transducer = Callable[[Sequence[int]], str]  # ids of the tokens of a word -> H, as text


def build_graph(
    lang: Path, arpa: Path, out: Path, transducer: Transducer, backend: str = "kaldifst", kept: Sequence[Path] = ()
) -> None:
    """Compose the lexicon in `lang` with the n-gram `arpa` into the folder `out`.

    `transducer` makes H from the files `kept`, which are copied. The graph accepts words of the lexicon only.
    `backend` is kaldifst or k2. Raises AsrtoolError for a missing or malformed file, for files that do not fit
    together, and if k2 is needed and missing.
    """
    if backend == "k2":
        require_k2("graph.backend = k2")
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
    del model  # hundreds of MB for millions of n-grams
    hlg = _compose_by_k2(automata) if backend == "k2" else _compose_by_kaldifst(automata)
    if hlg.num_states == 0:
        raise AsrtoolError(f"{arpa}: gives no sentence a probability", "estimate it on sentences with `asrtool lm`")
    with write_folder(out, "HLG.fst") as temporary:
        for path in (lang / "words.txt", lang / "tokens.txt", *kept):
            shutil.copyfile(path, temporary / path.name)
        if not kaldifst.StdConstFst(hlg).write(str(temporary / "HLG.fst")):
            raise AsrtoolError(f"{out / 'HLG.fst'}: cannot be written", "free some space, then run the command again")


def _read_symbols(path: Path, needed: Sequence[str]) -> dict[str, int]:
    symbols = {symbol: label for label, symbol in enumerate(read_symbols(path, "lang"))}
    for symbol in needed:
        if symbol not in symbols:
            raise AsrtoolError(f"{path}: no symbol {symbol}", "run `asrtool lang` again")
    return symbols


@dataclass(frozen=True)
class Automata:
    """Parts of a decoding graph: H, L and G, and the input labels of L."""

    topology: str
    lexicon: str
    grammar: str
    tokens: tuple[int, ...]  # tokens of the words
    disambig: tuple[int, ...]  # disambiguation symbols


def make_automata(
    lexicon: Sequence[Pronunciation],
    model: Ngrams,
    tokens: Mapping[str, int],
    words: Mapping[str, int],
    transducer: Transducer,
) -> Automata:
    """Make the automata for `lexicon` and the n-gram `model`.

    `tokens` and `words` are symbol tables. `transducer` makes H, whose output label i + 1 is token i.
    """
    tokens = _with_disambig(tokens, disambiguate(lexicon)[1])
    spoken = sorted({tokens[token] for _, tokenization in lexicon for token in tokenization})
    disambig = [label for token, label in tokens.items() if token.startswith("#") and label not in spoken]
    return Automata(
        transducer([label - 1 for label in spoken]),
        make_lexicon_fst(lexicon, tokens, words),
        make_grammar_fst(model, words),
        tuple(spoken),
        tuple(disambig),
    )


def _with_disambig(tokens: Mapping[str, int], highest: int) -> dict[str, int]:
    """Return `tokens` with ``#1`` to ``#highest``.

    A lexicon that a user extended may need more than its table has. The new labels are not in HLG.
    """
    missing = [symbol for symbol in (f"#{number}" for number in range(1, highest + 1)) if symbol not in tokens]
    first = max(tokens.values()) + 1
    return {**tokens, **{symbol: label for label, symbol in enumerate(missing, first)}}


def make_lexicon_fst(lexicon: Sequence[Pronunciation], tokens: Mapping[str, int], words: Mapping[str, int]) -> str:
    """Make L: tokens to words, any number of them; the back-off symbol passes."""
    pronunciations, _ = disambiguate(lexicon)
    lines = [f"0 0 {tokens[BACKOFF]} {words[BACKOFF]}"]
    num_states = 1
    for word, tokenization in pronunciations:
        source, output = 0, words[word]
        for token in tokenization[:-1]:
            lines.append(f"{source} {num_states} {tokens[token]} {output}")
            source, output = num_states, EPSILON_LABEL
            num_states += 1
        lines.append(f"{source} 0 {tokens[tokenization[-1]]} {output}")
    return "\n".join([*lines, "0\n"])


def make_grammar_fst(model: Ngrams, words: Mapping[str, int]) -> str:
    """Return G: sentences with -ln p; back-off arcs read ``#0``, write nothing.

    A state is a history, an arc an n-gram, and the n-grams of ``</s>`` are final weights. N-grams with words that are
    not in `words` are left out.
    """
    label = np.array([words.get(word, -1) for word in model.words])
    bos, eos = model.words.index(BOS), model.words.index(EOS)
    label[[bos, eos]] = -1
    start = model.history[model.find(np.zeros(1, np.int64), np.array([bos]))][0]
    state = np.arange(len(model.history))  # state of each node that is a history
    state[[0, start]] = start, 0
    cost = -math.log(10) * model.log10_prob
    nodes = np.flatnonzero((label[model.word] >= 0) & np.isfinite(cost))
    nodes = nodes[nodes > 0]
    labels = label[model.word[nodes]]
    arcs = state[model.parent[nodes]], state[model.history[nodes]], labels, labels, cost[nodes]
    nodes = np.flatnonzero(model.history == np.arange(len(model.history)))[1:]
    backoff = np.full(len(nodes), words[BACKOFF])
    weights = -math.log(10) * model.log10_backoff[nodes]
    shorter = state[model.history[model.suffix[nodes]]]
    backoffs = state[nodes], shorter, backoff, np.zeros_like(backoff), weights
    ends = np.flatnonzero(model.word == eos)
    ends = ends[(ends > 0) & np.isfinite(cost[ends])]
    finals = state[model.parent[ends]], cost[ends]
    pieces: list[str] = []
    for is_first in (True, False):  # the first line names the first state
        for columns in (arcs, backoffs, finals):
            pieces += _lines(*(column[(columns[0] == 0) == is_first] for column in columns))
    return "".join(pieces)


def _lines(*columns: np.ndarray) -> Iterator[str]:
    """Format columns of integers and a weight, many lines at once to save memory."""
    pattern = "%d " * (len(columns) - 1) + "%.7g\n"
    for begin in range(0, len(columns[0]), CHUNK_LINES):
        some = (column[begin : begin + CHUNK_LINES].tolist() for column in columns)
        yield "".join([pattern % row for row in zip(*some, strict=True)])


def _compose_by_kaldifst(automata: Automata) -> kaldifst.StdVectorFst:
    """Return HLG, determinised and minimised before and after H.

    Back-off arcs are input epsilons.
    """
    lg = _compose(_compile(automata.lexicon), _compile(automata.grammar))
    _log_fst("LoG", lg)
    kaldifst.determinize_star(lg, delta=DELTA, use_log=True)
    kaldifst.minimize_encoded(lg, delta=DELTA)
    _log_fst("LG", lg)
    kept = [f"0 0 {label} {label}" for label in automata.tokens]
    to_epsilon = [f"0 0 {EPSILON_LABEL} {label}" for label in automata.disambig]
    lg = _compose(_compile("\n".join([*kept, *to_epsilon, "0\n"])), lg)
    hlg = _compose(_compile(automata.topology), lg)  # not deterministic: the disambiguation symbols are gone
    del lg
    _log_fst("HoLG", hlg)
    kaldifst.minimize_encoded(hlg, delta=DELTA)
    kaldifst.arcsort(hlg, "ilabel")
    _log_fst("HLG", hlg)
    return hlg


def _compile(text: str) -> kaldifst.StdVectorFst:
    return kaldifst.compile(text, acceptor=False)


def _compose(left: kaldifst.StdVectorFst, right: kaldifst.StdVectorFst) -> kaldifst.StdVectorFst:
    kaldifst.arcsort(left, "olabel")
    kaldifst.arcsort(right, "ilabel")
    return kaldifst.compose(left, right)


def _log_fst(name: str, fst: kaldifst.StdVectorFst) -> None:
    _log(name, fst.num_states, sum(fst.num_arcs(state) for state in range(fst.num_states)))


def _compose_by_k2(automata: Automata) -> kaldifst.StdVectorFst:
    """Return HLG in the steps of icefall's recipes.

    k2 cannot minimise, and its searches do not follow epsilons, so back-off arcs are removed before composing H.
    """
    import k2
    import torch

    topology, lexicon, grammar = (
        k2.arc_sort(k2.Fsa.from_openfst(text, acceptor=False))
        for text in (automata.topology, automata.lexicon, automata.grammar)
    )
    lg = k2.connect(k2.compose(lexicon, grammar))
    _log("LoG", lg.shape[0], lg.num_arcs)
    lg = k2.connect(k2.determinize(lg))
    _log("LG", lg.shape[0], lg.num_arcs)
    is_disambig = torch.isin(lg.labels, torch.tensor(automata.disambig, dtype=lg.labels.dtype))
    lg.labels = torch.where(is_disambig, EPSILON_LABEL, lg.labels)
    lg = k2.arc_sort(k2.connect(k2.remove_epsilon(lg)))
    _log("LG without epsilons", lg.shape[0], lg.num_arcs)
    hlg = k2.connect(k2.compose(topology, lg))
    _log("HLG", hlg.shape[0], hlg.num_arcs)
    hlg = kaldifst.compile(_to_openfst(k2.expand_ragged_attributes(hlg)), acceptor=False)
    kaldifst.arcsort(hlg, "ilabel")
    return hlg


def _to_openfst(fsa: Any) -> str:
    """Format `fsa` as text with full weights; k2's own text has six digits."""
    costs = [format(-score, ".9g") for score in fsa.scores.tolist()]
    lines = [
        f"{source} {cost}" if label == FINAL_LABEL else f"{source} {to} {label} {word} {cost}"
        for (source, to, label, _), word, cost in zip(
            fsa.arcs.values().tolist(), fsa.aux_labels.tolist(), costs, strict=True
        )
    ]
    return "\n".join(lines) + "\n"


def _log(name: str, num_states: int, num_arcs: int) -> None:
    logging.info("%s: %d states, %d arcs", name, num_states, num_arcs)
