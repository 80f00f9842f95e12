"""How a learner becomes one of those that train: in which order, and where it does not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from torch.distributed import HashStore

from asrtool.distributed.members.joining import rendezvous_path
from asrtool.distributed.members.members import Members, TrainingEnded
from asrtool.distributed.world import World
from asrtool.train.checkpoints.checkpoint import Origin, Saved, State
from asrtool.train.loop import joining


class Newcomer:
    """Learner 2 of those that two began, with all that it calls in order."""

    def __init__(self, out: Path, neighbour: int | None = 1) -> None:
        self.called: list[str] = []
        self.store = HashStore()
        self.world = World(2, 2, 2, self.store, generation="token", members=Members(2), joins=True)
        self.checkpointer: Any = SimpleNamespace(world=self.world, directory=out / "checkpoints")
        self.neighbour = neighbour
        rendezvous_path(out).write_text(json.dumps({"attempt": "token"}))

    def join(self) -> None:
        note = lambda name, value=None: (self.called.append(name), value)[1]  # noqa: E731
        entered = patch.object(Members, "join", lambda *args: note("entry") or entry(*args))
        entry = Members.join
        strategy: Any = SimpleNamespace(
            adopt=lambda: note("weights", self.neighbour), join=lambda cut: note(f"behind {cut}"), ema=None
        )
        model: Any = SimpleNamespace(load_state_dict=lambda weights: note(f"load {weights}"))
        cuts: Any = SimpleNamespace(join=lambda: note("cut", 7))
        with entered:
            joining.join(self.checkpointer, strategy, model, cuts)


def test_its_weights_come_before_the_cut_and_all_before_its_entry(tmp_path: Path) -> None:
    """What others train and exchange behind a cut of which it does not know is not in its weights then."""
    newcomer = Newcomer(tmp_path)
    newcomer.join()
    assert newcomer.called == ["weights", "cut", "behind 7", "entry"]
    members = Members(2)
    members.refresh(newcomer.store)
    assert members.joined == {2: 7}


def test_where_learners_exchange_nothing_it_has_the_weights_of_the_last_checkpoint(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path, neighbour=None)
    with patch.object(joining, "load_newest", lambda directory: ({"weights": "w"}, State())):
        newcomer.join()
    assert newcomer.called == ["weights", "load w", "cut", "behind 7", "entry"]


def test_it_joins_no_training_that_ends_and_no_attempt_that_is_over(tmp_path: Path) -> None:
    ends = Newcomer(tmp_path)
    Members(2).close(ends.store, (0, 1))
    with pytest.raises(TrainingEnded):
        ends.join()

    over = Newcomer(tmp_path)
    for found in ({"attempt": "a later one"}, None):
        path = rendezvous_path(tmp_path)
        path.write_text(json.dumps(found)) if found else path.unlink()
        with pytest.raises(TrainingEnded):
            over.join()


def test_it_begins_with_the_state_of_the_others(tmp_path: Path) -> None:
    state = State(step=3, untrained=[(0, 1, 2)], origins=[Origin(0, 0, 0, {"line": "a"})], saved=[Saved(3, None)])
    newcomer = Newcomer(tmp_path)
    newcomer.checkpointer.run = "7"
    with patch.dict("os.environ", {"MASTER_ADDR": "node0", "MASTER_PORT": "1"}):
        joining.publish_rendezvous(newcomer.checkpointer, state)
    newcomer.checkpointer.run = ""
    found = joining.begin_of(newcomer.checkpointer)
    assert newcomer.checkpointer.run == "7"
    assert found.seconds >= 0
    found.seconds = 0.0
    assert found == state
