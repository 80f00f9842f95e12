"""What the records of a lost learner say that it has trained."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch.distributed import HashStore

from asrtool.distributed.members.members import Loss, Members
from asrtool.distributed.work.work_queue import BatchNumber
from asrtool.distributed.world import World
from asrtool.train.checkpoints.checkpoint import State
from asrtool.train.ledger import Assigned, Trained, describe_assigned, examine_lost, find_missing, records_path
from asrtool.train.loop.step_records import Records


def line(step: int, epoch: int = 1) -> dict[str, Any]:
    return {"epoch": epoch, "batch": step - 1, "step": step, "utterances": 2, "frames": 10 * step, "padded_frames": 100}


def write(out: Path, rank: int, lines: Sequence[dict[str, Any]], torn: str = "") -> int:
    """Their bytes."""
    text = "".join(json.dumps(one) + "\n" for one in lines)
    path = records_path(out, rank)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + torn)
    return len(text)


def test_what_lies_before_a_cut_ends_at_the_first_step_behind_it(tmp_path: Path) -> None:
    """A batch that was assigned again has the step of its place, and may have been trained behind the cut."""
    begin = len(json.dumps(line(1)) + "\n")
    end = write(tmp_path, 1, [line(1), line(2), line(4), line(6), line(9), line(3)])
    before = Trained(begin, samples=2, frames=10, padded_frames=100)
    found = before.extended(tmp_path, 1, end, last_step=6)
    assert found.trained == [(0, 1, 2), (0, 3, 4), (0, 5, 6)]
    assert (found.samples, found.frames, found.padded_frames) == (8, 10 + 20 + 40 + 60, 400)
    found.trained = []
    rest = found.extended(tmp_path, 1, end, last_step=10**9)
    assert rest.trained == [(0, 8, 9), (0, 2, 3)]
    assert rest.record_bytes == end
    assert before.trained == []


def test_what_was_written_after_a_loss_was_noted_does_not_count(tmp_path: Path) -> None:
    end = write(tmp_path, 1, [line(1), line(2)])
    write(tmp_path, 1, [line(1), line(2), line(3)])
    assert Trained(0).extended(tmp_path, 1, end, 10).trained == [(0, 0, 2)]
    assert Trained(0).extended(tmp_path, 2, 10, 10) == Trained(0)


def test_batches_in_nobodys_records_are_missing(tmp_path: Path) -> None:
    store, members = HashStore(), Members(3)
    begin = write(tmp_path, 0, [line(1)])
    write(tmp_path, 0, [line(1), line(12), line(14)])
    end = write(tmp_path, 1, [line(11)])
    write(tmp_path, 1, [line(11), line(13)])
    write(tmp_path, 2, [line(16)], torn='{"step": 15')
    found: list[set[BatchNumber]] = []
    plan: Any = SimpleNamespace(missing=lambda trained: (found.append(trained), [(2, BatchNumber(0, 12))])[1])
    state = State(step=10, record_bytes=[begin])
    assert find_missing(tmp_path, state, plan, members) == []  # nobody was lost
    members.lose(store, Loss(1, "was ended by SIGKILL", end))
    assert find_missing(tmp_path, state, plan, members) == [(2, 0, 12)]
    assert found == [{BatchNumber(0, position) for position in (10, 11, 13, 15)}]


def test_a_lost_learner_left_what_it_was_assigned_and_did_not_record(tmp_path: Path) -> None:
    end = write(tmp_path, 1, [line(4), line(6)], torn="{")
    assigned = Assigned(tmp_path, 1)
    assigned.open()
    for batch, number in ((5, 2), (7, 9)):
        assigned.add(1, batch, number)
    assert not assigned.is_empty
    assert describe_assigned(tmp_path, 1) == " before it had trained batch 5 of epoch 1, 7 of epoch 1"
    assigned.close()
    path = tmp_path / "learners" / "1.assigned"
    path.write_text(path.read_text() + ", 9]]}")  # killed before it cut off what was there before
    assert examine_lost(tmp_path, 1, "was ended by SIGKILL") == Loss(1, "was ended by SIGKILL", end, [(9, 0, 7)], 10)
    assert examine_lost(tmp_path, 2, "is silent") == Loss(2, "is silent", 0, [], 0)


def test_what_lost_learners_wrote_after_that_is_dropped_by_the_first_one_left_alone(tmp_path: Path) -> None:
    """One that was lost as it began has no file."""
    end = write(tmp_path, 1, [line(1), line(2)])
    write(tmp_path, 1, [line(1), line(2), line(3)], torn='{"ep')
    before = records_path(tmp_path, 1).read_bytes()
    losses = {1: Loss(1, "was silent", end), 3: Loss(3, "was silent", 0)}
    Records(tmp_path, World(2, 2, ranks=(0, 2)), [0] * 4).end_lost(losses)
    assert records_path(tmp_path, 1).read_bytes() == before
    Records(tmp_path, World(0, 2, ranks=(0, 2)), [0] * 4).end_lost(losses)
    assert records_path(tmp_path, 1).read_bytes() == before[:end]
    Records(tmp_path, World(0, 2, ranks=(0, 2)), [0] * 4).end_lost({1: Loss(1, "was silent", 10 * end)})
    assert records_path(tmp_path, 1).read_bytes() == before[:end]
