"""A training is the same whoever is lost or joins, between any two requests of a learner to the others."""

from __future__ import annotations

import functools
import json
import random as random_module
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import crew
import numpy as np
import pytest
import torch
from crew import KILLED, NUM_BATCHES, NUM_EPOCHS, Attempt, Crew, FaultyStore, Killed
from torch import nn
from torch.distributed import HashStore

from asrtool.distributed.members.joining import rendezvous_path
from asrtool.distributed.members.members import LEFT, LostLearner, Members, TrainingEnded, learner_file, node_of
from asrtool.distributed.members.supervisor import why_lost
from asrtool.distributed.strategies.strategy import StepCost
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.work.work_queue import COUNTER, CUT, END, BatchNumber
from asrtool.distributed.world import World
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.checkpoints.checkpoint import State, load_newest
from asrtool.train.checkpoints.coordinator import LearnerRequests
from asrtool.train.checkpoints.merge import MeanOfParts, announced, wait_for_parts
from asrtool.train.ledger import (
    Assigned,
    TrainedBatches,
    add_lost,
    describe_assigned,
    examine_lost,
    find_missing,
    read_assigned,
)
from asrtool.train.loop import joining
from asrtool.train.loop.step_records import Records, Step, record_of
from asrtool.train.loop.stop import Stop

NUM_REQUESTS = 250  # about as many as a learner makes
NUM_ROUNDS = NUM_EPOCHS * NUM_BATCHES


def attempts(random: random_module.Random) -> Iterator[Callable[[Crew], Attempt]]:
    """Draw attempts in which learners are killed or asked to stop at any request, and one joins; then one without."""
    for _ in range(random.randrange(1, 4)):
        node_size = random.choice([1, 1, 2])
        size = node_size * random.randint(2, 4 if node_size == 1 else 3)
        num_join = random.randrange(2) if node_size == 1 else 0
        who = random.sample(range(size + num_join), random.randint(1, size // node_size))
        kills = {rank: random.choice([random.randrange(1, NUM_REQUESTS), -random.randint(1, 9)]) for rank in who}
        asked = random.sample(range(size), random.choice([0, 0, 1, 2]))
        stops = {rank: random.randrange(1, NUM_REQUESTS) for rank in asked}
        on_stop = random.choice(["all", "leave"])
        attempt = functools.partial(Attempt, size=size, kills=kills, stops=stops, on_stop=on_stop)
        yield functools.partial(attempt, node_size=node_size, num_join=num_join)
    yield functools.partial(Attempt, size=random.randint(2, 3), kills={})


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(12), id="few"), pytest.param(range(12, 60), id="more", marks=pytest.mark.slow)]
)
def test_each_batch_is_trained_once_and_checkpoints_have_what_was_trained_before(seeds: range, tmp_path: Path) -> None:
    """Whoever is killed, asked to stop or joins at any request to the store; also from a checkpoint, after all."""
    for seed in seeds:
        Crew(tmp_path / str(seed)).train(attempts(random_module.Random(seed)))


def test_no_learner_asks_the_store_for_a_batch_on_the_thread_that_trains(tmp_path: Path) -> None:
    """The store may be far away: the next batch is drawn while one is trained."""
    threads: dict[bool, set[str]] = {False: set(), True: set()}
    request = FaultyStore.request

    def noted(self: FaultyStore, act: Callable[[], Any] = lambda: None, draws: bool = False) -> Any:
        threads[draws].add(threading.current_thread().name)
        return request(self, act, draws)

    with patch.object(FaultyStore, "request", noted):
        Crew(tmp_path / "train").train(iter([functools.partial(Attempt, size=3, kills={})]))
    assert threads[True]
    assert all(name.startswith("batches") for name in threads[True])
    assert not all(name.startswith("batches") for name in threads[False])


def test_waiting_for_an_assignment_is_recorded_apart_from_waiting_for_its_batch() -> None:
    batch = TrainingBatch([], np.zeros((1, 1, 1)), np.ones(1), torch.ones(1, 1), torch.ones(1), 1)
    batch.draw_s, batch.wait_s = 0.25, 0.5
    line = record_of(BatchNumber(0, 0), Step(1, 1, 0.0, {}, 0.0, 0.0, 0.1, StepCost(wait_s=1.0)), batch, 1)
    assert (line["wait_s"], line["data_s"]) == (1.25, 0.5)


@pytest.mark.parametrize("node_size", [1, 2])
def test_one_that_is_asked_to_leave_leaves_with_its_node_and_the_others_train_on(node_size: int, tmp_path) -> None:
    asked = {2 * node_size - 1: 20}  # the last one of its node
    attempt = functools.partial(Attempt, size=3 * node_size, kills={}, stops=asked, on_stop="leave")
    training = Crew(tmp_path / "train")
    with patch.object(crew, "NUM_BATCHES", 40):
        training.train(iter([functools.partial(attempt, node_size=node_size)]))
    (one,) = training.attempts
    node = {*node_of(node_size, node_size)}
    assert one.left == node
    assert {rank: loss.why for rank, loss in one.worlds[0].members.losses.items()} == dict.fromkeys(node, LEFT)
    assert all(why_lost(tmp_path / "train", rank) == LEFT for rank in node)


