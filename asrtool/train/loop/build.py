"""Build arithmetic, task and strategy of a training, initial or resumed."""

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
from asrtool.distributed.transport.event_log import EventLog, Note, no_note
from asrtool.distributed.transport.exchange import this_machine
from asrtool.distributed.weights.ema import Ema
from asrtool.distributed.world import World
from asrtool.errors import AsrtoolError
from asrtool.log import plural
from asrtool.models.acoustic import AcousticModel
from asrtool.models.precision import Precision, choose_precision
from asrtool.settings.registry import check_returned
from asrtool.settings.train import Optimisation
from asrtool.train.checkpoints.checkpoint import State
from asrtool.train.job import Job
from asrtool.train.loop.loss import EmulatedCompute, LossModule
from asrtool.train.loop.pipeline import Pipeline, choose_devices
from asrtool.train.optimisation.optimizer import build_optimizer


def fix_threads_and_precision(settings: Optimisation, state: State, world: World) -> Precision:
    """Fix threads and precision, which decide the last bits, as training began."""
    part = max(1, (os.cpu_count() or 1) // world.local_size)
    free = torch.get_num_threads() if world.size == 1 else part
    state.num_threads = settings.num_threads or state.num_threads or free
    torch.set_num_threads(state.num_threads)
    precision = choose_precision(state.precision if settings.precision == "auto" else settings.precision)
    state.precision = precision.name
    precision.prepare_process()
    logging.info("%s, %s on %s", plural(state.num_threads, "thread"), precision.name, precision.device)
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
