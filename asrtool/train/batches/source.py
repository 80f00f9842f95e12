"""Interface of sources, which plan the batches of an epoch and load them.

A plan is a pure function of source, epoch and position, so learners find the same batches without messages, and a
resumed training finds them again. It may grow: the loop requests a few batches at a time; fewer mean the end of the
epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Protocol

from asrtool.data.batches import load_ahead
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel
from asrtool.settings.data import Augment, Features, Mix
from asrtool.settings.schema import Choice
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.frame_targets import TargetsFolder
from asrtool.train.inputs import ColumnsFolder

NO_STATE: Mapping[str, Any] = {}  # one object for all batches without


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch of a plan."""

    content: Any  # description by which the source reads it
    num_samples: int  # utterances
    normaliser: int  # normaliser of the loss
    state: Mapping[str, Any] = field(
        default_factory=lambda: NO_STATE
    )  # the source's state, to continue planning: numbers, texts
    window: int | None = None  # batches of one window share shards, so one learner should read them


@dataclass(frozen=True)
class Size:
    """Size of an epoch; an estimate if the source cannot count."""

    num_samples: int
    num_frames: int


@dataclass(frozen=True)
class Portion:
    """Part of a corpus in an epoch."""

    num_samples: int
    fraction: float  # fraction of the utterances of the epoch
    hours: float


@dataclass(frozen=True)
class SourceContext:
    """Inputs that a source is built from."""

    settings: Any  # settings of the source
    directory: Path  # features of the set, for example features/train
    features: Features  # the settings they were made with
    encode: Callable[[str], list[int]]  # a text to its tokens; AsrtoolError if it has others
    model: AcousticModel  # its objective gives minimum lengths and normalisers
    max_frames: int  # frames of a batch, padding included
    seed: int
    columns: ColumnsFolder | None = None  # columns of the set that one learner has written for the others
    loader_processes: int = 0  # decode utterances; 0 is a thread
    targets: TargetsFolder | None = None  # targets of an objective that is trained on leaves
    augment: Augment | None = None  # augmentation of audio in each epoch; None for none, as in dev
    needs_all: bool = True  # a text without tokens is an error; not so in dev
    mix: Mix = field(default_factory=Mix)  # fraction of each corpus of the set


class BatchSource(ABC):
    """Training set as batches; learning rates follow the samples it counts.

    It is built with a SourceContext.
    """

    targets: ClassVar[tuple[str, ...]] = ("tokens",)  # it offers: tokens, leaves, or custom ones
    augments: ClassVar[bool] = False  # it changes audio by [augment]
    mixes: ClassVar[bool] = False  # it mixes corpora by data.mix

    @abstractmethod
    def __init__(self, context: SourceContext) -> None:
        """Open the set; AsrtoolError if it cannot be read."""

    @abstractmethod
    def size(self) -> Size:
        """Return the size of an epoch, the same for each."""

    @abstractmethod
    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        """Yield the batches of `epoch` from number `batch` on; both count from 0.

        A pure function. `state` is the one of the batch before, of the last epoch if `batch` is 0; empty at the
        start.
        """

    @abstractmethod
    def read(self, batch: Planned) -> TrainingBatch:
        """Read a batch; called in a thread."""

    def expect(self, epoch: int, window: int, num_more: int, num_epochs: int) -> None:
        """Announce batches of a window now, and `num_more` windows soon, to prefetch.

        Called for each batch before `read`, in the same thread, if the source numbers windows. Epochs count from 0.
        """
        return

    def load(self, batches: Iterable[Planned], prefetch: int = 4) -> Generator[TrainingBatch, None, None]:
        """Yield `batches`, read up to `prefetch` ahead."""
        return load_ahead(self.read, batches, prefetch)

    def portions(self, epoch: int) -> dict[str, Portion]:
        """Return corpus -> portion of `epoch`; empty for one or unknown corpora."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Return the entry for the set in train.json."""
        return {}

    def close(self) -> None:
        """Stop threads and processes at the end of training."""
        return

    @classmethod
    def open_dev(cls, context: SourceContext) -> DevSet | None:
        """Return the dev set for targets other than tokens; None for feature shards."""
        return None


class DevSet(Protocol):
    """Dev set of a training."""

    def plan_eval(self) -> list[Planned]:
        """Return the batches, always the same."""

    def load(self, batches: Iterable[Planned]) -> Iterator[TrainingBatch]:
        """Yield `batches`, read ahead."""


class Epoch:
    """Known batches of an epoch from number `begin` on; positions count from 0."""

    def __init__(
        self, source: BatchSource, number: int, begin: int = 0, state: Mapping[str, Any] | None = None
    ) -> None:
        self._more = source.plan(number, begin, state or {})
        self._begin = begin
        self._states: list[Mapping[str, Any]] = [state or {}]  # the source's state at each border
        self._batches: list[Planned] = []
        self._samples = [0]  # samples before the first batch, the second, ...

    def extend(self, end: int) -> int:
        """Return the number of known batches, at least `end` unless the epoch is shorter."""
        for batch in islice(self._more, max(0, end - self._begin - len(self._batches))):
            self._batches.append(batch)
            self._states.append(batch.state)
            self._samples.append(self._samples[-1] + batch.num_samples)
        return self._begin + len(self._batches)

    def batch(self, position: int) -> Planned:
        """Return the known batch at `position`."""
        return self._batches[position - self._begin]

    def state(self, position: int) -> dict[str, Any]:
        """Return the state that the source needs to plan on at `position`."""
        return dict(self._states[position - self._begin])

    def num_samples(self, positions: range) -> int:
        """Return the samples of the batches at `positions`."""
        return self._samples[positions.stop - self._begin] - self._samples[positions.start - self._begin]


def build_source(chosen: Choice, context: SourceContext) -> BatchSource:
    """Build the `chosen` source.

    Raises AsrtoolError if it lacks the targets that the objective is trained on, or if it should change audio or mix
    corpora and does not.
    """
    source: type[BatchSource] = chosen.load()
    wanted = context.model.objective.targets
    if wanted not in source.targets:
        raise AsrtoolError(
            f"train.source = {chosen.name} has {', '.join(source.targets)}, but model.objective is trained on {wanted}",
            "choose another train.source or model.objective",
        )
    if context.augment and not source.augments:
        what = f"train.source = {chosen.name} reads features as they are, but [augment] is to change audio"
        raise AsrtoolError(what, "leave out [augment], or choose train.source=shards")
    if not (context.mix.is_plain or source.mixes):
        what = f"train.source = {chosen.name} mixes no corpora, but data.mix is by {context.mix.rule}"
        raise AsrtoolError(what, "leave out data.mix, or choose train.source=shards")
    return source(context)
