"""Folders of a language made of a few sentences, and features that are on no disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from asrtool.data.storage.index import Utterance
from asrtool.lang.graph import build_graph
from asrtool.lang.lexicon import build_lang
from asrtool.lang.ngram.estimate import build_lm
from asrtool.lang.phones import write_phones
from asrtool.models.objectives.topology import CtcTopology
from asrtool.settings.lang import Lm


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


class MadeUpReader:
    """Base of readers of features that a test makes up: `index`, and `read` of one."""

    directory = Path("features/set")  # which is on no server

    def read(self, i: int) -> np.ndarray:
        raise NotImplementedError

    def read_several(self, positions: Sequence[int]) -> list[np.ndarray]:
        return [self.read(i) for i in positions]

    def texts(self, utterances: list[Utterance]) -> list[str]:
        return [utterance.text for utterance in utterances]
