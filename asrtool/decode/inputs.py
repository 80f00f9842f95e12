"""What decoding reads from the work directory, and whether the parts fit each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from asrtool.config import Config
from asrtool.corpus.reader import FeatureReader
from asrtool.decode.graph_search import GraphSearch, add_word_penalty
from asrtool.decode.lattice import LatticeSearch
from asrtool.decode.prefix_beam import PrefixBeam
from asrtool.decode.search import Search
from asrtool.decode.settings import Decode, Graph, Rescore, settings_of
from asrtool.decode.word_parse import WordParser
from asrtool.decode.words import WordPieces, opens_word
from asrtool.errors import AsrtoolError
from asrtool.lang.graph import load_graph
from asrtool.lang.graph_file import read_graph
from asrtool.lang.lexicon import read_lexicon
from asrtool.lang.lm import LARGE
from asrtool.lang.ngram_lm import NgramLm
from asrtool.lang.symbols import BACKOFF, read_symbols
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.acoustic import AcousticModel as AcousticModule
from asrtool.models.model_file import load_model
from asrtool.models.neural_lm import NeuralLm, load_neural_lm
from asrtool.optional import require_k2

CACHE_BYTES = 2**30  # features of a set held in memory when they all fit


@dataclass(frozen=True)
class AcousticModel:
    """The model, and the file it came from with what that says of it."""

    path: Path
    model: AcousticModule
    info: dict[str, Any]

    @property
    def frame_shift_ms(self) -> float:
        """From one feature frame to the next."""
        return float(self.info["features"]["frame_shift_ms"])

    @property
    def frame_s(self) -> float:
        """From one row of posteriors to the next."""
        return self.frame_shift_ms * int(self.model.encoder.subsampling) / 1000


def load_acoustic_model(path: Path) -> AcousticModel:
    """Load `path`; AsrtoolError when it is missing or broken."""
    if not path.exists():
        raise AsrtoolError(f"{path}: no acoustic model", "run the stages train and average first")
    return AcousticModel(path, *load_model(path))


def open_features(directory: Path, acoustic: AcousticModel) -> FeatureReader:
    """A reader of one set, normalised as the model was trained; AsrtoolError when the model expects other features."""
    reader = FeatureReader(directory, acoustic.info["features"]["cmvn"], CACHE_BYTES)
    if reader.num_bins != acoustic.info["num_features"]:
        raise AsrtoolError(
            f"{directory}: {reader.num_bins} features a frame, but {acoustic.path} was trained on"
            f" {acoustic.info['num_features']}",
            "run the stages train and average again with these features",
        )
    return reader


def load_search(
    work: Path, settings: Decode, acoustic: AcousticModel, word_penalties: Collection[float] = (0.0,)
) -> Search:
    """What the methods of `settings` search in, graphs for each of `word_penalties`.

    Raises AsrtoolError when model, tokenizer and graph do not belong together.
    """
    pieces = Tokenizer.load(work / "tokenizer").pieces
    check_num_tokens(work / "tokenizer", len(pieces), acoustic)
    search = Search(WordPieces(pieces), acoustic.frame_s)
    if not any(map(opens_word, pieces)):
        search.parser = _open_parser(work, settings, pieces)
    if settings_of(settings, "beam"):
        words = read_symbols(work / "lang" / "words.txt", "lang")
        search.beam = PrefixBeam(pieces, NgramLm.load(work / "lm" / "G.arpa"), words)
    if settings_of(settings, "graph"):
        check_graph_tokens(work / "graph" / "tokens.txt", pieces)
        _open_graphs(search, work / "graph", len(pieces), settings, word_penalties)
    return search


def _open_graphs(
    search: Search, directory: Path, num_tokens: int, settings: Decode, word_penalties: Collection[float]
) -> None:
    search.symbols = read_symbols(directory / "words.txt", "graph")
    arrays = read_graph(directory)
    _check_labels(directory, "tokens.txt", int(arrays.arcs["input"].max()), num_tokens)
    _check_labels(directory, "words.txt", int(arrays.arcs["output"].max()), len(search.symbols) - 1)
    graph: Graph = settings_of(settings, "graph")
    if graph.backend == "k2":
        require_k2("decode.graph.backend = k2")
        from asrtool.decode.k2_search import K2Search

        search.graphs = {penalty: K2Search(directory, graph.max_active, penalty) for penalty in word_penalties}
    else:
        plain = load_graph(directory)
        graphs = {penalty: add_word_penalty(plain, penalty, len(search.symbols)) for penalty in word_penalties}
        search.graphs = {penalty: GraphSearch(fst, graph.max_active) for penalty, fst in graphs.items()}
    rescore: Rescore | None = settings_of(settings, "rescore")
    if rescore:
        search.lattice = LatticeSearch(arrays, graph.max_active, rescore.lattice_beam, rescore.num_paths)


def _check_labels(directory: Path, table: str, greatest: int, last: int) -> None:
    if greatest > last:
        raise AsrtoolError(
            f"{directory / 'HLG.fst'}: has label {greatest}, but {directory / table} ends with {last}",
            "run the stage graph again",
        )


def load_sentence_lms(work: Path, config: Config) -> tuple[NgramLm | None, NeuralLm | None]:
    """The n-gram and the neural language model that rescore, None where the settings ask for none."""
    if not settings_of(config.decode, "rescore"):
        return None, None
    ngram = NgramLm.load(work / "lm" / LARGE) if config.lm.large else None
    neural = load_neural_lm(work / "nnlm" / "model.pt") if config.nnlm.enabled else None
    return ngram, neural


def _open_parser(work: Path, settings: Decode, pieces: Sequence[str]) -> WordParser:
    """What finds words in pieces that do not mark where a word begins."""
    wordless = [method.name for method in settings.methods if method.name in ("greedy", "beam")]
    if wordless:
        raise AsrtoolError(
            f"{work / 'tokenizer'}: its tokens do not mark where a word begins, which method {wordless[0]} needs",
            "use --set decode.methods=graph",
        )
    words = read_symbols(work / "lang" / "words.txt", "lang")
    number = {piece: i for i, piece in enumerate(pieces)}
    lexicon = read_lexicon(work / "lang" / "lexicon.txt", words, pieces)
    spelled = ((word, tuple(number[piece] for piece in spelling)) for word, spelling in lexicon)
    return WordParser(spelled, NgramLm.load(work / "lm" / "G.arpa"))


def check_num_tokens(tokenizer: Path, num_tokens: int, acoustic: AcousticModel) -> None:
    """AsrtoolError unless the model has an output for each of the `num_tokens` of the folder `tokenizer`."""
    if num_tokens != acoustic.info["num_tokens"]:
        raise AsrtoolError(
            f"{tokenizer}: {num_tokens} tokens, but {acoustic.path} was trained on {acoustic.info['num_tokens']}",
            "run the stages train and average again with this tokenizer",
        )


def check_graph_tokens(path: Path, pieces: Sequence[str]) -> None:
    """AsrtoolError unless the graph's symbol table `path` says that label i + 1 is token i."""
    _, *labels = read_symbols(path, "graph")
    if BACKOFF in labels[len(pieces) :]:
        del labels[labels.index(BACKOFF, len(pieces)) :]  # it and the other symbols behind the tokens
    for i, (found, expected) in enumerate(zip_longest(labels, pieces, fillvalue="nothing"), 1):
        if found != expected:
            raise AsrtoolError(
                f"{path}: label {i} is {found}, expected {expected} of the tokenizer",
                "run the stages lang, lm and graph again",
            )
