"""Contestants of `benchmarks/dist.py`: our strategies, and other packages.

Packages are set up as their documentation does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from asrtool.distributed.strategies.strategy import Strategy, StrategyContext
from asrtool.distributed.strategies.update import NamedParameters
from asrtool.distributed.work.work_queue import AssignmentRule
from asrtool.distributed.world import World
from asrtool.settings import registry
from asrtool.settings.schema import Choice
from asrtool.train.loop.loss import EmulatedCompute

NUM_LAYERS = 8
NODE_SIZE = 2  # learners of a super-learner
CLIP_NORM = 1e9  # never reached: all clip, so that all do the same work
WARMUP_STEPS = 8  # of post-local SGD, before it averages periodically
sgd = functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9)


def make_optimizer(named_parameters: NamedParameters) -> torch.optim.Optimizer:
    return sgd([parameter for _, parameter in named_parameters])


def build_task(num_parameters: int, compute_ms: float) -> EmulatedCompute:
    """Build square layers with about `num_parameters`, and emulated compute."""
    width = round(math.sqrt(num_parameters / NUM_LAYERS))
    torch.manual_seed(1)
    layers = [nn.Linear(width, width) for _ in range(NUM_LAYERS)]
    return EmulatedCompute(nn.Sequential(*layers), compute_ms)


class Contestant:
    """Training of `task` in one process of a launch; its `module` computes the loss.

    `assignment_rule` says how many learners step together. A step trains a batch of rank + 1 tokens, so learners
    without communication diverge.
    """

    optimizer: Any = None  # None if the module updates the weights during backward
    period = 1  # steps after which those who step together have waited for each other

    def __init__(self, task: EmulatedCompute, assignment_rule: AssignmentRule, module: nn.Module, world: World) -> None:
        self.task = task
        self.assignment_rule = assignment_rule
        self.module = module
        self.batch = SimpleNamespace(normaliser=world.rank + 1)

    def step(self) -> None:
        """Compute, communicate, and update the weights."""
        loss = self.module(self.batch)
        loss.backward()
        loss.item()
        self.update()

    def update(self) -> None:
        """Update the weights from the gradients of a batch."""
        if self.optimizer:
            nn.utils.clip_grad_norm_(self.task.parameters(), CLIP_NORM)
            self.optimizer.step()
        self.module.zero_grad()

    def rest(self) -> None:
        """End all exchanges in progress; all learners call this after the same round."""

    def close(self) -> None:
        """End threads and processes."""


class Ours(Contestant):
    """Strategy of asrtool, built as the training loop does; `none` is `single`."""

    def __init__(self, name: str, task: EmulatedCompute, world: World) -> None:
        alone = name == "none"
        values: dict[str, Any] = {"node_size": NODE_SIZE} if name == "h-adpsgd" else {}
        chosen = Choice.of("strategy", "single" if alone else name, **values)
        self.strategy: Strategy = chosen.load()(
            StrategyContext(
                task=task,
                model=task.model,
                make_optimizer=make_optimizer,
                clip_norm=CLIP_NORM,
                settings=chosen.settings,
                seed=1,
                world=World() if alone else world,
            )
        )
        super().__init__(task, self.strategy.assignment_rule, self.strategy.task, world)
        self.period = chosen.settings.block_steps if name == "bmuf" else 2 if name == "adpsgd-d1" else 1
        self.strategy.start()
        self.strategy.synchronise()

    def update(self) -> None:
        self.strategy.step()

    def rest(self) -> None:
        self.strategy.synchronise()

    def close(self) -> None:
        self.strategy.close()


def torch_ddp(task: EmulatedCompute, world: World) -> Contestant:
    ddp = Contestant(task, AssignmentRule(lockstep=True), DistributedDataParallel(task), world)
    ddp.optimizer = sgd(task.parameters())
    return ddp


def post_local_sgd(task: EmulatedCompute, world: World) -> Contestant:
    """PostLocalSGD, without its default averages of gradients after the warm-up."""
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    period = 4
    module = DistributedDataParallel(task)
    state = hook.PostLocalSGDState(None, None, start_localSGD_iter=WARMUP_STEPS, post_local_gradient_allreduce=False)
    module.register_comm_hook(state, hook.post_localSGD_hook)
    ddp = Contestant(task, AssignmentRule(lockstep=True), module, world)
    ddp.period = period
    averager = PeriodicModelAverager(period=period, warmup_steps=WARMUP_STEPS)
    ddp.optimizer = PostLocalSGDOptimizer(sgd(module.parameters()), averager)
    return ddp


def decent_dp(topology: str, task: EmulatedCompute, world: World) -> Contestant:
    from decent_dp.ddp import DecentralizedDataParallel
    from loguru import logger

    logger.remove()

    module = DecentralizedDataParallel(task, optim_fn=make_optimizer, topology=topology, grad_clip_norm=CLIP_NORM)
    return Contestant(task, AssignmentRule(lockstep=True), module, world)


class Hivemind(Contestant):
    """Local updates, with all-reduce of the weights in the background.

    Batches are as in its example: 4 samples, and an average every 4096 of all learners. `matchmaking_time` is the least
    in its guide for a local network; a step waits so long for every average.
    """

    MATCHMAKING_S = 3.0

    def __init__(self, task: EmulatedCompute, world: World) -> None:
        import hivemind

        super().__init__(task, AssignmentRule(), task, world)
        first = hivemind.DHT(start=True) if world.rank == 0 else None
        addresses = world.gather([str(address) for address in first.get_visible_maddrs()] if first else [])[0]
        self.table = first or hivemind.DHT(initial_peers=addresses, start=True)
        self.optimizer = hivemind.Optimizer(
            dht=self.table,
            run_id="bench",
            batch_size_per_step=4,
            target_batch_size=4096,
            params=task.parameters(),
            optimizer=sgd,
            use_local_updates=True,
            matchmaking_time=self.MATCHMAKING_S,
            averaging_timeout=4 * self.MATCHMAKING_S,
            averager_opts={"request_timeout": self.MATCHMAKING_S / 3},
        )

    def close(self) -> None:
        self.optimizer.shutdown()
        self.table.shutdown()


PEERS: dict[str, Callable[[EmulatedCompute, World], Contestant]] = {
    "torch DDP": torch_ddp,
    "torch PostLocalSGD": post_local_sgd,
    "decent-dp ring": functools.partial(decent_dp, "ring"),
    "decent-dp one-peer-exp": functools.partial(decent_dp, "one-peer-exp"),
    "hivemind": Hivemind,
}
OURS = ("none", *(name for name in registry.names("strategy") if name not in ("single", "adpsgd")))


def build_contestant(name: str, num_parameters: int, compute_ms: float, world: World) -> Contestant:
    """Build the contestant `name`, one of PEERS or OURS."""
    task = build_task(num_parameters, compute_ms)
    return PEERS[name](task, world) if name in PEERS else Ours(name, task, world)
