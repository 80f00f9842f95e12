"""Word language model: an encoder over words and the prediction of the next word.

Letters in names: N sentences, T positions, C channels, V words, R nodes of a tree of words, W distinct words, S cells
of a layer, G of its gates, four times as many. A model file has ``format``, ``info`` = {``nnlm``: the section of the
settings, ``words``: the vocabulary} and ``weights``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel, Encoder, check_encoder
from asrtool.models.files.torch_file import read_torch, write_torch
from asrtool.models.lm.next_word import NextWord
from asrtool.settings.models import WordLstm as WordLstmSettings
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_section

FORMAT = 2
UNK = "<unk>"
EDGE = "<s>"  # before the first word and after the last one
MAX_WORDS_AT_ONCE = 8192  # scored together: their hidden rows and gates fit into a few hundred MiB


class WordEncoder(Encoder):
    """Module from words to hidden rows, each of which depends on no later word.

    It is built with its settings and the number of words, and gets word numbers (N, T) in place of features.
    """

    subsampling = 1
    embedding: nn.Embedding  # V words of `output_size` values

    def read_tree(self, tree: WordTree) -> Tensor:
        """Return the hidden rows of all nodes, (R, C), here from whole sentences."""
        device = self.embedding.weight.device
        parent_R, word_R = torch.from_numpy(tree.parent_R), torch.from_numpy(tree.word_R)
        rows_RC = torch.empty(len(word_R), self.output_size, device=device)
        for depth, level in enumerate(tree.levels()):
            ends = tree.leaves()
            ends = ends[(level.start <= ends) & (ends < level.stop)]
            for part in np.array_split(ends, -(-len(ends) * (depth + 1) // MAX_WORDS_AT_ONCE)) if len(ends) else ():
                nodes = [torch.from_numpy(part)]
                for _ in range(depth):
                    nodes.append(parent_R[nodes[-1]])
                nodes_NT = torch.stack(nodes[::-1], dim=1)
                lens_N = torch.full((len(part),), depth + 1, device=device)
                rows_RC[nodes_NT.to(device)] = self(word_R[nodes_NT].to(device), lens_N)[0].float()
        return rows_RC


class WordLstm(WordEncoder):
    """LSTM layers in reading direction."""

    def __init__(self, settings: WordLstmSettings, num_words: int) -> None:
        super().__init__()
        size, projection = settings.hidden_size, settings.projection_size
        self.output_size = projection or size
        self.embedding = nn.Embedding(num_words, self.output_size)
        nn.init.normal_(self.embedding.weight, std=self.output_size**-0.5)
        self.layers = nn.ModuleList(
            nn.LSTM(self.output_size, size, batch_first=True, proj_size=projection) for _ in range(settings.num_layers)
        )
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, words_NT: Tensor, lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """Encode words, as Encoder.forward."""
        hidden_NTC = self.dropout(self.embedding(words_NT))
        for layer in self.layers:
            hidden_NTC = self.dropout(layer(hidden_NTC)[0])
        return hidden_NTC, lens_N

    def read_tree(self, tree: WordTree) -> Tensor:
        """Return the rows of all nodes: each prefix takes one step from its parent.

        The input product of the first layer is computed once a word.
        """
        weight_VC = self.embedding.weight
        parent_R = torch.from_numpy(tree.parent_R).to(weight_VC.device)
        words, which = np.unique(tree.word_R, return_inverse=True)
        which_R = torch.from_numpy(which.reshape(-1)).to(weight_VC.device)
        cells = [_Cell(layer) for layer in self.layers]
        gates_WG = cells[0].read(self.embedding(torch.from_numpy(words).to(weight_VC.device)))
        rows_RC = weight_VC.new_empty(len(which), self.output_size)
        states = [cell.first() for cell in cells]
        above = 0
        for level in tree.levels():
            from_N = parent_R[level] - above
            gates_NG = gates_WG[which_R[level]]
            for i, cell in enumerate(cells):
                if i > 0:
                    gates_NG = cell.read(states[i - 1][0])
                states[i] = cell.step(gates_NG, states[i][0][from_N], states[i][1][from_N])
            rows_RC[level] = states[-1][0]
            above = level.start
        return rows_RC


class _Cell:
    """Step of an LSTM layer, with or without projection, as torch.nn.LSTM."""

    def __init__(self, layer: nn.Module) -> None:
        assert isinstance(layer, nn.LSTM)
        self.in_GC, self.back_GC, in_bias_G, back_bias_G, *projection = layer.all_weights[0]
        self.bias_G = in_bias_G + back_bias_G
        self.projection_CS = projection[0] if projection else None
        self.num_cells = layer.hidden_size

    def first(self) -> tuple[Tensor, Tensor]:
        """Return hidden row (1, C) and cells (1, S) before the first word."""
        return self.back_GC.new_zeros(1, self.back_GC.shape[1]), self.back_GC.new_zeros(1, self.num_cells)

    def read(self, inputs_NC: Tensor) -> Tensor:
        """Return the inputs' part in all gates, (N, G), with biases."""
        return nn.functional.linear(inputs_NC, self.in_GC, self.bias_G)

    def step(self, gates_NG: Tensor, hidden_NC: Tensor, memory_NS: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next hidden rows (N, C) and cells (N, S); changes `gates_NG`."""
        gates_NG += nn.functional.linear(hidden_NC, self.back_GC)  # not addmm_, which autocast leaves alone
        enters_NS, stays_NS, new_NS, leaves_NS = gates_NG.chunk(4, dim=1)
        memory_NS = stays_NS.sigmoid() * memory_NS + enters_NS.sigmoid() * new_NS.tanh()
        hidden_NS = leaves_NS.sigmoid() * memory_NS.tanh()
        if self.projection_CS is not None:
            hidden_NS = nn.functional.linear(hidden_NS, self.projection_CS)
        return hidden_NS, memory_NS


class NeuralLm(AcousticModel):
    """p(word | all words before it) over `words`, which include ``<unk>`` and ``<s>``."""

    encoder: WordEncoder
    objective: NextWord

    def __init__(self, encoder: WordEncoder, output: NextWord, words: Sequence[str]) -> None:
        super().__init__(encoder, output)
        self.words = list(words)
        self.ids = {word: number for number, word in enumerate(self.words)}

    def number(self, words: Sequence[str]) -> list[int]:
        """Return the numbers of a sentence between two ``<s>``.

        All but the last are read, all but the first predicted.
        """
        unknown = self.ids[UNK]
        return [self.ids[EDGE], *(self.ids.get(word, unknown) for word in words), self.ids[EDGE]]

    def log_probs(self, sentences: Sequence[Sequence[str]]) -> list[float]:
        """Return the natural log probability of each sentence with its end.

        Words outside the vocabulary are ``<unk>``. Common prefixes are computed once, so it pays to give many similar
        sentences. Under autocast matrix products and gates are in its format; cells, sums and logarithms are in
        float32.
        """
        numbers = [tuple(self.number(words)[1:-1]) for words in sentences]
        found: dict[tuple[int, ...], float] = {}
        with torch.inference_mode():
            for some in _by_size(sorted(set(numbers)), MAX_WORDS_AT_ONCE):
                found.update(zip(some, self._score_tree(make_word_tree(some, self.ids[EDGE])), strict=True))
        return [found[each] for each in numbers]

    def _score_tree(self, tree: WordTree) -> list[float]:
        """Return ln p of each sentence of `tree`."""
        rows_RC = self.encoder.read_tree(tree)
        ends_N = np.full_like(tree.last_N, self.ids[EDGE])
        pairs = (np.append(tree.parent_R[1:], tree.last_N), np.append(tree.word_R[1:], ends_N))
        row_P, word_P = (torch.from_numpy(each).to(rows_RC.device) for each in pairs)
        scores_P = self.objective.word_scores(rows_RC, row_P, word_P).double().cpu().numpy()
        total_R, end_N = np.append(0.0, scores_P[: -len(ends_N)]), scores_P[-len(ends_N) :]
        for level in list(tree.levels())[1:]:
            total_R[level] += total_R[tree.parent_R[level]]
        result: list[float] = (total_R[tree.last_N] + end_N).tolist()
        return result


def _by_size(sentences: Sequence[tuple[int, ...]], most: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield `sentences` in parts of at most `most` words, at least one sentence each."""
    part: list[tuple[int, ...]] = []
    size = 0
    for sentence in sentences:
        if part and size + len(sentence) + 1 > most:
            yield part
            part, size = [], 0
        part.append(sentence)
        size += len(sentence) + 1
    if part:
        yield part


def pad_sentences(sentences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return input (N, T), lengths (N,) and targets (N, T) of numbered sentences."""
    lens_N = torch.tensor([len(numbers) - 1 for numbers in sentences])
    padded_NT = nn.utils.rnn.pad_sequence([torch.tensor(numbers) for numbers in sentences], batch_first=True)
    return padded_NT[:, :-1], lens_N, padded_NT[:, 1:]


def build_neural_lm(encoder: Choice, output: Choice, words: Sequence[str]) -> NeuralLm:
    """Build a model with random weights; AsrtoolError if a part cannot be loaded."""
    built: WordEncoder = encoder.load()(encoder.settings, len(words))
    check_encoder(built, encoder.name)
    return NeuralLm(built, output.load()(output.settings, built.embedding), words)


def save_neural_lm(path: Path, info: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Write a model file, atomically; AsrtoolError if the disk is full."""
    write_torch(path, {"format": FORMAT, "info": info, "weights": weights})


def load_neural_lm(path: Path | str) -> NeuralLm:
    """Load a model; AsrtoolError if it is missing, damaged or of another format."""
    content = read_torch(path, "neural language model", ("format", "info", "weights"))
    if content["format"] != FORMAT:
        raise AsrtoolError(f"{path}: format {content['format']}, expected {FORMAT}", "run the stage nnlm again")
    try:
        settings = load_section("nnlm", content["info"]["nnlm"], str(path))
        model = build_neural_lm(settings.encoder, settings.output, content["info"]["words"])
        model.load_state_dict(content["weights"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise AsrtoolError(
            f"{path}: weights that do not fit their settings: {reason}", "run the stage nnlm again"
        ) from error
    return model.eval()


@dataclass(frozen=True)
class WordTree:
    """Prefix tree of sentences: a node for each distinct prefix, shorter ones first.

    Node 0 is the empty prefix. Nodes of `depth` words are ``starts[depth]`` up to ``starts[depth + 1]``.
    """

    word_R: np.ndarray  # the last word, int64; of the empty prefix the sentence start
    parent_R: np.ndarray  # the node without the last word, int64; of the empty beginning itself
    starts: list[int]
    last_N: np.ndarray  # the node of each sentence, int64

    def levels(self) -> Iterator[slice]:
        """Return the nodes of each depth: no word, one word, and so on."""
        return map(slice, self.starts, self.starts[1:])

    def leaves(self) -> np.ndarray:
        """Return the nodes without successors."""
        is_leaf_R = np.ones(len(self.parent_R), dtype=bool)
        is_leaf_R[self.parent_R[1:]] = False
        return np.flatnonzero(is_leaf_R)


def make_word_tree(sentences: Sequence[Sequence[int]], edge: int) -> WordTree:
    """Return the tree of sentences of word numbers; each begins after `edge`."""
    lens_N = np.array([len(words) for words in sentences])
    words_NT = np.full((len(sentences), lens_N.max()), -1, dtype=np.int64)
    words_NT[np.arange(words_NT.shape[1]) < lens_N[:, None]] = [word for words in sentences for word in words]
    order_N = np.lexsort(words_NT.T[::-1]) if words_NT.shape[1] else np.arange(len(sentences))
    sorted_NT = words_NT[order_N]
    # Equal prefixes are neighbours now, so a prefix that differs from the row above is new.
    new_NT = np.ones_like(sorted_NT, dtype=bool)
    new_NT[1:] = np.logical_or.accumulate(sorted_NT[1:] != sorted_NT[:-1], axis=1)
    new_NT &= sorted_NT >= 0
    starts = np.cumsum([0, 1, *new_NT.sum(axis=0)]).tolist()
    node_NT = np.zeros((len(sentences), 1 + words_NT.shape[1]), dtype=np.int64)
    node_NT[:, 1:] = np.cumsum(new_NT, axis=0) - 1 + np.array(starts[1:-1], dtype=np.int64)
    last_N = np.empty(len(sentences), dtype=np.int64)
    last_N[order_N] = node_NT[np.arange(len(sentences)), lens_N[order_N]]
    return WordTree(np.append(edge, sorted_NT.T[new_NT.T]), np.append(0, node_NT[:, :-1].T[new_NT.T]), starts, last_N)
