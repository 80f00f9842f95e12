"""Measure real-time factors of searches, bare kaldi-decoder and k2 on one core.

    benchmarks/bench.py decode [--rounds 5]

The dev set of a demo is searched. Methods take turns; figures are medians of CPU time.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and torch are imported

import kaldi_decoder
import kaldifst
import numpy as np
import torch

from asrtool.decode.acoustic_model import AcousticModel, Scored, load_acoustic_model
from asrtool.decode.forward import compute_scores, open_features
from asrtool.decode.parameters import DecodingParameters
from asrtool.decode.resources import Resources
from asrtool.decode.search.graph import Graph
from asrtool.decode.search.method import SearchMethod, make_methods
from asrtool.decode.tune import count_errors
from asrtool.lang.graph_file import load_fst, read_graph
from asrtool.lang.text import read_symbols
from asrtool.score.result import total
from asrtool.settings.config import Config
from asrtool.settings.decode import Decode
from asrtool.settings.schema import SEARCHED, Choice

BATCH_FRAMES = 20_000
CONFIG = Config(decode=Decode(methods=tuple(Choice.of("search", n) for n in ("greedy", "beam", "graph", "rescore"))))
LM_WEIGHT, GRAPH_BEAM, BEAM_SIZE, MAX_ACTIVE = 0.5, 14.0, 16, 3000
WEIGHTS = {"lm_weight": LM_WEIGHT, "word_penalty": 0.0}
GRAPH = DecodingParameters.of("graph", **WEIGHTS, beam=GRAPH_BEAM)
PARAMETERS = [
    DecodingParameters("greedy"),
    DecodingParameters.of("beam", **WEIGHTS, beam=BEAM_SIZE),
    GRAPH,
    DecodingParameters.of("rescore", GRAPH, **WEIGHTS, beam=GRAPH_BEAM, nnlm_weight=0.0),
]

Output = list[str] | list[int] | None  # words, or a path of one token a frame


@dataclass
class Measured:
    """Seconds of a method in each round, and its last output."""

    run: Callable[[Scored], Output]
    seconds: list[float] = field(default_factory=list)
    found: list[Output] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="?", type=Path, default=Path("recipes/swbd/exp"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    acoustic = load_acoustic_model(options.work / "average" / "model.pt")
    reader = open_features(options.work / "features" / "dev", acoustic)
    dev = list(compute_scores(acoustic.model, reader, BATCH_FRAMES))
    measure(options.work, acoustic, dev, options.rounds)


def measure(work: Path, acoustic: AcousticModel, dev: list[Scored], rounds: int) -> None:
    """Search `dev` with all methods in turn, and print a table."""
    resources = Resources(acoustic, {folder: work / folder for folder in SEARCHED}, CONFIG)
    searches = make_methods(CONFIG.decode, resources)
    for parameters in PARAMETERS:
        searches[parameters.method].open({name: [value] for name, value in parameters.items})
        searches[parameters.method].prepare([parameters])
    methods = {each.method: Measured(run_method(searches[each.method], each)) for each in PARAMETERS}
    methods["graph, path alone"] = Measured(find_path(searches["graph"]))
    methods["kaldi-decoder, bare"] = Measured(bare_kaldi(work / "graph"))
    methods |= k2_methods(work / "graph")
    for _ in range(rounds):
        for method in methods.values():
            start_s = time.process_time()
            method.found = [method.run(scored) for scored in dev]
            method.seconds.append(time.process_time() - start_s)
    audio_s = sum(scored.utterance.duration_s for scored in dev)
    texts = [scored.utterance.transcript for scored in dev]
    print(f"{audio_s:.0f} s of speech, {rounds} rounds\n")
    print("| method | real-time factor | times bare kaldi-decoder | WER on dev |\n|---|---|---|---|")
    bare_s = statistics.median(methods["kaldi-decoder, bare"].seconds)
    for label, method in methods.items():
        seconds = statistics.median(method.seconds)
        words = [to_words(found, item, resources) for found, item in zip(method.found, dev, strict=True)]
        wer = total(map(count_errors, texts, words)).wer
        print(f"| {label} | {seconds / audio_s:.5f} | {seconds / bare_s:.2f} | {wer:.2f} |")


def run_method(method: SearchMethod, parameters: DecodingParameters) -> Callable[[Scored], list[str]]:
    """A method as decoding uses it, words with times and confidences included."""
    first_pass = method.first_pass(parameters)

    def run(scored: Scored) -> list[str]:
        (words,) = method.choose(method.search(scored.scores_TV, first_pass), [parameters])
        return [word.text for word in words]

    return run


def find_path(method: SearchMethod) -> Callable[[Scored], Output]:
    """Method graph up to the best path: a token a frame."""
    assert isinstance(method, Graph)
    graph = method.searches[0.0]

    def run(scored: Scored) -> Output:
        return graph.search(scored.scores_TV, LM_WEIGHT, GRAPH_BEAM)

    return run


def bare_kaldi(graph_dir: Path) -> Callable[[Scored], list[str]]:
    """The words of the best path, without times and confidences."""
    graph = load_fst(read_graph(graph_dir))
    words = read_symbols(graph_dir / "words.txt", "graph")
    options = kaldi_decoder.FasterDecoderOptions(beam=GRAPH_BEAM, max_active=MAX_ACTIVE)

    def run(scored: Scored) -> list[str]:
        decoder = kaldi_decoder.FasterDecoder(graph, options)
        decoder.decode(kaldi_decoder.DecodableCtc(scored.scores_TV / np.float32(LM_WEIGHT)))
        _, path = decoder.get_best_path()
        return [words[label] for label in kaldifst.get_linear_symbol_sequence(path)[2]]

    return run


def k2_methods(graph_dir: Path) -> dict[str, Measured]:
    """The best path by k2, where that can be imported."""
    if importlib.util.find_spec("k2") is None:
        print("k2 is not installed here: it is compared by .venv-k2/bin/python, see `make test-k2`")
        return {}
    from asrtool.decode.search.graph import K2Search

    search = K2Search(graph_dir, MAX_ACTIVE)

    def run(scored: Scored) -> Output:
        return search.search(scored.scores_TV, LM_WEIGHT, GRAPH_BEAM)

    return {"k2, path alone": Measured(run)}


def to_words(found: Output, scored: Scored, resources: Resources) -> list[str]:
    """Convert the output of a method to words."""
    if not found or isinstance(found[0], str):
        return [str(word) for word in found or []]
    return [word.text for word in resources.word_reader.read(found, scored.scores_TV)]


if __name__ == "__main__":
    main()
