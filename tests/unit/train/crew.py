"""Trainings whose learners are threads of this process, and die at any of their requests to the store.

They may also die between drawing a batch and training it, and between training and recording it.
A learner that dies makes no further request, in any of its threads. Others then find it lost, as by a heartbeat. Once
learners end the training together nobody may be lost any more: all begin again from the last checkpoint.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import torch
from torch.distributed import HashStore

from asrtool.distributed.members.joining import rendezvous_path
from asrtool.distributed.members.members import Members, TrainingEnded, node_of
from asrtool.distributed.strategies.replica import LocalReplica, NoMixing
from asrtool.distributed.strategies.strategy import Strategy, StrategyContext
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.work import lost_batches
from asrtool.distributed.work.work_queue import COUNTER, AssignmentRule
from asrtool.distributed.world import World
from asrtool.settings.distributed import Distributed
from asrtool.settings.schema import Choice
from asrtool.settings.train import Optimisation
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.source import BatchSource, Planned, Size
from asrtool.train.checkpoints.checkpoint import State, load_checkpoint, load_newest
from asrtool.train.job import Components, Job
from asrtool.train.ledger import examine_lost
from asrtool.train.loop.evaluation import Evaluation
from asrtool.train.loop.loop import Training
from asrtool.train.loop.loss import Sums
from asrtool.train.loop.stop import Left, Stop, Stopped
from asrtool.train.loop.straggler import InjectionOptions

NUM_BATCHES, NUM_EPOCHS = 11, 3
WAIT_S = 480  # bounds a hang
MAX_REQUESTS = 20_000  # far more than a learner needs
KILLED = "was ended by SIGKILL"


class Killed(BaseException):
    """This learner was."""


class LetterBatches(BatchSource):
    """Epochs of batches of one utterance each."""

    def __init__(self) -> None:
        pass

    def size(self) -> Size:
        return Size(NUM_BATCHES, NUM_BATCHES)

    def plan(self, epoch: int, batch: int, state: Mapping[str, Any]) -> Iterator[Planned]:
        return (Planned(number, 1, 1) for number in range(batch, NUM_BATCHES))

    def read(self, batch: Planned) -> TrainingBatch:
        lens_N = torch.tensor([1])
        frames_N = np.array([10 + batch.content])
        return TrainingBatch(["a"], np.zeros((1, 30, 1), np.float32), frames_N, lens_N[:, None], lens_N, 1)


class FaultyStore:
    """The store of a learner that dies at its `dies_at`-th request: before it, or at an odd one right after it.

    If that is negative, it dies once it has drawn so many tickets, so that nobody knows the last.
    """

    def __init__(self, store: HashStore, dies_at: float, stops_at: int = 0) -> None:
        """Ask the learner to stop at its `stops_at`-th request."""
        self.store, self.dies_at, self.lock = store, dies_at, threading.Lock()
        self.stops_at, self.stop = stops_at, Stop()
        self.num, self.num_tickets = itertools.count(1), itertools.count(1)

    def kill(self) -> None:
        self.dies_at = 0

    def request(self, act: Callable[[], Any] = lambda: None, draws: bool = False) -> Any:
        with self.lock:
            num, dies_at = next(self.num), self.dies_at
        assert num < MAX_REQUESTS, "all wait for one another"
        if num == self.stops_at:
            self.stop.receive(signal.SIGTERM, None)
        if dies_at < 0:
            dies_at = num if draws and next(self.num_tickets) == -dies_at else float("inf")
        found = act() if num < dies_at or (num == dies_at and (draws or num % 2)) else None
        if num >= dies_at:
            self.kill()
            raise Killed
        return found

    def get(self, key: str) -> bytes:
        while not self.check([key]):
            time.sleep(0.001)
        found: bytes = self.store.get(key)
        return found

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.request(lambda: getattr(self.store, name)(*args), args == (COUNTER, 1))


class Member(World):
    """A learner of `attempt`, which finds at once who is lost."""

    def __init__(self, attempt: Attempt, rank: int, joins: bool, dies_at: float) -> None:
        store = FaultyStore(attempt.store, dies_at, attempt.stops.get(rank, 0))
        local_size = 1 if attempt.on_stop == "leave" else attempt.size
        super().__init__(rank, attempt.size, local_size, store, generation="token")
        self.attempt, self.joins, self.members = attempt, joins, Members(attempt.size, rank)
        self.calls = itertools.count()

    @property
    def live(self) -> Any:
        assert self.members
        self.members.refresh(self.store)
        return super().live

    def gather(self, value: Any) -> list[Any]:
        """Wait for all; ConnectionError if one of them is dead."""
        ranks = self.ranks or range(self.size)
        given = self.attempt.given.setdefault((bool(self.ranks), next(self.calls)), {})
        given[self.rank] = copy.deepcopy(value)
        while len(given) < len(ranks):
            self.store.request()
            if self.attempt.dead & {*ranks}:
                raise ConnectionError("connection closed by peer")
            time.sleep(0.001)
        return copy.deepcopy([given[rank] for rank in ranks])

    def mean(self, values_P: torch.Tensor, message_type: torch.dtype = torch.float32) -> None:
        values_P.copy_(torch.stack(self.gather(values_P)).mean(0))

    def regroup(self) -> None:
        self.ranks, self.size, self.calls = self.live, len(self.live), itertools.count()


@dataclass
class Attempt:
    """One start of all learners of a training, and of some that join."""

    crew: Crew
    size: int
    kills: Mapping[int, int]  # rank -> request or, if negative, ticket
    stops: Mapping[int, int] = field(default_factory=dict)  # rank -> request at which it is asked to stop
    on_stop: str = "all"  # as in the settings
    node_size: int = 1  # learners that step together, and are lost together
    num_join: int = 0
    die_evaluating: Collection[int] = ()
    store: HashStore = field(default_factory=HashStore)
    given: dict[Any, dict[int, Any]] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    worlds: dict[int, Member] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)
    num_ended: int = 0
    final: State | None = None

    @property
    def num_lost_batches(self) -> int:
        """Batches that lost learners had left, and others trained."""
        return max((len(world.members.lost_batches) for world in self.worlds.values() if world.members), default=0)

    def run(self) -> State | None:
        """Return the state at the end; None if the training is to be begun again."""
        with ThreadPoolExecutor(self.size + self.num_join) as pool:
            futures = [pool.submit(self.learn, rank) for rank in range(self.size + self.num_join)]
            for future in futures:
                future.result(WAIT_S)
        for error in self.errors:
            raise error
        return self.final

    def learn(self, rank: int) -> None:
        joins = rank >= self.size
        try:
            if joins and not self.wait_for_beginning():
                return
            world = Member(self, rank, joins, self.kills.get(rank, float("inf")))
            with self.lock:
                self.worlds[rank] = world
                if self.dead & {*node_of(rank, self.node_size)}:
                    world.store.kill()
            training = Training(self.crew.job(self.node_size, self.on_stop), self.crew.components(), world)
            world.store.stop = training.stop
            training.train()
            self.crew.check_end(training)
            if world.index == 0:
                self.final = training.state
        except Killed:
            self.lose(rank)
        except TrainingEnded:
            assert joins
        except Stopped as error:
            if not (self.stops or self.on_stop == "leave"):
                self.errors.append(error)
        except Left:
            assert self.on_stop == "leave"
            self.left.add(rank)
        except ConnectionError:  # of one at the end, where all are needed: the launcher ends them
            self.dead.add(rank)
            self.kill_all()
        except BaseException as error:
            self.dead.add(rank)
            self.errors.append(error)
            self.kill_all()
        finally:
            with self.lock:
                self.num_ended += 1

    def lose(self, rank: int) -> None:
        """Kill the others of the node; the last of them to end has all of it lost."""
        node = node_of(rank, self.node_size)
        for other in node:
            if other in self.worlds:
                self.worlds[other].store.kill()
        with self.lock:
            self.dead.add(rank)
            if self.dead >= {*node}:
                losses = [examine_lost(self.crew.out, other, KILLED) for other in node]
                members = Members(self.size)
                members.lose(self.store, *losses)
                if rank in members.live:  # at the end, where all are needed: their heartbeats end them
                    self.kill_all()

    def kill_all(self) -> None:
        for world in self.worlds.values():
            world.store.kill()

    def wait_for_beginning(self) -> bool:
        """Return whether there is a training to join; none is if the first one was lost as it began."""
        while not rendezvous_path(self.crew.out).exists():
            if self.num_ended == self.size:
                return False
            time.sleep(0.001)
        return True


@dataclass(frozen=True)
class Settings:
    """Settings of `in_nodes`."""

    survives: ClassVar[bool] = True
    joinable: ClassVar[bool] = True

    node_size: int = 1


def in_nodes(context: StrategyContext) -> Strategy:
    """Exchange nothing; learners of a node take batches together."""
    flat = FlatWeights(context.model)
    mixing = NoMixing(flat.weights_P)
    return LocalReplica(context, flat, mixing, AssignmentRule(context.settings.node_size), context.task)


in_nodes.Settings = Settings  # type: ignore[attr-defined]


class Crew:
    """A training in `out`, begun again with new learners until it is finished."""

    def __init__(self, out: Path) -> None:
        out.mkdir(exist_ok=True)
        self.out, self.num_restarts = out, 0
        self.attempts: list[Attempt] = []
        self.num_ahead = 0  # steps of the checkpoint from which the last attempt resumed, minus its batches

    def job(self, node_size: int, on_stop: str) -> Job:
        optimisation = Optimisation(
            num_epochs=NUM_EPOCHS,
            optimizer=Choice.of("optimizer", "sgd", momentum=0.0, weight_decay=0.0),
            peak_lr=10.0,
            precision="fp32",
            num_threads=1,
            save_every_steps=2,
            keep_last=1000,
        )
        strategy = Choice.of("strategy", f"{__name__}:in_nodes", node_size=node_size)
        distributed = Distributed(strategy=strategy, on_stop=on_stop)
        inputs: Any = None
        injection = InjectionOptions(compute_ms=0.2)
        return Job(self.out, inputs, optimisation, distributed, lambda _: self.components(), injection=injection)

    def components(self) -> Components:
        model: Any = torch.nn.Linear(2, 2)
        model.load_state_dict({"weight": torch.tensor([[1.0, -2.0], [3.0, 0.5]]), "bias": torch.ones(2)})
        dev_set: Any = SimpleNamespace()
        return Components({}, model, LetterBatches(), dev_set)

    def train(self, attempts: Iterator[Callable[[Crew], Attempt]]) -> State:
        """Train by these attempts, the last of which has no kills; return the final state."""
        for begin in attempts:
            attempt = begin(self)
            self.attempts.append(attempt)
            with quiet(), patch.dict("os.environ", {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}):
                final = attempt.run()
            rendezvous_path(self.out).unlink(missing_ok=True)
            self.check_checkpoints()
            if final:
                return final
            if newest := load_newest(self.out / "checkpoints"):
                self.num_ahead = newest[1].step - newest[1].samples
            self.num_restarts += 1
        raise AssertionError("not finished")

    def check_end(self, training: Any) -> None:
        """Each batch was trained once, and each checkpoint of an epoch was evaluated."""
        state = training.state
        assert sorted(self.records(state.record_bytes)) == every_batch()
        assert (state.samples, state.untrained) == (len(every_batch()), [])
        more = state.step - state.samples - self.num_ahead
        assert abs(more) <= self.attempts[-1].num_lost_batches  # each may be trained on the other side of a cut
        assert state.frames == sum(10 + batch for _, batch in every_batch())
        assert state.unevaluated == []
        assert state.dev_losses[-1][0] == NUM_EPOCHS

    def records(self, lengths: list[int]) -> list[tuple[int, int]]:
        """Return epoch and batch, from 0, of the records up to these lengths of the files."""
        parts = [self.out / "learners" / f"{rank}.jsonl" for rank in range(len(lengths))]
        texts = [path.read_bytes()[:length] for path, length in zip(parts, lengths, strict=True) if path.exists()]
        lines = [json.loads(line) for text in texts for line in text.splitlines()]
        return [(line["epoch"] - 1, line["batch"]) for line in lines]

    def check_checkpoints(self) -> None:
        """Each has what was recorded before it, once, and the mean weights of learners.

        All weights of a learner move alike, from where they began; and the mean moves by the updates alone.
        """
        begin = self.components().model.weight
        for path in sorted((self.out / "checkpoints").glob("step-????????.pt")):
            content, state = load_checkpoint(path)
            moved = (content["weights"]["weight"] - begin).detach()
            assert moved.max() - moved.min() < 1e-5, path
            before = [batch for batch in every_batch() if batch < (state.epoch, state.batch)]
            left = {(epoch, i) for epoch, first, end in state.untrained for i in range(first, end)}
            assert sorted(self.records(state.record_bytes)) == [batch for batch in before if batch not in left], path
            assert state.samples == len(before) - len(left)
        metrics = self.out / "metrics.jsonl"
        lines = map(json.loads, metrics.read_text().splitlines() if metrics.exists() else ())
        assert max([line["drift"] for line in lines if "drift" in line], default=0.0) < 1e-5


def every_batch() -> list[tuple[int, int]]:
    return [(epoch, batch) for epoch in range(NUM_EPOCHS) for batch in range(NUM_BATCHES)]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Turn off signals, curves and losses, which other tests cover."""
    losses = Sums(1.0, 1)

    def evaluate(self: Evaluation, _: Any) -> Sums:
        world: Any = self.world
        if world.rank in world.attempt.die_evaluating:
            world.store.kill()
        time.sleep(0.01)
        world.store.request()
        return losses

    step = Training.step

    def step_or_die(self: Training, *args: Any) -> Any:
        world: Any = self.world
        world.store.request()
        done = step(self, *args)
        world.store.request()
        return done

    with (
        patch.object(Stop, "__enter__", lambda self: self),
        patch.object(Stop, "__exit__", lambda *_: None),
        patch.object(Training, "step", step_or_die),
        patch.object(lost_batches, "POLL_S", 0.002),
        patch(
            "torch.utils.tensorboard.SummaryWriter",
            lambda *_, **__: SimpleNamespace(add_scalar=lambda *_: None, close=int),
        ),
        patch.object(Evaluation, "on_this_learner", evaluate),
        patch.object(Evaluation, "on_all_learners", lambda self, model: (self.world.gather(None), losses)[1]),
    ):
        yield
