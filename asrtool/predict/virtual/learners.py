"""Virtual learners: they train a model on one device in the order of given events."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor

from asrtool.distributed.strategies.gossip import Gossip as RealGossip
from asrtool.distributed.strategies.gossip import Pairs
from asrtool.distributed.strategies.strategy import ConsensusMetrics
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.world import MESSAGE_TYPES, World
from asrtool.errors import AsrtoolError
from asrtool.predict.simulate.events import Begin, End, Event
from asrtool.predict.theory.system import ONE_COPY
from asrtool.predict.virtual.gossip import Gossip
from asrtool.predict.virtual.replica import Rule, SharedModel, StepPlan, VirtualStep
from asrtool.predict.virtual.shared_weights import Hogwild, ServerRule
from asrtool.predict.virtual.synchronous import Blocks, DelayByOne, SynchronousRule
from asrtool.settings.schema import Choice
from asrtool.train.batches.plan import Place
from asrtool.train.checkpoints.checkpoint import State
from asrtool.train.job import Components, Job
from asrtool.train.loop.build import fix_threads_and_precision
from asrtool.train.loop.gradient_accumulation import GradientAccumulation
from asrtool.train.loop.loss import LossModule, Sums, sum_loss
from asrtool.train.optimisation.learning_rate import LearningRates
from asrtool.train.optimisation.optimizer import build_optimizer

IN_BF16 = ("adpsgd", "adpsgd-fixed", "adpsgd-random", "adpsgd-pairs")  # whose messages virtual learners round
SUPPORTED = (*ONE_COPY, *IN_BF16, "adpsgd-d1", "h-adpsgd", "bmuf", "ps-async", "hogwild", "none")


def check_rule(strategy: Choice) -> None:
    """Raise AsrtoolError if virtual learners have no rule for `strategy`."""
    name, settings = strategy.name, strategy.settings
    if name not in SUPPORTED:
        what = f"distributed.strategy = {name}: virtual learners know no rule for it, expected one of"
        hint = "train with it by asrtool train, or choose another --strategy"
        raise AsrtoolError(f"{what} {', '.join(SUPPORTED)}", hint)
    if getattr(settings, "message_type", "fp32") != "fp32" and name not in IN_BF16:
        what = f"distributed.{name}.message_type is {settings.message_type}, which virtual learners round with"
        raise AsrtoolError(f"{what} {', '.join(IN_BF16)} alone", f"--set distributed.{name}.message_type=fp32")


def rule_of(strategy: Choice, shared: SharedModel, num_learners: int, node_size: int) -> Rule:
    """Return the rule of `strategy`. Raises AsrtoolError as `check_rule`."""
    check_rule(strategy)
    name, settings = strategy.name, strategy.settings
    if name in ONE_COPY:
        return SynchronousRule(shared, num_learners, num_learners, share_statistics=False)
    if "adpsgd-d1" in (name, getattr(settings, "outer", "")):
        return DelayByOne(shared, num_learners, node_size)
    if name == "bmuf":
        return Blocks(shared, num_learners, settings)
    if name == "ps-async":
        return ServerRule(shared, num_learners, settings.num_servers)
    if name == "hogwild":
        return Hogwild(shared, num_learners)
    weight = Pairs.weight if name == "adpsgd-pairs" else RealGossip.weight
    return Gossip(shared, num_learners, weight, MESSAGE_TYPES[getattr(settings, "message_type", "fp32")], node_size)


@dataclass(frozen=True)
class Stepped:
    """End of a step of a learner with a batch."""

    trained: VirtualStep
    end: End
    rate: float  # the learning rate


@dataclass(frozen=True)
class Evaluated:
    """End of an epoch, with the losses of the mean of all learners on dev."""

    at_s: float
    place: Place
    losses: Sums
    consensus: ConsensusMetrics


class Diverged(AsrtoolError):
    """Error for a loss or gradient that is NaN."""


class VirtualLearners:
    """`num_learners` learners that train `components` by the strategy of `job`."""

    def __init__(self, job: Job, components: Components, num_learners: int) -> None:
        """Raise AsrtoolError if virtual learners cannot train `job`."""
        check_virtual(job)
        self.job = job
        settings = job.optimisation
        self.state = State(learners=list(range(num_learners)))
        self.precision = fix_threads_and_precision(settings, self.state, World())
        self.model = components.model.to(self.precision.device)
        self.dev_set = components.dev_set
        task = LossModule(self.model, self.precision)
        node_size = job.distributed.node_size(num_learners)
        self.total_samples = settings.num_epochs * components.train_set.size().num_samples
        factor = job.distributed.rate_factor(num_learners, num_learners)
        rates = LearningRates(settings, self.total_samples, job.distributed.lr_scale, factor)
        self.shared = SharedModel(
            task,
            self.model,
            FlatWeights(self.model, slices=node_size),
            GradientAccumulation(task, components.max_frames, components.frame_ms, probes=False),
            functools.partial(build_optimizer, settings=settings),
            settings.clip_norm,
        )
        self.rule: Rule = rule_of(job.distributed.strategy, self.shared, num_learners, node_size)
        self.step_plan = self.shared.step_plan = StepPlan(
            settings, components.train_set, components.augment, rates, self.rule.assignment_rule, num_learners
        )
        self.epochs = [0] * num_learners  # last epoch that each has entered
        self.mean_P: Tensor = self.shared.start_P  # mean of all, as evaluated last

    def follow(self, events: Iterable[Event]) -> Iterator[Stepped | Evaluated]:
        """Train by the events of a training; raises Diverged."""
        at_s = 0.0
        for event in events:
            at_s = event.at_s
            yield from self.take(event)
        yield from self.end(at_s)

    def take(self, event: Event) -> Iterator[Stepped | Evaluated]:
        """Yield the results of the next event. Raises Diverged."""
        if isinstance(event, Begin):
            yield from self._enter(event.learner, event.epoch, event.at_s)
            self.rule.steps[event.learner] = self.step_plan.trained(event)
            self.rule.begin(event.learner)
        elif isinstance(event, End):
            trained = self.rule.steps[event.learner]
            if not (math.isfinite(trained.nats) and math.isfinite(trained.grad_norm)):
                what = f"learner {event.learner}, step {trained.after.step}: loss {trained.nats:g}, gradient norm"
                hint = f"lower {self.job.optimisation.section}.peak_lr"
                raise Diverged(f"{what} {trained.grad_norm:g}", hint)
            if trained.batch:
                yield Stepped(trained, event, self.step_plan.rate(trained))
        else:
            self.rule.follow(event)

    def end(self, at_s: float) -> Iterator[Evaluated]:
        """Evaluate after the last event, at second `at_s`."""
        for learner in range(len(self.epochs)):
            yield from self._enter(learner, self.job.optimisation.num_epochs, at_s)

    def _enter(self, learner: int, epoch: int, at_s: float) -> Iterator[Evaluated]:
        """Enter `epoch` with a learner; the last one there evaluates the mean of all."""
        while self.epochs[learner] < epoch:
            self.epochs[learner] += 1
            entered = self.epochs[learner]
            mean = self.rule.means[entered]
            mean.num_entered += 1
            self.rule.enter(learner, entered)
            if mean.num_entered < len(self.epochs):
                continue
            del self.rule.means[entered]
            self.mean_P = mean.weights()
            self.shared.flat.move(self.mean_P)
            losses = sum_loss(self.model, self.dev_set, self.dev_set.plan_eval(), self.precision, lambda: None)
            self.step_plan.dev_losses.append(losses.means()["loss"])
            (place,) = self.step_plan.plan.borders(entered, entered)
            yield Evaluated(at_s, place, losses, mean.consensus())


def check_virtual(job: Job) -> None:
    """Raise AsrtoolError if virtual learners cannot train `job`."""
    settings, section = job.optimisation, job.optimisation.section
    if settings.ema_decay:
        what = f"{section}.ema_decay is {settings.ema_decay:g}: virtual learners keep no average over time"
        raise AsrtoolError(what, f"--set {section}.ema_decay=0")
    if job.num_stages > 1:
        what = f"{section}.pipeline_stages is {job.num_stages}, and virtual learners share one device"
        raise AsrtoolError(what, f"--set {section}.pipeline_stages=1")
    if settings.precision == "fp16":
        what = f"{section}.precision is fp16, and virtual learners scale no losses"
        raise AsrtoolError(what, f"--set {section}.precision=fp32, or bf16 on a GPU")
