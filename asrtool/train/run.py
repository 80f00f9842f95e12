"""Run a training here or as several learners, in a folder it can resume from.

The folder has `checkpoints/step-NNNNNNNN.pt`, `metrics.jsonl`, `tensorboard/`, `learners/`, `inputs.json` (settings
and data) and, last, `train.json` (the result). Needs no torch until it trains.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from asrtool.distributed.launch.environment import SERVED, Pod, adopt_task, check_environment, find_pod, is_learner
from asrtool.distributed.members.joining import find_store, join_training, rendezvous_path
from asrtool.distributed.members.members import Survival, TrainingEnded, node_of
from asrtool.distributed.members.supervisor import (
    end_joined,
    forget_lost,
    holding_lock,
    serve_rendezvous,
    supervise,
    supervise_joining,
)
from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.settings.distributed import Distributed, joinable_strategies
from asrtool.train.inputs import FINAL, INPUTS, initial_num_learners, is_finished, open_training
from asrtool.train.job import Job
from asrtool.train.ledger import describe_assigned, examine_lost, forget_assigned
from asrtool.train.loop.stop import Left, Stopped

if TYPE_CHECKING:
    from asrtool.distributed.world import World
    from asrtool.train.loop.loop import Training

# Modules of learners that take long to load.
PRELOADED = ("asrtool.distributed.launch.learner", "asrtool.train.loop.loop", "asrtool.train.batches.shard_source")
FINISHED = "%s: this training is finished"
ENDED = "%s: this training is about to end, so no learner joins it any more"


def join(job: Job) -> None:
    """Join the training running in `job.out` as an extra learner.

    Raises AsrtoolError if none runs there, for other settings or data, and as `train`.
    """
    if is_learner():
        raise AsrtoolError("--join under torchrun", "run it by itself, once for each learner that is to join")
    _check_joinable(job)
    if (job.out / FINAL).exists():
        logging.info(FINISHED, job.out)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the launcher does so too
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # `start` does so too
    supervise_joining(job.out, functools.partial(join_training, job.out), job.out / FINAL)
    train(job)


def _check_joinable(job: Job) -> None:
    name = job.distributed.strategy.name
    if not job.distributed.joinable:
        known = ", ".join(joinable_strategies())
        raise AsrtoolError(
            f"--join: a training by strategy {name} cannot be joined, expected one of {known}",
            "start it again with more learners: it resumes from its last checkpoint",
        )
    if (job.out / INPUTS).exists() and (other := job.inputs.first_difference(job.out / INPUTS)):
        raise AsrtoolError(
            f"{job.out}: the training there has other settings or data ({other})",
            "join it with the settings and data that it was started with",
        )


def start(job: Job) -> None:
    """Train here with one learner, else in child processes, which return as it does.

    Raises AsrtoolError as `train`, and here if a learner ends early.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # no traces in C++ if others end first
    pod = find_pod(job.distributed.num_learners)
    adopt_task(job.distributed.num_learners)
    check_environment(job.distributed.num_learners)
    if is_learner():
        num_learners = int(os.environ["WORLD_SIZE"])
    else:
        num_learners = pod.size if pod else count_learners(job.distributed, job.num_stages)
    for rank in job.injection.slow:
        if rank >= num_learners:
            raise AsrtoolError(f"--slow {rank}: there are {num_learners} learners", f"choose 0 to {num_learners - 1}")
    if pod:  # another one joins the others in its place; all need the store of the first one
        on_stop = "leave" if pod.index and job.distributed.joinable else "all"
        job = dataclasses.replace(job, distributed=dataclasses.replace(job.distributed, on_stop=on_stop))
    if num_learners > 1 and not (is_learner() or _launch(job, num_learners, pod)):
        return
    draw_number = functools.partial(join_training, job.out) if job.distributed.joinable else None
    if num_learners > 1 and not is_learner():
        assert draw_number
        supervise_joining(job.out, draw_number, job.out / FINAL, stays=True)
    elif num_learners > 1 and job.distributed.survives:
        rank = int(os.environ["RANK"])
        supervise(job.out, rank, job.out / FINAL, node_of(rank, _node_size(job.distributed)), draw_number)
    train(job)


def _launch(job: Job, num_learners: int, pod: Pod | None) -> bool:
    """Start the learners; return True in each of them, False here once they end."""
    if pod:
        finished = is_finished(job.out, job.inputs)
    else:
        with open_training(job.out, job.inputs, num_learners) as finished:
            pass  # learner 0 opens it again
    if finished:
        logging.info(FINISHED, job.out)
        return False
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded; learners set their own later
    if sys.path[:1] == [""]:
        sys.path.pop(0)  # a `local` or `utils` of the user in the current directory would be imported instead of ours
    for name in PRELOADED:
        importlib.import_module(name)
    job.distributed.strategy.load()
    from asrtool.distributed.launch.launcher import launch_in_pod, launch_learners

    describe_untrained = functools.partial(describe_assigned, job.out)
    if pod:
        return launch_in_pod(pod, describe_untrained, _replaces_pod(job, pod))
    forget_assigned(job.out)
    return launch_learners(num_learners, describe_untrained)


def _replaces_pod(job: Job, pod: Pod) -> bool:
    """Return whether a pod replaces a lost one, and its learners can join.

    If they cannot, the others are asked to stop, and all resume. The first pod serves the store.
    """
    if SERVED in os.environ:  # it starts again, and so do the others
        return False
    if not pod.index:
        serve_rendezvous(int(os.environ["PET_MASTER_PORT"]))
    os.environ[SERVED] = "1"
    store = find_store(job.out) if pod.index and job.distributed.survives else None
    if store and not job.distributed.joinable:
        from asrtool.distributed.work.work_queue import COUNTER, END

        store.add(COUNTER, END)
    return store is not None and job.distributed.joinable


