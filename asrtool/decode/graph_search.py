"""Search on the decoding graph HLG with kaldi-decoder: the best path, one column of the scores a row."""

from __future__ import annotations

from typing import Any

import kaldi_decoder
import kaldifst
import numpy as np


class GraphSearch:
    """One-best search on `graph`, a kaldifst transducer whose input label i + 1 reads column i of the scores.

    `max_active` bounds the states of a frame.
    """

    def __init__(self, graph: Any, max_active: int) -> None:
        self.graph = graph  # kept, because the decoder does not
        self.max_active = max_active
        self.decoder = kaldi_decoder.FasterDecoder(graph, kaldi_decoder.FasterDecoderOptions())
        self._beam: float | None = None  # that the decoder was given

    def search(self, scores_TV: np.ndarray, lm_weight: float, beam: float) -> list[int] | None:
        """The best path; None when the graph accepts no path.

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


def add_word_penalty(graph: Any, word_penalty: float, num_symbols: int) -> Any:
    """`graph`, whose output labels are below `num_symbols`, with `word_penalty` more on every arc that writes a word.

    Composition with an automaton of one state leaves states and arcs as they are. Its side is searched for matches,
    because its labels are in order and those of `graph` need not be.
    """
    if word_penalty == 0:
        return graph
    arcs = "".join(f"0 0 {word} {word} {word_penalty!r}\n" for word in range(1, num_symbols))
    penalties = kaldifst.compile(acceptor=False, s=arcs + "0\n")
    return kaldifst.StdConstFst(kaldifst.compose(graph, penalties, match_side="right", connect=False))
