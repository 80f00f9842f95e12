"""Seconds of a training step by model size, precision, threads and busy neighbours.

    python benchmarks/train_step.py

Variants are interleaved in one run; printed is the median and the smallest of REPEATS steps of each.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time

import torch

from asrtool.models.acoustic import AcousticModel, build_model
from asrtool.models.precision import Precision
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice

REPEATS = 7
NUM_BINS, NUM_TOKENS = 40, 60
NUM_UTTERANCES, NUM_FRAMES, NUM_LABELS = 20, 250, 12  # 50 s of speech


def main() -> None:
    """Print a table of all variants."""
    print(f"torch {torch.__version__}; a batch of {NUM_UTTERANCES * NUM_FRAMES / 100:g} s of speech")
    print("cells busy threads precision   median s   least s")
    for hidden_size, num_busy in itertools.product((192, 256), (0, 1)):
        for (threads, name), seconds in measure(hidden_size, num_busy).items():
            median, least = statistics.median(seconds), min(seconds)
            print(f"3x{hidden_size} {num_busy:4} {threads:7} {name:>9} {median:10.3f} {least:9.3f}")


def measure(hidden_size: int, num_busy: int) -> dict[tuple[int, str], list[float]]:
    """Seconds of each step, by threads and precision, beside `num_busy` processes that do nothing but count."""
    neighbours = [multiprocessing.Process(target=count, daemon=True) for _ in range(num_busy)]
    for neighbour in neighbours:
        neighbour.start()
    model = build_model(
        Model(Choice.of("encoder", "lstm", num_layers=3, hidden_size=hidden_size)), NUM_BINS, NUM_TOKENS
    )
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    variants = list(itertools.product((1, 2), ("fp32", "bf16")))
    seconds: dict[tuple[int, str], list[float]] = {variant: [] for variant in variants}
    for _, (threads, name) in itertools.product(range(REPEATS + 1), variants):
        torch.set_num_threads(threads)
        start = time.perf_counter()
        step(model, optimizer, Precision(torch.device("cpu"), name))
        seconds[threads, name].append(time.perf_counter() - start)
    for neighbour in neighbours:
        neighbour.kill()
    return {variant: times[1:] for variant, times in seconds.items()}  # the first of each warms up


def count() -> None:
    """Keep a core busy."""
    for _ in itertools.count():
        pass


def step(model: AcousticModel, optimizer: torch.optim.Optimizer, precision: Precision) -> None:
    """Forward, backward and update on a batch of noise."""
    lens_N = torch.full((NUM_UTTERANCES,), NUM_FRAMES)
    tokens_NU = torch.randint(2, NUM_TOKENS, (NUM_UTTERANCES, NUM_LABELS))
    token_lens_N = torch.full((NUM_UTTERANCES,), NUM_LABELS)
    with precision.autocast():
        loss = model.loss(torch.randn(NUM_UTTERANCES, NUM_FRAMES, NUM_BINS), lens_N, tokens_NU, token_lens_N)
    optimizer.zero_grad()
    loss.total.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()


if __name__ == "__main__":
    main()
