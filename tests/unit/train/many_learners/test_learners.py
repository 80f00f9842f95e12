"""Several learners, in processes of their own: that no work is lost, and that those left go on without one."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import math
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from learners import MANY_BATCHES, Learners, batches_trained, planned
from toy_task import assert_same_bits, last_weights
from trainings import (
    LOCKSTEP,
    STRATEGIES,
    components_of,
    metrics,
    named,
    run_training,
    summary,
    toy_job,
    train_as_learner,
    train_or_stop,
)

from asrtool.distributed.launch.learner import learner
from asrtool.distributed.members.members import LostLearner, Members
from asrtool.distributed.world import World, init_collectives, join_learners, leave_world
from asrtool.errors import AsrtoolError
from asrtool.models.files.torch_file import read_torch
from asrtool.models.precision import choose_precision
from asrtool.train.batches import shard_source
from asrtool.train.batches.source import Planned
from asrtool.train.checkpoints.checkpoint import State, load_checkpoint, save_checkpoint
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.ledger import read_assigned
from asrtool.train.loop import evaluation
from asrtool.train.loop.loss import LossModule
from asrtool.train.run import prepare

pytestmark = pytest.mark.slow

NUM_LEARNERS = 4


@pytest.fixture
def toy_config(small_batches_config: Path) -> Path:
    return small_batches_config


def train_stopped_in_evaluation(toy: Path, config: Path, out: Path, overrides: tuple[str, ...], rank: int) -> None:
    """Be one of the learners, each with a part of dev; that of `rank` gets SIGTERM while it first evaluates."""
    evaluate = evaluation.sum_loss

    def interrupted(*args: Any) -> object:
        if os.environ["RANK"] == str(rank):
            signal.raise_signal(signal.SIGTERM)
        return evaluate(*args)

    with patch.object(evaluation, "sum_loss", interrupted), patch.object(shard_source, "EVAL_FRAMES", 0):
        train_or_stop(toy, config, out, overrides, stops=True)


@pytest.mark.parametrize("name", [*STRATEGIES, "h-adpsgd by adpsgd-d1"])
def test_after_sigterm_to_one_learner_all_resume_and_every_batch_is_trained_once(
    learners, toy, toy_config, tmp_path, name: str
) -> None:
    overrides, out = (*named(name), "train.ema_decay=0.8"), tmp_path / "train"
    learners.run(train_as_learner, toy, toy_config, out, overrides, (1, 2))
    assert not (out / "train.json").exists()
    num_trained, num_planned = (sum(found.values()) for found in (batches_trained(out), planned(toy, toy_config)))
    assert 0 < num_trained <= num_planned
    assert num_trained < num_planned or name not in LOCKSTEP  # others may be done before the news arrives
    learners.run(train_as_learner, toy, toy_config, out, overrides, None)
    assert batches_trained(out) == planned(toy, toy_config)
    final = summary(out)
    assert (final["strategy"], final["num_learners"], final["num_samples"]) == (name.split()[0], NUM_LEARNERS, 72)
    assert [read_assigned(out, rank)["batches"] for rank in range(NUM_LEARNERS)] == [[]] * NUM_LEARNERS
    if name in LOCKSTEP:
        undisturbed = tmp_path / "undisturbed"
        learners.run(train_as_learner, toy, toy_config, undisturbed, overrides, None)
        assert_same_bits(last_weights(out), last_weights(undisturbed))


@pytest.mark.parametrize(("name", "num"), [("allreduce", 2), ("adpsgd-fixed", 2), ("ps-async", 3)])
def test_after_sigterm_in_the_last_evaluation_that_alone_is_left(
    learners, toy, toy_config, tmp_path, name: str, num: int
) -> None:
    out = tmp_path / "train"
    toy_config.write_text(MANY_BATCHES.replace("num_epochs = 3", "num_epochs = 1"))
    learners.run(train_stopped_in_evaluation, toy, toy_config, out, named(name), 0, num=2)
    newest = max((out / "checkpoints").glob("step-????????.pt"))
    assert load_checkpoint(newest)[0]["part"] is None
    assert not newest.with_suffix(".learner-1.pt").exists()
    assert not (out / "train.json").exists()
    whole = newest.read_bytes()
    learners.run(train_as_learner, toy, toy_config, out, named(name), None, num=num)
    assert newest.read_bytes() == whole
    assert batches_trained(out) == planned(toy, toy_config)
    final = summary(out)
    lines = metrics(out)
    evaluated = [(line["step"], line["loss"]) for line in lines if line["kind"] == "dev"]
    assert [(entry["step"], entry["dev_loss"]) for entry in final["checkpoints"][-1:]] == evaluated


def test_with_another_number_of_learners_training_resumes_from_the_mean(learners, toy, toy_config, tmp_path) -> None:
    """Earlier learners may have left holes: the first batches of a window, while others began from its end."""
    out = tmp_path / "train"
    toy_config.write_text(MANY_BATCHES.replace("num_epochs = 3", "num_epochs = 12"))  # some are left at each stop
    overrides = ("distributed.strategy=adpsgd-random",)
    for num, stop in ((4, (1, 2)), (3, (1, 2)), (1, (0, 3)), (2, None)):
        learners.run(train_as_learner, toy, toy_config, out, overrides, stop, num=num)
        if num == 1:  # as if eight learners had begun after that and been killed
            (out / "learners" / "7.jsonl").write_text((out / "learners" / "0.jsonl").read_text())
    final = summary(out)
    assert (final["num_learners"], final["num_samples"]) == (2, 12 * 24)
    assert batches_trained(out) == planned(toy, toy_config)


@contextlib.contextmanager
def logged() -> Iterator[io.StringIO]:
    """Collect the log lines inside."""
    log, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(log)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield log
    finally:
        root.removeHandler(handler)


def optimizer_after_resuming(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> Any:
    """Be one of the learners, and resume; the state of its optimizer, its average, and what the log says of it."""
    job = toy_job(toy, out, config, overrides)
    with logged() as log, learner() as world, contextlib.closing(prepare(job, world).strategy) as strategy:
        strategy.start()
        server = getattr(strategy, "server", None)
        state = (server.slice if server else strategy).optimizer.state_dict()["state"]
        ema = strategy.ema.num_updates, [value.clone() for value in strategy.ema.model.state_dict().values()]
    return [value.clone() for of_one in state.values() for value in of_one.values()], ema, log.getvalue()


@pytest.mark.parametrize(("name", "num"), [("allreduce", 4), ("bmuf", 4), ("ps-sync", 2)])
def test_with_another_number_of_learners_each_has_the_optimizer_of_one_before_and_the_mean_of_their_averages(
    learners, toy, toy_config, tmp_path, name: str, num: int
) -> None:
    out = tmp_path / "train"
    overrides = (*named(name), "train.ema_decay=0.8")
    learners.run(train_as_learner, toy, toy_config, out, overrides, (1, 4), num=3)
    newest = max((out / "checkpoints").glob("step-????????.pt"))
    parts = [load_checkpoint(newest)[0]["part"]]
    parts += [read_torch(newest.with_suffix(f".learner-{rank}.pt"), "part", ("learner",)) for rank in (1, 2)]
    found = learners.run(optimizer_after_resuming, toy, toy_config, out, overrides, num=num)
    ema = load_checkpoint(newest)[0]["ema"]
    assert ema["num_updates"] > 0
    for rank, (state, (num_updates, averages), log) in enumerate(found):
        assert num_updates == ema["num_updates"]
        assert all(map(torch.equal, averages, ema["weights"].values()))
        part = parts[rank % 3]
        saved = part["learner"].get("optimizer")
        if name == "allreduce":
            saved = parts[0]["shared"]["optimizer"]
        if name == "ps-sync" and rank < 2:
            saved = part["learner"]["server"]["optimizer"]
        if saved:  # a learner without a server has none with `ps-sync`
            expected = [value for of_one in saved["state"].values() for value in of_one.values()]
            assert len(state) == len(expected) > 0
            assert all(torch.equal(one, other) for one, other in zip(state, expected, strict=True))
        if rank == 0:
            assert f"with {num} learners instead of 3: from the mean of their weights, with their optimizer" in log


@pytest.mark.parametrize("strategy", ["allreduce", "adpsgd-random"])
def test_fewer_batches_than_learners_are_warned_of_once(learners, toy, toy_config, tmp_path, strategy: str) -> None:
    overrides = (f"distributed.strategy={strategy}", "train.num_epochs=1")
    what = " an epoch for 2 learners: some have nothing to do; lower train.batch_s or --num-learners\n"
    for more, expected in (((), [0, 0]), (("train.batch_s=1000",), [1, 0])):
        out = tmp_path / str(len(more))
        logs = learners.run(train_on_machines_of, 2, toy, toy_config, out, (*overrides, *more), None, num=2)
        assert [log.count(f"1 batch{what}") for log in logs] == [log.count(what) for log in logs] == expected


def test_with_other_sync_groups_training_resumes_from_the_mean(learners, toy, toy_config, tmp_path) -> None:
    out = tmp_path / "train"
    overrides = ("distributed.strategy=h-adpsgd", "distributed.h-adpsgd.outer=adpsgd-d1")
    learners.run(train_on_machines_of, 2, toy, toy_config, out, overrides, (1, 3))
    (log, *_) = learners.run(train_on_machines_of, 4, toy, toy_config, out, overrides, None)
    assert "with 4 learners that share gradients instead of 2: from the mean of their weights" in log
    assert batches_trained(out) == planned(toy, toy_config)


def test_without_what_each_learner_had_training_resumes_from_the_checkpoint_before_or_from_the_mean(
    learners, toy, toy_config, tmp_path
) -> None:
    """As where learners were killed before that of rank 0 had written its file, which is still the one of before."""
    out, other, without = (tmp_path / name for name in ("train", "other", "without"))
    overrides = ("distributed.strategy=allreduce", "train.save_every_steps=1")
    for folder in (out, other):
        learners.run(train_as_learner, toy, toy_config, folder, overrides, (1, 4), num=2)
    shutil.copytree(out, without)
    newest = max((out / "checkpoints").glob("*.learner-1.pt"))
    newest.write_bytes(max((other / "checkpoints").glob("*.learner-1.pt")).read_bytes())
    (log, *_) = learners.run(train_on_machines_of, 2, toy, toy_config, out, overrides, None, num=2)
    whole = f"{newest.name.partition('.')[0]}.pt"
    assert f"{newest.name}: of another checkpoint than {whole}; going back to the checkpoint before" in log
    assert batches_trained(out) == planned(toy, toy_config)

    newest = without / "checkpoints" / whole
    newest.write_bytes(newest.read_bytes()[:-100])
    for path in (without / "checkpoints").glob("*.learner-1.pt"):
        path.unlink()
    (log, *_) = learners.run(train_on_machines_of, 2, toy, toy_config, without, overrides, None, num=2)
    (line,) = [line for line in log.splitlines() if line.startswith("resuming")]
    assert "in epoch 1, without what each learner had of its own: from the mean of their weights" in line
    assert newest.stem not in line
    assert batches_trained(without) == planned(toy, toy_config)


def test_machines_of_unlike_numbers_of_learners_are_refused_as_nodes(learners, toy, toy_config, tmp_path) -> None:
    for message in learners.run(prepare_on_unlike_machines, toy, toy_config, ("distributed.strategy=h-adpsgd",), num=3):
        assert message == "machines with 1 and 2 learners; choose a distributed.h-adpsgd.node_size for all"


def train_on_machines_of(
    size: int, toy: Path, config: Path, out: Path, overrides: tuple[str, ...], stop: tuple[int, int] | None
) -> str:
    """Run `train_as_learner` as one of `size` learners of this machine; return its log."""
    os.environ["LOCAL_WORLD_SIZE"] = str(size)
    with logged() as log:
        train_as_learner(toy, config, out, overrides, stop)
    return log.getvalue()


def prepare_on_unlike_machines(toy: Path, config: Path, overrides: tuple[str, ...]) -> str:
    os.environ["LOCAL_WORLD_SIZE"] = str(min(2, 1 + int(os.environ["RANK"])))
    with learner() as world, pytest.raises(AsrtoolError) as error:
        prepare(toy_job(toy, toy / "never", config, overrides), world)
    return str(error.value)


def test_learners_that_find_other_checkpoints_are_refused(learners: Learners, tmp_path: Path) -> None:
    for message in learners.run(load_own_checkpoints, tmp_path, num=2):
        assert message.endswith(
            "learner 0 finds 0 checkpoints there, learner 1 1; name a folder that all machines share"
        )


def load_own_checkpoints(folder: Path) -> str:
    with learner() as world:
        own = folder / str(world.rank)
        if world.rank:
            save_checkpoint(own, {}, {}, {}, State(step=3))
        with pytest.raises(AsrtoolError) as error:
            Checkpointer(own, {}, world).load()
    return str(error.value)


def test_a_good_batch_beside_a_bad_one_is_not_blamed(learners, toy, toy_config, tmp_path) -> None:
    good, bad = learners.run(
        train_badly, toy, toy_config, tmp_path / "train", ("distributed.strategy=allreduce",), num=2
    )
    assert "gradient norm nan with the gradients of 1 others" in good
    assert "loss nan, gradient norm nan; the batch of" in bad
    assert len(list((tmp_path / "train").glob("bad-batch-*.pt"))) == 2


def train_badly(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> str:
    """Be one of the learners; the loss of learner 1 is not a number."""
    forward = LossModule.forward

    def broken(self: LossModule, batch: Any) -> Any:
        return forward(self, batch) * (float("nan") if os.environ["RANK"] == "1" else 1)

    with patch.object(LossModule, "forward", broken), pytest.raises(AsrtoolError) as error:
        run_training(toy, config, out, overrides)
    return str(error.value)


def test_figures_of_an_objective_are_in_the_lines_of_training_and_of_dev(learners, toy, toy_config, tmp_path) -> None:
    """Sums over the learners, divided by the normaliser as the loss is."""
    overrides = ("distributed.strategy=allreduce", "model.objective=own_components:CountingCtc")
    learners.run(train_as_learner, toy, toy_config, tmp_path / "train", overrides, None)
    entries = metrics(tmp_path / "train")
    dev_set = components_of(toy, toy_config).dev_set
    batches = list(dev_set.load(dev_set.plan_eval()))
    rows = sum(-(-length // 2) for batch in batches for length in batch.input_lens_N.tolist())
    dev = [entry for entry in entries if entry["kind"] == "dev"]
    assert [entry["rows"] for entry in dev] == [rows / sum(batch.normaliser for batch in batches)] * 3
    assert [entry["nothing"] for entry in dev] == [0.0] * 3
    in_training = [entry["rows"] for entry in entries if entry["kind"] == "train"]
    assert in_training
    assert all(0.5 < value < 20 for value in in_training)


def test_each_loss_is_divided_by_its_part_of_the_tokens_of_all(learners, toy, toy_config, tmp_path) -> None:
    """So the mean of the gradients is the one of all their batches together."""
    overrides = ("model.lstm.dropout=0", "specaugment.num_freq_masks=0", "specaugment.num_time_masks=0")
    overrides = (*overrides, "train.log_every_steps=1", "train.num_epochs=1")
    together = ("distributed.strategy=allreduce", *overrides)
    learners.run(train_as_learner, toy, toy_config, tmp_path / "train", together, None)
    first = next(entry for entry in metrics(tmp_path / "train") if entry["kind"] == "train")

    components = prepare(toy_job(toy, tmp_path / "never", toy_config, overrides), World()).components
    several = list(itertools.islice(components.train_set.plan(0, 0, {}), NUM_LEARNERS))
    rows = [row for planned in several for row in planned.content[1]]
    batch = components.train_set.read(Planned((0, rows), len(rows), sum(planned.normaliser for planned in several)))
    (LossModule(components.model, choose_precision("fp32"))(batch) / batch.normaliser).backward()
    squares = [float(parameter.grad.square().sum()) for parameter in components.model.parameters()]
    assert first["grad_norm"] == pytest.approx(math.sqrt(sum(squares)), rel=1e-4)


NODES = [[0, 1], [2, 3], [4, 5]]
PLACES = [[0, 2, 4], [1, 3, 5]]


def regroup_without(lost: list[int]) -> dict[str, Any] | None:
    """Return what collectives give a surviving learner: over all ranks, its node, and its place."""
    world = join_learners()
    init_collectives(world)
    members = world.members = Members(world.size, world.rank)
    node, others = world.split(NODES), world.split(PLACES)
    world.barrier()
    found = None
    if world.rank not in lost:
        members.lose(world.store, *(LostLearner(rank, "was ended by SIGKILL", 0) for rank in lost))
        world.regroup()
        mean_P = torch.full((3,), float(world.rank))
        others.mean(mean_P)
        found = {
            "all": world.gather(world.rank),
            "node": node.gather(world.rank),
            "others": others.gather(world.rank),
            "mean": mean_P.tolist(),
            "live": (list(node.live), list(others.live)),
        }
    world.subgroups.clear()
    leave_world()
    return found


def test_groups_have_the_learners_that_are_left() -> None:
    lost = [0, 1]
    with contextlib.closing(Learners(6)) as learners:
        found = learners.run(regroup_without, lost)
    left = [rank for rank in range(6) if rank not in lost]
    for rank in left:
        others = [other for other in left if other % 2 == rank % 2]
        assert found[rank] == {
            "all": left,
            "node": NODES[rank // 2],
            "others": others,
            "mean": [sum(others) / len(others)] * 3,
            "live": ([0, 1], [other // 2 for other in others]),
        }
