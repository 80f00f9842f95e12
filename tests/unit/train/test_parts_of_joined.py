"""Whose parts a checkpoint is made of, where learners join and are lost."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed import HashStore

from asrtool.distributed.members.members import Loss, Members
from asrtool.train.checkpoints.merge import Assembly, announced
from asrtool.train.ledger import Trained, records_path


def assembly_of(members: Members, store: HashStore, out: Path, num_looks: int = 3) -> Any:
    """That of learner 0; training ends after so many looks at the parts."""
    looks = iter(range(num_looks))
    assembly = object.__new__(Assembly)
    assembly.world = SimpleNamespace(members=members, store=store, live=members.live)  # type: ignore[assignment]
    closing = SimpleNamespace(is_set=lambda: next(looks, None) is None)
    assembly.checkpointer = SimpleNamespace(closing=closing)  # type: ignore[assignment]
    assembly.trained, assembly.out = {}, out
    return assembly


def announce(store: HashStore, number: int, *ranks: int) -> None:
    for rank in ranks:
        store.set(announced(number, rank), "")


def test_a_cut_waits_for_the_part_of_one_that_joined_before_it_and_for_no_other(tmp_path: Path) -> None:
    store, members = HashStore(), Members(2)
    Members(2).join(store, 2, 5)
    for number in (5, 6):
        announce(store, number, 0, 1)
    assert assembly_of(members, store, tmp_path)._wait_for_parts(5) == (0, 1)
    assert assembly_of(members, store, tmp_path)._wait_for_parts(6) == ()
    announce(store, 6, 2)
    assert assembly_of(members, store, tmp_path)._wait_for_parts(6) == (0, 1, 2)


def test_one_that_joins_while_the_parts_of_others_come_counts_where_it_has_one(tmp_path: Path) -> None:
    """Its entry is there before others exchange with it, so before they announce theirs."""

    class Joining(HashStore):
        def check(self, keys: list[str]) -> bool:
            there = HashStore.check(self, keys)
            if there and announced(6, 1) in keys and announced(6, 2) not in keys:
                Members(2).join(store, 2, 5)
                announce(store, 6, 2)
            return there

    store = Joining()
    announce(store, 6, 0, 1)
    assert assembly_of(Members(2), store, tmp_path)._wait_for_parts(6) == (0, 1, 2)


def test_what_a_lost_one_trained_is_in_no_checkpoint_that_it_joined_behind(tmp_path: Path) -> None:
    """It may have trained a batch of before, that another had left."""
    line = {"epoch": 1, "batch": 3, "step": 4, "utterances": 2, "frames": 10, "padded_frames": 100}
    records_path(tmp_path, 2).parent.mkdir()
    records_path(tmp_path, 2).write_text(text := json.dumps(line) + "\n")
    store, members = HashStore(), Members(2)
    members.join(store, 2, 5)
    members.lose(store, Loss(2, "was ended by SIGKILL", len(text)))
    assembly = assembly_of(members, store, tmp_path)
    assembly._add_lost(20, 5)
    assert assembly.trained == {2: Trained(0)}
    assembly._add_lost(30, 6)
    assert assembly.trained[2].trained == [(0, 3, 4)]


def test_the_drift_is_known_where_nobody_joined_or_was_lost_since_the_checkpoint_before(tmp_path: Path) -> None:
    """One may have come and gone in between."""
    store, members = HashStore(), Members(2)
    assembly = assembly_of(members, store, tmp_path)
    assembly.strategy = SimpleNamespace(mean_S=torch.ones(4))
    assembly.before_S, assembly.before = None, (members.live, 0)
    parts = [{"updates_S": torch.ones(4)}]

    def drift(mean: float) -> float | None:
        found: float | None = assembly._drift(torch.full((4,), mean), parts, members.at(9))
        return found

    assert drift(2.0) == 0.0
    members.join(store, 2, 5)
    assert drift(9.0) is None
    assert drift(10.0) == 0.0
    members.lose(store, Loss(2, "was ended by SIGKILL", 0))
    assert drift(9.0) is None
    members.join(store, 3, 6)
    members.lose(store, Loss(3, "was ended by SIGKILL", 0))
    assert drift(20.0) is None
    assert drift(22.0) == pytest.approx(1 / 22)
