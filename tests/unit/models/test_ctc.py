"""CTC against the sum over all paths: its loss, of one view and of two, its best paths, and the rows it needs."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import Loss, build_model
from asrtool.models.objectives.ctc import Ctc, divergence_of_views
from asrtool.models.objectives.targets import Targets
from asrtool.models.objectives.topology import CtcTopology, load_topology
from asrtool.settings.config import check_conflicts
from asrtool.settings.models import Ctc as CtcSettings
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.train.loop.loss import Sums
from asrtool.train.train import acoustic_job

NUM_TOKENS = 3


class GivenScores(Ctc):
    """The hidden rows are the scores."""

    def __init__(self) -> None:
        super().__init__(CtcSettings(), NUM_TOKENS, NUM_TOKENS)

    def scores(self, hidden_NTC: torch.Tensor) -> torch.Tensor:
        return hidden_NTC


def collapse(path: tuple[int, ...]) -> list[int]:
    return [token for token, _ in itertools.groupby(path) if token != 0]


def distance(ref: Sequence[str], hyp: Sequence[str]) -> int:
    """Return the fewest edits, by recursion over the last word of each."""
    if not ref or not hyp:
        return len(ref) + len(hyp)
    changes = distance(ref[:-1], hyp[:-1]) + (ref[-1] != hyp[-1])
    return min(changes, distance(ref[:-1], hyp) + 1, distance(ref, hyp[:-1]) + 1)


def brute_force(log_probs_TV: torch.Tensor, tokens: list[int]) -> float:
    """-ln of the probability of all paths that give `tokens`, one by one."""
    paths = itertools.product(range(NUM_TOKENS), repeat=len(log_probs_TV))
    sums = [sum(log_probs_TV[t, v] for t, v in enumerate(path)) for path in paths if collapse(path) == tokens]
    return -float(torch.logsumexp(torch.stack(sums), 0))


def test_the_loss_is_the_sum_over_all_paths_of_each_utterance() -> None:
    torch.manual_seed(5)
    lens, targets = [5, 3, 4, 2], [[1, 2], [1], [2, 2], []]
    log_probs_NTV = torch.randn(4, 5, NUM_TOKENS).log_softmax(-1)
    tokens_NU = torch.tensor([[1, 2], [1, 0], [2, 2], [0, 0]])
    loss = GivenScores().loss(log_probs_NTV, torch.tensor(lens), tokens_NU, torch.tensor([2, 1, 2, 0]))
    expected = sum(brute_force(log_probs_NTV[n, : lens[n]], targets[n]) for n in range(4))
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)
    assert (loss.normaliser, loss.figures) == (5, {})


def test_wrong_tokens_of_the_best_paths_are_counted_but_in_training() -> None:
    paths, lens = [[1, 1, 0, 1, 2], [0, 2, 2, 1, 1], [0, 0, 2, 2, 2]], torch.tensor([5, 3, 2])
    scores_NTV = torch.eye(NUM_TOKENS)[torch.tensor(paths)].log_softmax(-1)
    tokens_NU, token_lens_N = torch.tensor([[1, 2, 0], [2, 2, 1], [2, 0, 0]]), torch.tensor([2, 2, 1])
    loss = GivenScores().eval().loss(scores_NTV, lens, tokens_NU, token_lens_N)
    assert loss.figures == {"errors": 1 + 1 + 1}  # 1 1 2 for 1 2, 2 for 2 2, nothing for 2


def test_wrong_words_are_counted_however_tokens_spell_them() -> None:
    generator = np.random.default_rng(3)
    objective = GivenScores().eval()
    spellings = objective.spellings = ["", " a", "b", " ab", " b", " "]
    paths, targets = generator.integers(6, size=(40, 9)), generator.integers(1, 6, size=(40, 4))
    refs = ["".join(spellings[token] for token in row).split() for row in targets]
    hyps = ["".join(spellings[token] for token in collapse(tuple(row))).split() for row in paths]
    scores_NTV = torch.eye(6)[torch.tensor(paths)].log_softmax(-1)
    loss = objective.loss(scores_NTV, torch.full((40,), 9), torch.tensor(targets), torch.full((40,), 4))
    sums = Sums()
    sums.add(0.0, loss.normaliser, loss.figures)
    assert sums.means()["word_errors"] == pytest.approx(sum(map(distance, refs, hyps)) / sum(map(len, refs)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, NUM_TOKENS - 1), max_size=4))
def test_the_loss_is_finite_exactly_from_the_frames_needed_on(tokens: list[int]) -> None:
    needed = CtcTopology().rows_needed(tokens)
    for num_frames in (needed - 1, needed):
        if num_frames < 1:
            continue
        log_probs_NTV = torch.zeros(1, num_frames, NUM_TOKENS).log_softmax(-1)
        assert (GivenScores().fits(num_frames, tokens) == "") == (num_frames >= needed)
        tokens_NU = torch.tensor([tokens], dtype=torch.int64)
        loss = GivenScores().loss(log_probs_NTV, torch.tensor([num_frames]), tokens_NU, torch.tensor([len(tokens)]))
        assert bool(torch.isfinite(loss.total)) == (num_frames >= needed)


CTC = CtcTopology()


def log_of(rows: list[list[float]]) -> np.ndarray:
    return np.log(np.array(rows, dtype=np.float32))


def test_the_best_path_has_the_best_token_of_each_row_and_spans_join_runs_but_not_across_a_blank() -> None:
    scores_TV = log_of(
        [[0.1, 0.7, 0.2], [0.2, 0.6, 0.2], [0.8, 0.1, 0.1], [0.3, 0.5, 0.2], [0.1, 0.1, 0.8], [0.9, 0.05, 0.05]]
    )
    path = CTC.best_path(scores_TV)
    assert path == [1, 1, 0, 1, 2, 0]
    spans = CTC.spans(path, scores_TV)
    assert [span[:3] for span in spans] == [(1, 0, 2), (1, 3, 4), (2, 4, 5)]
    assert [math.exp(peak) for *_, peak in spans] == pytest.approx([0.7, 0.5, 0.8], rel=1e-5)


def test_no_rows_and_only_blanks_hold_no_spans() -> None:
    empty_TV = np.zeros((0, 3), dtype=np.float32)
    assert CTC.spans(CTC.best_path(empty_TV), empty_TV) == []
    scores_TV = log_of([[0.9, 0.1], [0.8, 0.2]])
    assert CTC.spans(CTC.align(scores_TV, ()), scores_TV) == []


def test_a_token_twice_in_a_row_keeps_a_blank_between() -> None:
    scores_TV = log_of([[0.01, 0.99], [0.01, 0.99], [0.01, 0.99]])
    assert CTC.align(scores_TV, (1, 1)) == [1, 0, 1]
    assert CTC.spans([1, 0, 1], scores_TV)[1] == (1, 2, 3, pytest.approx(math.log(0.99), rel=1e-4))


@given(st.integers(1, 4), st.integers(0, 2**31))
def test_the_alignment_is_the_best_of_all_paths_of_the_tokens(num_rows: int, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(scale=3, size=(num_rows, 4))
    scores_TV = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)
    best: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(4), repeat=num_rows):
        tokens, score = tuple(collapse(path)), sum(float(scores_TV[t, v]) for t, v in enumerate(path))
        best[tokens] = max(score, best.get(tokens, -math.inf))
    for tokens, score in best.items():
        found = CTC.align(scores_TV, tokens)
        assert collapse(tuple(found)) == list(tokens)
        assert float(scores_TV[np.arange(num_rows), found].sum()) == pytest.approx(score, abs=1e-4)


def test_a_topology_is_loaded_without_torch() -> None:
    script = (
        "import sys; from asrtool.models.objectives.topology import load_topology\n"
        "from asrtool.settings.schema import Choice\n"
        "print(type(load_topology(Choice.of('objective', 'ctc'))).__name__, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["CtcTopology", "False"]


class Bare:
    """Settings without a topology."""


class Elsewhere:
    """Settings whose topology does not exist."""

    topology = "asrtool.models.objectives.topology:Missing"


class Incomplete:
    """Settings whose topology lacks all attributes."""

    topology = "collections:OrderedDict"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Bare(), r"model\.objective = mine names no topology"),
        (Elsewhere(), r"topology:Missing cannot be loaded"),
        (Incomplete(), r"collections:OrderedDict: no topology, it lacks .*align"),
    ],
)
def test_an_objective_without_a_topology_is_one_line(settings: object, message: str) -> None:
    with pytest.raises(AsrtoolError, match=message):
        load_topology(Choice("objective", "mine", settings))


sequences = st.lists(st.lists(st.integers(0, 2), max_size=7), max_size=7)


@given(sequences)
def test_each_sequence_is_what_it_was(given_: list[list[int]]) -> None:
    targets = Targets.of(given_)
    assert [targets[i].tolist() for i in range(len(targets))] == given_
    assert targets.lens.tolist() == list(map(len, given_))
    assert targets.repeats().tolist() == [sum(a == b for a, b in pairwise(sequence)) for sequence in given_]


@given(sequences, st.integers(0, 12))
def test_ctc_demands_of_all_what_its_topology_demands_of_each(given_: list[list[int]], num_rows: int) -> None:
    objective = Ctc(CtcSettings(), 2, 3)
    needed = [max(1, CtcTopology().rows_needed(sequence)) for sequence in given_]
    assert objective.rows_needed(Targets.of(given_)).tolist() == needed
    for sequence, rows in zip(given_, needed, strict=True):
        assert objective.fits(num_rows, sequence) == ("" if rows <= num_rows else f"{num_rows} rows, {rows} needed")
        assert objective.normaliser(num_rows, sequence) == len(sequence)


LENS_N = torch.tensor([6, 4])
TARGETS = (torch.tensor([[1, 2, 1], [2, 0, 0]]), torch.tensor([3, 1]))


def objective_of(consistency: float) -> Ctc:
    torch.manual_seed(3)
    return Ctc(CtcSettings(consistency=consistency), 4, NUM_TOKENS).double()


def hidden(seed: int) -> Tensor:
    return torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_divergence_is_that_of_numpy_over_rows_that_are_there() -> None:
    scores_NTV = torch.randn(4, 6, NUM_TOKENS, dtype=torch.float64).log_softmax(-1)
    first, second = scores_NTV.numpy()[:2], scores_NTV.numpy()[2:]
    expected = 0.0
    for n, num_rows in enumerate(LENS_N.tolist()):
        p, q = np.exp(first[n, :num_rows]), np.exp(second[n, :num_rows])
        expected += float((p * np.log(p / q)).sum() + (q * np.log(q / p)).sum()) / 2
    assert divergence_of_views(scores_NTV, LENS_N).item() == pytest.approx(expected, rel=1e-12)


def test_each_view_is_drawn_to_the_other_as_it_stands() -> None:
    """The gradient of D(q || p) with respect to the logits of p is p - q; that of its target is none."""
    logits_NTV = torch.randn(2, 1, NUM_TOKENS, dtype=torch.float64, requires_grad=True)
    divergence_of_views(logits_NTV.log_softmax(-1), torch.tensor([1])).backward()
    p, q = logits_NTV.detach().softmax(-1)
    assert logits_NTV.grad is not None
    torch.testing.assert_close(logits_NTV.grad, torch.stack([p - q, q - p]) / 2, rtol=1e-12, atol=1e-15)


def test_the_loss_is_the_mean_of_both_and_the_weighted_divergence() -> None:
    objective = objective_of(0.7)
    both = torch.cat([hidden(1), hidden(2)])
    loss = objective.loss_of_views(both, LENS_N, *TARGETS)
    alone = [float(objective.loss(view, LENS_N, *TARGETS).total.detach()) for view in both.chunk(2)]
    divergence = float(divergence_of_views(objective.scores(both), LENS_N).detach())
    assert divergence > 0.01
    assert loss.figures == {"consistency": pytest.approx(divergence)}
    assert loss.normaliser == objective.loss(both[:2], LENS_N, *TARGETS).normaliser
    assert loss.total.item() == pytest.approx(sum(alone) / 2 + 0.7 * divergence, rel=1e-6)


class Doubled(Ctc):
    """A person's own."""

    def loss(self, *batch: Tensor) -> Loss:
        found = super().loss(*batch)
        return Loss(2 * found.total, found.normaliser, {"seen": 3.0})


