"""Measure gradient noise, consensus distance and sharpness of each strategy.

    benchmarks/bench.py noise FEATURES TOKENIZER RESULTS.jsonl [--seeds 1,2,3] [--scales 1,8]

A cell is a strategy, a global batch, a rate and a seed, trained by learners of one process in lock-step. After half of
the epochs, with the rate still at its peak, ROUNDS rounds of batches give

- distance: consensus distance, root mean square over the learners of |w - mean w| / |mean w|;
- sharpness: the largest eigenvalue of the Hessian at the mean of the weights;
- batch noise: E |g - grad f|^2 of the gradient of all learners' batches at the mean of the weights;
- added noise: E |g' - g|^2, g' from the same batches, each at the weights of its own learner, over the batch noise.

After the last epoch the loss on dev and the sharpness are measured again. `allreduce+noise` computes averaged gradients
at the common weights plus Gaussian noise as large as the distance of `adpsgd-fixed` in that epoch. A finished training
is a line of RESULTS.jsonl, and is kept.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from convergence import DIVERGED, Trained, config_of, finish, make_parser, question
from torch import Tensor

from asrtool.distributed.strategies.topology import fixed_ring, mixing_matrix, passive_partner, random_ring
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.models.precision import choose_precision
from asrtool.predict.theory.measure import Losses, largest_curvature, weights_of
from asrtool.settings.train import Train
from asrtool.train.batches.batch import prepare_batch
from asrtool.train.batches.source import Planned
from asrtool.train.job import Components
from asrtool.train.loop.loss import LossModule, sum_loss
from asrtool.train.optimisation.learning_rate import learning_rate
from asrtool.train.train import build_components

NOISY, WITH_NOISE_OF = "allreduce+noise", "adpsgd-fixed"
STRATEGIES = ("allreduce", "adpsgd-fixed", "adpsgd-random", "adpsgd-pairs", "adpsgd-d1", NOISY)
ROUNDS = 4
SHARPNESS_BATCHES = 4


class Learners:
    """Learners in lock-step, W <- W T - alpha M with M <- mu M + G.

    Rows of W are learners, or one row for all. `noise_by_epoch` is the distance of the noise added in each epoch.
    """

    def __init__(
        self, name: str, num: int, components: Components, settings: Train, noise_by_epoch: Sequence[float]
    ) -> None:
        self.name, self.num, self.components, self.settings = name, num, components, settings
        self.noise_by_epoch = noise_by_epoch
        self.noise = 0.0
        self.precision = choose_precision("fp32")
        self.model = components.model.to("cpu")
        self.task = LossModule(self.model, self.precision)
        self.flat = FlatWeights(self.model)
        self.weights_LP = self.flat.weights_P.repeat(1 if name == "allreduce" else num, 1)
        self.momenta_LP = torch.zeros_like(self.weights_LP)
        self.num_steps = self.num_samples = self.num_batches = 0

    def train(self) -> Trained:
        """Train; `sharpness` at the end is None if the training diverged."""
        found: Trained = {"losses": [], "distances": [], "sharpness": None}
        self.noise = self.noise_by_epoch[0] if self.noise_by_epoch else 0.0
        for epoch in range(1, self.settings.num_epochs + 1):
            loss = self.epoch(epoch - 1)
            if not loss < DIVERGED * min([loss, *found["losses"]]):
                break
            found["losses"].append(loss)
            found["distances"].append(self.distance())
            if epoch == self.settings.num_epochs // 2:
                found |= self.look(epoch) | {"peak_sharpness": self.sharpness()}
            self.noise = self.noise_by_epoch[epoch] if epoch < len(self.noise_by_epoch) else self.noise
        if len(found["losses"]) == self.settings.num_epochs:
            found["sharpness"] = self.sharpness()
        return found

    def epoch(self, epoch: int) -> float:
        """The loss on dev of the mean of the weights after one more."""
        planned = list(self.components.train_set.plan(epoch, 0, {}))
        for first in range(0, len(planned), self.num):
            self.step(planned[first : first + self.num])
        self.flat.weights_P.copy_(self.weights_LP.mean(dim=0))
        dev_set = self.components.dev_set
        return sum_loss(self.model, dev_set, dev_set.plan_eval(), self.precision, lambda: None).means()["loss"]

    def step(self, batches: Sequence[Planned]) -> None:
        """All learners take one, from the weights before it."""
        self.num_samples += sum(batch.num_samples for batch in batches)
        total = self.settings.num_epochs * self.components.train_set.size().num_samples
        rate = learning_rate(self.settings, self.num_samples, total)
        groups = [batches] if len(self.weights_LP) == 1 else [[batch] for batch in batches]
        gradients = [
            self.gradient(self.weights_LP[row], group, self.num_batches + row) for row, group in enumerate(groups)
        ]
        self.weights_LP = self.matrix() @ self.weights_LP
        for row, gradient_P in enumerate(gradients):
            if gradient_P is not None:
                self.momenta_LP[row].mul_(self.settings.optimizer.settings.momentum).add_(gradient_P)
                self.weights_LP[row].sub_(self.momenta_LP[row], alpha=rate)
        self.num_steps += 1
        self.num_batches += len(batches)

    def matrix(self) -> Tensor:
        """Return the transpose of T of this step; nothing is exchanged before the first."""
        num, step, seed = len(self.weights_LP), self.num_steps, self.settings.seed
        if self.name == "adpsgd-d1":
            return torch.full((num, num), 1 / num)
        if num == 1 or not step:
            return torch.eye(num)
        if self.name == "adpsgd-pairs":
            matrix = np.eye(num)
            for row in range(0, num, 2):  # the active ones, one after the other
                pair = [row, passive_partner(num, step, seed, row) or 0]
                matrix[:, pair] = matrix[:, pair].mean(axis=1, keepdims=True)
        else:
            ring = fixed_ring if self.name == "adpsgd-fixed" else random_ring
            matrix = mixing_matrix(ring(num, step, seed))
        return torch.from_numpy(matrix.T).float()

    def distance(self) -> float:
        weights_LP, mean_P = self.weights_LP, self.weights_LP.mean(dim=0)
        return self.noise or float((weights_LP - mean_P).norm() / math.sqrt(len(weights_LP)) / mean_P.norm())

    def look(self, epoch: int) -> Trained:
        weights_LP, num = self.weights_LP, self.num
        mean_P = weights_LP.mean(dim=0)
        planned = list(self.components.train_set.plan(epoch, 0, {}))
        rounds = [planned[at * num : (at + 1) * num] for at in range(min(ROUNDS, len(planned) // num))]
        at_mean_RP = torch.stack([self.common(batches, mean_P.expand(num, -1)) for batches in rounds])
        own_LP = weights_LP if len(weights_LP) == num else mean_P.expand(num, -1)
        own_RP = at_mean_RP
        if self.noise or len(weights_LP) == num:
            own_RP = torch.stack([self.common(batches, self._with_noise(own_LP)) for batches in rounds])
        batch_noise = float(at_mean_RP.var(dim=0).sum())
        added = float((own_RP - at_mean_RP).square().sum(dim=1).mean())
        return {"batch_noise": batch_noise, "added": added / batch_noise}

    def sharpness(self) -> float:
        planned = list(self.components.train_set.plan(0, 0, {}))
        chosen = planned[:: max(1, len(planned) // SHARPNESS_BATCHES)][:SHARPNESS_BATCHES]
        self.flat.weights_P.copy_(self.weights_LP.mean(dim=0))
        model = copy.deepcopy(self.model)
        losses = Losses(model, [self.components.train_set.read(one) for one in chosen])
        return largest_curvature(losses.gradient, len(chosen), weights_of(model), 1).value

    def common(self, batches: Sequence[Planned], weights_LP: Tensor) -> Tensor:
        """Return the mean of the unclipped gradients of a round, each at its own weights."""
        pairs = zip(batches, weights_LP, strict=True)
        found = [self._at(weights_P, [batch], 0, math.inf) for batch, weights_P in pairs]
        return torch.stack([gradient_P for gradient_P in found if gradient_P is not None]).mean(dim=0)

    def _with_noise(self, weights_LP: Tensor) -> Tensor:
        if not self.noise:
            return weights_LP
        noise_LP = torch.randn_like(weights_LP)
        scale = self.noise * weights_LP.norm(dim=1, keepdim=True) / math.sqrt(weights_LP.shape[1])
        return weights_LP + scale * noise_LP

    def gradient(self, weights_P: Tensor, group: Sequence[Planned], number: int) -> Tensor | None:
        """Return the gradient of a group of batches, with noise each at own noisy weights.

        `number` is the number of the first batch.
        """
        if not self.noise:
            return self._at(weights_P, group, number, self.settings.clip_norm)
        found = []
        for place, planned in enumerate(group):
            noisy_P = self._with_noise(weights_P[None])[0]
            gradient_P = self._at(noisy_P, [planned], number + place, self.settings.clip_norm)
            found.append(torch.zeros_like(weights_P) if gradient_P is None else gradient_P)
        return torch.stack(found).mean(dim=0)

    def _at(self, weights_P: Tensor, group: Sequence[Planned], number: int, clip_norm: float) -> Tensor | None:
        """Return the gradient of the mean loss of a group; None if it is zero or infinite."""
        self.flat.weights_P.copy_(weights_P)
        normaliser = max(sum(batch.normaliser for batch in group), 1)
        for place, planned in enumerate(group):
            batch = self.components.train_set.read(planned)
            prepare_batch(batch, self.settings.seed, number + place, self.components.augment)
            (self.task(batch) / normaliser).backward()
        norm = float(torch.nn.utils.clip_grad_norm_(self.flat.parameters, clip_norm))
        gradient_P = torch.zeros_like(weights_P)
        starts = itertools.accumulate(self.flat.sizes, initial=0)
        for parameter, start in zip(self.flat.parameters, starts, strict=False):
            assert parameter.grad is not None
            gradient_P[start : start + parameter.numel()] = parameter.grad.flatten()
            parameter.grad = None
        return gradient_P if math.isfinite(norm) and norm > 0 else None


def main() -> None:
    parser = make_parser(__doc__)
    parser.set_defaults(
        strategies=",".join(STRATEGIES), scales="1,8", reference_batch_s=50.0, rates="0.1,0.4", epochs=6
    )
    parser.add_argument("--learners", type=int, default=8)
    options = parser.parse_args()
    print_table(finish(options, cells(options), lambda cell, before: train(cell, options, before)), options)


def cells(options: argparse.Namespace) -> Iterator[Trained]:
    """A seed after the other; adpsgd-fixed before what takes its noise."""
    same = question(options) | {"learners": options.learners}
    lists = options.seeds, options.scales, options.rates, options.strategies
    for seed, scale, rate, name in itertools.product(*(text.split(",") for text in lists)):
        yield same | {"seed": int(seed), "scale": int(scale), "rate": float(rate), "strategy": name}


def train(cell: Trained, options: argparse.Namespace, finished: Sequence[Trained]) -> Trained:
    begin = time.process_time()
    name = "allreduce" if cell["strategy"] == NOISY else cell["strategy"]
    config = config_of(cell | {"strategy": name}, cell["learners"])
    torch.manual_seed(cell["seed"])
    components = build_components(options.features, options.tokenizer, config)
    noise: Sequence[float] = ()
    if cell["strategy"] == NOISY:
        of_other = cell | {"strategy": WITH_NOISE_OF}
        (other,) = [trained for trained in finished if of_other.items() <= trained.items()]
        noise = other["distances"]
    learners = Learners(name, cell["learners"], components, config.train, noise)
    return cell | learners.train() | {"cpu_s": round(time.process_time() - begin, 1)}


def print_table(finished: Sequence[Trained], options: argparse.Namespace) -> None:
    """Print means over the seeds; losses have their standard deviation."""
    of_cell: dict[tuple[int, float, str], list[Trained]] = defaultdict(list)
    for trained in finished:
        if (question(options) | {"learners": options.learners}).items() <= trained.items():
            of_cell[trained["scale"], trained["rate"], trained["strategy"]].append(trained)
    at_peak = "distance | batch noise | added / batch noise | sharpness | sharpness x rate"
    print(f"| batch | rate | strategy | loss on dev | {at_peak} | sharpness at the end |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (scale, rate, name), trainings in sorted(of_cell.items(), key=lambda item: item[0][:2]):
        whole = [trained for trained in trainings if trained["sharpness"] is not None]
        if len(whole) < len(trainings):
            print(f"| {scale}x | {rate:g} | {name} | {len(trainings) - len(whole)} of {len(trainings)} diverged |")
            continue
        losses = [trained["losses"][-1] for trained in whole]
        distance = statistics.fmean(trained["distances"][trained["epochs"] // 2 - 1] for trained in whole)
        keys = ("batch_noise", "added", "peak_sharpness", "sharpness")
        noise, added, peak, end = (statistics.fmean(trained[key] for trained in whole) for key in keys)
        spread = statistics.stdev(losses) if len(losses) > 1 else 0.0
        print(
            f"| {scale}x | {rate:g} | {name} | {statistics.fmean(losses):.3f} +- {spread:.3f} ({len(whole)}) |"
            f" {distance:.3f} | {noise:.3f} | {added:.2g} | {peak:.1f} | {peak * rate:.2f} | {end:.1f} |"
        )


if __name__ == "__main__":
    main()
