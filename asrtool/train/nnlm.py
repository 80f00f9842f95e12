"""Training the neural language model: epochs over sentences, the learning rate halved where dev gains no more.

Writes `model.pt` (the weights of the best epoch), `checkpoint.pt` (to go on from after the last whole epoch) and, last,
`nnlm.json` (perplexities, how it ended).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.lang.symbols import BACKOFF, EOS, EPSILON, read_symbols
from asrtool.lang.text import read_sentences
from asrtool.log import progress
from asrtool.models.neural_lm import EDGE, UNK, NeuralLm, load_neural_lm, save_neural_lm
from asrtool.models.torch_file import read_torch, write_torch
from asrtool.train.settings import Nnlm

Sentences = list[list[str]]
CHECKPOINT = ("made_of", "progress", "weights", "optimizer")
MOST_NATS = math.log(sys.float_info.max)  # of a word; more has no perplexity


@dataclass
class Progress:
    """How far a training has come."""

    learning_rate: float
    epoch: int = 0
    perplexities: list[float] = field(default_factory=list)  # on dev, after each epoch


def train_neural_lm(text: Path, dev_text: Path, words: Path, out: Path, settings: Nnlm) -> None:
    """Train on the sentences of `text` over the vocabulary `words` (words.txt), evaluate on `dev_text`, write to `out`.

    The same command goes on after the last epoch that an earlier one finished. Raises AsrtoolError when a file cannot
    be read, the disk is full, or the loss is not a number.
    """
    made_of = _describe(text, dev_text, words, settings)
    vocabulary = _read_vocabulary(words)
    torch.manual_seed(settings.seed)
    training = _Training(NeuralLm(settings, vocabulary), settings, made_of, out)
    dev = list(read_sentences(dev_text))
    sentences = list(read_sentences(text))
    summary_path = out / "nnlm.json"
    if training.progress.epoch < settings.num_epochs and summary_path.exists():
        summary_path.unlink()  # of an earlier training; it says that one has ended
    for epoch in range(training.progress.epoch, settings.num_epochs):
        training.train_epoch(sentences, epoch)
        training.end_epoch(dev)
    best = min(training.progress.perplexities)
    summary = {
        "dev_perplexity": best,
        "num_parameters": training.num_parameters,
        **dataclasses.asdict(training.progress),
    }
    write_text(summary_path, json.dumps(summary, indent=1) + "\n")


class _Training:
    def __init__(self, model: NeuralLm, settings: Nnlm, made_of: str, out: Path) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.settings = settings
        self.made_of = made_of
        self.out = out
        self.num_parameters = sum(parameter.numel() for parameter in model.parameters())
        self.progress = Progress(settings.learning_rate)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
        self._go_on()

    def _go_on(self) -> None:
        path = self.out / "checkpoint.pt"
        if not path.exists():
            return
        try:
            found = read_torch(path, "checkpoint", CHECKPOINT)
        except AsrtoolError as error:
            raise AsrtoolError(error.what, f"remove {path}; the same command then starts anew") from error
        reason = self._why_anew(found)
        if reason:
            logging.info("%s; training starts anew", reason)
            # Beside the first model of this training it would say that the earlier one had come so far.
            path.unlink()
            return
        self.progress = Progress(**found["progress"])
        self.model.load_state_dict(found["weights"])
        self.optimizer.load_state_dict(found["optimizer"])
        logging.info("resuming after epoch %d", self.progress.epoch)

    def _why_anew(self, found: dict[str, Any]) -> str:
        """Why the training of the checkpoint `found` cannot go on, nothing where it can."""
        if found["made_of"] != self.made_of:
            return f"{self.out / 'checkpoint.pt'} is of other settings or data"
        try:
            load_neural_lm(self.out / "model.pt")
        except AsrtoolError as error:  # the best weights so far are nowhere else
            return error.what
        return ""

    def train_epoch(self, sentences: Sentences, epoch: int) -> None:
        """One pass over the sentences; order and dropout are drawn from (seed, epoch) alone."""
        random = np.random.default_rng((self.settings.seed, epoch))
        torch.manual_seed(int(random.integers(2**63)))
        batches = plan_batches([len(words) for words in sentences], self.settings.batch_words, random)
        for group in self.optimizer.param_groups:
            group["lr"] = self.progress.learning_rate
        self.model.train()
        for batch in progress(batches, f"nnlm epoch {epoch + 1}", unit="step"):
            losses_N, num_words = self._losses([sentences[i] for i in batch])
            self.optimizer.zero_grad()
            (losses_N.sum() / num_words).backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
            if not math.isfinite(float(norm)):
                raise AsrtoolError(
                    f"nnlm, epoch {epoch + 1}: gradient norm {float(norm):g}",
                    "lower nnlm.learning_rate or nnlm.clip_norm",
                )
            self.optimizer.step()

    def end_epoch(self, dev: Sentences) -> None:
        """Evaluate on `dev`; keep the weights where they are the best so far, else halve the learning rate."""
        state = self.progress
        state.epoch += 1
        perplexity = self._perplexity(dev)
        if perplexity < min(state.perplexities, default=math.inf):
            save_neural_lm(self.out / "model.pt", self.model, dataclasses.asdict(self.settings))
        else:
            state.learning_rate /= 2
        state.perplexities.append(perplexity)
        logging.info("nnlm epoch %d/%d: perplexity on dev %.2f", state.epoch, self.settings.num_epochs, perplexity)
        content = {"made_of": self.made_of, "progress": dataclasses.asdict(state)}
        content |= {"weights": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        write_torch(self.out / "checkpoint.pt", content)

    def _perplexity(self, dev: Sentences) -> float:
        self.model.eval()
        nats = total = 0.0
        with torch.inference_mode():
            for batch in plan_batches([len(words) for words in dev], self.settings.batch_words, None):
                losses_N, num_words = self._losses([dev[i] for i in batch])
                nats += float(losses_N.sum())
                total += num_words
        if not nats / total < MOST_NATS:
            raise AsrtoolError(
                f"nnlm, epoch {self.progress.epoch}: {nats / total:g} nats a word on dev, expected less than"
                f" {MOST_NATS:.0f}",
                "lower nnlm.learning_rate",
            )
        return math.exp(nats / total)

    def _losses(self, sentences: Sentences) -> tuple[torch.Tensor, int]:
        """-ln p of each sentence, and the number of words predicted, ends included."""
        read_NT, predicted_NT = self.model.encode(sentences)
        num_words = sum(len(words) + 1 for words in sentences)
        return self.model.losses(read_NT.to(self.device), predicted_NT.to(self.device)), num_words


def plan_batches(lengths: Sequence[int], batch_words: int, random: np.random.Generator | None) -> list[list[int]]:
    """Sentences of like length together, at most `batch_words` positions with padding, in random order if asked for."""
    noise = random.random(len(lengths)) if random else np.zeros(len(lengths))
    order = np.lexsort((noise, np.array(lengths))).tolist()
    batches: list[list[int]] = [[]]
    for i in order:
        if batches[-1] and (len(batches[-1]) + 1) * (lengths[i] + 1) > batch_words:
            batches.append([])
        batches[-1].append(i)
    return [batches[i] for i in random.permutation(len(batches))] if random else batches


def _read_vocabulary(words: Path) -> list[str]:
    vocabulary = [word for word in read_symbols(words, "lang") if word not in (EPSILON, BACKOFF, EOS)]
    for symbol in (UNK, EDGE):
        if symbol not in vocabulary:
            raise AsrtoolError(f"{words}: has no {symbol}, expected the words.txt of `asrtool lang`", "name that file")
    return vocabulary


def _describe(text: Path, dev_text: Path, words: Path, settings: Nnlm) -> str:
    """A digest of all that decides the weights; AsrtoolError when a file is missing."""
    digest = hashlib.sha256(json.dumps(dataclasses.asdict(settings), sort_keys=True).encode())
    for path in (text, dev_text, words):
        try:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise AsrtoolError(
                f"{path}: cannot be read, {error.strerror}", "run the stage that makes it first"
            ) from error
    return digest.hexdigest()