def test_if_all_are_asked_to_leave_all_stop_with_a_checkpoint_of_all(tmp_path: Path) -> None:
    training = Crew(tmp_path / "train")
    together, num_asked = threading.Barrier(3), Counter[LearnerRequests]()

    def leave(self: LearnerRequests) -> bool:
        if self.may_leave and num_asked[self] < 2:  # at the second draw all have said so at the first
            num_asked[self] += 1
            together.wait(60)
        return self.may_leave

    def again(crew: Crew) -> Attempt:
        saved = load_newest(crew.out / "checkpoints")
        assert saved
        assert saved[1].learners == [0, 1, 2]
        return Attempt(crew, 3, {})

    def as_if_asked(self: Stop) -> bool:
        return self.leaves

    with patch.object(LearnerRequests, "leave", leave), patch.object(Stop, "requested", property(as_if_asked)):
        training.train(iter([functools.partial(Attempt, size=3, kills={}, on_stop="leave"), again]))
    assert training.attempts[0].final is None


def test_a_training_that_was_stopped_by_one_that_is_lost_is_not_taken_for_finished(tmp_path: Path) -> None:
    """A cluster first stops a node by SIGTERM. Learner 1 is lost with the last batch before, learner 0 then."""
    training = Crew(tmp_path / "train")
    made = training.attempts
    request, waiting = FaultyStore.request, set[int]()

    def drawn() -> int:
        value = made[0].store.add(COUNTER, 0)
        return value if value >= END else value % CUT

    def wait_until(happens: Callable[[], bool]) -> None:
        while not happens():
            time.sleep(0.001)

    def die(self: FaultyStore, act: Callable[[], Any] = lambda: None, draws: bool = False) -> Any:
        first = made[0].worlds.get(1)
        if len(made) == 1 and not draws and first and self is first.store and drawn() >= NUM_ROUNDS:
            wait_until(lambda: (read_assigned(tmp_path / "train", 1) or {}).get("num_rounds") == NUM_ROUNDS)
            wait_until(lambda: waiting == {0, 2})  # they take no batches of lost learners before their last draw
            self.kill()
        found = request(self, act, draws)
        if len(made) == 1 and not draws and isinstance(found, int) and found >= END:
            self.kill()
            raise Killed
        return found

    def is_asked(self: Stop) -> bool:
        rank = next((rank for rank, world in made[0].worlds.items() if world.store.stop is self), 1)
        if len(made) > 1 or rank == 1 or drawn() < 3:
            return False
        waiting.add(rank)
        wait_until(lambda: drawn() >= NUM_ROUNDS)  # by learner 1, the others drawing nothing
        if rank == 2:
            wait_until(lambda: drawn() >= END)
        return rank == 0

    attempt = functools.partial(Attempt, size=3, kills={}, stops={0: 10**9})
    with patch.object(FaultyStore, "request", die), patch.object(Stop, "requested", property(is_asked)):
        training.train(iter([attempt, attempt]))
    assert made[0].dead == {0, 1}
    assert made[0].final is None


def test_what_the_first_one_was_evaluating_the_next_one_evaluates(tmp_path: Path) -> None:
    """Now and then the others are at the end by then, and all begin again."""
    lost = functools.partial(Attempt, size=3, kills={}, die_evaluating=[0])
    for number in range(5):
        Crew(tmp_path / str(number)).train(iter([lost, functools.partial(Attempt, size=2, kills={})]))


