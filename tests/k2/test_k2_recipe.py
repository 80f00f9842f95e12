"""The recipe with k2 in every place where it can be, and what it does on posteriors of a model trained so."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import kaldifst
import numpy as np
import pytest
import torch
from toy_graph import accept, load_graph

from asrtool.decode.acoustic_model import load_acoustic_model
from asrtool.decode.forward import open_features
from asrtool.decode.search.graph import GraphSearch
from asrtool.lang.graph import build_graph
from asrtool.models.objectives.topology import CtcTopology

pytest.importorskip("k2.fsa", reason="k2 is not installed; make test-k2 makes an environment that has it")

from asrtool.decode.search.graph import K2Search

ROOT = Path(__file__).resolve().parents[2]
WITH_K2 = ["graph.backend=k2", "decode.graph.backend=k2"]
# Learns its few utterances by heart, so that there are words in what it says of them.
BY_HEART = ["train.num_epochs=30", "train.peak_lr=0.01", "train.batch_s=15", "model.lstm.hidden_size=64"]
BY_HEART += ["specaugment.num_freq_masks=0", "specaugment.num_time_masks=0"]
WIDE = 50.0  # a beam in which neither search makes an error

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]


def asrtool(*words: str | Path, set: list[str]) -> None:
    overrides = [word for setting in set for word in ("--set", setting)]
    command = [str(Path(sys.executable).with_name("asrtool")), *map(str, words), *overrides]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("swbd") / "exp"
    asrtool("run", "--config", "ci", "--work", work, set=[*WITH_K2, *BY_HEART])
    return work


def test_the_recipe_runs_from_end_to_end_with_k2(work: Path) -> None:
    results = (work / "RESULTS.md").read_text(encoding="utf-8")
    assert 'backend = "k2"' in results
    for method in ("greedy", "beam", "graph"):
        assert f"| {method} |" in results
        assert (work / "decode" / "hub5" / f"{method}.ctm").is_file()


@pytest.fixture(scope="module")
def posteriors(work: Path) -> list[np.ndarray]:
    """Log posteriors of the training set, one array (T, V) an utterance."""
    acoustic = load_acoustic_model(work / "average" / "model.pt")
    reader = open_features(work / "features" / "train", acoustic)
    result = []
    for i in range(len(reader.index)):
        feats_TF = torch.from_numpy(reader.read(i))
        with torch.no_grad():
            scores_NTV, _ = acoustic.model(feats_TF[None], torch.tensor([len(feats_TF)]))
        result.append(scores_NTV[0].numpy())
    return result


@pytest.mark.parametrize("backend", ["kaldifst", "k2"])
def test_both_searches_find_the_same_best_path_on_real_posteriors(
    work: Path, posteriors: list[np.ndarray], tmp_path: Path, backend: str
) -> None:
    build_graph(work / "lang", work / "lm" / "G.arpa", tmp_path / "graph", CtcTopology().transducer, backend)
    graph = load_graph(tmp_path / "graph")
    theirs, ours = GraphSearch(graph, 100_000), K2Search(tmp_path / "graph", 100_000)
    num_tokens = 0
    for scores_TV in posteriors:
        expected, found = (search.search(scores_TV, 0.5, WIDE) for search in (theirs, ours))
        assert expected is not None
        assert found is not None
        assert cost(graph, found, scores_TV) == pytest.approx(cost(graph, expected, scores_TV), abs=1e-2)
        assert found == expected
        num_tokens += sum(token > 0 for token in found)
    assert num_tokens > 50


def cost(graph: kaldifst.StdConstFst, path: list[int], scores_TV: np.ndarray) -> float:
    """Return the cost of the cheapest way through the graph that reads `path`; infinite if it has none."""
    acoustic = -float(scores_TV[np.arange(len(path)), path].astype(np.float64).sum())
    return acoustic / 0.5 + min(accept(graph, [token + 1 for token in path]).values(), default=math.inf)
