"""Measured constants against those of models and gradients for which they are known."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from commands import run_command
from systems import system_of
from torch import Tensor, nn

from asrtool.errors import AsrtoolError
from asrtool.predict.theory import measure as measuring
from asrtool.predict.theory.bounds import Constants
from asrtool.predict.theory.describe import TheoryResult, to_text
from asrtool.predict.theory.measure import (
    Interval,
    Losses,
    Measured,
    largest_curvature,
    measure_at,
    noise_between,
    noise_within,
    read_config,
)
from asrtool.predict.theory.quadratic import predict
from asrtool.predict.theory.system import System

NUM_SAMPLES = 256


class Network:
    """A small one with a hidden layer, and its data; the gradient of the mean loss of samples at weights (P,)."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        generator = torch.Generator().manual_seed(3)
        self.model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)).to(dtype)
        self.inputs_NF = torch.randn(NUM_SAMPLES, 4, generator=generator, dtype=torch.float64).to(dtype)
        target_N = torch.sin(self.inputs_NF.double().sum(1)) + 0.5 * torch.randn(
            NUM_SAMPLES, generator=generator, dtype=torch.float64
        )
        self.targets_N = target_N.to(dtype)
        self.shapes = [(name, p.shape) for name, p in self.model.named_parameters()]
        size = sum(p.numel() for p in self.model.parameters())
        self.start_P = 0.5 * torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)

    def loss(self, weights_P: Tensor, samples: Tensor) -> Tensor:
        pieces = weights_P.split([shape.numel() for _, shape in self.shapes])
        named = {name: piece.view(shape) for (name, shape), piece in zip(self.shapes, pieces, strict=True)}
        outputs_N = torch.func.functional_call(self.model, named, (self.inputs_NF[samples],)).squeeze(1)
        return (outputs_N - self.targets_N[samples]).square().mean() / 2

    def gradient(self, weights_P: Tensor, samples: Tensor) -> Tensor:
        weights_P = weights_P.clone().requires_grad_()
        return torch.autograd.grad(self.loss(weights_P, samples), weights_P)[0]


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-3), (torch.float32, 1e-2)])
def test_the_largest_curvature_is_that_of_the_hessian(dtype: torch.dtype, close: float) -> None:
    network, all_samples = Network(dtype), torch.arange(NUM_SAMPLES)
    batches = all_samples.chunk(4)
    hessian = torch.autograd.functional.hessian(lambda weights_P: network.loss(weights_P, all_samples), network.start_P)
    found = largest_curvature(lambda b, w: network.gradient(w, batches[b]), 4, network.start_P, seed=1)
    largest = float(torch.linalg.eigvalsh(hessian.double())[-1])
    assert found.value == pytest.approx(largest, rel=close)
    assert found.low < largest < found.high


class Saddle:
    """A loss with eigenvalues 3, -5 and 1, whatever the batch, as `Losses` gives it."""

    batches = range(4)

    def loss(self, number: int, weights_P: Tensor) -> float:
        return float(weights_P @ self.gradient(number, weights_P)) / 2

    def gradient(self, number: int, weights_P: Tensor) -> Tensor:
        return weights_P * torch.tensor([3.0, -5.0, 1.0])


def test_the_smoothness_of_a_saddle_is_that_of_its_steepest_direction_down() -> None:
    saddle = Saddle()
    for downwards, expected in ((True, -5), (False, 3)):
        found = largest_curvature(saddle.gradient, 2, torch.zeros(3), 1, downwards)
        assert found.value == pytest.approx(expected, rel=1e-3)
    at = measure_at(torch.ones(3), cast(Losses, saddle), num_groups=2, seed=1)
    assert at.smoothness.low <= at.smoothness.value <= at.smoothness.high
    assert (at.smoothness.value, at.curvature.value) == pytest.approx((5, 3), rel=1e-3)


def test_a_rate_is_stable_by_the_steepest_direction_up() -> None:
    at = measure_at(torch.ones(3), cast(Losses, Saddle()), num_groups=2, seed=1)
    at = dataclasses.replace(at, loss=Interval(1.0, 1.0, 1.0))
    measured = Measured(at, at, Path("model.pt"), 4, 2)
    for constants, verdict in (
        (measured.constants(), "rate 0.667 at curvature 3: 0.5 is stable"),
        (Constants(smoothness=6), "rate 0.333 at curvature 6: 0.5 diverges"),  # given by --constant
    ):
        found = TheoryResult(system_of("allreduce", 2), 0.5, constants, 10, "constant", measured=measured)
        assert verdict in to_text(found)


def gradients_of(random: np.random.Generator, num_groups: int, each: int, apart: float) -> np.ndarray:
    """Return gradients of batches with noise of variance 2, in groups whose means have variance `apart`."""
    means = random.standard_normal((num_groups, 40))
    means -= means.mean(axis=0)
    means *= math.sqrt(apart / (means**2).sum(axis=1).mean()) if apart else 0.0
    noise = math.sqrt(2 / 40) * random.standard_normal((num_groups * each, 40))
    return 0.3 + np.repeat(means, each, axis=0) + noise