@pytest.mark.parametrize(
    ("node_size", "num_nodes", "live"),
    [(1, 3, [0, 1, 2]), (1, 3, [1]), (2, 3, [0, 1, 2, 3, 4, 5]), (2, 3, [0, 1, 4, 5]), (4, 2, [4, 5, 6, 7])],
)
def test_the_mean_of_a_checkpoint_is_that_of_the_nodes_that_are_left(
    node_size: int, num_nodes: int, live: list[int]
) -> None:
    """Each learner has its slice of the weights of its node."""
    weights_LP = torch.randn(num_nodes, 15, generator=torch.Generator().manual_seed(1))
    strategy: Any = SimpleNamespace(flat=SimpleNamespace(slices=node_size), ema=None)
    model: Any = nn.Linear(5, 3, bias=False)
    mean = MeanOfParts(strategy, model, node_size * num_nodes)
    parts = []
    for rank in live:
        padded_P = torch.zeros(len(mean.mean_P))
        padded_P[:15] = weights_LP[rank // node_size]
        own_P = padded_P.chunk(node_size)[rank % node_size]
        learner = {"values_P": own_P, "offset": int(own_P.storage_offset())}
        parts.append({"learner": learner, "weight": 1 / num_nodes, "counters": []})
    distance = mean.find(parts)
    left = sorted({rank // node_size for rank in live})
    mean_P = weights_LP[left].mean(0)
    torch.testing.assert_close(mean.model.weight.detach().flatten(), mean_P)
    expected = (weights_LP[left] - mean_P).norm(dim=1).square().mean().sqrt() / mean_P.norm()
    assert distance == pytest.approx(float(expected), rel=1e-5)


def test_statistics_that_learners_keep_for_themselves_are_averaged_and_counters_the_largest() -> None:
    """Weights of these learners lie in servers; all parts except one have no statistics."""
    strategy: Any = SimpleNamespace(flat=SimpleNamespace(slices=1), ema=None)
    model: Any = nn.BatchNorm1d(2)
    mean = MeanOfParts(strategy, model, 2)
    own = [[torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])], [torch.tensor([3.0, 0.0]), torch.tensor([5.0, 0.0])]]
    parts: list[dict[str, Any]] = [
        {"learner": {"buffers": buffers}, "weight": 1.0, "counters": [number]}
        for buffers, number in zip(own, (7, 3), strict=True)
    ]
    parts[0]["learner"] |= {"values_P": torch.ones(len(FlatWeights(nn.BatchNorm1d(2)).weights_P)), "offset": 0}
    mean.find(parts)
    assert mean.model.running_mean.tolist() == [2.0, 1.0]
    assert mean.model.running_var.tolist() == [4.0, 2.0]
    assert mean.model.num_batches_tracked == 7


def announce(store: HashStore, number: int, *ranks: int) -> None:
    for rank in ranks:
        store.set(announced(number, rank), "")


def test_a_checkpoint_waits_for_the_parts_of_those_that_joined_before_its_cut_and_are_not_lost() -> None:
    """One learner joins while the parts of others come: its entry is there before others announce theirs."""

    class Joining(HashStore):
        def check(self, keys: list[str]) -> bool:
            there = HashStore.check(self, keys)
            if there and announced(6, 1) in keys and announced(6, 2) not in keys:
                Members(2).join(store, 2, 5)
                announce(store, 6, 2)
            return there

    store = Joining()
    world, closing = World(0, 2, store=store, members=Members(2)), threading.Event()
    for number in (5, 6):
        announce(store, number, 0, 1)
    assert wait_for_parts(world, 5, closing) == (0, 1)
    assert wait_for_parts(world, 6, closing) == (0, 1, 2)
    Members(2).lose(store, LostLearner(1, KILLED, 0))
    announce(store, 7, 0, 2)
    assert wait_for_parts(world, 7, closing) == (0, 2)
    closing.set()
    assert wait_for_parts(world, 8, closing) == ()


def line(step: int) -> dict[str, Any]:
    return {"epoch": 1, "batch": step - 1, "step": step, "utterances": 2, "frames": 10 * step, "padded_frames": 100}


def write(out: Path, rank: int, steps: Sequence[int], torn: str = "") -> int:
    """Records of a learner; their bytes."""
    text = "".join(json.dumps(line(step)) + "\n" for step in steps)
    path = learner_file(out, rank, "jsonl")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + torn)
    return len(text)


def test_what_lies_before_a_cut_ends_at_the_first_step_behind_it(tmp_path: Path) -> None:
    """A batch that was assigned again has the step of its place, and may have been trained behind the cut."""
    begin = write(tmp_path, 1, [1])
    end = write(tmp_path, 1, [1, 2, 4, 6, 9, 3])
    before = TrainedBatches(begin, samples=2, frames=10, padded_frames=100)
    found = before.extended(tmp_path, 1, end, last_step=6)
    assert found.trained == [(0, 1, 2), (0, 3, 4), (0, 5, 6)]
    assert (found.samples, found.frames, found.padded_frames) == (8, 10 + 20 + 40 + 60, 400)
    rest = found.extended(tmp_path, 1, end, last_step=10**9)
    assert rest.trained[3:] == [(0, 8, 9), (0, 2, 3)]
    assert rest.record_bytes == end
    assert before.trained == []
    assert found.extended(tmp_path, 2, 10, 10).trained == found.trained  # has no records


def test_what_a_lost_one_trained_is_in_no_checkpoint_that_it_joined_behind(tmp_path: Path) -> None:
    """It may have trained a batch of before, that another had left."""
    store, members, trained = HashStore(), Members(2), dict[int, TrainedBatches]()
    members.join(store, 2, 5)
    members.lose(store, LostLearner(2, KILLED, write(tmp_path, 2, [4])))
    add_lost(trained, members, tmp_path, 20, 5)
    assert trained == {2: TrainedBatches(0)}
    add_lost(trained, members, tmp_path, 30, 6)
    assert trained[2].trained == [(0, 3, 4)]


