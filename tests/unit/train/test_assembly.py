"""What a checkpoint has of the learners that are left, and of those that are lost."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_testimony import line, write
from torch import nn
from torch.distributed import HashStore

from asrtool.distributed.members.members import Loss, Members
from asrtool.distributed.strategies.strategy import ConsensusMetrics
from asrtool.distributed.weights.flat import FlatWeights
from asrtool.distributed.world import World
from asrtool.train.checkpoints.checkpoint import Origin, Saved, State
from asrtool.train.checkpoints.merge import Assembly, Cut, announced
from asrtool.train.ledger import Ledger, Trained
from asrtool.train.loop.evaluation import DevLosses


def mean_of(
    node_size: int, num_nodes: int, live: list[int], weights_LP: torch.Tensor
) -> tuple[torch.Tensor, ConsensusMetrics]:
    """What a checkpoint has as mean, and how far learners are from it; each has its slice of that of its node."""
    assembly = object.__new__(Assembly)
    assembly.twin = nn.Linear(5, 3, bias=False)  # type: ignore[assignment]
    assembly.flat = FlatWeights(assembly.twin, node_size)
    assembly.mean_P = torch.empty_like(assembly.flat.weights_P)
    assembly.size, assembly.before, assembly.before_S = node_size * num_nodes, (live, 0), None
    assembly.world = World()
    assembly.strategy = type("", (), {"mean_S": None})()
    parts: list[dict[str, Any]] = []
    for rank in live:
        padded_P = torch.zeros_like(assembly.flat.weights_P)
        padded_P[: weights_LP.shape[1]] = weights_LP[rank // node_size]
        own_P = padded_P.chunk(node_size)[rank % node_size]
        learner = {"values_P": own_P, "offset": int(own_P.storage_offset())}
        parts.append({"learner": learner, "weight": 1 / num_nodes, "updates_S": None, "counters": []})
    metrics = assembly._average(parts, live)
    return assembly.twin.weight.detach().flatten(), metrics  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("node_size", "num_nodes", "live"),
    [
        (1, 3, [0, 1, 2]),
        (1, 3, [0, 2]),
        (1, 3, [1]),
        (2, 3, [0, 1, 2, 3, 4, 5]),
        (2, 3, [0, 1, 4, 5]),
        (2, 3, [2, 3]),
        (4, 2, [4, 5, 6, 7]),
    ],
)
def test_the_mean_is_that_of_the_nodes_that_are_left(node_size: int, num_nodes: int, live: list[int]) -> None:
    weights_LP = torch.randn(num_nodes, 15, generator=torch.Generator().manual_seed(1))
    left = sorted({rank // node_size for rank in live})
    found_P, metrics = mean_of(node_size, num_nodes, live, weights_LP)
    mean_P = weights_LP[left].mean(0)
    torch.testing.assert_close(found_P, mean_P)
    distance = (weights_LP[left] - mean_P).norm(dim=1).square().mean().sqrt() / mean_P.norm()
    assert metrics.distance == pytest.approx(float(distance), rel=1e-5)


def test_statistics_that_learners_keep_for_themselves_are_averaged() -> None:
    """Those of learners whose weights lie in servers, of which each part but one has none."""
    assembly: Any = object.__new__(Assembly)
    assembly.twin = nn.BatchNorm1d(2)
    assembly.flat = FlatWeights(assembly.twin)
    assembly.mean_P = torch.empty_like(assembly.flat.weights_P)
    assembly.size, assembly.before, assembly.before_S = 2, ((0, 1), 0), None
    assembly.world, assembly.strategy = World(), SimpleNamespace(mean_S=None)
    own = [[torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])], [torch.tensor([3.0, 0.0]), torch.tensor([5.0, 0.0])]]
    more = {"weight": 1.0, "updates_S": None, "counters": [0]}
    parts: list[dict[str, Any]] = [{"learner": {"buffers": buffers}, **more} for buffers in own]
    parts[0]["learner"] |= {"values_P": torch.ones(4), "offset": 0}
    assembly._average(parts, (0, 1))
    assert assembly.twin.running_mean.tolist() == [2.0, 1.0]
    assert assembly.twin.running_var.tolist() == [4.0, 2.0]


def test_counters_become_the_largest_of_any_learner() -> None:
    assembly: Any = object.__new__(Assembly)
    assembly.twin = nn.BatchNorm1d(2)
    assembly._count([{"counters": [number]} for number in (3, 7, 5)])
    assert assembly.twin.num_batches_tracked == 7


def led_by(out: Path, members: Members, trained: dict[int, Trained]) -> Any:
    """What the first learner of `members` makes of the parts of all."""
    assembly: Any = object.__new__(Assembly)
    assembly.out, assembly.trained = out, trained
    assembly.world = World(members.live[0], 3, store=HashStore(), members=members)
    assembly.checkpointer = SimpleNamespace(closing=threading.Event(), directory=out / "checkpoints")
    assembly.resumed, assembly.dev_losses = State(), DevLosses(World(), [(1, 0.5)], 0)
    assembly.ledger, assembly.skipped = Ledger(State()), False
    assembly.saved, assembly.unevaluated, assembly.before = [], [], ((0, 1, 2), 0)
    return assembly


def lose(rank: int, record_bytes: int) -> Members:
    members = Members(3)
    members.lose(HashStore(), Loss(rank, "was ended by SIGKILL", record_bytes))
    return members


def test_a_checkpoint_waits_for_the_parts_of_those_that_are_left(tmp_path: Path) -> None:
    assembly = led_by(tmp_path, lose(1, 0), {})
    for rank in (0, 2):
        assembly.world.store.set(announced(7, rank), "")
    assert list(waited(assembly, 7)) == [0, 2]


def waited(assembly: Any, number: int) -> Any:
    """Those whose parts it has waited for; AssertionError where it waits for more."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(assembly._wait_for_parts(number)), daemon=True)
    thread.start()
    thread.join(60)
    assembly.checkpointer.closing.set()
    assert not thread.is_alive()
    return found[0]


