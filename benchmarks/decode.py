"""Real-time factor of each search on one core, beside kaldi-decoder (and k2, where installed) called bare.

    .venv/bin/python benchmarks/decode.py [WORK] [--rounds 5] [--words 20000]

WORK is a finished run of the mini recipe, by default recipes/swbd/exp, which `make demo` leaves. Its dev set is
searched with its own graph and with one that knows made-up words as well. Methods take turns; figures are medians of
CPU time.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and torch are imported

import kaldi_decoder
import kaldifst
import numpy as np
import torch
from asrtool.decode.path import find_spans
from asrtool.decode.trial import Trial

from asrtool.config import Decode, Lm
from asrtool.decode.forward import Posteriors, compute_posteriors
from asrtool.decode.inputs import AcousticModel, load_acoustic_model, load_search, open_features
from asrtool.decode.search import Search
from asrtool.decode.tune import count_errors
from asrtool.lang.graph import build_graph, load_graph
from asrtool.lang.lexicon import build_lang
from asrtool.lang.lm import build_lm
from asrtool.lang.symbols import read_symbols
from asrtool.models.ctc_topology import CtcTopology
from asrtool.score.result import total

BATCH_FRAMES = 20_000
SETTINGS = Decode(methods=("greedy", "beam", "graph", "rescore"))
LM_WEIGHT, GRAPH_BEAM, BEAM_SIZE = 0.5, 14.0, 16
TRIALS = [
    Trial("greedy"),
    Trial("beam", LM_WEIGHT, 0.0, BEAM_SIZE),
    Trial("graph", LM_WEIGHT, 0.0, GRAPH_BEAM),
    Trial("rescore", LM_WEIGHT, 0.0, GRAPH_BEAM),
]
NUM_SENTENCES = 40_000
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "is", "on", "ut")]


Found = list[str] | list[int] | None  # words, or a path of one token a frame


@dataclass
class Measured:
    """What one method took in each round, and found in the last one."""

    run: Callable[[Posteriors], Found]
    seconds: list[float] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="?", type=Path, default=Path("recipes/swbd/exp"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--words", type=int, default=20_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    acoustic = load_acoustic_model(options.work / "average" / "model.pt")
    reader = open_features(options.work / "features" / "dev", acoustic)
    dev = list(compute_posteriors(acoustic.model, reader, BATCH_FRAMES))
    measure("mini corpus", options.work, acoustic, dev, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        large = make_large(options.work, Path(folder), options.words)
        measure(f"{options.words} words more", large, acoustic, dev, options.rounds)


def make_large(work: Path, folder: Path, num_words: int) -> Path:
    """A work directory of the same tokenizer, with a lexicon, trigram and graph that know `num_words` words more."""
    random = np.random.default_rng(20)
    made_up = list({"".join(random.choice(SYLLABLES, random.integers(2, 5))) for _ in range(2 * num_words)})[:num_words]
    rank = np.arange(1, num_words + 1)
    said = random.choice(sorted(made_up), (NUM_SENTENCES, 10), p=(1 / rank) / (1 / rank).sum())
    sentences = [" ".join(words) for words in said.tolist()] + sorted(made_up)  # every word at least once
    text = folder / "sentences.txt"
    text.write_text((work / "manifests/train/sentences.txt").read_text() + "\n".join(sentences) + "\n")
    (folder / "tokenizer").symlink_to((work / "tokenizer").resolve())
    build_lang(text, folder / "tokenizer", folder / "lang", 0)
    build_lm([text], folder / "lm" / "G.arpa", Lm(order=3, min_counts=(1, 1, 2)), folder / "lang" / "words.txt")
    build_graph(folder / "lang", folder / "lm" / "G.arpa", folder / "graph", CtcTopology().transducer)
    return folder


def measure(name: str, work: Path, acoustic: AcousticModel, dev: list[Posteriors], rounds: int) -> None:
    """Search `dev` with all methods in turn, and print a table."""
    search = load_search(work, SETTINGS, acoustic)
    methods = {trial.method: Measured(run_trial(search, trial)) for trial in TRIALS}
    methods["graph, path alone"] = Measured(find_path(search))
    methods["kaldi-decoder, bare"] = Measured(bare_kaldi(work / "graph"))
    methods |= k2_methods(work / "graph")
    for _ in range(rounds):
        for method in methods.values():
            start_s = time.process_time()
            method.found = [method.run(posteriors) for posteriors in dev]
            method.seconds.append(time.process_time() - start_s)
    audio_s = sum(posteriors.utterance.duration_s for posteriors in dev)
    texts = [posteriors.utterance.text for posteriors in dev]
    size_bytes = (work / "graph" / "HLG.fst").stat().st_size
    print(f"\n{name}: {audio_s:.0f} s of speech, graph of {size_bytes / 2**20:.0f} MiB, {rounds} rounds")
    print("| method | real-time factor | times bare kaldi-decoder | WER on dev |\n|---|---|---|---|")
    bare_s = statistics.median(methods["kaldi-decoder, bare"].seconds)
    for label, method in methods.items():
        seconds = statistics.median(method.seconds)
        words = [to_words(found, item, search) for found, item in zip(method.found, dev, strict=True)]
        wer = total(map(count_errors, texts, words)).wer
        print(f"| {label} | {seconds / audio_s:.5f} | {seconds / bare_s:.2f} | {wer:.2f} |")


def run_trial(search: Search, trial: Trial) -> Callable[[Posteriors], list[str]]:
    """A method as decoding uses it, words with times and confidences included."""

    def run(posteriors: Posteriors) -> list[str]:
        (found,) = search((posteriors.log_probs_TV, [trial]))
        words = found.candidates[0].words if found.candidates else found.words
        return [word.text for word in words]

    return run


def find_path(search: Search) -> Callable[[Posteriors], Found]:
    """Method graph up to the best path: a token a frame."""
    assert search.graphs is not None, "method graph loads graphs"
    graph = search.graphs[0.0]

    def run(posteriors: Posteriors) -> Found:
        return graph.search(posteriors.log_probs_TV, LM_WEIGHT, GRAPH_BEAM)

    return run


def bare_kaldi(graph_dir: Path) -> Callable[[Posteriors], list[str]]:
    """The words of the best path, without times and confidences."""
    graph = load_graph(graph_dir)
    words = read_symbols(graph_dir / "words.txt", "graph")
    options = kaldi_decoder.FasterDecoderOptions(beam=GRAPH_BEAM, max_active=SETTINGS.max_active)

    def run(posteriors: Posteriors) -> list[str]:
        decoder = kaldi_decoder.FasterDecoder(graph, options)
        decoder.decode(kaldi_decoder.DecodableCtc(posteriors.log_probs_TV / np.float32(LM_WEIGHT)))
        _, path = decoder.get_best_path()
        return [words[label] for label in kaldifst.get_linear_symbol_sequence(path)[2]]

    return run


def k2_methods(graph_dir: Path) -> dict[str, Measured]:
    """The best path by k2, where that can be imported."""
    if importlib.util.find_spec("k2") is None:
        print("k2 is not installed here: it is compared by .venv-k2/bin/python, see `make test-k2`")
        return {}
    from asrtool.decode.k2_search import K2Search

    search = K2Search(graph_dir, SETTINGS.max_active)

    def run(posteriors: Posteriors) -> Found:
        return search.search(posteriors.log_probs_TV, LM_WEIGHT, GRAPH_BEAM)

    return {"k2, path alone": Measured(run)}


def to_words(found: Found, posteriors: Posteriors, search: Search) -> list[str]:
    """What a method found as words."""
    if not found or isinstance(found[0], str):
        return [str(word) for word in found or []]
    return [word for word, _ in search.pieces.group(find_spans(found, posteriors.log_probs_TV))]


if __name__ == "__main__":
    main()
