"""CPU seconds of a training step of a hybrid model: of frames, and of sequences by the size of the denominator.

    python benchmarks/sequence_step.py

Objectives are interleaved in one run on one thread; printed is the median of REPEATS steps of each.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator

import numpy as np
import torch

from asrtool.models.acoustic import AcousticModel, build_model
from asrtool.models.objectives.decision_tree import Tree
from asrtool.models.objectives.lf_mmi import LfMmi
from asrtool.models.precision import Precision
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice

REPEATS = 7
NUM_BINS, NUM_TOKENS, NUM_CONTEXTS = 40, 45, 20  # leaves of a token and place
NUM_UTTERANCES, NUM_FRAMES, NUM_SEGMENTS = 20, 250, 28  # 50 s of speech
NUM_CHOICES = 20  # tokens that may follow two others
HISTORIES = (500, 2000, 10_000)  # model.lf-mmi.max_histories


def main() -> None:
    """Print a table of all objectives."""
    torch.set_num_threads(1)
    precision = Precision(torch.device("cpu"), "fp32")
    models = {"frame-ce": make_model(Choice.of("objective", "frame-ce"))}
    for number in HISTORIES:
        models[f"lf-mmi {number}"] = make_model(Choice.of("objective", "lf-mmi", max_histories=number))
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _, (name, model) in itertools.product(range(REPEATS + 1), models.items()):
        start = time.process_time()
        step(model, precision)
        seconds[name].append(time.process_time() - start)
    print(f"torch {torch.__version__}; a batch of {NUM_UTTERANCES * NUM_FRAMES / 100:g} s of speech")
    print("objective     states    arcs  median s")
    for name, model in models.items():
        sizes = 0, 0
        if isinstance(model.objective, LfMmi) and model.objective.graph:
            sizes = len(model.objective.graph.first_S), len(model.objective.graph.sources_A)
        print(f"{name:<12} {sizes[0]:7} {sizes[1]:7} {statistics.median(seconds[name][1:]):9.3f}")


def make_model(objective: Choice) -> AcousticModel:
    """Three layers of 192 cells, about 1,800 leaves, and a denominator where the objective has one."""
    encoder = Choice.of("encoder", "lstm", num_layers=3, hidden_size=192)
    random = np.random.default_rng(0)
    leaves_VV2 = random.integers(0, NUM_CONTEXTS, (NUM_TOKENS, NUM_TOKENS, 2), dtype=np.int32)
    for token, place in itertools.product(range(1, NUM_TOKENS), (0, 1)):
        leaves_VV2[:, token, place] += 1 + NUM_CONTEXTS * (2 * token - 2 + place)
    leaves_VV2[:, 0] = 0
    num_leaves = int(leaves_VV2.max()) + 1
    tree = Tree(leaves_VV2, np.full(num_leaves, 100))
    model = build_model(Model(encoder, objective), NUM_BINS, NUM_TOKENS, tree)
    model.objective.prepare(sequences(random))
    return model


def sequences(random: np.random.Generator) -> Iterator[np.ndarray]:
    """Utterances in which one of NUM_CHOICES tokens follows each pair of others."""
    next_VVC = random.integers(0, NUM_TOKENS, (NUM_TOKENS, NUM_TOKENS, NUM_CHOICES))
    for _ in range(3000):
        tokens = random.integers(0, NUM_TOKENS, 2).tolist()
        for choice in random.integers(0, NUM_CHOICES, 50).tolist():
            tokens.append(int(next_VVC[tokens[-2], tokens[-1], choice]))
        yield np.array(tokens)


def step(model: AcousticModel, precision: Precision) -> None:
    """Forward and backward on a batch of noise."""
    lens_N, num_rows = torch.full((NUM_UTTERANCES,), NUM_FRAMES), -(-NUM_FRAMES // 3)
    targets_NU = torch.randint(1, 100, (NUM_UTTERANCES, NUM_SEGMENTS)).repeat_interleave(3, 1)[:, :num_rows]
    with precision.autocast():
        feats_NTF = torch.randn(NUM_UTTERANCES, NUM_FRAMES, NUM_BINS)
        loss = model.loss(feats_NTF, lens_N, targets_NU, torch.full((NUM_UTTERANCES,), num_rows))
    loss.total.backward()


if __name__ == "__main__":
    main()
