"""A word language model: LSTM layers between an embedding and an output that share their weights.

Letters in names: N sentences, T positions, C channels, V words. The model file has ``format``, ``info`` = {``nnlm``:
settings, ``words``: its vocabulary} and ``weights``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from asrtool.errors import AsrtoolError
from asrtool.models.torch_file import read_torch, write_torch
from asrtool.train.settings import Nnlm

FORMAT = 1
UNK = "<unk>"
EDGE = "<s>"  # stands before the first word and behind the last one
IGNORED = -100  # a target that is padding


class NeuralLm(nn.Module):
    """p(word | all words before it) over the vocabulary `words`, in which ``<unk>`` and ``<s>`` must be.

    The output layer has the weights of the embedding (Press and Wolf, 2017).
    """

    def __init__(self, settings: Nnlm, words: Sequence[str]) -> None:
        super().__init__()
        self.words = list(words)
        self.ids = {word: number for number, word in enumerate(self.words)}
        self.embedding = nn.Embedding(len(self.words), settings.hidden_size)
        nn.init.normal_(self.embedding.weight, std=settings.hidden_size**-0.5)
        self.layers = nn.ModuleList(
            nn.LSTM(settings.hidden_size, settings.hidden_size, batch_first=True) for _ in range(settings.num_layers)
        )
        self.dropout = nn.Dropout(settings.dropout)
        self.bias = nn.Parameter(torch.zeros(len(self.words)))

    def encode(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """What is read and what is to be predicted, (N, T + 1) each, for sentences of at most T words.

        Each is read from ``<s>`` on and predicted up to ``<s>``; the padding of the second is IGNORED.
        """
        edge, unknown = self.ids[EDGE], self.ids[UNK]
        rows = [[edge, *(self.ids.get(word, unknown) for word in words), edge] for words in sentences]
        longest = max(map(len, rows))
        padded_NT = torch.full((len(rows), longest), IGNORED)
        for n, row in enumerate(rows):
            padded_NT[n, : len(row)] = torch.tensor(row)
        return padded_NT[:, :-1].clamp(min=0), padded_NT[:, 1:]

    def forward(self, read_NT: Tensor) -> Tensor:
        """Logits (N, T, V) of the word behind each position."""
        hidden_NTC = self.dropout(self.embedding(read_NT))
        for layer in self.layers:
            hidden_NTC = self.dropout(layer(hidden_NTC)[0])
        return nn.functional.linear(hidden_NTC, self.embedding.weight, self.bias)

    def losses(self, read_NT: Tensor, predicted_NT: Tensor) -> Tensor:
        """-ln p of every sentence, (N,), in nats, its end included."""
        logits_NVT = self(read_NT).transpose(1, 2)
        losses_NT = nn.functional.cross_entropy(logits_NVT, predicted_NT, ignore_index=IGNORED, reduction="none")
        return losses_NT.sum(dim=1)

    def log_probs(self, sentences: Sequence[Sequence[str]]) -> list[float]:
        """Natural log probability of each sentence, its end included; words outside the vocabulary are ``<unk>``."""
        if not sentences:
            return []
        with torch.inference_mode():
            result: list[float] = (-self.losses(*self.encode(sentences))).tolist()
        return result


def save_neural_lm(path: Path, model: NeuralLm, settings: dict[str, Any]) -> None:
    """Write `model`, made with `settings`, atomically; AsrtoolError when the disk is full."""
    info = {"nnlm": settings, "words": model.words}
    write_torch(path, {"format": FORMAT, "info": info, "weights": model.state_dict()})


def load_neural_lm(path: Path | str) -> NeuralLm:
    """The model, ready to be applied; AsrtoolError when the file is missing, damaged or of another format."""
    content = read_torch(path, "neural language model", ("format", "info", "weights"))
    if content["format"] != FORMAT:
        raise AsrtoolError(f"{path}: format {content['format']}, expected {FORMAT}", "run the stage nnlm again")
    try:
        model = NeuralLm(Nnlm(**content["info"]["nnlm"]), content["info"]["words"])
        model.load_state_dict(content["weights"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise AsrtoolError(
            f"{path}: weights that do not fit their settings: {reason}", "run the stage nnlm again"
        ) from error
    return model.eval()
