"""Method graph: best path through the decoding graph, by kaldi-decoder or k2."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kaldi_decoder
import kaldifst
import numpy as np

from asrtool.decode.parameters import POSITIVE, Axis, DecodingParameters, Weights, lm_axes
from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.errors import require_k2
from asrtool.lang.graph_file import load_fst, read_graph

with contextlib.suppress(ImportError):  # an optional package; Graph calls require_k2 before it makes a K2Search
    import k2
    import torch

FINAL_LABEL = -1  # label of k2's arcs into its one final state
MIN_ACTIVE = 20  # states kept whatever the beam, as many as kaldi-decoder keeps
OUTPUT_BEAM = 1.0  # narrow beam of the lattice: only its best path is used


class K2Search:
    """One-best search by k2 on the graph in `directory` with a word penalty.

    `max_active` and the arguments of `search` are as for GraphSearch. Raises AsrtoolError if the graph is missing or
    broken.
    """

    def __init__(self, directory: Path, max_active: int, word_penalty: float = 0.0) -> None:
        self.graph = k2.create_fsa_vec([load_fsa(directory, word_penalty)])
        self.max_active = max_active

    def search(self, scores_TV: np.ndarray, lm_weight: float, beam: float) -> list[int] | None:
        """Return the best path, one into a final state if the beam has such, or None."""
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
        """Graph that may end after every frame."""
        fsa = self.graph[0]
        arcs = fsa.arcs.values()
        source = torch.arange(fsa.shape[0] - 1, dtype=torch.int32)
        ends = torch.stack([source, torch.full_like(source, len(source)), source * 0 + FINAL_LABEL, source * 0], dim=1)
        arcs = torch.cat([ends, arcs[arcs[:, 2] != FINAL_LABEL]])
        return k2.create_fsa_vec([k2.arc_sort(k2.Fsa(arcs[arcs[:, 0].argsort(stable=True)].contiguous()))])


def load_fsa(directory: Path, word_penalty: float = 0.0) -> Any:
    """Load the graph for k2: token labels, no epsilons, sorted arcs, no words."""
    fsa = k2.Fsa(torch.from_numpy(_read_arcs(directory, word_penalty)))
    if (fsa.labels == 0).any():
        fsa = k2.connect(k2.remove_epsilon(fsa))
    fsa.labels = torch.where(fsa.labels > 0, fsa.labels - 1, fsa.labels)
    return k2.arc_sort(fsa)


def _read_arcs(directory: Path, word_penalty: float) -> np.ndarray:
    """Return arcs as int32 rows of k2: from, to, input label, bits of the score.

    They are sorted by `from`, of which 0 is first.
    """
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


class Graph(SearchMethod):
    """Method graph: one graph for each word penalty, one in memory at a time."""

    one_at_a_time = "word_penalty"

    def axes(self) -> Sequence[Axis]:
        beams = self.settings.beams
        return *lm_axes(self.settings), Axis("beam", beams, start=max(beams), limits=POSITIVE)

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        self.reader = self.resources.word_reader
        self.graph = self.resources.graph
        self.searches: dict[float, GraphSearch | K2Search] = {}

    def prepare(self, parameters: Sequence[DecodingParameters]) -> None:
        """Load the graph of the word penalty of `parameters`; free the others first."""
        penalties = dict.fromkeys(each["word_penalty"] for each in parameters)
        self.searches = {penalty: search for penalty, search in self.searches.items() if penalty in penalties}
        for penalty in penalties:
            if penalty not in self.searches:
                self.searches[penalty] = self._open_search(penalty)

    def _open_search(self, penalty: float) -> GraphSearch | K2Search:
        max_active: int = self.settings.max_active
        if self.settings.backend == "k2":
            require_k2("decode.graph.backend = k2")
            return K2Search(self.graph.path.parent, max_active, penalty)
        return GraphSearch(load_fst(self.graph, penalty), max_active)

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        weights = Weights.of(parameters)
        path = self.searches[weights.word_penalty].search(scores_TV, weights.lm_weight, weights.beam)
        return SearchResult(() if path is None else self.reader.read(path, scores_TV, weights.word_penalty))


class GraphSearch:
    """One-best search on a kaldifst `graph`; input label i + 1 reads column i.

    `max_active` bounds the states of a frame.
    """

    def __init__(self, graph: Any, max_active: int) -> None:
        self.graph = graph  # kept, because the decoder does not
        self.max_active = max_active
        self.decoder = kaldi_decoder.FasterDecoder(graph, kaldi_decoder.FasterDecoderOptions())
        self._beam: float | None = None  # beam of the decoder

    def search(self, scores_TV: np.ndarray, lm_weight: float, beam: float) -> list[int] | None:
        """Return the best path; None if the graph accepts none.

        The graph holds the language model at weight 1, so the scores are scaled by 1 / lm_weight instead. `beam`
        is a range of log probability in the scale of the language model.
        """
        if beam != self._beam:
            self.decoder.set_options(kaldi_decoder.FasterDecoderOptions(beam=beam, max_active=self.max_active))
            self._beam = beam
        self.decoder.decode(kaldi_decoder.DecodableCtc(np.divide(scores_TV, lm_weight, dtype=np.float32)))
        found, path = self.decoder.get_best_path()
        if not found:
            return None
        _, labels, _, _ = kaldifst.get_linear_symbol_sequence(path)
        assert len(labels) == len(scores_TV), f"{len(labels)} labels on {len(scores_TV)} frames"
        return [label - 1 for label in labels]
