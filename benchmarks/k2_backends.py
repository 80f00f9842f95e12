"""k2 against kaldi-decoder and torch on one core: graph search on the demo's dev set, and the CTC loss.

Run the demo first, then: make test-k2; .venv-k2/bin/python benchmarks/k2_backends.py recipes/swbd/exp
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from asrtool.decode.forward import compute_scores, load_acoustic_model, open_features
from asrtool.decode.search.graph import GraphSearch, K2Search
from asrtool.lang.graph.build import build_graph
from asrtool.lang.graph.graph_file import load_graph
from asrtool.models.objectives.ctc import Ctc, K2Ctc
from asrtool.models.objectives.ctc_topology import CtcTopology
from asrtool.settings.models import Ctc as CtcSettings

BATCH_FRAMES = 20_000
FRAME_S = 0.03
LM_WEIGHT, BEAM, MAX_ACTIVE = 0.5, 14.0, 3000
REPEATS = 5


def measure(tasks: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median CPU seconds of each task over REPEATS rounds in which they take turns; threads count."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(REPEATS):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def make_scores(work: Path) -> list[np.ndarray]:
    """Scores of dev, one array (T, V) an utterance."""
    acoustic = load_acoustic_model(work / "average" / "model.pt")
    reader = open_features(work / "features" / "dev", acoustic)
    return [scored.scores_TV for scored in compute_scores(acoustic.model, reader, BATCH_FRAMES)]


def measure_search(work: Path) -> None:
    scores = make_scores(work)
    audio_s = FRAME_S * sum(map(len, scores))
    tasks: dict[str, Callable[[], object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for backend in ("kaldifst", "k2"):
            graph = Path(folder, backend)
            build_graph(work / "lang", work / "lm" / "G.arpa", graph, CtcTopology().transducer, backend)
            searches = {"kaldi-decoder": GraphSearch(load_graph(graph), MAX_ACTIVE), "k2": K2Search(graph, MAX_ACTIVE)}
            for name, search in searches.items():
                tasks[f"{name} on the graph of {backend}"] = lambda search=search: [  # type: ignore[misc]
                    search.search(scores_TV, LM_WEIGHT, BEAM) for scores_TV in scores
                ]
        for name, seconds in measure(tasks).items():
            print(f"search, {name}: real-time factor {seconds / audio_s:.5f}")


def measure_loss(num_utterances: int, num_frames: int, num_labels: int, num_tokens: int) -> None:
    torch.manual_seed(1)
    logits_NTV = torch.randn(num_utterances, num_frames, num_tokens, requires_grad=True)
    lens_N = torch.full((num_utterances,), num_frames)
    tokens_NU = torch.randint(1, num_tokens, (num_utterances, num_labels))

    lens_of_tokens_N = torch.full((num_utterances,), num_labels)

    def step(objective: type[Ctc]) -> None:
        path_loss = objective(CtcSettings(), num_channels=1, num_tokens=num_tokens).path_loss
        path_loss(logits_NTV.log_softmax(-1), lens_N, tokens_NU, lens_of_tokens_N).backward()

    shape = f"{num_utterances} x {num_frames} rows, {num_labels} of {num_tokens} tokens"
    for name, seconds in measure({"ctc": lambda: step(Ctc), "k2-ctc": lambda: step(K2Ctc)}).items():
        print(f"loss and gradient, {name}, {shape}: {seconds:.4f} s")


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure_search(Path(sys.argv[1]))
    measure_loss(20, 83, 12, 60)
    measure_loss(16, 300, 40, 500)
