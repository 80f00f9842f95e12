"""What virtual learners train: the batches of a training as it plans them, each with its place and its randomness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from asrtool.distributed.work.work_queue import AssignmentRule, BatchNumber
from asrtool.predict.simulate.events import Begin
from asrtool.settings.train import Optimisation
from asrtool.train.batches.batch import Augment, TrainingBatch, prepare_batch
from asrtool.train.batches.plan import Place, Plan
from asrtool.train.batches.source import BatchSource
from asrtool.train.checkpoints.checkpoint import State
from asrtool.train.optimisation.learning_rate import LearningRates


@dataclass
class Trained:
    """A step of a virtual learner, as far as it is computed."""

    begin: Begin
    after: Place  # of its round
    num_samples: int = 0
    batch: TrainingBatch | None = None
    nats: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    grad_norm: float = 0.0
    staleness: int = 0


class Assigned:
    """The batches of what learners begin, and the learning rate there, as asrtool.train.loop.loop has them."""

    def __init__(
        self,
        settings: Optimisation,
        source: BatchSource,
        augment: Augment | None,
        rates: LearningRates,
        rule: AssignmentRule,
        num_learners: int,
    ) -> None:
        self.settings = settings
        self.source = source
        self.augment = augment
        self.rates = rates
        self.group_size = rule.group_size
        self.plan = Plan(source, settings.num_epochs, rule.round_size(num_learners), State())
        self.dev_losses: list[float] = []  # known by now

    def trained(self, begin: Begin) -> Trained:
        """What a learner begins, before its batch is read."""
        found = self.plan.round(begin.number)
        assert found, f"round {begin.number} is behind the last one"
        return Trained(begin, self.plan.place(found.epoch, found.slots.stop))

    def rate(self, trained: Trained) -> float:
        """The learning rate of a step."""
        return self.rates.after(trained.after.samples, self.dev_losses if self.rates.needs_dev else ())

    def divisor(self, group: Sequence[Trained]) -> float:
        """Of the loss of each learner of a sync group."""
        begun = [trained.begin for trained in group if trained.begin.position is not None]
        of_group = sum(self.plan.planned(begin.epoch, _number(begin)).normaliser for begin in begun)
        return max(of_group / self.group_size, 1)

    def read(self, trained: Trained) -> None:
        """Give it its batch, if it has one, with masks and dropout drawn as its place in the training says."""
        begin = trained.begin
        if begin.position is None:
            return
        planned = self.plan.planned(begin.epoch, _number(begin))
        trained.batch, trained.num_samples = self.source.read(planned), planned.num_samples
        prepare_batch(trained.batch, self.settings.seed, self.plan.number(_number(begin)), self.augment)


def _number(begin: Begin) -> BatchNumber:
    assert begin.position is not None
    return BatchNumber(begin.epoch, begin.position)