def part_of(lines: list[dict[str, Any]], record_bytes: int, since: int) -> dict[str, Any]:
    """That of a learner that has these lines, and had the first `since` of them at the cut before."""
    spans = [(0, one["batch"], one["batch"] + 1) for one in lines[since:]]
    sums = {"samples": 2 * len(lines), "frames": sum(one["frames"] for one in lines)}
    return {"record_bytes": record_bytes, "trained": spans, **sums, "padded_frames": 100 * len(lines)}


def test_a_checkpoint_has_what_a_lost_learner_trained_before_its_cut(tmp_path: Path) -> None:
    """Of eight batches, of which one that the lost learner had been assigned is untrained."""
    own, others = [line(1), line(5)], [line(2), line(7)]
    ends = {0: write(tmp_path, 0, own), 2: write(tmp_path, 2, others)}
    end = write(tmp_path, 1, [line(3), line(4), line(8), line(9)])
    assembly = led_by(tmp_path, lose(1, end), {})
    state = State(step=8, batch=8, source={}, origins=[Origin(0, 0, 0, {})])
    parts = {0: part_of(own, ends[0], 0), 2: part_of(others, ends[2], 0)}
    saved = assembly._state(Cut(1, state, False, True), parts, "mark")
    assert (saved.batch, saved.untrained) == (8, [(0, 5, 6)])
    assert (saved.samples, saved.frames) == (14, 10 * (1 + 5 + 2 + 7 + 3 + 4 + 8))
    assert saved.learners == [0, 2]
    assert saved.dev_losses == [(1, 0.5)]
    assert saved.record_bytes[0] == ends[0]
    assert saved.record_bytes[1] < end
    later = assembly._state(Cut(2, State(step=9, batch=9, origins=state.origins), False, True), no_more(parts), "mark")
    assert (later.batch, later.untrained) == (9, [(0, 5, 6)])
    assert later.record_bytes[1] == end


def no_more(parts: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The parts of learners that have trained nothing since."""
    return {rank: {**part, "trained": []} for rank, part in parts.items()}


def test_who_takes_over_continues_from_the_newest_checkpoint_and_counts_what_it_lacks(tmp_path: Path) -> None:
    """The first checkpoint was made; the next one was not, and what was in its parts is in the records alone."""
    lines = {1: [line(2), line(4), line(6)], 2: [line(3), line(5)]}
    ends = {rank: write(tmp_path, rank, mine) for rank, mine in lines.items()}
    first_end = write(tmp_path, 0, [line(1)])
    assembly = led_by(tmp_path, lose(0, first_end), {})
    at = [len(str_of(lines[1][:1])), len(str_of(lines[2][:1]))]
    origins = [Origin(0, 0, 0, {})]
    newest = State(step=3, batch=3, record_bytes=[first_end, *at], saved=[Saved(3, None)], unevaluated=[3])
    assembly.take_over(newest)
    assert (assembly.saved, assembly.unevaluated) == ([Saved(3, None)], [3])
    parts = {rank: part_of(mine, ends[rank], len(mine)) for rank, mine in lines.items()}
    saved = assembly._state(Cut(3, State(step=6, batch=6, origins=origins), False, True), parts, "mark")
    assert (saved.batch, saved.untrained) == (6, [])
    assert saved.samples == 12
    assert saved.record_bytes == [first_end, *ends.values()]
    assert saved.learners == [1, 2]


def test_where_training_ends_before_a_checkpoint_of_the_last_cuts_their_batches_are_to_be_found_in_the_records(
    tmp_path: Path,
) -> None:
    """Learners gave them to parts of which nothing has come, so they are in no ledger."""
    ends = [write(tmp_path, rank, [line(rank + 1), line(rank + 4)]) for rank in range(3)]
    assembly = led_by(tmp_path, lose(0, ends[0]), {})
    assert assembly.result().behind is None
    assembly.take_over(State(step=3, batch=3, record_bytes=[end // 2 for end in ends], saved=[Saved(3, None)]))
    behind = assembly.result().behind
    assert {rank: behind[rank] for rank in (1, 2)} == {rank: ends[rank] // 2 for rank in (1, 2)}


def str_of(lines: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(one) + "\n" for one in lines)