def train(job: Job) -> None:
    """Train in this process, maybe as one of several learners; resume if possible.

    A finished training of the same settings and data is left as it is, without loading torch; another one is moved to
    `OUT.old-N`. Raises AsrtoolError for missing or broken inputs, a full disk, and a NaN loss.
    """
    if is_learner():
        try:
            _train_as_learner(job)
        except TrainingEnded:
            logging.warning(ENDED, job.out)
        return
    with open_training(job.out, job.inputs) as finished:
        if finished:
            logging.info(FINISHED, job.out)
        else:
            from asrtool.distributed.world import World

            _train(job, World())


def count_learners(distributed: Distributed, num_stages: int = 1) -> int:
    """Return the number of processes that train here, each on `num_stages` devices."""
    if distributed.num_learners or distributed.strategy.name == "single":
        return distributed.num_learners or 1
    num_gpus = _count_gpus()
    return max(1, num_gpus // num_stages) if num_gpus else os.cpu_count() or 1


def _count_gpus() -> int:
    """Count GPUs in another process: learners are forked before this one uses CUDA."""
    ask = "import sys; sys.path[:1] == [''] and sys.path.pop(0); import torch; print(torch.cuda.device_count())"
    return int(subprocess.run([sys.executable, "-c", ask], stdout=subprocess.PIPE, check=True).stdout)


def prepare(job: Job, world: World) -> Training:
    """Build the training of `job`, resumed from its last checkpoint."""
    import torch

    from asrtool.train.loop.loop import Training

    torch.manual_seed(job.optimisation.seed)
    num_begun = initial_num_learners(job.out) or world.size
    batch_s = job.distributed.global_batch_s / num_begun
    if batch_s and num_begun != world.size:
        what = "%d learners instead of %d: each keeps its batch of %g s, so the batch of all is %g s"
        logging.info(what, world.size, num_begun, batch_s, batch_s * world.size)
    components = job.build(num_begun)
    gc.freeze()  # modules and sets stay: to look for cycles among them takes a quarter of the time of a plan
    return Training(job, components, world, job.distributed.rate_factor(world.size, num_begun))


def _train_as_learner(job: Job) -> None:
    from asrtool.distributed.launch.learner import learner

    distributed, survival = job.distributed, None
    if distributed.survives:
        survival = Survival(job.out, examine_lost, _node_size(distributed))
        forget_lost(job.out, int(os.environ["RANK"]))
    with learner(distributed.timeout_s, survival, distributed.interface) as world, contextlib.ExitStack() as stack:
        if world.joins or not _open(job, world, stack):
            if world.members:
                if not world.joins:  # while this learner waited for the others, they may have reported the one before
                    forget_lost(job.out, world.rank)
                stack.enter_context(holding_lock(job.out, world.rank))
            try:
                _train(job, world)
            except (Left, Stopped):  # by a signal to another learner
                sys.exit(128 + signal.SIGTERM)


def _open(job: Job, world: World, stack: contextlib.ExitStack) -> bool:
    """Lock the folder by learner 0; return whether the training is finished."""
    finished = False
    if world.rank == 0 and not (finished := stack.enter_context(open_training(job.out, job.inputs, world.size))):
        rendezvous_path(job.out).unlink(missing_ok=True)  # file of an earlier attempt
        end_joined(job.out, world.size)
    return world.gather(finished)[0]


def _node_size(distributed: Distributed) -> int:
    """Return the number of learners that are lost together, by the environment."""
    return distributed.node_size(int(os.environ.get("LOCAL_WORLD_SIZE", 1)))


def _train(job: Job, world: World) -> None:
    training = prepare(job, world)
    training.train()
    if world.index == 0:
        training.checkpointer.remove_others(training.state.saved)  # a run killed after its last one has not
        summary = {**_summary(training), **job.finish(training.state)}
        write_text(job.out / FINAL, json.dumps(summary, indent=1) + "\n")
        rendezvous_path(job.out).unlink(missing_ok=True)


def _summary(training: Training) -> dict[str, Any]:
    from asrtool.train.checkpoints.checkpoint import best_first

    state, members = training.state, training.world.members
    losses = members.losses.values() if members else ()
    dev_losses = [entry.dev_loss for entry in state.saved if entry.dev_loss is not None]
    known = training.dev_losses.found or [(state.epoch, dev_losses[-1])]
    return {
        "num_steps": state.step,
        "num_epochs": known[-1][0],
        "num_samples": state.samples,
        **training.components.train_set.describe(),
        "seconds": state.seconds,
        "frames_per_s": state.frames / state.seconds,
        "padding_fraction": 1 - state.frames / state.padded_frames,
        "num_parameters": sum(parameter.numel() for parameter in training.components.model.parameters()),
        "dev_loss": known[-1][1],
        "best_dev_loss": best_first(state.saved)[0].dev_loss,
        "best_epoch": best[0] if (best := training.dev_losses.best) else None,
        "stopped_early": known[-1][0] < training.job.optimisation.num_epochs,
        "strategy": training.job.distributed.strategy.name,
        "num_learners": state.num_learners,
        "lost": {str(loss.rank): loss.why for loss in losses},
        "joined": list(members.joined) if members else [],
        "num_threads": state.num_threads,
        "precision": state.precision,
        "device": training.precision.device.type,
        "code": state.code,
        "checkpoints": [dataclasses.asdict(entry) for entry in state.saved],
    }
