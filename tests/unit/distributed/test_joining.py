"""A learner that joins: it begins with the weights of another, and takes part in exchanges, batches and the end."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learner_threads import Net, Rendezvous, ThreadWorld, at_once, build, give_gradients, weights_of
from rendezvous import HOST, rendezvous_address
from torch.distributed import TCPStore

from asrtool.distributed.launch.environment import JOINED
from asrtool.distributed.launch.generation import generation_store
from asrtool.distributed.members import joining
from asrtool.distributed.members.members import LostLearner, Members, TrainingEnded
from asrtool.distributed.strategies.strategy import Strategy
from asrtool.distributed.world import World, join_learners
from asrtool.errors import AsrtoolError

SIZE = 2


class MemberWorld(ThreadWorld):
    """World of learners that survive losses."""

    def __init__(self, rank: int, rendezvous: Rendezvous, joins: bool = False) -> None:
        super().__init__(rank, rendezvous)
        self.members, self.joins = Members(self.size, rank), joins
        self.members.refresh(self.store)

    def gather(self, value: Any) -> list[Any]:
        assert not self.joins, "one that joins is in no collective"
        return super().gather(value)


def lose(store: Any, rank: int) -> None:
    Members(SIZE).lose(store, LostLearner(rank, "was ended by SIGKILL", 0))


@pytest.fixture
def rendezvous(monkeypatch: pytest.MonkeyPatch) -> Rendezvous:
    monkeypatch.setenv("MASTER_ADDR", HOST)
    return Rendezvous(SIZE)


@pytest.fixture
def two(rendezvous: Rendezvous) -> Iterator[list[Strategy]]:
    """Learners that have made three steps each and are not of one mind, their exchanges ended."""
    started = [build("adpsgd-fixed", MemberWorld(rank, rendezvous), Net(rank)) for rank in range(SIZE)]
    at_once(lambda learner: learner.start(), started)
    random = np.random.default_rng(1)
    for _ in range(3):
        for learner in started:
            step(learner, random)
    yield started
    for learner in started:
        learner.close()


def step(learner: Any, random: np.random.Generator) -> None:
    give_gradients(learner.model, random)
    learner.step()
    learner.mixing.staging.wait()


def view_of(learner: Any) -> np.ndarray:
    values: np.ndarray = learner.mixing.view.copy()[: learner.flat.num_weights].double().numpy()
    return values


def newcomer(rendezvous: Rendezvous, rank: int = SIZE) -> Any:
    learner = build("adpsgd-fixed", MemberWorld(rank, rendezvous, joins=True), Net(9))
    learner.start()
    return learner


def test_it_begins_with_the_weights_and_the_count_of_steps_of_one_that_trains(two, rendezvous) -> None:
    learner = newcomer(rendezvous)
    before = weights_of(learner.model)
    neighbour = learner.adopt()
    learner.join(4)
    assert neighbour in (0, 1)
    assert np.abs(weights_of(learner.model) - before).max() > 0.1
    np.testing.assert_array_equal(view_of(learner), view_of(two[neighbour]))
    assert learner.mixing.num_steps == 3
    assert learner.mixing.view.cut == 4
    learner.close()


def test_one_that_is_lost_gives_no_weights_and_where_all_are_there_is_nothing_to_join(two, rendezvous) -> None:
    two[0].close()
    lose(rendezvous.store, 0)
    learner = newcomer(rendezvous)
    assert learner.adopt() == 1
    two[1].close()
    lose(rendezvous.store, 1)
    with pytest.raises(TrainingEnded):
        learner.adopt()
    learner.close()


def test_from_its_entry_on_the_ring_has_it_and_the_mean_moves_by_updates_alone(two, rendezvous) -> None:
    learner: Any = newcomer(rendezvous)
    assert learner.adopt() is not None
    learner.join(0)
    assert learner.world.members.join(rendezvous.store, SIZE, 0)
    everyone: list[Any] = [*two, learner]
    for other in everyone:
        other.world.members.refresh(rendezvous.store)
        other.mixing.exchanger.take_partners()
    views = sum(map(view_of, everyone))
    updates = sum(other.updates_S for other in everyone)
    random = np.random.default_rng(2)
    partners = []
    for _ in range(2):
        for other in everyone:
            step(other, random)
            partners.append(other.mixing.exchanger.take_partners())
    assert partners[len(everyone) :] == [[1], [2], [0]]
    for other in everyone:
        other.mixing.staging.settle()
    moved = torch.from_numpy(sum(map(view_of, everyone)) - views)
    sampled = learner.flat.sample(moved.float())
    expected = sum(other.updates_S for other in everyone) - updates
    assert float((sampled - expected).norm() / expected.norm()) < 1e-5
    learner.close()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Learner 0 of two, whose store is that of this process."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with rendezvous_address() as address:
        os.environ.update(address)
        store = TCPStore(HOST, int(address["MASTER_PORT"]), is_master=False)
        yield World(0, SIZE, SIZE, generation_store("token", store), generation="token")


def test_each_gets_a_number_of_its_own_and_finds_what_training_began_from(place: World, tmp_path: Path) -> None:
    joining.publish_rendezvous(tmp_path, place, {"run": "7", "state": {"step": 3}})
    assert [joining.join_training(tmp_path) for _ in range(2)] == [2, 3]
    found = {name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", JOINED)}
    assert found == {"RANK": "3", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", JOINED: "token"}
    world = join_learners()
    assert (world.rank, world.size, world.joins, world.generation) == (3, 2, True, "token")
    begin, since_s = joining.read_initial_state(world.store)
    assert begin == {"run": "7", "state": {"step": 3}}
    assert since_s >= 0
    assert joining.is_current(tmp_path, "token")
    assert not joining.is_current(tmp_path, "another")


def test_where_no_training_can_be_joined_one_line_says_so(place: World, tmp_path: Path) -> None:
    """There was none; or the store is of another generation, has ended, or cannot be reached."""
    not_running = "no training that a learner can join is running there"
    with pytest.raises(AsrtoolError, match=not_running):
        joining.join_training(tmp_path)
    joining.publish_rendezvous(tmp_path, place, {})
    path = joining.rendezvous_path(tmp_path)
    of_before = json.loads(path.read_text())
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    unreached = r"is at 127\.0\.0\.1, which only node7 reaches"
    for changed, message in (
        ({"attempt": "another"}, not_running),
        ({"port": port}, not_running),
        ({"machine": "node7"}, unreached),
    ):
        path.write_text(json.dumps(of_before | changed))
        with pytest.raises(AsrtoolError, match=message):
            joining.join_training(tmp_path)
    assert not joining.is_current(tmp_path / "nowhere", "token")
