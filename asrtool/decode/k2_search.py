"""Search on the decoding graph HLG with k2, on the CPU: the best path, one token a frame."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import k2
import numpy as np
import torch

from asrtool.lang.graph import load_graph

# OpenFst's ConstFst of StdArc, as kaldifst writes it: header, states, arcs.
HEADER = struct.Struct("<ii5si8siiQqqq")  # ..., flags, properties, start, number of states, number of arcs
STATE = np.dtype([("final", "<f4"), ("begin", "<u4"), ("num_arcs", "<u4"), ("epsilons", "<u4", 2)])
ARC = np.dtype([("input", "<i4"), ("output", "<i4"), ("cost", "<f4"), ("to", "<i4")])
FINAL_LABEL = -1  # of k2's arcs into its one final state
MIN_ACTIVE = 20  # states kept whatever the beam, as many as kaldi-decoder keeps
OUTPUT_BEAM = 1.0  # of the lattice, of which only the best path is wanted


class K2Search:
    """One-best search on the graph in the folder `directory`; `beam` and `max_active` as those of GraphSearch.

    AsrtoolError when the graph is missing or broken.
    """

    def __init__(self, directory: Path, beam: float, max_active: int) -> None:
        self.graph = k2.create_fsa_vec([load_fsa(directory)])
        self.beam = beam
        self.max_active = max_active

    def search(self, log_probs_TV: np.ndarray, lm_weight: float) -> np.ndarray | None:
        """The best path, shape (T,); None when no path that the beam keeps ends in a final state."""
        scaled_TV = torch.from_numpy((log_probs_TV / lm_weight).astype(np.float32))
        segment = torch.tensor([[0, 0, len(log_probs_TV)]], dtype=torch.int32)
        lattice = k2.intersect_dense_pruned(
            self.graph,
            k2.DenseFsaVec(scaled_TV[None], segment),
            search_beam=self.beam,
            output_beam=OUTPUT_BEAM,
            min_active_states=min(MIN_ACTIVE, self.max_active - 1),
            max_active_states=self.max_active,
        )
        if lattice.num_arcs == 0:
            return None
        labels = k2.shortest_path(lattice, use_double_scores=True).labels
        assert len(labels) == len(log_probs_TV) + 1, f"{len(labels)} labels on {len(log_probs_TV)} frames"
        return labels[:-1].numpy().astype(np.int64)


def load_fsa(directory: Path) -> Any:
    """The graph as k2 searches it: labels are tokens, there are no epsilons, arcs are sorted, words are left out."""
    fsa = k2.Fsa(torch.from_numpy(_read_arcs(directory)))
    if (fsa.labels == 0).any():
        fsa = k2.connect(k2.remove_epsilon(fsa))
    fsa.labels = torch.where(fsa.labels > 0, fsa.labels - 1, fsa.labels)
    return k2.arc_sort(fsa)


def _read_arcs(directory: Path) -> np.ndarray:
    """Arcs as rows of k2, int32: from, to, input label, bits of the score; sorted by `from`, of which 0 is first."""
    load_graph(directory)  # a file that is missing or broken is told of there
    data = (directory / "HLG.fst").read_bytes()
    start, num_states, num_arcs = HEADER.unpack_from(data)[-3:]
    states = np.frombuffer(data, STATE, num_states, HEADER.size)
    arcs = np.frombuffer(data, ARC, num_arcs, HEADER.size + states.nbytes)
    finals = np.flatnonzero(np.isfinite(states["final"]))
    renumbered = np.arange(num_states + 1, dtype=np.int32)  # the last is k2's final state
    renumbered[[0, start]] = start, 0
    source = renumbered[np.append(np.repeat(np.arange(num_states), states["num_arcs"]), finals)]
    to = renumbered[np.append(arcs["to"], np.full(len(finals), num_states))]
    label = np.append(arcs["input"], np.full(len(finals), FINAL_LABEL, np.int32))
    score = -np.append(arcs["cost"], states["final"][finals])
    return np.stack([source, to, label, score.view(np.int32)], axis=1)[np.argsort(source, kind="stable")]
