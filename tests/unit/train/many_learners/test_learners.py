"""Several learners, in processes of their own: every strategy against its equations, and that no work is lost."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import equations
import numpy as np
import pytest
import torch
from learners import MANY_BATCHES, Learners, batches_trained, planned
from toy_task import assert_same_bits, last_weights
from trainings import LOCKSTEP, STRATEGIES, metrics, named, summary, toy_job, train_as_learner, train_or_stop

from asrtool.distributed.launch.learner import learner
from asrtool.distributed.work.work_queue import BatchNumber
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.models.files.torch_file import read_torch
from asrtool.settings.toml_files import load_config
from asrtool.train.batches import shard_source
from asrtool.train.batches.source import Planned
from asrtool.train.checkpoints.checkpoint import State, load_checkpoint, save_checkpoint
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.ledger import read_assigned
from asrtool.train.loop import evaluation
from asrtool.train.loop.loop import Training
from asrtool.train.loop.loss import LossModule
from asrtool.train.run import prepare as prepare_job
from asrtool.train.run import train as train_job
from asrtool.train.train import acoustic_job

pytestmark = pytest.mark.slow

NUM_LEARNERS = 4
PLAIN = ("model.lstm.dropout=0", "specaugment.num_freq_masks=0", "specaugment.num_time_masks=0")


@pytest.fixture
def toy_config(small_batches_config: Path) -> Path:
    return small_batches_config


@pytest.mark.parametrize("name", equations.RULES)
def test_a_strategy_in_lock_step_is_its_equation(name: str) -> None:
    num_learners = equations.num_learners_of(name)
    with contextlib.closing(Learners(num_learners)) as learners:
        found = learners.run(equations.train, name, 8)
    expected = equations.by_equations(name, num_learners, 8)
    np.testing.assert_allclose(np.stack(found, axis=1), expected, atol=1e-6)


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
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path, name: str
) -> None:
    overrides = (*named(name), "distributed.h-adpsgd.node_size=2", "distributed.bmuf.block_steps=2")
    overrides = (*overrides, "distributed.ps-sync.num_servers=2")
    out = tmp_path / "train"
    learners.run(train_as_learner, toy, toy_config, out, overrides, (1, 2))
    assert not (out / "train.json").exists()
    num_trained, num_planned = (sum(found.values()) for found in (batches_trained(out), planned(toy, toy_config)))
    assert 0 < num_trained <= num_planned
    assert num_trained < num_planned or name not in LOCKSTEP  # others may be done before they hear of it
    learners.run(train_as_learner, toy, toy_config, out, overrides, None)
    assert batches_trained(out) == planned(toy, toy_config)
    final = summary(out)
    assert (final["strategy"], final["num_learners"], final["num_samples"]) == (name.split()[0], NUM_LEARNERS, 72)
    assert [read_assigned(out, rank)["batches"] for rank in range(NUM_LEARNERS)] == [[]] * NUM_LEARNERS
    if name in LOCKSTEP:
        undisturbed = tmp_path / "undisturbed"
        learners.run(train_as_learner, toy, toy_config, undisturbed, overrides, None)
        assert_same_bits(last_weights(out), last_weights(undisturbed))


@pytest.mark.parametrize("name", ["allreduce", "bmuf"])
def test_after_sigterm_while_dev_is_evaluated_training_ends_in_the_same_bits(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path, name: str
) -> None:
    overrides = (*named(name), "distributed.h-adpsgd.node_size=1", "distributed.bmuf.block_steps=4")
    learners.run(train_stopped_in_evaluation, toy, toy_config, tmp_path / "train", overrides, 1, num=2)
    learners.run(train_as_learner, toy, toy_config, tmp_path / "train", overrides, None, num=2)
    learners.run(train_as_learner, toy, toy_config, tmp_path / "undisturbed", overrides, None, num=2)
    assert_same_bits(last_weights(tmp_path / "train"), last_weights(tmp_path / "undisturbed"))


DEEPSPEECH2 = ("model.encoder=deepspeech2", "model.deepspeech2.num_layers=1", "model.deepspeech2.hidden_size=8")


def statistics_behind_training(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> list[list[float]]:
    """Be one of the learners; the running statistics of its model, then those of the last checkpoint."""
    job = toy_job(toy, out, config, overrides)
    with learner() as world:
        training = prepare_job(job, world)
        training.train()
        with training.strategy.consensus():
            buffers = dict(training.components.model.named_buffers())
            own = torch.cat([buffers[name] for name in sorted(buffers)]).tolist()
        world.barrier()
    weights = last_weights(out)
    return [own, torch.cat([weights[name] for name in sorted(buffers)]).tolist()]


@pytest.mark.parametrize("name", ["allreduce", "adpsgd-fixed"])
def test_running_statistics_of_all_learners_are_their_mean_in_the_end(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path, name: str
) -> None:
    found = learners.run(statistics_behind_training, toy, toy_config, tmp_path, (*named(name), *DEEPSPEECH2), num=2)
    (own, saved), (other, _) = found
    assert own == other == saved
    assert len(set(own)) > 2  # of the beginning they are 0 and 1


@pytest.mark.parametrize(("name", "num"), [("allreduce", 2), ("adpsgd-fixed", 2), ("ps-async", 3)])
def test_after_sigterm_in_the_last_evaluation_that_alone_is_left(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path, name: str, num: int
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


def test_with_another_number_of_learners_training_resumes_from_the_mean(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    """Also where those before have left holes: the first batches of a window, while others have begun from its end."""
    out = tmp_path / "train"
    toy_config.write_text(MANY_BATCHES.replace("num_epochs = 3", "num_epochs = 12"))  # some are left at each stop
    overrides = ("distributed.strategy=adpsgd-random",)
    for num, stop in ((4, (1, 2)), (3, (1, 2)), (1, (0, 3)), (2, None)):
        learners.run(train_as_learner, toy, toy_config, out, overrides, stop, num=num)
    final = summary(out)
    assert (final["num_learners"], final["num_samples"]) == (2, 12 * 24)
    assert batches_trained(out) == planned(toy, toy_config)


def optimizer_after_resuming(toy: Path, config: Path, out: Path, overrides: tuple[str, ...]) -> Any:
    """Be one of the learners, and resume; the state of its optimizer, and what the log says of it."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    job = toy_job(toy, out, config, overrides)
    with learner() as world, contextlib.closing(prepare_job(job, world).strategy) as strategy:
        strategy.start()
        server = getattr(strategy, "server", None)
        state = (server.slice if server else strategy).optimizer.state_dict()["state"]
    logging.getLogger().removeHandler(handler)
    return [value.clone() for of_one in state.values() for value in of_one.values()], log.getvalue()


