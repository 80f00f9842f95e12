"""Learners, their compute and loading times, and links: scenario -> cluster.

Draws repeat after PERIOD steps of a learner. Shapes: L learners, K steps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.scenario import HINT, Scenario

Floats = NDArray[np.float64]
PERIOD = 8192  # steps of a learner that are drawn; later ones take as long again, in the same order
GBIT = 1e9 / 8
COMPUTE, LOADING, LOSSES = 0, 1, 3  # random quantities, each with its own seeds
LONG = 10  # times the median gap between two steps: a longer one is a pause, as for a checkpoint


@dataclass(frozen=True)
class Link:
    """One way of a link."""

    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True)
class Links:
    """Links of a node to others, shared by its learners, and of a learner in its node."""

    outer: Link
    inner: Link
    node_size: int
    node_bytes_per_s: float = math.inf  # rate of all messages within a node together

    def num_nodes(self, num_learners: int) -> int:
        """Return the number of nodes for `num_learners`."""
        return -(-num_learners // self.node_size)

    def ring_allreduce_s(self, num_bytes: float, num_learners: int, num_nodes: int, rings: int = 1) -> float:
        """Return the seconds of a ring allreduce (Patarasu and Yuan 2009).

        Each learner sends 2 (L - 1) / L of the bytes, in as many parts, at the rate of the ring's slowest link. One
        link a node leads out of it, shared by `rings`. A part passes the latency of each link nearly twice.
        """
        if num_learners == 1:
            return 0.0
        rates = [self.outer.bytes_per_s / rings] if num_nodes > 1 else []
        if num_learners > num_nodes:
            rates += [self.inner.bytes_per_s, self.node_bytes_per_s / -(-num_learners // num_nodes)]
        num_outer = num_nodes if num_nodes > 1 else 0
        latency_s = num_outer * self.outer.latency_s + (num_learners - num_outer) * self.inner.latency_s
        return 2 * (num_learners - 1) / num_learners * (num_bytes / min(rates) + latency_s)

    def allreduce_s(self, num_bytes: float, num_learners: int) -> float:
        """Return the quicker of one ring, and of sums within and between nodes."""
        num_nodes = self.num_nodes(num_learners)
        ring_s = self.ring_allreduce_s(num_bytes, num_learners, num_nodes)
        size = num_learners // num_nodes
        if num_nodes == 1 or size == 1:
            return ring_s
        inner_s = self.ring_allreduce_s(num_bytes, size, 1)
        return min(ring_s, inner_s + self.ring_allreduce_s(num_bytes / size, num_nodes, num_nodes, rings=size))

    def allgather_s(self, num_bytes: float, num_learners: int) -> float:
        """Return the seconds of an allgather in a node: half of an allreduce."""
        return self.ring_allreduce_s(num_bytes, num_learners, 1) / 2


class Cluster:
    """Cluster of `num_learners`, which begin steps `together` or at any time.

    `compute_LK` has the seconds of a step without `update_s`, `loading_LK` those to read a batch, also of learners
    that join. Raises AsrtoolError if so many learners do not fit the settings.
    """

    def __init__(self, scenario: Scenario, num_learners: int, together: bool) -> None:
        network, faults, seed = scenario.network, scenario.faults, scenario.job.seed
        self.scenario, self.num_learners = scenario, num_learners
        self.factors = scenario.slow.factors()
        node_size = network.node_size(num_learners)
        if num_learners % node_size:
            what = f"{num_learners} learners in nodes of network.learners_per_node = {node_size}"
            raise AsrtoolError(what, "choose a number of learners that is a multiple of the node size")
        named = [("slow.learners", rank) for rank in self.factors]
        for name, rank in [*named, *(("faults.lost", rank) for _, rank in faults.lost_at())]:
            if rank >= num_learners:
                what = f"{name} names learner {rank}, but there are {num_learners}: 0 to {num_learners - 1}"
                raise AsrtoolError(what, HINT)
        self.batch = scenario.job.batch_of(num_learners)
        self.num_batches = int(-(-scenario.job.num_samples // self.batch))  # of an epoch
        self.model_bytes = round(4e6 * scenario.job.parameters_m)  # bytes of weights in float32
        self.mix_s = network.mix_ms / 1000  # seconds of a step that exchanges take from the computing thread
        self.update_s = scenario.compute.update_ms / 1000
        self.links = Links(
            Link(network.gbit_per_s * GBIT * network.efficiency, network.latency_us / 1e6),
            Link(network.inner_gbit_per_s * GBIT * network.efficiency, network.inner_latency_us / 1e6),
            node_size,
            network.node_gbit_per_s * GBIT * network.efficiency or math.inf,
        )
        trace = scenario.compute.trace
        self._trace_s = read_trace(Path(trace)) if trace else None
        ranks = range(num_learners + len(faults.join_h))
        factors_L = np.array([self.factors.get(rank, 1.0) for rank in ranks])
        # All that a slow learner does is stretched. Of those that want cores together all wait for the last, but a slow
        # one comes in any place, for half of that on average.
        waits_L = np.maximum(1, factors_L / 2) if together else factors_L
        compute_LK = np.array([self._draw_compute(rank) for rank in ranks])
        compute_LK += self.wait_for_core_s(together) * waits_L[:, None]
        self.compute_LK: Floats = np.maximum(compute_LK - self.update_s, 0)
        loading = scenario.loading
        drawn = (draw(np.random.default_rng((seed, LOADING, rank)), "lognormal", loading.spread) for rank in ranks)
        self.loading_LK: Floats = np.array([loading.ms / 1000 * row for row in drawn])

    def message_bytes(self, settings: Any) -> int:
        """Return the bytes of weights or gradients in a message of a strategy."""
        return self.model_bytes // 2 if getattr(settings, "message_type", "fp32") == "bf16" else self.model_bytes

    def super_learner_size(self, settings: Any) -> int:
        """Return the learners of a super-learner; AsrtoolError if not a divisor."""
        size: int = settings.node_size or self.links.node_size
        if self.num_learners % size:
            what = f"{self.num_learners} learners in super-learners of distributed.h-adpsgd.node_size = {size}"
            raise AsrtoolError(what, "choose one that divides the number of learners")
        return size

    def host_s(self, num_bytes: float) -> float:
        """Return the seconds in which a receiver reads `num_bytes`."""
        rate = self.scenario.network.host_gbyte_per_s * 1e9
        return num_bytes / rate if rate else 0.0

    def losses(self) -> Iterator[tuple[float, int]]:
        """Yield time and learner of losses in order, maybe without end."""
        faults = self.scenario.faults
        named = faults.lost_at()
        rng, at = np.random.default_rng((self.scenario.job.seed, LOSSES)), 0.0
        while faults.mtbf_h:
            at += rng.exponential(3600 * faults.mtbf_h / self.num_learners)
            while named and named[0][0] < at:
                yield named.pop(0)
            yield at, int(rng.integers(self.num_learners))
        yield from named

    def wait_for_core_s(self, together: bool, message_s: float = 0.0) -> float:
        """Return the seconds added to a step by sharing a node's cores.

        Messages within the node that a step waits `message_s` for are copies, which need a core as well.
        """
        cpu_s, num_cores = self.scenario.compute.cpu_ms / 1000, self.scenario.network.cores_per_node
        if not (cpu_s and num_cores):
            return 0.0
        step_s = self._mean_step_s() if self._trace_s is None else float(self._trace_s.mean())
        wanted_s = cpu_s + message_s
        return shared_cpu_s(wanted_s, max(0.0, step_s - cpu_s), self.links.node_size, num_cores, together) - wanted_s

    def _mean_step_s(self) -> float:
        """Return the compute seconds of a step on a normal learner."""
        compute = self.scenario.compute
        reference = compute.batch or self.scenario.job.batch
        mean_s = reference / compute.samples_per_s if compute.samples_per_s else compute.ms / 1000
        fixed_s = compute.fixed_ms / 1000
        if fixed_s > mean_s:
            what = f"compute.fixed_ms is {compute.fixed_ms:g}, and a step takes {1000 * mean_s:g} ms"
            raise AsrtoolError(what, "choose one that is not above it")
        return fixed_s + (mean_s - fixed_s) * self.batch / reference

    def _draw_compute(self, learner: int) -> Floats:
        """Return PERIOD seconds of steps, independent of the number of learners."""
        compute, slow, mean_s = self.scenario.compute, self.scenario.slow, self._mean_step_s()
        rng = np.random.default_rng((self.scenario.job.seed, COMPUTE, learner))
        if self._trace_s is not None:  # in its order, from anywhere on
            row = np.take(self._trace_s, int(rng.integers(len(self._trace_s))) + np.arange(PERIOD), mode="wrap")
        else:
            row = mean_s * draw(rng, compute.distribution, compute.spread)
        if slow.step_probability:
            row = row * np.where(rng.random(PERIOD) < slow.step_probability, slow.step_factor, 1)
        return row * self.factors.get(learner, 1.0)


def draw(rng: np.random.Generator, distribution: str, spread: float) -> Floats:
    """Return PERIOD draws of mean 1 and deviation `spread`, or 1 if exponential."""
    if distribution == "exponential":
        return rng.exponential(size=PERIOD)
    if distribution == "constant" or not spread:
        return np.ones(PERIOD)
    sigma = np.sqrt(np.log1p(spread**2))
    return rng.lognormal(-(sigma**2) / 2, sigma, PERIOD)


def shared_cpu_s(cpu_s: float, other_s: float, num_learners: int, num_cores: int, together: bool) -> float:
    """Return the seconds for `cpu_s` of a core when learners share `num_cores`.

    `other_s` of each step need no core. Learners that begin `together` share the cores. Others come at any time: a
    closed queue with `num_cores` servers, solved as the machine repairman's (exponential times; Gross and Harris,
    Fundamentals of Queueing Theory).
    """
    if num_learners <= num_cores or not cpu_s:
        return cpu_s
    if together or not other_s:
        return cpu_s * num_learners / num_cores
    waiting = np.arange(num_learners + 1)
    arrivals, services = (num_learners - waiting[:-1]) / other_s, np.minimum(waiting[1:], num_cores) / cpu_s
    weights = np.concatenate([[1.0], np.cumprod(arrivals / services)])
    weights /= weights.sum()
    return float(weights @ waiting) / float(weights[:-1] @ arrivals)


def read_trace(path: Path) -> Floats:
    """Read the seconds of steps: milliseconds by line, or ``learners/R.jsonl``.

    A training's step lasts to the next one, without pauses. Raises AsrtoolError for a missing file, a line that is
    not a number, and a step of no time.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        what = f"compute.trace: {path} cannot be read"
        raise AsrtoolError(what, "name a file with milliseconds, one a line") from error
    try:
        is_training = bool(lines) and lines[0].startswith("{")
        found = _read_records(lines) if is_training else np.array([float(line) / 1000 for line in lines])
    except (ValueError, KeyError, TypeError) as error:
        what = f"{path}: expected milliseconds, one number a line, or records of steps: {error}"
        raise AsrtoolError(what, "correct the trace, or name learners/R.jsonl of a training") from error
    if not len(found) or not np.isfinite(found).all() or found.min() <= 0:
        raise AsrtoolError(f"{path}: expected one or more steps, each of more than 0 ms", "correct the trace")
    return found


def _read_records(lines: list[str]) -> Floats:
    steps = [json.loads(line) for line in lines]
    begin, compute_s, data_s = (np.array([step[name] for step in steps]) for name in ("begin", "compute_s", "data_s"))
    other_s = np.array([step["comm_s"] + step["wait_s"] for step in steps])
    between_s = np.maximum(begin[1:] - data_s[1:] - (begin + compute_s + other_s)[:-1], 0)
    median_s = np.median(between_s) if len(between_s) else 0.0
    between_s[between_s > LONG * median_s] = median_s
    return compute_s + np.append(between_s, np.median(between_s) if len(between_s) else 0.0)