@pytest.mark.parametrize("apart", [0.0, 0.7])
def test_noise_within_and_between_learners_is_found_without_bias(apart: float) -> None:
    random = np.random.default_rng(5)
    between: list[Interval] = []
    for _ in range(40):
        gradients_BP = gradients_of(random, 4, 6, apart)
        between.append(noise_between(gradients_BP @ gradients_BP.T, 4, seed=1))
    values = [one.value for one in between]
    assert abs(statistics.fmean(values) - apart) < 4 * statistics.stdev(values) / math.sqrt(40)
    held = sum(one.low <= apart <= one.high for one in between)
    assert held >= (30 if apart else 36)  # it is an interval of 95 % where the truth is 0
    assert sum(one.low > 0 for one in between) == (40 if apart else pytest.approx(1, abs=3))


@pytest.mark.slow
def test_noise_of_learners_that_do_not_differ_is_seldom_taken_for_more_than_0() -> None:
    """One direction makes what is dealt skewed; 2.5 % are due, and quantiles added instead of taken away give 11."""
    random, above, num = np.random.default_rng(9), 0, 150
    for seed in range(num):
        gradients_BP = random.standard_normal((16, 1))
        above += noise_between(gradients_BP @ gradients_BP.T, 4, seed).low > 0
    assert 0 < above / num < 0.06


def test_the_variance_of_a_batch_is_that_of_gradients_and_its_interval_holds_it() -> None:
    random = np.random.default_rng(6)
    held, values = 0, []
    for _ in range(100):
        gradients_BP = gradients_of(random, 1, 20, 0.0)
        found = noise_within(gradients_BP @ gradients_BP.T)
        assert found.value == pytest.approx(gradients_BP.var(axis=0, ddof=1).sum())
        values.append(found.value)
        held += found.low <= 2 <= found.high
    assert abs(statistics.fmean(values) - 2) < 0.1
    assert held >= 87


@pytest.mark.slow
def test_consensus_of_a_small_network_is_as_predicted_from_its_measured_noise() -> None:
    """On a fixed ring near the minimum, the prediction from sigma^2 and the curvature lies within both intervals."""
    network, num, rate, batch = Network(), 6, 0.02, 16
    random = np.random.default_rng(8)
    system: System = system_of("adpsgd-fixed", num)

    def drawn() -> Tensor:
        return torch.from_numpy(random.integers(NUM_SAMPLES, size=batch))

    weights_P = network.start_P
    for _ in range(2000):
        weights_P = weights_P - 0.2 * network.gradient(weights_P, torch.arange(NUM_SAMPLES))
    gradients_BP = torch.stack([network.gradient(weights_P, drawn()) for _ in range(200)])
    sigma2 = noise_within((gradients_BP @ gradients_BP.T).numpy())
    curvature = largest_curvature(lambda _, w: network.gradient(w, torch.arange(NUM_SAMPLES)), 2, weights_P, 1).value
    weights_LP = weights_P.repeat(num, 1)
    matrix = sum(torch.roll(torch.eye(num, dtype=torch.float64), shift, 0) for shift in (-1, 0, 1)) / 3
    distances = []
    for _ in range(1000):
        gradients_LP = torch.stack([network.gradient(w, drawn()) for w in weights_LP])
        weights_LP = matrix @ weights_LP - rate * gradients_LP
        distances.append(float((weights_LP - weights_LP.mean(0)).square().sum()) / num)
    blocks = np.array(distances[40:]).reshape(24, 40).mean(axis=1)
    spread = 1.96 * blocks.std(ddof=1) / math.sqrt(24)
    low, high = (
        predict(system, Constants(beta, noise), rate, 300, in_rounds=True).distance_K[-1]
        for beta, noise in ((curvature, sigma2.low), (1e-6, sigma2.high))
    )
    assert low - spread < blocks.mean() < high + spread
    assert high < 1.4 * low  # the interval says something


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A work folder whose last model is one of sequence training."""
    (tmp_path / "config").mkdir()
    lines = "[model]", 'objective = "lf-mmi"', "[decode]", 'methods = ["graph"]', "[data]", "cut_long = true", "[train]"
    (tmp_path / "config" / "train.toml").write_text("\n".join([*lines, "peak_lr = 0.6\n"]), encoding="utf-8")
    return tmp_path


def test_a_chain_is_measured_by_what_its_last_model_was_trained_on(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def build(features: Path, tokenizer: Path, config: Any, num_learners: int, targets: Path) -> None:
        asked.append((features, targets, config.train.init_model, config.train.num_epochs))
        raise AsrtoolError("asked", "no more")

    monkeypatch.setattr(measuring, "build_components", build)
    with pytest.raises(AsrtoolError, match="asked"):
        measuring.measure(chain, read_config(chain, [], []), 4, 2, by_shards=False)
    assert asked == [(chain / "cut" / "features", chain / "realign", str(chain / "start" / "model.pt"), 2)]


def test_the_rate_is_that_of_the_training_which_is_measured(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = measure_at(torch.ones(3), cast(Losses, Saddle()), num_groups=2, seed=1)
    monkeypatch.setattr(measuring, "measure", lambda *asked: Measured(at, at, Path("model.pt"), 4, 2))
    of_chain = "--set", "model.objective=lf-mmi", "--set", "decode.methods=graph", "--set", "train.peak_lr=0.3"
    for words, rate in (
        (("--measure", str(chain)), 0.1),
        (("--measure", str(chain), "--set", "train.peak_lr=0.3"), 0.05),
        (of_chain, 0.05),
        (("--measure", str(chain), "--rate", "0.2"), 0.2),
    ):
        done = run_command("theory", "--strategy", "allreduce", "--num-learners", "2", "--json", *words)
        assert json.loads(done.stdout)["rate"] == pytest.approx(rate), words