def test_batches_in_nobodys_records_are_missing(tmp_path: Path) -> None:
    members, begin, end = Members(3), write(tmp_path, 0, [1]), write(tmp_path, 1, [11])
    write(tmp_path, 0, [1, 12, 14])
    write(tmp_path, 1, [11, 13])  # the second after its loss
    write(tmp_path, 2, [16], torn='{"step": 15')
    found: list[set[BatchNumber]] = []
    plan: Any = SimpleNamespace(missing=lambda trained: (found.append(trained), [(2, BatchNumber(0, 12))])[1])
    state = State(step=10, record_bytes=[begin])
    assert find_missing(tmp_path, state, plan, members) == []  # nobody was lost
    members.lose(HashStore(), LostLearner(1, KILLED, end))
    assert find_missing(tmp_path, state, plan, members) == [(2, 0, 12)]
    assert found == [{BatchNumber(0, position) for position in (10, 11, 13, 15)}]


def test_a_lost_learner_left_what_it_was_assigned_and_did_not_record(tmp_path: Path) -> None:
    end = write(tmp_path, 1, [4, 6], torn="{")
    assigned = Assigned(tmp_path, 1)
    assigned.open()
    for batch, number in ((5, 2), (7, 9)):
        assigned.add(1, batch, number)
    assert describe_assigned(tmp_path, 1) == " before it had trained batch 5 of epoch 1, 7 of epoch 1"
    assigned.close()
    path = tmp_path / "learners" / "1.assigned"
    path.write_text(path.read_text() + ", 9]]}")  # killed before it cut off what was there before
    assert examine_lost(tmp_path, 1, KILLED) == LostLearner(1, KILLED, end, [(9, 0, 7)], 10)
    assert examine_lost(tmp_path, 2, "is silent") == LostLearner(2, "is silent", 0, [], 0)


def test_what_lost_learners_wrote_after_that_is_dropped_by_the_first_one_left_alone(tmp_path: Path) -> None:
    """One that was lost as it began has no file."""
    end = write(tmp_path, 1, [1, 2])
    write(tmp_path, 1, [1, 2, 3], torn='{"ep')
    before = learner_file(tmp_path, 1, "jsonl").read_bytes()
    losses = {1: LostLearner(1, "was silent", end), 3: LostLearner(3, "was silent", 0)}
    for rank, expected in ((2, before), (0, before[:end])):
        Records(tmp_path, World(rank, 2, ranks=(0, 2)), [0] * 4).end_lost(losses)
        assert learner_file(tmp_path, 1, "jsonl").read_bytes() == expected


class Newcomer:
    """Learner 2 of those that two began, with all that it calls in order."""

    def __init__(self, out: Path) -> None:
        self.called: list[str] = []
        self.store = HashStore()
        self.world = World(2, 2, 2, self.store, generation="token", members=Members(2), joins=True)
        self.checkpointer: Any = SimpleNamespace(world=self.world, directory=out / "checkpoints")
        rendezvous_path(out).write_text(json.dumps({"attempt": "token"}))

    def note(self, name: str, value: Any = None) -> Any:
        self.called.append(name)
        return value

    def join(self) -> None:
        strategy: Any = SimpleNamespace(
            adopt=lambda: self.note("weights", 1), join=lambda cut: self.note(f"behind {cut}")
        )
        strategy.ema = SimpleNamespace(restart=lambda: self.note("average anew"))
        coordinator: Any = SimpleNamespace(join=lambda: self.note("cut", 7))
        enter = Members.join
        with patch.object(Members, "join", lambda *args: self.note("entry") or enter(*args)):
            joining.join(self.checkpointer, strategy, nn.Module(), coordinator)  # type: ignore[arg-type]


def test_its_weights_come_before_the_cut_and_all_before_its_entry(tmp_path: Path) -> None:
    """The weights of the joined learner lack others' steps after a checkpoint unknown to it."""
    newcomer = Newcomer(tmp_path)
    newcomer.join()
    assert newcomer.called == ["weights", "cut", "behind 7", "entry", "average anew"]
    assert newcomer.world.members
    assert newcomer.world.members.joined == {2: 7}


def test_it_joins_no_training_that_ends_and_no_attempt_that_is_over(tmp_path: Path) -> None:
    ends = Newcomer(tmp_path)
    Members(2).close(ends.store, (0, 1))
    with pytest.raises(TrainingEnded):
        ends.join()
    over = Newcomer(tmp_path)
    rendezvous_path(tmp_path).write_text(json.dumps({"attempt": "a later one"}))
    with pytest.raises(TrainingEnded):
        over.join()
