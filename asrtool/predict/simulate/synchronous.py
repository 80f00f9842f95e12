"""Simulate strategies whose learners make each step together, round by round.

All learners are computed at once.

A round has a batch for each learner. A learner is free, has its batch, has computed the gradients, waits for what its
strategy wants of the others (asrtool.predict.simulate.synchronous_rules), and is free again when the optimizer
has made its step. Times are
seconds since the start. Shapes: L learners.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.cluster import PERIOD, Cluster, Floats
from asrtool.predict.simulate.events import Begin, Emit, End, Round
from asrtool.predict.simulate.outcome import Outcome
from asrtool.predict.simulate.synchronous_rules import Rule, make_rule

MAX_TRIES = 1000  # losses in a row without a checkpoint between them


def simulate_lock_step(cluster: Cluster, strategy: str, settings: Any, emit: Emit | None = None) -> Outcome:
    """Run the whole training. After a loss all start again from the last checkpoint."""
    outcome = Outcome.empty(strategy, cluster.num_learners)
    rule = make_rule(cluster, strategy, settings)
    training = LockStep(cluster, rule, outcome, emit)
    training.start()
    faults = cluster.scenario.faults
    for at, _ in chain(cluster.losses(), [(math.inf, 0)]):
        training.run(at)
        if training.number == training.num_rounds:
            break
        training.start_again(at + cluster.scenario.distributed.timeout_s + faults.restart_s)
    training.end()
    return outcome


class LockStep:
    """Runs rounds, and adds what they take to `outcome`."""

    def __init__(self, cluster: Cluster, rule: Rule, outcome: Outcome, emit: Emit | None) -> None:
        self.cluster = cluster
        self.rule = rule
        self.outcome = outcome
        self.emit = emit
        self.rounds_of_epoch = -(-cluster.num_batches // cluster.num_learners)
        self.num_rounds = self.rounds_of_epoch * cluster.scenario.job.num_epochs
        self.phases = cluster.phases()
        self.learners_L = np.arange(cluster.num_learners)
        self.number = 0  # of the next round
        self.saved, self.saved_at = 0, 0.0  # the round before which the last checkpoint lies
        self.resumed, self.tries = 0, 0  # before which all started again last, and how often
        self.free_L = np.zeros(cluster.num_learners)
        self.loaded_L = self.free_L  # when the next batch is there

    def start(self) -> None:
        """Until the first step."""
        self._pass_to(self.cluster.scenario.saving.start_s)
        self.loaded_L = self._load(self.free_L, 0)

    def run(self, until: float) -> None:
        """Run to the end, or to the end of the round that contains second `until`."""
        while self.number < self.num_rounds and self.free_L.max() < until:
            self._round()

    def start_again(self, at: float) -> None:
        """At the last checkpoint."""
        outcome, ended = self.outcome, float(self.free_L.max())
        outcome.num_losses += 1
        self.tries = self.tries + 1 if self.saved == self.resumed else 1
        self.resumed = self.saved
        if self.tries == MAX_TRIES:
            what = f"{outcome.strategy} lost a learner {MAX_TRIES} times in a row before the checkpoint behind round"
            raise AsrtoolError(
                f"{what} {self.saved} of {self.num_rounds}: such a training does not end",
                "lower saving.every_steps, or raise faults.mtbf_h",
            )
        outcome.num_repeated += self._first_ticket(self.number) - self._first_ticket(self.saved)
        outcome.lost_s += max(0.0, ended - self.saved_at)
        self.number = self.saved
        self._pass_to(max(at, ended))
        self.loaded_L = self._load(self.free_L, self.number)
        self.saved_at = float(self.free_L[0])

    def end(self) -> None:
        """Wait for all learners; the last round ends with a checkpoint and an evaluation."""
        self._pass_to(float(self.free_L.max()) + self.cluster.scenario.saving.end_s)
        self.outcome.seconds = float(self.free_L[0])
        self.outcome.num_batches = self._first_ticket(self.num_rounds)
        self.outcome.batch = self.cluster.batch

    def _round(self) -> None:
        number, free_L, outcome = self.number, self.free_L, self.outcome
        compute_L = self.cluster.compute_LK[: self.cluster.num_learners, number % PERIOD]
        begin_L = np.maximum(free_L, self.loaded_L)
        if self.phases:
            compute_L = compute_L * self.phases.factors(begin_L)
        num_left = self.cluster.num_batches - number % self.rounds_of_epoch * self.cluster.num_learners
        if num_left < self.cluster.num_learners:  # the last round of an epoch has no batch for some
            compute_L = np.where(self.learners_L < num_left, compute_L, 0.0)
        computed_L = begin_L + compute_L
        wait_L = self.rule.waits(number, free_L, begin_L, computed_L)
        self.free_L = computed_L + wait_L + self.cluster.update_s + self.rule.comm_s
        self.loaded_L = self._load(begin_L, number + 1)
        outcome.compute_s += compute_L + self.cluster.update_s
        outcome.comm_s += self.rule.comm_s
        outcome.wait_s += wait_L
        outcome.data_s += begin_L - free_L
        outcome.steps += self.learners_L < num_left
        latest = int(computed_L.argmax())
        outcome.blamed_s[latest] += np.minimum(wait_L, computed_L[latest] - computed_L).sum()
        self.sent_bytes = int(self.rule.sent_bytes(number))
        outcome.bytes += self.sent_bytes
        if self.emit:
            self._tell(begin_L, compute_L, wait_L, begin_L - free_L, num_left)
        self.number += 1
        self._save()

    def _load(self, begin_L: Floats, number: int) -> Floats:
        """Return when the batches of a round are loaded.

        A batch is read from when the previous one was taken.
        """
        loading_LK = self.cluster.loading_LK
        return begin_L if loading_LK is None else begin_L + loading_LK[: len(begin_L), number % PERIOD]

    def _save(self) -> None:
        """Save and evaluate if they are due: all learners wait and go on together."""
        saving, number = self.cluster.scenario.saving, self.number
        epoch_ends = number % self.rounds_of_epoch == 0
        if epoch_ends or (saving.every_steps and number % saving.every_steps == 0):
            seconds = saving.checkpoint_s + epoch_ends * saving.evaluation_s / self.cluster.num_learners
            self._pass_to(float(self.free_L.max()) + seconds)
            self.saved, self.saved_at = number, float(self.free_L[0])

    def _pass_to(self, at: float) -> None:
        """All together."""
        self.outcome.between_s += at - self.free_L
        self.free_L = np.full(len(self.free_L), at)

    def _first_ticket(self, number: int) -> int:
        """Batches before round `number`."""
        epoch, place = divmod(number, self.rounds_of_epoch)
        return epoch * self.cluster.num_batches + place * self.cluster.num_learners

    def _tell(self, begin_L: Floats, compute_L: Floats, wait_L: Floats, data_L: Floats, num_left: int) -> None:
        """The events of a round."""
        assert self.emit
        epoch, place = divmod(self.number, self.rounds_of_epoch)
        first, at_s = place * len(begin_L), float(self.free_L.max())
        for learner, begin_s in enumerate(begin_L.tolist()):
            position = first + learner if learner < num_left else None
            self.emit(Begin(begin_s, learner, self.number, epoch, position))
        self.emit(Round(at_s))
        times_L = zip(self.free_L, begin_L, compute_L + self.cluster.update_s, wait_L, data_L, strict=True)
        for learner, values in enumerate(times_L):
            free_s, begin_s, compute_s, wait_s, data_s = map(float, values)
            self.emit(End(free_s, learner, begin_s, compute_s, self.rule.comm_s, wait_s, data_s, self.sent_bytes))
