"""Measure the constants of the bounds on a real model, checkpoint and data.

On the CPU, in float32. f is the training loss a token, without dropout, masking and clipping. Letters in names: P
weights, B batches, L learners.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from asrtool.data.manifests.sets import training_features
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import load_model
from asrtool.models.objectives.topology import uses_tree
from asrtool.models.precision import choose_precision
from asrtool.predict.theory.bounds import Constants
from asrtool.predict.theory.system import Floats
from asrtool.settings.config import Config
from asrtool.settings.toml_files import load_config
from asrtool.train.checkpoints.checkpoint import final_weights, load_newest
from asrtool.train.derived_settings import init_from_hybrid, last_settings
from asrtool.train.loop.loss import LossModule
from asrtool.train.train import build_components

if TYPE_CHECKING:
    from asrtool.train.batches.batch import TrainingBatch
    from asrtool.train.job import Components

MODEL = "average/model.pt"
CONFIG = "config/train.toml"
NORMAL_95 = 1.96  # standard errors to either side
STEP_SIZE = 2e-3  # of finite differences of gradients: rounding is a thousandth of a curvature of 1
MAX_ITERATIONS = 20
TOLERANCE = 0.01  # relative change of the eigenvalue that ends the iteration
MAX_BYTES = 2**33  # memory of the gradients of all batches
NUM_DEALT = 500  # ways to deal the batches to learners at random
Gradient = Callable[[int, Tensor], Tensor]  # number of a batch, weights (P,) -> gradient


@dataclass(frozen=True)
class Interval:
    """A measured value with its interval of 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class AtWeights:
    """Measurements at the weights of one model."""

    smoothness: Interval  # largest modulus of an eigenvalue of the Hessian
    curvature: Interval  # highest eigenvalue, by which a rate is stable: downwards nothing bounds it
    noise: Interval
    between: Interval
    loss: Interval  # nats a token


@dataclass(frozen=True)
class Measured:
    """Constants of the bounds and how they were found."""

    begin: AtWeights  # at the start of the training
    trained: AtWeights  # at `model`
    model: Path
    num_batches: int
    num_groups: int  # groups of batches, one for each learner

    def constants(self) -> Constants:
        """Return constants for the bounds: the larger of begin and trained.

        No loss is below 0; between learners 0 if not significant.
        """
        both = (self.begin, self.trained)
        return Constants(
            max(at.smoothness.value for at in both),
            max(at.noise.value for at in both),
            max(at.between.value if at.between.low > 0 else 0.0 for at in both),
            self.begin.loss.value,
        )

    @property
    def curvature(self) -> float:
        """Higher curvature of both."""
        return max(self.begin.curvature.value, self.trained.curvature.value)