def test_of_an_own_objective_its_own_loss_counts() -> None:
    objective = Doubled(CtcSettings(consistency=0.7), 4, NUM_TOKENS).double()
    both = torch.cat([hidden(1), hidden(2)])
    found = objective.loss_of_views(both, LENS_N, *TARGETS)
    by_ctc = [float(Ctc.loss(objective, view, LENS_N, *TARGETS).total.detach()) for view in both.chunk(2)]
    assert found.total.item() == pytest.approx(sum(by_ctc) + 0.7 * found.figures["consistency"], rel=1e-6)
    assert found.figures["seen"] == 3


def test_a_model_puts_the_second_views_behind_the_first() -> None:
    config = load_config([], ["model.ctc.consistency=0.5", "model.lstm.dropout=0", "model.lstm.hidden_size=8"])
    model = build_model(config.model, 5, NUM_TOKENS)
    feats_NTF, others_NTF = torch.randn(2, 18, 5), torch.randn(2, 18, 5)
    frames_N = torch.tensor([18, 12])
    loss = model.loss(feats_NTF, frames_N, *TARGETS, others_NTF)
    rows = [model.encoder(view, frames_N)[0] for view in (feats_NTF, others_NTF)]
    expected = model.objective.loss_of_views(torch.cat(rows), LENS_N, *TARGETS)
    torch.testing.assert_close(loss.total, expected.total)
    assert loss.figures["consistency"] > 0


def test_without_consistency_there_is_one_view() -> None:
    assert (objective_of(0.0).views, objective_of(0.1).views) == (1, 2)
    assert build_model(Model(), 5, NUM_TOKENS).objective.views == 1


def test_a_pipeline_of_devices_is_refused(tmp_path: Path) -> None:
    key = "model.ctc.consistency"
    config = load_config([], [f"{key}=0.2", "train.pipeline_stages=2"])
    for refuse in (check_conflicts, lambda config: acoustic_job(tmp_path, tmp_path, tmp_path, config)):
        with pytest.raises(AsrtoolError, match=rf"{key} and train\.pipeline_stages exclude each other"):
            refuse(config)
