"""A word language model: an encoder over words, and the prediction of the next one by weights of the encoder.

Letters in names: N sentences, T positions, C channels, V words. A model file has ``format``, ``info`` = {``nnlm``: the
section of the settings, ``words``: the vocabulary} and ``weights``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from asrtool.config_file import load_section
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel, Encoder, Loss, Objective, check_encoder
from asrtool.models.settings import WordLstm as WordLstmSettings
from asrtool.models.torch_file import read_torch, write_torch
from asrtool.settings import Choice

FORMAT = 2
UNK = "<unk>"
EDGE = "<s>"  # stands before the first word and behind the last one


class WordEncoder(Encoder):
    """Words to hidden rows, one a word, of which each depends on the words up to it and none behind.

    It is built with its settings and the number of words, and gets their numbers (N, T) in the place of features.
    """

    subsampling = 1
    embedding: nn.Embedding  # V words of `output_size` values


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
        """Natural log probability of each sentence, its end included; words outside the vocabulary are ``<unk>``."""
        if not sentences:
            return []
        read_NT, lens_N, predicted_NT = pad_sentences([self.number(words) for words in sentences])
        with torch.inference_mode():
            hidden_NTC, _ = self.encoder(read_NT, lens_N)
            result: list[float] = (-self.objective.losses(hidden_NTC, predicted_NT, lens_N)).tolist()
        return result


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
