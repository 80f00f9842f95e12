"""Search on the decoding graph HLG with k2, on the CPU: the best path, one column of the scores a row."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import k2
import numpy as np
import torch

from asrtool.lang.graph_file import read_graph

FINAL_LABEL = -1  # of k2's arcs into its one final state
MIN_ACTIVE = 20  # states kept whatever the beam, as many as kaldi-decoder keeps
OUTPUT_BEAM = 1.0  # of the lattice, of which only the best path is wanted


class K2Search:
    """One-best search on the graph in the folder `directory`, whose words cost `word_penalty` more.

    `max_active` and the arguments of `search` are those of GraphSearch.
    AsrtoolError when the graph is missing or broken.
    """

    def __init__(self, directory: Path, max_active: int, word_penalty: float = 0.0) -> None:
        self.graph = k2.create_fsa_vec([load_fsa(directory, word_penalty)])
        self.max_active = max_active

    def search(self, scores_TV: np.ndarray, lm_weight: float, beam: float) -> list[int] | None:
        """The best path, or None: one into a final state where the beam keeps such, as GraphSearch does."""
        scaled_TV = torch.from_numpy((scores_TV / lm_weight).astype(np.float32))
        dense = k2.DenseFsaVec(scaled_TV[None], torch.tensor([[0, 0, len(scores_TV)]], dtype=torch.int32))
        labels = self._search(self.graph, dense, beam)
        if len(labels) == 0:
            labels = self._search(self.unfinished, dense, beam)
        if len(labels) == 0:
            return None
        assert len(labels) == len(scores_TV) + 1, f"{len(labels)} labels on {len(scores_TV)} frames"
        return list(labels[:-1].tolist())

    def _search(self, graph: Any, dense: Any, beam: float) -> torch.Tensor:
        lattice = k2.intersect_dense_pruned(
            graph,
            dense,
            search_beam=beam,
            output_beam=OUTPUT_BEAM,
            min_active_states=min(MIN_ACTIVE, self.max_active - 1),
            max_active_states=self.max_active,
        )
        labels: torch.Tensor = k2.shortest_path(lattice, use_double_scores=True).labels
        return labels

    @functools.cached_property
    def unfinished(self) -> Any:
        """The graph with an end after every frame."""
        fsa = self.graph[0]
        arcs = fsa.arcs.values()
        source = torch.arange(fsa.shape[0] - 1, dtype=torch.int32)
        ends = torch.stack([source, torch.full_like(source, len(source)), source * 0 + FINAL_LABEL, source * 0], dim=1)
        arcs = torch.cat([ends, arcs[arcs[:, 2] != FINAL_LABEL]])
        return k2.create_fsa_vec([k2.arc_sort(k2.Fsa(arcs[arcs[:, 0].argsort(stable=True)].contiguous()))])


def load_fsa(directory: Path, word_penalty: float = 0.0) -> Any:
    """The graph as k2 searches it: labels are tokens, there are no epsilons, arcs are sorted, words are left out."""
    fsa = k2.Fsa(torch.from_numpy(_read_arcs(directory, word_penalty)))
    if (fsa.labels == 0).any():
        fsa = k2.connect(k2.remove_epsilon(fsa))
    fsa.labels = torch.where(fsa.labels > 0, fsa.labels - 1, fsa.labels)
    return k2.arc_sort(fsa)


def _read_arcs(directory: Path, word_penalty: float) -> np.ndarray:
    """Arcs as rows of k2, int32: from, to, input label, bits of the score; sorted by `from`, of which 0 is first."""
    graph = read_graph(directory)
    num_states = len(graph.states)
    finals = np.flatnonzero(np.isfinite(graph.states["final"]))
    renumbered = np.arange(num_states + 1, dtype=np.int32)  # the last is k2's final state
    renumbered[[0, graph.start]] = graph.start, 0
    source = renumbered[np.append(np.repeat(np.arange(num_states), graph.states["num_arcs"]), finals)]
    to = renumbered[np.append(graph.arcs["to"], np.full(len(finals), num_states))]
    label = np.append(graph.arcs["input"], np.full(len(finals), FINAL_LABEL, np.int32))
    cost = graph.arcs["cost"] + np.float32(word_penalty) * (graph.arcs["output"] > 0)
    score = -np.append(cost, graph.states["final"][finals])
    return np.stack([source, to, label, score.view(np.int32)], axis=1)[np.argsort(source, kind="stable")]
