"""Build the initial or resumed training of a learner.

Arithmetic, strategy, and all that works beside it.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from asrtool.distributed.strategies.strategy import Strategy, StrategyContext
from asrtool.distributed.strategies.update import LossScale
from asrtool.distributed.transport.device import clock_of
from asrtool.distributed.transport.event_log import EventLog, Note, no_note
from asrtool.distributed.transport.exchange import this_machine
from asrtool.distributed.weights.ema import Ema
from asrtool.distributed.work.lost_batches import LostBatches
from asrtool.distributed.work.work_queue import WorkQueue
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel
from asrtool.models.precision import Precision, choose_precision
from asrtool.settings.registry import check_returned
from asrtool.settings.train import Optimisation
from asrtool.train.batches.plan import Plan
from asrtool.train.checkpoints.checkpoint import State
from asrtool.train.checkpoints.checkpointer import Checkpointer
from asrtool.train.checkpoints.coordinator import CheckpointCoordinator, Pace, Reached
from asrtool.train.checkpoints.merge import CheckpointMerger
from asrtool.train.checkpoints.snapshots import Snapshots
from asrtool.train.job import Components, Job
from asrtool.train.ledger import Ledger, find_missing
from asrtool.train.loop.evaluation import DevLosses, Evaluation
from asrtool.train.loop.gradient_accumulation import GradientAccumulation
from asrtool.train.loop.joining import begin_of
from asrtool.train.loop.loop import Training
from asrtool.train.loop.loss import EmulatedCompute, LossModule
from asrtool.train.loop.metrics import Reports
from asrtool.train.loop.pipeline import Pipeline, choose_devices
from asrtool.train.loop.step_records import Records
from asrtool.train.loop.stop import Stop
from asrtool.train.loop.straggler import StragglerInjection
from asrtool.train.optimisation.learning_rate import LearningRates
from asrtool.train.optimisation.optimizer import build_optimizer


def build_training(job: Job, components: Components, world: World, rate_factor: float | None = None) -> Training:
    """Build a training, resumed from the newest whole checkpoint in `job.out`.

    `rate_factor` is the batch of all learners as a multiple of the one that the schedule is for; None leaves rates.
    Raises AsrtoolError if there are checkpoints but none can be read, and if these learners cannot train by the
    strategy.
    """
    settings, train_set = job.optimisation, components.train_set
    total_samples = settings.num_epochs * train_set.size().num_samples
    checkpointer = Checkpointer(job.out / "checkpoints", components.info, world)
    found, state = None, begin_of(checkpointer) if world.joins else State()
    if not world.joins and (loaded := checkpointer.load()):
        found, state = loaded

    precision = fix_arithmetic(settings, state, world)
    model = components.model.to(precision.device)
    if found:
        model.load_state_dict(found["weights"])
    task = make_task(job, model, precision, world)
    event_log = make_event_log(job, state, precision, world)
    strategy = make_strategy(job, task, model, precision, world, event_log.note if event_log else no_note)
    if found:
        resume(strategy, state, world, found)
    rule = strategy.assignment_rule
    state.learners, state.group_size = list(range(world.size)), rule.group_size
    round_size = rule.round_size(world.size)
    together = round_size == world.size  # all learners at each step
    plan = Plan(train_set, settings.num_epochs, round_size, state)

    has_others = bool(world.members) and not (together or world.joins) and world.local_size < world.size
    stop = Stop(leaves=has_others and job.distributed.on_stop == "leave")
    records = Records(job.out, world, state.record_bytes)
    reports = Reports(settings, total_samples, job.out, state, is_first=world.rank == 0, num_learners=world.size)
    dev_losses = DevLosses(world, state.dev_losses, settings.early_stop)
    evaluation = Evaluation(components.dev_set, precision, world, state.num_threads, stop, checkpointer.closing)
    snapshots = None
    if not together:
        what = strategy, model, checkpointer, state
        make_merger = functools.partial(CheckpointMerger, *what, settings, reports, evaluation.alone, dev_losses)
        snapshots = Snapshots(*what, make_merger)
    saving = snapshots or checkpointer

    def ends_early() -> bool:
        """Return whether the evaluating learner ends the training for all."""
        return snapshots is not None and dev_losses.end is not None and world.is_first

    pace = Pace(settings, state.rounds, together, stop, lambda: saving.busy, ends_early)
    lost_batches = None
    if world.members:
        find = functools.partial(find_missing, job.out, state, plan, world.members)
        lost_batches = LostBatches(world, world.members, lambda: pace.stop(), records.is_idle, find)
    queue = WorkQueue(world, rule, plan, pace, lost_batches)
    cuts = CheckpointCoordinator(
        settings=settings,
        code=job.code,
        world=world,
        model=model,
        strategy=strategy,
        plan=plan,
        queue=queue,
        pace=pace,
        stop=stop,
        records=records,
        reports=reports,
        checkpointer=checkpointer,
        snapshots=snapshots,
        evaluation=evaluation,
        dev_losses=dev_losses,
        state=state,
        ledger=Ledger(state),
        reached=Reached(state.epoch),
    )
    return Training(
        job=job,
        components=components,
        world=world,
        state=state,
        precision=precision,
        clock=clock_of(next(model.parameters())),
        strategy=strategy,
        pieces=GradientAccumulation(
            task, components.max_frames, components.frame_ms, probes=precision.device.type == "cuda"
        ),
        rates=LearningRates(settings, total_samples, job.distributed.lr_scale, rate_factor),
        plan=plan,
        queue=queue,
        cuts=cuts,
        checkpointer=checkpointer,
        snapshots=snapshots,
        dev_losses=dev_losses,
        records=records,
        reports=reports,
        event_log=event_log,
        straggler=StragglerInjection(job.injection.slow.get(world.rank, 1.0)),
        stop=stop,
        total_samples=total_samples,
        num_samples=state.samples,
    )


def fix_arithmetic(settings: Optimisation, state: State, world: World) -> Precision:
    """Fix threads and precision, which decide the last bits, as training began."""
    part = max(1, (os.cpu_count() or 1) // world.local_size)
    free = torch.get_num_threads() if world.size == 1 else part
    state.num_threads = settings.num_threads or state.num_threads or free
    torch.set_num_threads(state.num_threads)
    precision = choose_precision(state.precision if settings.precision == "auto" else settings.precision)
    state.precision = precision.name
    precision.prepare_process()
    logging.info("%d threads, %s on %s", state.num_threads, precision.name, precision.device)
    return precision


def make_task(job: Job, model: AcousticModel, precision: Precision, world: World) -> LossModule | EmulatedCompute:
    """Build the model with its loss, or its emulation by computation time.

    Raises AsrtoolError if the model has fewer parts, or this machine fewer devices, than there are stages.
    """
    if job.injection.compute_ms is not None:
        return EmulatedCompute(model, job.injection.compute_ms)
    pipeline = None
    if job.num_stages > 1:
        devices = choose_devices(precision.device, job.num_stages, world.local_size)
        pipeline = Pipeline(model, devices, job.num_micro_batches, precision)
        logging.info("%d stages on %s", len(devices), ", ".join(map(str, devices)))
    return LossModule(model, precision, pipeline)


def make_strategy(
    job: Job,
    task: LossModule | EmulatedCompute,
    model: AcousticModel,
    precision: Precision,
    world: World,
    note: Note = no_note,
) -> Strategy:
    """Build the strategy of `job`; `note` logs changes of weights.

    Raises AsrtoolError if these learners cannot train by it, or a custom one is invalid.
    """
    settings, chosen = job.optimisation, job.distributed.strategy
    context = StrategyContext(
        task=task,
        model=model,
        make_optimizer=functools.partial(build_optimizer, settings=settings),
        clip_norm=settings.clip_norm,
        settings=chosen.settings,
        seed=settings.seed,
        world=world,
        loss_scale=LossScale() if precision.name == "fp16" else None,
        note=note,
    )
    strategy: Strategy = chosen.load()(context)
    what = f"distributed.strategy = {chosen.name}"
    check_returned(what, strategy, Strategy)
    if job.distributed.survives and not strategy.asynchronous:
        hint = "leave out `survives` in its settings, or make it asynchronous"
        raise AsrtoolError(f"{what} says that its learners survive others, but they wait for each other", hint)
    if settings.ema_decay:
        strategy.ema = Ema(model, settings.ema_decay)
    return strategy


def make_event_log(job: Job, state: State, precision: Precision, world: World) -> EventLog | None:
    """Open the event log if wanted; AsrtoolError for weights on a GPU.

    The host cannot order changes there.
    """
    if not job.logs_events:
        return None
    if precision.device.type != "cpu":
        what = f"--events with weights on {precision.device}: in which order they change there is not known"
        raise AsrtoolError(what, "set CUDA_VISIBLE_DEVICES= to train on the CPU, or leave out --events")
    return EventLog(job.out, world.rank, state.step, this_machine())


def resume(strategy: Strategy, state: State, world: World, found: dict[str, Any]) -> None:
    """Give `strategy` this learner's state in `found`, or the shared one.

    With another number of learners, the optimizer of one of them is used if it fits. Raises AsrtoolError for other
    parameter groups.
    """
    if strategy.ema:
        strategy.ema.load_saved(found["ema"])
    if found["part"] is None:
        logging.info("resuming after step %d, the last one", state.step)
        return
    strategy.load_loss_scale(found["learner"] or {})
    where = f"resuming after step {state.step}, in epoch {state.epoch + 1}"
    learner, shared = found["learner"], found["shared"]
    group_size = strategy.assignment_rule.group_size
    if state.num_learners != world.size:
        change = f"with {world.size} learners instead of {state.num_learners}"
    elif state.group_size not in (0, group_size):
        change = f"with {group_size} learners that share gradients instead of {state.group_size}"
    elif learner is None:
        change = "without what each learner had of its own"
    else:
        with _fitting(where):
            strategy.load_state(learner, shared or {})
        strategy.load_ema(learner, shared or {})
        logging.info("%s", where)
        return
    with _fitting(where):
        has_optimizer = shared is not None and strategy.load_optimizer(learner or {}, shared)
    optimizers = "their optimizer" if has_optimizer else "new optimizers"
    logging.info("%s, %s: from the mean of their weights, with %s", where, change, optimizers)


@contextmanager
def _fitting(where: str) -> Iterator[None]:
    """Convert torch's ValueError for an unfit optimizer state to AsrtoolError."""
    try:
        yield
    except ValueError as error:
        what = f"{where}: the optimizer is of an earlier asrtool, with other groups of parameters"
        raise AsrtoolError(what, "move the folder of the training aside, to train from the beginning") from error
