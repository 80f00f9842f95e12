"""A word language model: an encoder over words, and the prediction of the next one by weights of the encoder.

Letters in names: N sentences, T positions, C channels, V words, R nodes of a tree of words. A model file has
``format``, ``info`` = {``nnlm``: the section of the settings, ``words``: the vocabulary} and ``weights``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from asrtool.config_file import load_section
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel, Encoder, Loss, Objective, check_encoder
from asrtool.models.settings import WordLstm as WordLstmSettings
from asrtool.models.torch_file import read_torch, write_torch
from asrtool.models.word_tree import WordTree, make_word_tree
from asrtool.settings import Choice

FORMAT = 2
UNK = "<unk>"
EDGE = "<s>"  # stands before the first word and behind the last one
MOST_WORDS = 8192  # of sentences that are scored together: their hidden rows and gates fit into a few hundred MiB
CHUNK_ROWS, CHUNK_WORDS = 1024, 4096  # of logits that are held at once, 16 MiB


class WordEncoder(Encoder):
    """Words to hidden rows, one a word, of which each depends on the words up to it and none behind.

    It is built with its settings and the number of words, and gets their numbers (N, T) in the place of features.
    """

    subsampling = 1
    embedding: nn.Embedding  # V words of `output_size` values

    def read_tree(self, tree: WordTree) -> Tensor:
        """The hidden rows of all nodes, (R, C): here those of whole sentences, batched with others of like length."""
        device = self.embedding.weight.device
        parent_R, word_R = torch.from_numpy(tree.parent_R), torch.from_numpy(tree.word_R)
        rows_RC = torch.empty(len(word_R), self.output_size, device=device)
        for depth, level in enumerate(tree.levels()):
            ends = tree.leaves()
            ends = ends[(level.start <= ends) & (ends < level.stop)]
            for part in np.array_split(ends, -(-len(ends) * (depth + 1) // MOST_WORDS)) if len(ends) else ():
                nodes = [torch.from_numpy(part)]
                for _ in range(depth):
                    nodes.append(parent_R[nodes[-1]])
                nodes_NT = torch.stack(nodes[::-1], dim=1)
                lens_N = torch.full((len(part),), depth + 1, device=device)
                rows_RC[nodes_NT.to(device)] = self(word_R[nodes_NT].to(device), lens_N)[0]
        return rows_RC


class WordLstm(WordEncoder):
    """LSTM layers in reading direction."""

    def __init__(self, settings: WordLstmSettings, num_words: int) -> None:
        super().__init__()
        self.output_size = settings.hidden_size
        self.embedding = nn.Embedding(num_words, settings.hidden_size)
        nn.init.normal_(self.embedding.weight, std=settings.hidden_size**-0.5)
        self.layers = nn.ModuleList(
            nn.LSTM(settings.hidden_size, settings.hidden_size, batch_first=True) for _ in range(settings.num_layers)
        )
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, words_NT: Tensor, lens_N: Tensor) -> tuple[Tensor, Tensor]:
        """As Encoder.forward."""
        hidden_NTC = self.dropout(self.embedding(words_NT))
        for layer in self.layers:
            hidden_NTC = self.dropout(layer(hidden_NTC)[0])
        return hidden_NTC, lens_N

    def read_tree(self, tree: WordTree) -> Tensor:
        """As WordEncoder.read_tree: each beginning is read once, by a step from the one without its last word."""
        weight_VC = self.embedding.weight
        parent_R = torch.from_numpy(tree.parent_R).to(weight_VC.device)
        word_R = torch.from_numpy(tree.word_R).to(weight_VC.device)
        rows_RC = weight_VC.new_empty(len(word_R), self.output_size)
        zeros_1C = weight_VC.new_zeros(1, self.output_size)
        states = [(zeros_1C, zeros_1C) for _ in self.layers]
        above = 0
        for level in tree.levels():
            from_N = parent_R[level] - above
            hidden_NC = self.embedding(word_R[level])
            for i, layer in enumerate(self.layers):
                assert isinstance(layer, nn.LSTM)
                before = (states[i][0][from_N], states[i][1][from_N])
                states[i] = torch.lstm_cell(hidden_NC, before, *layer.all_weights[0])
                hidden_NC = states[i][0]
            rows_RC[level] = hidden_NC
            above = level.start
        return rows_RC


class NextWord(Objective):
    """Cross-entropy of the word behind each position.

    The output layer has the weights of the embedding (Press and Wolf, 2017).
    """

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight_VC = embedding.weight
        self.bias_V = nn.Parameter(torch.zeros(embedding.num_embeddings))

    def fits(self, num_rows: int, targets: Sequence[int]) -> str:
        """Every position has a word behind it."""
        return "" if num_rows == len(targets) else f"{num_rows} rows, {len(targets)} words"

    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        """In nats a word, the ends of sentences included."""
        return Loss(self.losses(hidden_NTC, targets_NU, target_lens_N).sum(), int(target_lens_N.sum()))

    def scores(self, hidden_NTC: Tensor) -> Tensor:
        """ln p of every word behind each position, (N, T, V)."""
        return self._logits(hidden_NTC).log_softmax(dim=-1)

    def losses(self, hidden_NTC: Tensor, targets_NT: Tensor, target_lens_N: Tensor) -> Tensor:
        """-ln p of every sentence, (N,), in nats, its end included."""
        position_T = torch.arange(targets_NT.shape[1], device=targets_NT.device)
        logits_NVT = self._logits(hidden_NTC).transpose(1, 2)
        losses_NT = nn.functional.cross_entropy(logits_NVT, targets_NT, reduction="none")
        return losses_NT.masked_fill(position_T >= target_lens_N[:, None], 0.0).sum(dim=1)

    def word_scores(self, rows_RC: Tensor, words_R: Tensor) -> Tensor:
        """What each of these words has behind a hidden row before it is normalised, (R,)."""
        return (rows_RC * self.weight_VC[words_R]).sum(dim=1).float() + self.bias_V[words_R]

    def normalisers(self, rows_RC: Tensor) -> Tensor:
        """ln of the sum over all words of exp of what `word_scores` gives, (R,); few logits are held at once."""
        words = list(zip(self.weight_VC.split(CHUNK_WORDS), self.bias_V.split(CHUNK_WORDS), strict=True))
        sums = []
        for chunk_RC in rows_RC.split(CHUNK_ROWS):
            parts = [nn.functional.linear(chunk_RC, *some).float().logsumexp(dim=1) for some in words]
            sums.append(torch.stack(parts).logsumexp(dim=0))
        return torch.cat(sums)

    def _logits(self, hidden_NTC: Tensor) -> Tensor:
        return nn.functional.linear(hidden_NTC, self.weight_VC, self.bias_V).float()


class NeuralLm(AcousticModel):
    """p(word | all words before it) over the vocabulary `words`, in which ``<unk>`` and ``<s>`` must be."""

    encoder: WordEncoder
    objective: NextWord

    def __init__(self, encoder: WordEncoder, words: Sequence[str]) -> None:
        super().__init__(encoder, NextWord(encoder.embedding))
        self.words = list(words)
        self.ids = {word: number for number, word in enumerate(self.words)}

    def number(self, words: Sequence[str]) -> list[int]:
        """The numbers of the words of a sentence between two ``<s>``: all but the last are read, all but the first
        predicted."""
        unknown = self.ids[UNK]
        return [self.ids[EDGE], *(self.ids.get(word, unknown) for word in words), self.ids[EDGE]]

    def log_probs(self, sentences: Sequence[Sequence[str]]) -> list[float]:
        """Natural log probability of each sentence, its end included; words outside the vocabulary are ``<unk>``.

        What sentences begin with alike is computed once; so it is worth giving many that are similar.
        """
        numbers = [tuple(self.number(words)[1:-1]) for words in sentences]
        found: dict[tuple[int, ...], float] = {}
        with torch.inference_mode():
            for some in _by_size(sorted(set(numbers)), MOST_WORDS):
                found.update(zip(some, self._score_tree(make_word_tree(some, self.ids[EDGE])), strict=True))
        return [found[each] for each in numbers]

    def _score_tree(self, tree: WordTree) -> list[float]:
        """Natural log probability of each sentence of `tree`."""
        rows_RC = self.encoder.read_tree(tree)
        normalisers_R = self.objective.normalisers(rows_RC)

        def score(nodes_N: np.ndarray, words_N: np.ndarray) -> np.ndarray:
            at_N, next_N = (torch.from_numpy(each).to(rows_RC.device) for each in (nodes_N, words_N))
            scores_N = self.objective.word_scores(rows_RC[at_N], next_N) - normalisers_R[at_N]
            found: np.ndarray = scores_N.double().cpu().numpy()
            return found

        total_R = np.zeros(len(tree.word_R))
        for level in list(tree.levels())[1:]:
            parent_N = tree.parent_R[level]
            total_R[level] = total_R[parent_N] + score(parent_N, tree.word_R[level])
        ends_N = np.full_like(tree.last_N, self.ids[EDGE])
        result: list[float] = (total_R[tree.last_N] + score(tree.last_N, ends_N)).tolist()
        return result


def _by_size(sentences: Sequence[tuple[int, ...]], most: int) -> Iterator[list[tuple[int, ...]]]:
    """`sentences` in parts, in order, of at most `most` words with their ends, but at least one sentence."""
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
    """What is read (N, T), how many words of each (N,), and what is predicted (N, T), for sentences of `number`."""
    lens_N = torch.tensor([len(numbers) - 1 for numbers in sentences])
    padded_NT = nn.utils.rnn.pad_sequence([torch.tensor(numbers) for numbers in sentences], batch_first=True)
    return padded_NT[:, :-1], lens_N, padded_NT[:, 1:]


def build_neural_lm(encoder: Choice, words: Sequence[str]) -> NeuralLm:
    """A model with random weights drawn from torch's generator; AsrtoolError where the encoder cannot be loaded."""
    built: WordEncoder = encoder.load()(encoder.settings, len(words))
    check_encoder(built, encoder.name)
    return NeuralLm(built, words)


def save_neural_lm(path: Path, info: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Write a model file, atomically; AsrtoolError when the disk is full."""
    write_torch(path, {"format": FORMAT, "info": info, "weights": weights})


def load_neural_lm(path: Path | str) -> NeuralLm:
    """The model, ready to be applied; AsrtoolError when the file is missing, damaged or of another format."""
    content = read_torch(path, "neural language model", ("format", "info", "weights"))
    if content["format"] != FORMAT:
        raise AsrtoolError(f"{path}: format {content['format']}, expected {FORMAT}", "run the stage nnlm again")
    try:
        settings = load_section("nnlm", content["info"]["nnlm"], str(path))
        model = build_neural_lm(settings.encoder, content["info"]["words"])
        model.load_state_dict(content["weights"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise AsrtoolError(
            f"{path}: weights that do not fit their settings: {reason}", "run the stage nnlm again"
        ) from error
    return model.eval()
