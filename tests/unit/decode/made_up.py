"""Folders of a language made of a few sentences, and a model and features that are on no disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asrtool.data.storage.index import Utterance
from asrtool.decode.acoustic_model import AcousticModel
from asrtool.decode.decoder import Searches
from asrtool.decode.parameters import combine
from asrtool.decode.resources import Resources
from asrtool.decode.search.method import make_methods
from asrtool.lang.graph import build_graph
from asrtool.lang.lexicon import build_lang
from asrtool.lang.ngram.estimate import build_lm
from asrtool.lang.ngram.model import NgramLm, empty_ngrams
from asrtool.lang.phones import write_phones
from asrtool.lang.text import BOS, EOS, UNK
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.objectives.topology import CtcTopology
from asrtool.settings.config import Config
from asrtool.settings.lang import Lm


def draw_bigrams(words: Sequence[str], seed: int) -> NgramLm:
    """A bigram of `words` whose probabilities, of two thirds of the pairs, and back-off weights are drawn."""
    random, symbols = np.random.default_rng(seed), [BOS, EOS, UNK, *words]
    num = len(symbols)

    def draw(size: int) -> np.ndarray:
        return np.log10(random.uniform(0.01, 0.99, size))

    unigrams = empty_ngrams(symbols).extended(np.zeros(num, np.int64), np.arange(num), draw(num), draw(num))
    history, word = np.divmod(np.flatnonzero(random.random(num * num) < 2 / 3), num)
    return NgramLm(unigrams.extended(1 + history, word, draw(len(word)), np.zeros(len(word))))


def write_phone_language(work: Path, sentences: Sequence[str], order: int = 3) -> None:
    """Write `work`/tokenizer of phones, lang and lm/G.arpa of `sentences`."""
    text = work / "sentences.txt"
    text.write_text("\n".join(sentences) + "\n")
    write_phones(text, work / "tokenizer")
    build_lang(text, work / "tokenizer", work / "lang", max_words=0)
    build_lm([text], work / "lm" / "G.arpa", Lm(order=order), work / "lang" / "words.txt")


def write_graph(work: Path, sentences: Path) -> Path:
    """Write lang, lm and graph of a work folder that has a tokenizer of pieces."""
    build_lang(sentences, work / "tokenizer", work / "lang", max_words=0)
    build_lm([sentences], work / "lm" / "G.arpa", Lm(order=2), work / "lang" / "words.txt")
    build_graph(work / "lang", work / "lm" / "G.arpa", work / "graph", CtcTopology().transducer)
    return work


def acoustic_of(tokenizer: Tokenizer, network: Any = None, /, **info: Any) -> AcousticModel:
    """`network`, or what stands for one whose rows are three frames apart, trained with the tokens of `tokenizer`."""
    if network is None:
        network = torch.nn.Identity()
        network.subsampling = 3
    of_tokens = {"num_tokens": tokenizer.num_tokens, "tokenizer": tokenizer.digest}
    info = {"features": {"frame_shift_ms": 10.0, "cmvn": "none"}, "model": {}, **of_tokens, **info}
    return AcousticModel(Path("model.pt"), network, info)


def open_searches(acoustic: AcousticModel, folders: Mapping[str, Path | None], config: Config) -> Searches:
    """The methods of `config`, open, with graphs for all word penalties."""
    methods = make_methods(config.decode, Resources(acoustic, folders, config))
    for method in methods.values():
        method.open({axis.name: axis.values for axis in method.axes()})
    if graph := methods.get("graph"):
        graph.prepare(combine("graph", graph.axes(), None))
    return Searches(methods)


class MadeUpReader:
    """Base of readers of features that a test makes up: `index`, and `read` of one."""

    directory = Path("features/set")  # which is on no server

    def read(self, i: int) -> np.ndarray:
        raise NotImplementedError

    def read_several(self, positions: Sequence[int]) -> list[np.ndarray]:
        return [self.read(i) for i in positions]

    def texts(self, utterances: list[Utterance]) -> list[str]:
        return [utterance.text for utterance in utterances]
