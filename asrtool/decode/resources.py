"""Inputs of search methods, read on demand and checked against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

from asrtool.decode.acoustic_model import AcousticModel, load_tokenizer
from asrtool.decode.words import WordParser, WordPieces, WordReader, starts_word
from asrtool.errors import AsrtoolError
from asrtool.lang.graph_file import GraphArrays, read_graph
from asrtool.lang.lexicon import read_lexicon
from asrtool.lang.ngram.arpa import read_arpa
from asrtool.lang.ngram.model import NgramLm
from asrtool.lang.text import BACKOFF, read_symbols
from asrtool.models.objectives.decision_tree import Tree, tree_of
from asrtool.models.objectives.topology import Topology
from asrtool.settings.config import Config


@dataclass
class Resources:
    """Inputs in the `folders` of settings.SEARCHED, read on demand.

    `config` has other sections, such as lm.large. Reading raises AsrtoolError if a part is missing, broken, or does
    not belong to the model.
    """

    acoustic: AcousticModel
    folders: Mapping[str, Path | None]
    config: Config

    def folder(self, name: str) -> Path:
        """Return the folder `name`; AsrtoolError naming its option if not given."""
        found = self.folders.get(name)
        if found is None:
            methods = ", ".join(method.name for method in self.config.decode.methods)
            raise AsrtoolError(
                f"--{name} is not given, but decode.methods = {methods} reads it",
                f"add --{name} and the folder that `asrtool {name}` writes, or choose other methods",
            )
        return found

    @property
    def topology(self) -> Topology:
        """Topology of the model's scores."""
        return self.acoustic.topology

    @cached_property
    def pieces(self) -> list[str]:
        """The text of each token."""
        return load_tokenizer(self.folder("tokenizer"), self.acoustic).pieces

    @property
    def mark_words(self) -> bool:
        """True if tokens show where a word begins."""
        return any(map(starts_word, self.pieces))

    @cached_property
    def words(self) -> list[str]:
        """The words of the lexicon, special symbols among them."""
        return read_symbols(self.folder("lang") / "words.txt", "lang")

    @cached_property
    def ngram(self) -> NgramLm:
        """The n-gram of the graph."""
        return NgramLm(read_arpa(self.folder("lm") / "G.arpa"))

    @cached_property
    def word_reader(self) -> WordReader:
        """Reader of words from paths: by tokens, or by lexicon and n-gram."""
        groups = WordPieces(self.pieces) if self.mark_words else self._open_parser()
        return WordReader(self.topology, groups, self.acoustic.frame_s)

    def word_reader_by_marks(self, method: str) -> WordReader:
        """Return a word reader for a `method` without a lexicon."""
        self.check_marks(method)
        return self.word_reader

    def check_marks(self, method: str) -> None:
        """Raise AsrtoolError unless tokens mark where words begin, for `method`."""
        if not self.mark_words:
            raise AsrtoolError(
                f"{self.folder('tokenizer')}: its tokens do not mark where a word begins, which method {method} needs",
                "use --set decode.methods=graph",
            )

    def _open_parser(self) -> WordParser:
        number = {piece: i for i, piece in enumerate(self.pieces)}
        lexicon = read_lexicon(self.folder("lang") / "lexicon.txt", self.words, self.pieces)
        tokens = ((word, tuple(number[piece] for piece in pieces)) for word, pieces in lexicon)
        return WordParser(tokens, self.ngram)

    @cached_property
    def graph_words(self) -> list[str]:
        """The words of the graph's output labels."""
        return read_symbols(self.folder("graph") / "words.txt", "graph")

    @cached_property
    def graph(self) -> GraphArrays:
        """The decoding graph, whose labels are tokens and words of its tables."""
        folder = self.folder("graph")
        check_graph_tokens(folder / "tokens.txt", self.pieces)
        num_columns = check_graph_tree(folder, self.acoustic) or len(self.pieces)
        graph = read_graph(folder)
        last_word = len(self.graph_words) - 1
        highest = [(some["input"].max(), some["output"].max()) for some in graph.chunks()]
        for name, labels, last in (
            ("tokens.txt", [label for label, _ in highest], num_columns),
            ("words.txt", [label for _, label in highest], last_word),
        ):
            if max(labels) > last:
                raise AsrtoolError(
                    f"{folder / 'HLG.fst'}: has label {max(labels)}, but {folder / name} ends with {last}",
                    "run the stage graph again",
                )
        return graph


def check_graph_tree(folder: Path, acoustic: AcousticModel) -> int:
    """Return the number of pdfs, 0 without a tree; AsrtoolError if the graph differs."""
    tree = tree_of(acoustic.info)
    if tree is None:
        return 0
    if not tree.is_same(Tree.load(folder)):
        what = f"{folder}: made with another decision tree than {acoustic.path}"
        raise AsrtoolError(what, "run the stage graph again")
    return tree.num_leaves


def check_graph_tokens(path: Path, pieces: Sequence[str]) -> None:
    """Raise AsrtoolError unless label i + 1 of the table `path` is token i."""
    _, *labels = read_symbols(path, "graph")
    if BACKOFF in labels[len(pieces) :]:
        del labels[labels.index(BACKOFF, len(pieces)) :]  # it and the other symbols after the tokens
    for i, (found, expected) in enumerate(zip_longest(labels, pieces, fillvalue="nothing"), 1):
        if found != expected:
            raise AsrtoolError(
                f"{path}: label {i} is {found}, expected {expected} of the tokenizer",
                "run the stages lang, lm and graph again",
            )
