"""Simulate strategies whose learners make each step together, round by round.

In a round a learner is free, begins when it has its batch, has computed its gradients, waits by the rule of its
strategy, updates, and is free again. Times are seconds since the start. Shapes: L learners, N super-learners.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.cluster import PERIOD, Cluster, Floats
from asrtool.predict.simulate.events import Begin, Emit, End, Outcome, Round

LOCK_STEP = ("single", "allreduce", "adpsgd-d1", "bmuf", "ps-sync")
MAX_TRIES = 1000  # losses in a row without a checkpoint between them
Waits = Callable[[Floats, Floats, Floats], Floats]  # (free_L, begin_L, computed_L) -> seconds from computed_L on


@dataclass(frozen=True)
class Rule:
    """Time that the learners of a strategy wait in a round."""

    waits: Waits | None  # None: nobody waits
    sent_bytes: float = 0.0  # by each learner in an exchange
    comm_s: float = 0.0  # seconds of a step that exchanges take from the computing thread
    every: int = 1  # rounds from one exchange to the next


class GradientSums:
    """Sums of the gradients of `size` neighbours during the backward pass.

    Bucket m is summed when all learners have computed it and bucket m - 1 is summed. Gradients come at an even pace,
    so the end is the later of two times: the first bucket is there and all are summed, or the last one is there and
    one is summed.
    """

    def __init__(self, cluster: Cluster, num_bytes: float, size: int) -> None:
        num_buckets = max(1, int(-(-num_bytes // (cluster.scenario.network.bucket_mb * 1e6))))
        links, part = cluster.links, num_bytes / num_buckets
        self.size = size
        if size == cluster.num_learners:
            self.one_s = links.allreduce_s(part, size)
        else:
            self.one_s = links.ring_allreduce_s(part, size, links.num_nodes(size))
        self.all_s = num_buckets * self.one_s
        forward = cluster.scenario.compute.forward_fraction
        self.first = forward + (1 - forward) / num_buckets  # fraction of the computation before the first bucket
        self.sent_bytes = all_reduce_bytes(num_bytes, size)

    def span_s(self, compute_s: Floats) -> Floats:
        """Return the seconds from a common start to the sums, by the longest computation."""
        span_s: Floats = np.maximum(self.first * compute_s + self.all_s, compute_s + self.one_s)
        return span_s

    def waits(self, free_L: Floats, begin_L: Floats, computed_L: Floats) -> Floats:
        """Return the seconds that each learner waits for the sums of its group."""
        if self.size == 1:
            return np.zeros(len(free_L))
        first_L = begin_L + self.first * (computed_L - begin_L)
        first_N, last_N = (times_L.reshape(-1, self.size).max(axis=1) for times_L in (first_L, computed_L))
        waits_L: Floats = np.repeat(np.maximum(first_N + self.all_s, last_N + self.one_s), self.size) - computed_L
        return waits_L


def all_reduce_bytes(num_bytes: float, num_learners: int) -> float:
    """Return the bytes a learner sends, as asrtool.distributed.world counts them."""
    return 2 * num_bytes * (num_learners - 1) / num_learners


def make_rule(cluster: Cluster, strategy: str, settings: Any) -> Rule:
    """Make the rule of a synchronous strategy with its settings."""
    num, links, mix_s = cluster.num_learners, cluster.links, cluster.mix_s
    num_bytes = cluster.message_bytes(settings)
    if strategy in ("allreduce", "single"):
        sums = GradientSums(cluster, num_bytes, num)
        return Rule(sums.waits if num > 1 else None, sums.sent_bytes)
    if strategy == "ps-sync":  # servers are beside the first learners, which share links by node
        part = num_bytes / settings.num_servers
        alone = links.num_nodes(num) == 1
        link, sharing = (links.inner, 1) if alone else (links.outer, min(settings.num_servers, links.node_size))
        link_s, host_s = sharing * part / link.bytes_per_s, cluster.host_s(part)
        answered_L = answers_s(num, host_s, link_s)
        return Rule(server_waits(max(link_s, host_s), host_s, answered_L, link.latency_s), num_bytes, mix_s)
    size = cluster.super_learner_size(settings) if strategy == "h-adpsgd" else 1
    if num == 1:
        return Rule(None, comm_s=mix_s)
    if strategy == "h-adpsgd":
        return _super_learners(cluster, num_bytes, size)
    mean_s, mean_bytes = links.allreduce_s(num_bytes, num), all_reduce_bytes(num_bytes, num)
    if strategy == "adpsgd-d1":
        return Rule(delayed_waits(mean_s), mean_bytes, mix_s)
    return Rule(lambda _, __, ends_L: ends_L.max() + mean_s - ends_L, mean_bytes, mix_s, settings.block_steps)


def delayed_waits(mean_s: float) -> Waits:
    """Make the waits for a mean that takes `mean_s` after all learners are free."""
    return lambda free_L, _, computed_L: np.maximum(free_L.max() + mean_s - computed_L, 0)


def _super_learners(cluster: Cluster, num_bytes: float, size: int) -> Rule:
    """Make the rule of h-adpsgd by delay-by-one.

    Gradients are summed within a node, means between nodes. Each local rank takes the mean of its slice, and then
    gathers the slices of the node; all learners of a node share its link.
    """
    sums, links, num_nodes = GradientSums(cluster, num_bytes, size), cluster.links, cluster.num_learners // size
    delayed = delayed_waits(links.ring_allreduce_s(num_bytes / size, num_nodes, num_nodes, rings=size))
    gather_s = links.allgather_s(cluster.model_bytes, size)
    gather_bytes = cluster.model_bytes / size * (size - 1)

    def waits(free_L: Floats, begin_L: Floats, computed_L: Floats) -> Floats:
        inner_L = sums.waits(free_L, begin_L, computed_L)
        return inner_L + delayed(free_L, begin_L, computed_L + inner_L) + gather_s

    sent_bytes = sums.sent_bytes + all_reduce_bytes(num_bytes / size, num_nodes) + gather_bytes
    return Rule(waits, sent_bytes, cluster.mix_s)


def server_waits(in_s: float, step_s: float, answered_L: Floats, latency_s: float) -> Waits:
    """Make the waits of ps-sync, whose servers add gradients as they come.

    A server takes a gradient in `in_s` and an optimizer's step in `step_s`; learners have their answers, by rank,
    `answered_L` after it. Between these are the norms there and the orders back.
    """

    def waits(free_L: Floats, begin_L: Floats, computed_L: Floats) -> Floats:
        places_L = np.arange(len(computed_L), 0, -1)
        added = float((np.sort(computed_L) + in_s * places_L).max()) + latency_s
        waits_L: Floats = added + 2 * latency_s + step_s + answered_L + latency_s - computed_L
        return waits_L

    return waits


def answers_s(num: int, host_s: float, link_s: float) -> Floats:
    """Return arrival times of `num` messages that a server writes in turn.

    Each takes `host_s`. Messages under way share the link, of which one alone needs `link_s`. A slow server's arrive
    one by one, a fast one's nearly together.
    """
    ends_L, due_L = np.zeros(num), np.zeros(num)
    now_s = received = 0.0  # time, and what fraction of a message that began at 0 would have been received
    first = 0  # begin of the round under way
    for last in range(num + 1):
        begin_s = last * host_s if last < num else np.inf
        while first < last and now_s + (due_L[first] - received) * link_s * (last - first) <= begin_s:
            now_s += (due_L[first] - received) * link_s * (last - first)
            received = due_L[first]
            ends_L[first] = max(now_s, (first + 1) * host_s)
            first += 1
        if last < num:
            received += (begin_s - now_s) / (link_s * (last - first)) if first < last else 0.0
            now_s, due_L[last] = begin_s, received + 1
    return ends_L


def simulate_lock_step(cluster: Cluster, strategy: str, settings: Any, emit: Emit | None = None) -> Outcome:
    """Run the whole training. After a loss all start again from the last checkpoint."""
    training = LockStep(cluster, strategy, make_rule(cluster, strategy, settings), emit)
    for at, _ in chain(cluster.losses(), [(math.inf, 0)]):
        training.run(at)
        if training.number == training.num_rounds:
            break
        training.start_again(at)
    training.pass_to(float(training.free_L.max()) + cluster.scenario.saving.end_s)
    training.outcome.seconds = float(training.free_L[0])
    return training.outcome


class LockStep:
    """Training in rounds, each with a batch for each learner, which adds up its times."""

    def __init__(self, cluster: Cluster, strategy: str, rule: Rule, emit: Emit | None) -> None:
        self.cluster, self.rule, self.emit = cluster, rule, emit
        num_epochs = cluster.scenario.job.num_epochs
        self.outcome = Outcome(strategy, cluster.num_learners, cluster.num_batches * num_epochs, cluster.batch)
        self.rounds_of_epoch = -(-cluster.num_batches // cluster.num_learners)
        self.num_rounds = self.rounds_of_epoch * num_epochs
        self.learners_L = np.arange(cluster.num_learners)
        self.number = 0  # number of the next round
        self.saved = 0  # the round before which the last checkpoint lies
        self.resumed, self.tries = 0, 0  # before which all started again last, and how often
        self.free_L = np.zeros(cluster.num_learners)
        self.pass_to(cluster.scenario.saving.start_s)
        self.loaded_L = self._load(self.free_L, 0)  # time at which the next batch is loaded

    def run(self, until: float) -> None:
        """Run to the end, or to the end of the round that contains second `until`."""
        saving = self.cluster.scenario.saving
        while self.number < self.num_rounds and self.free_L.max() < until:
            if self.rule.waits is None and not self.emit:
                self._run_alone(until)
            else:
                self._round()
            epoch_ends = self.number % self.rounds_of_epoch == 0
            if epoch_ends or (saving.every_steps and self.number % saving.every_steps == 0):
                seconds = saving.checkpoint_s + epoch_ends * saving.evaluation_s / self.cluster.num_learners
                self.pass_to(float(self.free_L.max()) + seconds)
                self.saved = self.number

    def start_again(self, lost_at: float) -> None:
        """Start again at the last checkpoint, after a loss at second `lost_at`.

        Raises AsrtoolError if losses come faster than checkpoints.
        """
        scenario, outcome, ended = self.cluster.scenario, self.outcome, float(self.free_L.max())
        outcome.num_losses += 1
        self.tries = self.tries + 1 if self.saved == self.resumed else 1
        self.resumed = self.saved
        if self.tries == MAX_TRIES:
            what = f"{outcome.strategy} lost a learner {MAX_TRIES} times in a row before the checkpoint after round"
            what += f" {self.saved} of {self.num_rounds}: such a training does not end"
            raise AsrtoolError(what, "lower saving.every_steps, or raise faults.mtbf_h")
        outcome.num_repeated += self._first_batch(self.number) - self._first_batch(self.saved)
        self.number = self.saved
        self.pass_to(max(lost_at + scenario.distributed.timeout_s + scenario.faults.restart_s, ended))
        self.loaded_L = self._load(self.free_L, self.number)

    def pass_to(self, at: float) -> None:
        """Pause all learners until second `at`."""
        self.outcome.between_s += at - self.free_L
        self.free_L = np.full(len(self.free_L), at)

    def _round(self) -> None:
        free_L, outcome, rule, number = self.free_L, self.outcome, self.rule, self.number
        num, update_s = self.cluster.num_learners, self.cluster.update_s
        compute_L = self.cluster.compute_LK[:num, number % PERIOD]
        begin_L = np.maximum(free_L, self.loaded_L)
        epoch, place = divmod(number, self.rounds_of_epoch)
        num_left = self.cluster.num_batches - place * num
        if num_left < num:  # the last round of an epoch has no batch for some
            compute_L = np.where(self.learners_L < num_left, compute_L, 0.0)
        computed_L = begin_L + compute_L
        exchanges = (number + 1) % rule.every == 0
        wait_L = rule.waits(free_L, begin_L, computed_L) if rule.waits and exchanges else np.zeros(num)
        sent_bytes = int(rule.sent_bytes) * exchanges
        data_L, compute_L = begin_L - free_L, compute_L + update_s
        self.free_L = computed_L + wait_L + update_s + rule.comm_s
        self.loaded_L = self._load(begin_L, number + 1)
        outcome.compute_s += compute_L
        outcome.comm_s += rule.comm_s
        outcome.wait_s += wait_L
        outcome.data_s += data_L
        outcome.steps += self.learners_L < num_left
        latest = int(computed_L.argmax())
        outcome.blamed_s[latest] += np.minimum(wait_L, computed_L[latest] - computed_L).sum()
        outcome.bytes += sent_bytes
        self.number += 1
        if self.emit:
            for rank, begin_s in enumerate(begin_L.tolist()):
                self.emit(Begin(begin_s, rank, number, epoch, place * num + rank if rank < num_left else None))
            self.emit(Round(float(self.free_L.max())))
            times_L = (self.free_L, begin_L, compute_L, wait_L, data_L)
            for rank, values in enumerate(zip(*(part_L.tolist() for part_L in times_L), strict=True)):
                free_s, begin_s, compute_s, wait_s, data_s = values
                self.emit(End(free_s, rank, begin_s, compute_s, rule.comm_s, wait_s, data_s, sent_bytes))

    def _run_alone(self, until: float) -> None:
        """Run rounds of one learner up to the next checkpoint, or to second `until`.

        Python floats have the bits of `_round`, and take a fiftieth of the time of arrays of one learner.
        """
        cluster, outcome, number = self.cluster, self.outcome, self.number
        periods = [period for period in (self.rounds_of_epoch, cluster.scenario.saving.every_steps) if period]
        last = min(number - number % period + period for period in periods)
        compute_K, loading_K = cluster.compute_LK[0].tolist(), cluster.loading_LK[0].tolist()
        update_s, comm_s = cluster.update_s, self.rule.comm_s
        free_s, loaded_s = float(self.free_L[0]), float(self.loaded_L[0])
        parts = outcome.compute_s, outcome.comm_s, outcome.data_s
        computed_s, communicated_s, waited_s = (float(part_L[0]) for part_L in parts)
        while number < last and free_s < until:
            begin_s, compute_s = max(free_s, loaded_s), compute_K[number % PERIOD]
            computed_s += compute_s + update_s
            communicated_s += comm_s
            waited_s += begin_s - free_s
            free_s = begin_s + compute_s + update_s + comm_s
            number += 1
            loaded_s = begin_s + loading_K[number % PERIOD]
        for part_L, total_s in zip(parts, (computed_s, communicated_s, waited_s), strict=True):
            part_L[0] = total_s
        outcome.steps += number - self.number
        self.number, self.free_L, self.loaded_L = number, np.array([free_s]), np.array([loaded_s])

    def _load(self, begin_L: Floats, number: int) -> Floats:
        """Return arrival times of batches, each read after the one before was taken."""
        return begin_L + self.cluster.loading_LK[: len(begin_L), number % PERIOD]

    def _first_batch(self, number: int) -> int:
        """Return the number of batches before round `number`."""
        epoch, place = divmod(number, self.rounds_of_epoch)
        return epoch * self.cluster.num_batches + place * self.cluster.num_learners
