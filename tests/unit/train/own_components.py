"""Components of a person's own: sources, an objective, and strategies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
    """CTC that reports the rows of its input."""

    def loss(self, hidden_NTC: Tensor, lens_N: Tensor, targets_NU: Tensor, target_lens_N: Tensor) -> Loss:
        loss = super().loss(hidden_NTC, lens_N, targets_NU, target_lens_N)
        return Loss(loss.total, loss.normaliser, {"rows": float(lens_N.sum()), "nothing": 0.0})


class Streaming(BatchSource):
    """Utterances in the order of a file that is read line by line; an epoch ends with the file.

    State: ``line``, the number of the next line, and ``offset``, where it begins in the file.
    """

    @dataclass(frozen=True)
    class Settings:
        estimate: int = 24  # utterances of an epoch, as a person guesses
        batch: int = 2  # utterances

    def __init__(self, context: SourceContext) -> None:
        self.context = context
        self.reader = FeatureReader(context.directory, context.features.cmvn)
        self.lines_read: list[int] = []

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

    def size(self) -> Size:
        return Size(self.context.settings.estimate, 30 * self.context.settings.estimate)

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        place = dict(state) if batch else {"line": 0, "offset": 0}
        with open(self.context.directory / "index.jsonl", "rb") as stream:
            stream.seek(place["offset"])
            while positions := self._next(stream, place["line"]):
                place = {"line": positions[-1] + 1, "offset": stream.tell()}
                normaliser = sum(len(self.context.encode(self.reader.index[i].text)) for i in positions)
                yield Planned(tuple(positions), len(positions), normaliser, dict(place))

    def _next(self, stream: Any, line: int) -> list[int]:
        positions = []
        while len(positions) < self.context.settings.batch and (text := stream.readline()):
            assert json.loads(text)["id"] == self.reader.index[line].id
            self.lines_read.append(line)
            positions.append(line)
            line += 1
        return positions


class OwnDev(Shards):
    """Source whose evaluation uses only the first batch of dev."""

    Settings = ShardsSettings

    @classmethod
    def open_dev(cls, context: SourceContext) -> DevSet:
        return FirstBatch(context)


class OfFile(Shards):
    """Source that reads another file than the index."""

    @dataclass(frozen=True)
    class Settings:
        files: ClassVar[tuple[str, ...]] = ("stream.txt",)


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


class Claiming:
    """Strategy that claims to survive, and waits for all others."""

    Settings = Enduring

    def __new__(cls, context: StrategyContext) -> Any:
        return silent(context)


def forgetful(context: StrategyContext) -> None:
    """Makes a strategy and does not return it."""
    silent(context)