def measure(work: Path, config: Config, num_batches: int, num_learners: int, by_shards: bool) -> Measured:
    """Measure the model in a work folder with the settings of `config`.

    `by_shards`: learners read their own shards, else they take turns. Raises AsrtoolError for a folder without a
    model or features, and for too few or too many batches.
    """
    torch.manual_seed(config.train.seed)
    targets = work / "realign" if uses_tree(config.model.objective) else None
    features = training_features(work / "features", work / "cut", config.data)
    components = build_components(features, work / "tokenizer", config, num_learners, targets=targets)
    start_P = weights_of(components.model)
    path, weights_P = read_weights(work, components)
    most = MAX_BYTES // (3 * weights_P.nbytes)  # in float32, and then in float64
    if num_batches > most:
        what = f"--batches {num_batches}: gradients of {len(weights_P):,} weights take more than {MAX_BYTES >> 30} GiB"
        raise AsrtoolError(what, f"choose {most} at most" if most >= 4 else "name a WORK with a smaller model")
    batches = read_batches(components, num_batches, num_learners, by_shards)
    groups = min(num_learners, len(batches) // 2)
    losses = Losses(components.model, batches)
    begin, trained = (measure_at(weights, losses, groups, config.train.seed) for weights in (start_P, weights_P))
    if not trained.smoothness.value > 0:
        what = f"{path}: the curvature of the loss there is {trained.smoothness.value:.3g}, expected more than 0"
        raise AsrtoolError(what, "name a WORK whose training did not diverge")
    return Measured(begin, trained, path, len(batches), groups)


def measure_at(weights_P: Tensor, losses: Losses, num_groups: int, seed: int) -> AtWeights:
    """Measure at weights on batches, grouped by learner."""
    num = len(losses.batches)
    gradients_BP = torch.stack([losses.gradient(b, weights_P) for b in range(num)]).double()
    products_BB = (gradients_BP @ gradients_BP.T).numpy()
    smoothness = upwards = largest_curvature(losses.gradient, num, weights_P, seed, downwards=True)
    if not smoothness.value > 0:
        smoothness = Interval(-upwards.value, -upwards.high, -upwards.low)
        upwards = largest_curvature(losses.gradient, num, weights_P, seed)
    loss = mean_of([losses.loss(b, weights_P) for b in range(num)])
    return AtWeights(smoothness, upwards, noise_within(products_BB), noise_between(products_BB, num_groups, seed), loss)


def read_config(work: Path, files: Sequence[Path], overrides: Sequence[str]) -> Config:
    """Return the settings that trained `work`, with overrides; AsrtoolError if none."""
    if not (work / CONFIG).exists():
        what = f"{work}: has no {CONFIG}, so no model was trained there"
        raise AsrtoolError(what, "name the --work of an `asrtool run`")
    config = load_config([work / CONFIG, *files], overrides)
    return last_settings(init_from_hybrid(config, work / "start" / "model.pt"))


def read_weights(work: Path, components: Components) -> tuple[Path, Tensor]:
    """Return the averaged weights, else the newest checkpoint's, and load them."""
    path = work / MODEL
    if path.exists():
        state = load_model(path)[0].state_dict()
    else:
        path = work / "train/checkpoints"
        if (newest := load_newest(path)) is None:
            raise AsrtoolError(f"{work}: neither {MODEL} nor a checkpoint", "run the stages up to train first")
        state = final_weights(newest[0])
    components.model.load_state_dict(state)
    return path, weights_of(components.model)


def read_batches(components: Components, num: int, num_learners: int, by_shards: bool) -> list[TrainingBatch]:
    """Return each learner's first batches of the first epoch; AsrtoolError below 4."""
    planned = list(components.train_set.plan(0, 0, {}))
    num = min(num, len(planned))
    if num < 4:
        what = f"the training set has {num} batches, and a variance needs 4"
        raise AsrtoolError(what, "make them shorter, for example --set train.batch_s=5")
    groups = min(num_learners, num // 2)
    places = itertools.product(range(groups), range(num // groups))
    numbers = (i * len(planned) // groups + n if by_shards else i + n * groups for i, n in places)
    return [components.train_set.read(planned[number]) for number in numbers]


class Losses:
    """The loss a token of batches, and its gradient, at any weights."""

    def __init__(self, model: torch.nn.Module, batches: Sequence[TrainingBatch]) -> None:
        self.model = model.to("cpu").eval()
        self.task = LossModule(self.model, choose_precision("fp32"))  # type: ignore[arg-type]
        self.batches = batches
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def loss(self, number: int, weights_P: Tensor) -> float:
        with torch.no_grad():
            return float(self._loss(number, weights_P))

    def gradient(self, number: int, weights_P: Tensor) -> Tensor:
        loss = self._loss(number, weights_P)
        found = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        return parameters_to_vector(found)

    def _loss(self, number: int, weights_P: Tensor) -> Tensor:
        vector_to_parameters(weights_P, self.parameters)
        batch = self.batches[number]
        loss: Tensor = self.task(batch) / max(batch.normaliser, 1)
        return loss


def weights_of(model: torch.nn.Module) -> Tensor:
    """Return a copy of the trainable weights, (P,)."""
    return parameters_to_vector(p for p in model.parameters() if p.requires_grad).detach().clone()


def largest_curvature(
    gradient: Gradient, num_batches: int, weights_P: Tensor, seed: int, downwards: bool = False
) -> Interval:
    """Return the largest Hessian eigenvalue of the mean loss, by Lanczos.

    With `downwards` the one of largest modulus. Products with the Hessian are central differences of gradients, since
    losses such as torch's CTC cannot be differentiated twice. The interval is the curvature of a batch in that
    direction.
    """
    generator = torch.Generator().manual_seed(seed)

    def batch_product(number: int, vector_P: Tensor) -> Tensor:
        step_P = STEP_SIZE * vector_P
        there_P, back_P = gradient(number, weights_P + step_P), gradient(number, weights_P - step_P)
        return (there_P - back_P) / (2 * STEP_SIZE)

    def product(vector_P: Tensor) -> Tensor:
        return torch.stack([batch_product(b, vector_P) for b in range(num_batches)]).mean(0)

    vector_P = torch.randn(len(weights_P), generator=generator, dtype=weights_P.dtype)
    basis, found, steepest, matrix = [vector_P / vector_P.norm()], 0.0, 0, np.zeros((0, 0))
    for size in range(1, min(MAX_ITERATIONS, len(weights_P)) + 1):
        image_P = product(basis[-1])
        matrix = np.pad(matrix, (0, 1))
        matrix[:, -1] = matrix[-1, :] = [float(image_P @ one) for one in basis]
        values, vectors = np.linalg.eigh(matrix)
        steepest = int(np.abs(values).argmax()) if downwards else size - 1
        before, found = found, float(values[steepest])
        for _ in range(2):
            for one in basis:
                image_P = image_P - (image_P @ one) * one
        if (size > 2 and abs(found - before) <= TOLERANCE * abs(found)) or float(image_P.norm()) <= 1e-6 * abs(found):
            break
        basis.append(image_P / image_P.norm())
    top_P = torch.stack(basis[: len(matrix)]).T @ torch.from_numpy(vectors[:, steepest]).to(weights_P)
    return mean_of([float(top_P @ batch_product(b, top_P)) for b in range(num_batches)])


def mean_of(values: Sequence[float]) -> Interval:
    """Return the mean of independent values and its 95 % interval."""
    mean = statistics.fmean(values)
    half = NORMAL_95 * statistics.stdev(values) / len(values) ** 0.5
    return Interval(mean, mean - half, mean + half)


def noise_within(products_BB: Floats) -> Interval:
    """Return E |g - grad f|^2, unbiased, with a jackknife interval."""
    num = len(products_BB)
    value = _variance(products_BB)
    left = [_variance(np.delete(np.delete(products_BB, b, 0), b, 1)) for b in range(num)]
    pseudo = [num * value - (num - 1) * one for one in left]
    spread = NORMAL_95 * statistics.stdev(pseudo) / num**0.5
    return Interval(value, max(0.0, value - spread), value + spread)


def noise_between(products_BB: Floats, num_groups: int, seed: int) -> Interval:
    """Return 1/L sum |grad f_i - grad f|^2, unbiased, so it may be negative.

    Batches are grouped by learner. The interval comes from random groupings, for which the truth is 0, mirrored for
    their skew. It is a 95 % interval for whether the truth is 0, else too narrow.
    """
    value = _beyond_noise(products_BB, num_groups)
    random = np.random.default_rng(seed)
    orders = [random.permutation(len(products_BB)) for _ in range(NUM_DEALT)]
    dealt = [_beyond_noise(products_BB[np.ix_(order, order)], num_groups) for order in orders]
    low, high = np.quantile(dealt, (0.025, 0.975))
    return Interval(value, value - float(high), value - float(low))


def _variance(products_BB: Floats) -> float:
    num = len(products_BB)
    return float((np.trace(products_BB) - products_BB.sum() / num) / (num - 1))


def _beyond_noise(products_BB: Floats, num_groups: int) -> float:
    """Return the distance of group means from the total mean, minus noise."""
    if num_groups < 2:
        return 0.0
    each = len(products_BB) // num_groups
    blocks = products_BB[: each * num_groups, : each * num_groups].reshape(num_groups, each, num_groups, each)
    means_LL = blocks.mean(axis=(1, 3))
    apart = float(np.trace(means_LL) / num_groups - means_LL.mean())
    within = statistics.fmean(_variance(blocks[i, :, i]) for i in range(num_groups))
    return apart - (1 - 1 / num_groups) * within / each
