"""Components of a person's own: sources (a stream, and a mixture of parts of a set), an objective, and strategies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from asrtool.data.storage.reader import FeatureReader
from asrtool.distributed.strategies.gossip import adpsgd
from asrtool.distributed.strategies.replica import LocalReplica
from asrtool.distributed.strategies.strategy import Strategy, StrategyContext, SynchronousStrategy
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.models.acoustic import Loss
from asrtool.models.objectives.ctc import Ctc
from asrtool.settings.train import Shards as ShardsSettings
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import BatchSource, DevSet, Planned, Size, SourceContext


class CountingCtc(Ctc):
    """Reports the rows that it sees."""

    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        loss = super().loss(hidden_NTC, lens_N, targets_NU, target_lens_N)
        return Loss(loss.total, loss.normaliser, {"rows": float(lens_N.sum()), "nothing": 0.0})


class Own(BatchSource):
    """What both share: utterances of the toy set by their positions in its index."""

    def __init__(self, context: SourceContext) -> None:
        self.context = context
        self.reader = FeatureReader(context.directory, context.features.cmvn)

    def read(self, batch: Planned) -> TrainingBatch:
        utterances = [self.reader.index[i] for i in batch.content]
        feats = [torch.from_numpy(self.reader.read(i).copy()) for i in batch.content]
        targets = [torch.tensor(self.context.encode(utterance.text)) for utterance in utterances]
        return TrainingBatch(
            ids=[utterance.id for utterance in utterances],
            inputs_NT=torch.nn.utils.rnn.pad_sequence(feats, batch_first=True).numpy(),
            input_lens_N=np.array([len(feats_TF) for feats_TF in feats]),
            targets_NU=torch.nn.utils.rnn.pad_sequence(targets, batch_first=True),
            target_lens_N=torch.tensor([len(tokens) for tokens in targets]),
            normaliser=batch.normaliser,
        )

    def planned(self, positions: Sequence[int], state: dict[str, Any]) -> Planned:
        normaliser = sum(len(self.context.encode(self.reader.index[i].text)) for i in positions)
        return Planned(tuple(positions), len(positions), normaliser, state)


class Streaming(Own):
    """Utterances in the order of a file that is read line by line; an epoch ends where the file does.

    State: ``line``, the number of the next line, and ``offset``, where it begins in the file.
    """

    @dataclass(frozen=True)
    class Settings:
        estimate: int = 24  # utterances of an epoch, as a person guesses
        batch: int = 2  # utterances

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self.lines_read: list[int] = []

    def size(self) -> Size:
        return Size(self.context.settings.estimate, 30 * self.context.settings.estimate)

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        place = dict(state) if batch else {"line": 0, "offset": 0}
        with open(self.context.directory / "index.jsonl", "rb") as stream:
            stream.seek(place["offset"])
            while positions := self._next(stream, place["line"]):
                place = {"line": positions[-1] + 1, "offset": stream.tell()}
                yield self.planned(positions, dict(place))

    def _next(self, stream: Any, line: int) -> list[int]:
        positions = []
        while len(positions) < self.context.settings.batch and (text := stream.readline()):
            assert json.loads(text)["id"] == self.reader.index[line].id
            self.lines_read.append(line)
            positions.append(line)
            line += 1
        return positions


class Mixture(Own):
    """Parts of the set, each drawn from by its weight; an epoch is `num_samples` of them, and none is special.

    State: ``taken``, samples of each part before; each is gone through again and again.
    """

    @dataclass(frozen=True)
    class Settings:
        weights: tuple[float, ...] = (0.75, 0.25)  # of the parts, which are equally large
        num_samples: int = 20  # of an epoch
        batch: int = 3  # samples

    def size(self) -> Size:
        return Size(self.context.settings.num_samples, 30 * self.context.settings.num_samples)

    def parts(self) -> list[np.ndarray]:
        """Positions in the index, by part."""
        return np.array_split(np.arange(len(self.reader.index)), len(self.context.settings.weights))

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        settings, parts = self.context.settings, self.parts()
        taken = list(state.get("taken", [0] * len(parts)))
        random = np.random.default_rng((self.context.seed, epoch))
        chosen = random.choice(len(parts), settings.num_samples, p=settings.weights)
        for begin in range(batch * settings.batch, settings.num_samples, settings.batch):
            positions = []
            for part in chosen[begin : begin + settings.batch]:
                positions.append(int(parts[part][taken[part] % len(parts[part])]))
                taken[part] += 1
            yield self.planned(positions, {"taken": list(taken)})


class OwnDev(Shards):
    """As ever, but for what it is evaluated with: the first batch of dev."""

    Settings = ShardsSettings

    @classmethod
    def open_dev(cls, context: SourceContext) -> DevSet:
        return FirstBatch(context)


class SmallCache(Shards):
    """Shards that are held in less memory."""

    @dataclass(frozen=True)
    class Settings(ShardsSettings):
        cache_gib: float = 0.25


class FirstBatch(Shards):
    def plan_eval(self) -> list[Planned]:
        return super().plan_eval()[:1]


@dataclass(frozen=True)
class Enduring:
    survives: ClassVar[bool] = True
    joinable: ClassVar[bool] = True
    ring: ClassVar[str] = "random"

    message_type: str = "fp32"


@dataclass(frozen=True)
class Nodes:
    of_nodes: ClassVar[bool] = True

    node_size: int = 0


@dataclass(frozen=True)
class Steps:
    step_each: ClassVar[bool] = True


class Gossiping:
    """Gossip that survives losses and can be joined."""

    Settings = Enduring

    def __new__(cls, context: StrategyContext) -> Any:
        strategy = adpsgd(context)
        assert isinstance(strategy, LocalReplica)
        return strategy


def silent(context: StrategyContext) -> Strategy:
    """Has no settings, so says nothing of itself."""
    return SynchronousStrategy(context, AssignmentRule(), context.task)


class InNodes:
    Settings = Nodes


class StepEach:
    Settings = Steps


class Claiming:
    """Claims to survive, and waits for all others."""

    Settings = Enduring

    def __new__(cls, context: StrategyContext) -> Any:
        return silent(context)


def forgetful(context: StrategyContext) -> None:
    """Makes a strategy and does not return it."""
    silent(context)
