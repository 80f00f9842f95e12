"""Seconds a list and peak memory of scoring n-best lists by a neural language model, in several ways that take turns.

    .venv/bin/python benchmarks/rescoring.py [--lists 32] [--rounds 3] [--words 45000] [--length N]

`whole`: list by list, all logits of all positions at once, as asrtool did at first (933a392). `together`: lists in one
tree, as many as a search process is given, in float32 and with matrix products in bf16. Each for the model that was the
default at first, for that of swb300, and for that one without the projection. Lists are invented: the 100 cheapest
ways through slots of which three in five have 2 to 8 words to choose from, frequent as in Zipf's law; weights are
random, and large enough that sentences differ by more than their length. Then the time that as much arithmetic as
`together` needs takes in large products.
Each way has one thread, in a forked process, and its CPU time counts; where torch sees a GPU, the ways run there as
well, in this process.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from asrtool.decode.parallel import PIECE
from asrtool.models.acoustic import choose_device
from asrtool.models.lm.neural_lm import EDGE, UNK, NeuralLm, build_neural_lm, pad_sentences
from asrtool.models.lm.next_word import Softmax
from asrtool.settings.toml_files import load_config

Sentences = list[list[str]]
RECIPE = Path(__file__).parent.parent / "recipes" / "swbd" / "conf" / "swb300.toml"
MODELS = {
    "at first": ("nnlm.output=softmax", "nnlm.word-lstm.projection_size=0", "nnlm.word-lstm.hidden_size=512"),
    "swb300, no projection": ("nnlm.word-lstm.projection_size=0",),
    "swb300": (),
}
SCALE = 4  # of random weights
NUM_PATHS = 100
SHORT = (1, 2, 2, 3)  # words of a third of the sentences, which are turns such as "yeah"
LONG = (4, 30)  # of the others, at least and at most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=45_000)
    parser.add_argument("--length", type=int, help="words of every sentence, in place of a mixture")
    options = parser.parse_args()
    torch.set_num_threads(1)
    words = [UNK, EDGE, *(f"w{number}" for number in range(options.words - 2))]  # the most frequent first
    models = {name: make_model(words, *settings) for name, settings in MODELS.items()}
    lists = make_lists(options.lists, options.length, words[2:], np.random.default_rng(1))
    print_lists(lists)
    compare(models, lists, options.rounds, in_process)
    print_products(models, lists)
    if choose_device().type == "cuda":
        print(torch.cuda.get_device_name())
        compare({name: model.to(choose_device()) for name, model in models.items()}, lists, options.rounds, on_gpu)


def make_model(words: list[str], *changed: str) -> NeuralLm:
    """That of swb300 with changed settings, with random weights."""
    settings = load_config([RECIPE], changed).nnlm
    torch.manual_seed(0)
    model = build_neural_lm(settings.encoder, settings.output, words).eval()
    with torch.no_grad():
        for weights in model.encoder.parameters():
            weights.mul_(SCALE)
    return model


def print_lists(lists: list[Sentences]) -> None:
    """What of them is computed: positions, distinct beginnings, and those with the same last words alone."""
    positions = sum(len(sentence) + 1 for each in lists for sentence in each)
    print(f"{len(lists)} lists of {positions / len(lists):.0f} positions, and of distinct ", end="")
    for last in (None, 5, 4, 3):
        found = {
            (number, last and t - last > 0, tuple(words[max(0, t - last) if last else 0 : t]))
            for number, each in enumerate(lists)
            for words in each
            for t in range(len(words) + 1)
        }
        name = f"histories of {last} words" if last else "beginnings"
        print(f"{name} {len(found) / len(lists):.0f}", end="\n" if last == 3 else ", ")


def make_lists(num: int, length: int | None, words: Sequence[str], random: np.random.Generator) -> list[Sentences]:
    """N-best lists, the shorter ones first, as batches of like length give them."""
    lengths = [int(random.choice(SHORT) if random.random() < 1 / 3 else random.integers(*LONG)) for _ in range(num)]
    return [make_list(length or each, words, random) for each in sorted(lengths)]


def make_list(length: int, words: Sequence[str], random: np.random.Generator) -> Sentences:
    """The cheapest of all ways through `length` slots, whose first word costs nothing."""
    best: list[tuple[float, list[str]]] = [(0.0, [])]
    for _ in range(length):
        size = int(random.integers(2, 9)) if random.random() < 0.6 or length < 3 else 1
        size *= 1 if length > 2 else 10  # a short turn is filled up with rare words
        costs = [0.0, *np.sort(random.exponential(3.0, size - 1))]
        # Words are as frequent as in Zipf's law, so that lists begin with the same ones.
        chosen = [words[int(len(words) ** random.random()) - 1] for _ in costs]
        ways = [
            (cost + more, [*before, word]) for cost, before in best for more, word in zip(costs, chosen, strict=True)
        ]
        best = heapq.nsmallest(NUM_PATHS, ways, key=lambda way: way[0])
    return [sentence for _, sentence in best]


def whole(model: NeuralLm, lists: list[Sentences]) -> list[float]:
    scores: list[float] = []
    device = model.objective.bias_V.device
    for each in lists:
        batch = [part.to(device) for part in pad_sentences([model.number(words) for words in each])]
        read_NT, lens_N, predicted_NT = batch
        with torch.inference_mode():
            hidden_NTC, _ = model.encoder(read_NT, lens_N)
            if isinstance(model.objective, Softmax):
                losses_NT = all_losses(model.objective, hidden_NTC, predicted_NT)
                spoken_NT = torch.arange(losses_NT.shape[1], device=device) < lens_N[:, None]
                scores += (-(losses_NT * spoken_NT).sum(dim=1)).tolist()
            else:
                scores += (-model.objective.losses(hidden_NTC, predicted_NT, lens_N)).tolist()
    return scores


def all_losses(output: Softmax, hidden_NTC: torch.Tensor, predicted_NT: torch.Tensor) -> torch.Tensor:
    """-ln p, padding included, as asrtool computed it."""
    logits_NTV = torch.nn.functional.linear(hidden_NTC, output.weight_VC, output.bias_V)
    return torch.nn.functional.cross_entropy(logits_NTV.transpose(1, 2), predicted_NT, reduction="none")


def together(model: NeuralLm, lists: list[Sentences]) -> list[float]:
    groups = (lists[first : first + PIECE] for first in range(0, len(lists), PIECE))
    return [score for group in groups for score in model.log_probs([words for each in group for words in each])]


def in_bf16(model: NeuralLm, lists: list[Sentences]) -> list[float]:
    with torch.autocast(model.objective.bias_V.device.type, torch.bfloat16):
        return together(model, lists)


WAYS = {"whole": whole, "together": together, "together, bf16": in_bf16}


def compare(
    models: dict[str, NeuralLm], lists: list[Sentences], rounds: int, run: Callable[[Callable[[], Any]], Any]
) -> None:
    """Print a row for each model and way."""
    found: dict[tuple[str, str], list[tuple[list[float], float, float]]] = {
        (name, way): [] for name in models for way in WAYS
    }
    for _ in range(rounds):
        for name, way in found:
            found[name, way].append(run(functools.partial(WAYS[way], models[name], lists)))
    print("| model | way | s a list | times as fast | as the same model | MiB at the peak, beside it | differs by |")
    print("|---|---|---|---|---|---|---|")
    medians = {key: statistics.median(seconds for _, seconds, _ in each) / len(lists) for key, each in found.items()}
    slowest = medians[next(iter(models)), "whole"]
    for (name, way), each in found.items():
        took = medians[name, way]
        peak = statistics.median(peak for _, _, peak in each)
        error = np.max(np.abs(np.array(each[0][0]) / np.array(found[name, "whole"][0][0]) - 1))
        same = medians[name, "whole"] / took
        print(f"| {name} | {way} | {took:.4f} | {slowest / took:.1f} | {same:.1f} | {peak:.0f} | {error:.1e} |")


def print_products(models: dict[str, NeuralLm], lists: list[Sentences]) -> None:
    """The arithmetic of the matrix products of `together`, and how long a CPU takes for as much in large products."""
    rates = {str(dtype)[6:]: rate_of(dtype) for dtype in (torch.float32, torch.bfloat16)}
    print(", ".join(f"{name}: {rate:.0f} GFLOP/s" for name, rate in rates.items()))
    for name, model in models.items():
        with FlopCounterMode(display=False) as counter:
            together(model, lists)
        gflop = counter.get_total_flops() / len(lists) / 1e9
        print(f"{name}: {gflop:.1f} GFLOP a list, " + ", ".join(f"{gflop / rate:.4f} s" for rate in rates.values()))


def rate_of(dtype: torch.dtype, size: int = 1024) -> float:
    """GFLOP a CPU second of products of square matrices."""
    factors = torch.randn(2, size, size).to(dtype)
    times = []
    for _ in range(20):
        start_s = time.process_time()
        torch.mm(*factors)
        times.append(time.process_time() - start_s)
    return 2 * size**3 / statistics.median(times) / 1e9


def in_process(work: Callable[[], list[float]]) -> tuple[list[float], float, float]:
    """What `work` gives, the CPU seconds it takes, and MiB of memory more at its peak."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        torch.set_num_threads(1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start_s = time.process_time()
        result = work()
        took_s = time.process_time() - start_s
        theirs.send((result, took_s, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))

    process = context.Process(target=child)
    process.start()
    found: tuple[list[float], float, float] = ours.recv()
    process.join()
    return found


def on_gpu(work: Callable[[], list[float]]) -> tuple[list[float], float, float]:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    start_s = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return result, time.perf_counter() - start_s, (torch.cuda.max_memory_allocated() - before) / 2**20


if __name__ == "__main__":
    main()