@pytest.mark.parametrize(("name", "num"), [("allreduce", 4), ("adpsgd-d1", 2), ("bmuf", 4), ("ps-sync", 2)])
def test_with_another_number_of_learners_each_has_the_optimizer_of_one_before(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path, name: str, num: int
) -> None:
    out = tmp_path / "train"
    overrides = (f"distributed.strategy={name}", "distributed.ps-sync.num_servers=2")
    learners.run(train_as_learner, toy, toy_config, out, overrides, (1, 4), num=3)
    newest = max((out / "checkpoints").glob("step-????????.pt"))
    parts = [load_checkpoint(newest)[0]["part"]]
    parts += [read_torch(newest.with_suffix(f".learner-{rank}.pt"), "part", ("learner",)) for rank in (1, 2)]
    found = learners.run(optimizer_after_resuming, toy, toy_config, out, overrides, num=num)
    for rank, (state, log) in enumerate(found):
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


def test_records_of_learners_that_there_are_no_more_stay_as_they_were_saved(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    out = tmp_path / "train"
    overrides = ("distributed.strategy=allreduce",)
    for num, stop in ((4, (1, 4)), (2, (1, 4)), (4, None)):
        learners.run(train_as_learner, toy, toy_config, out, overrides, stop, num=num)
        if num == 2:  # as if four learners had begun after that and been killed
            (out / "learners" / "7.jsonl").write_text((out / "learners" / "0.jsonl").read_text())
    assert batches_trained(out) == planned(toy, toy_config)


def test_with_other_sync_groups_training_resumes_from_the_mean(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    out = tmp_path / "train"
    overrides = ("distributed.strategy=h-adpsgd", "distributed.h-adpsgd.outer=adpsgd-d1")
    learners.run(train_on_machines_of, 2, toy, toy_config, out, overrides, (1, 3))
    (log, *_) = learners.run(train_on_machines_of, 4, toy, toy_config, out, overrides, None)
    assert "with 4 learners that share gradients instead of 2: from the mean of their weights" in log
    assert batches_trained(out) == planned(toy, toy_config)


def test_where_no_checkpoint_has_what_learners_had_training_resumes_from_the_mean(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    out = tmp_path / "train"
    overrides = ("distributed.strategy=allreduce", "train.save_every_steps=1")
    learners.run(train_as_learner, toy, toy_config, out, overrides, (1, 4), num=2)
    newest = max((out / "checkpoints").glob("step-????????.pt"))
    newest.write_bytes(newest.read_bytes()[:-100])
    for path in (out / "checkpoints").glob("*.learner-1.pt"):
        path.unlink()
    (log, *_) = learners.run(train_on_machines_of, 2, toy, toy_config, out, overrides, None, num=2)
    (line,) = [line for line in log.splitlines() if line.startswith("resuming")]
    assert "in epoch 1, without what each learner had of its own: from the mean of their weights" in line
    assert newest.stem not in line
    assert batches_trained(out) == planned(toy, toy_config)


def test_what_a_learner_saved_in_another_checkpoint_of_the_same_step_is_not_resumed(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    """As where learners were killed before that of rank 0 had written its file, which is still the one of before."""
    out, other = tmp_path / "train", tmp_path / "other"
    overrides = ("distributed.strategy=allreduce", "train.save_every_steps=1")
    for folder in (out, other):
        learners.run(train_as_learner, toy, toy_config, folder, overrides, (1, 4), num=2)
    newest = max((out / "checkpoints").glob("*.learner-1.pt"))
    newest.write_bytes(max((other / "checkpoints").glob("*.learner-1.pt")).read_bytes())
    (log, *_) = learners.run(train_on_machines_of, 2, toy, toy_config, out, overrides, None, num=2)
    whole = f"{newest.name.partition('.')[0]}.pt"
    assert f"{newest.name}: of another checkpoint than {whole}; going back to the checkpoint before" in log
    assert batches_trained(out) == planned(toy, toy_config)


def test_machines_of_unlike_numbers_of_learners_are_refused_as_nodes(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    for message in learners.run(prepare_on_unlike_machines, toy, toy_config, ("distributed.strategy=h-adpsgd",), num=3):
        assert message == "machines with 1 and 2 learners; choose a distributed.h-adpsgd.node_size for all"


def train_on_machines_of(
    size: int, toy: Path, config: Path, out: Path, overrides: tuple[str, ...], stop: tuple[int, int] | None
) -> str:
    """As `train_as_learner`, as one of `size` learners of this machine; what it logs."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    os.environ["LOCAL_WORLD_SIZE"] = str(size)
    try:
        train_as_learner(toy, config, out, overrides, stop)
    finally:
        logging.getLogger().removeHandler(handler)
    return log.getvalue()


def prepare_on_unlike_machines(toy: Path, config: Path, overrides: tuple[str, ...]) -> str:
    os.environ["LOCAL_WORLD_SIZE"] = str(min(2, 1 + int(os.environ["RANK"])))
    with learner() as world, pytest.raises(AsrtoolError) as error:
        prepare(toy, config, overrides, world)
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


def test_a_good_batch_beside_a_bad_one_is_not_blamed(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
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
        train_job(toy_job(toy, out, config, overrides))
    return str(error.value)


def gradients_of_all(toy: Path, config: Path, overrides: tuple[str, ...]) -> list[np.ndarray]:
    training = prepare(toy, config, ("distributed.strategy=single", *overrides[1:]), World())
    training.plan.round(NUM_LEARNERS)
    planned = [training.plan.planned(0, BatchNumber(0, position)) for position in range(NUM_LEARNERS)]
    indices = tuple(i for batch in planned for i in batch.content)
    merged = Planned(indices, len(indices), sum(batch.normaliser for batch in planned))
    (batch,) = training.components.train_set.load([merged])
    (training.strategy.task(batch) / batch.normaliser).backward()
    return [parameter.grad.numpy() for parameter in training.components.model.parameters()]


def test_the_loop_divides_each_loss_by_its_part_of_the_tokens_of_all(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    overrides = ("distributed.strategy=allreduce", *PLAIN, "train.log_every_steps=1", "train.num_epochs=1")
    learners.run(train_as_learner, toy, toy_config, tmp_path / "train", overrides, None)
    lines = (tmp_path / "train" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    first = next(entry for entry in map(json.loads, lines) if entry["kind"] == "train")
    expected = gradients_of_all(toy, toy_config, overrides)
    assert first["grad_norm"] == pytest.approx(np.sqrt(sum((gradient**2).sum() for gradient in expected)), rel=1e-4)


def prepare(toy: Path, config: Path, overrides: tuple[str, ...], world: World) -> Training:
    settings = load_config([config], overrides)
    return prepare_job(acoustic_job(toy / "features", toy / "tokenizer", toy / "never", settings), world)


def test_figures_of_an_objective_are_in_the_lines_of_training_and_of_dev(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path
) -> None:
    """Sums over the learners, divided by the normaliser as the loss is."""
    overrides = ("distributed.strategy=allreduce", "model.objective=own_components:CountingCtc")
    learners.run(train_as_learner, toy, toy_config, tmp_path / "train", overrides, None)
    entries = metrics(tmp_path / "train")
    training = prepare(toy, toy_config, ("distributed.strategy=single",), World())
    dev_set = training.components.dev_set
    batches = list(dev_set.load(dev_set.plan_eval()))
    rows = sum(-(-length // 2) for batch in batches for length in batch.input_lens_N.tolist())
    dev = [entry for entry in entries if entry["kind"] == "dev"]
    assert [entry["rows"] for entry in dev] == [rows / sum(batch.normaliser for batch in batches)] * 3
    assert [entry["nothing"] for entry in dev] == [0.0] * 3
    in_training = [entry["rows"] for entry in entries if entry["kind"] == "train"]
    assert in_training
    assert all(0.5 < value < 20 for value in in_training)
