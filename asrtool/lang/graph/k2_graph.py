"""Build HLG by k2, in the steps of icefall's recipes, as an OpenFst graph.

k2 has no minimisation, and its searches follow no epsilons, so back-off arcs are removed before H is composed. Tokens
have label id + 1 as in every graph here.
"""

from __future__ import annotations

import logging
from typing import Any

import k2
import kaldifst
import torch

from asrtool.lang.graph.automata import EPSILON_LABEL, Automata

FINAL_LABEL = -1  # of k2's arcs into its one final state


def compose_hlg(automata: Automata) -> kaldifst.StdVectorFst:
    """HLG, arcs sorted by input label."""
    topology, lexicon, grammar = (
        k2.arc_sort(k2.Fsa.from_openfst(text, acceptor=False))
        for text in (automata.topology, automata.lexicon, automata.grammar)
    )
    lg = k2.connect(k2.compose(lexicon, grammar))
    _log("LoG", lg)
    lg = k2.connect(k2.determinize(lg))
    _log("LG", lg)
    lg.labels = torch.where(lg.labels >= min(automata.disambig), EPSILON_LABEL, lg.labels)
    lg = k2.arc_sort(k2.connect(k2.remove_epsilon(lg)))
    _log("LG without epsilons", lg)
    hlg = k2.connect(k2.compose(topology, lg))
    _log("HLG", hlg)
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


def _log(name: str, fsa: Any) -> None:
    logging.info("%s: %d states, %d arcs", name, fsa.shape[0], fsa.num_arcs)
