"""A learner on a GPU that gossips on the host with one on the CPU: what gossip takes of its step.

    .venv/bin/python benchmarks/gpu.py [--seconds 20] [--device cuda] [--layers 6] [--hidden 512 1024]

Two learners by `adpsgd-fixed`, each at its own pace, on the same made-up batch: an acoustic model of the recipe's kind,
CTC loss, SGD. Gossip is the fraction of the time that the computing stream of the GPU, or the computing thread, spends
on it; skipped is the fraction of the steps that began no exchange, since copies or the exchange before were still under
way. With `--device cpu` both are on the CPU, where nothing is copied.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asrtool.distributed.learner import learner
from asrtool.distributed.replica import LocalReplica
from asrtool.distributed.strategy import StepCost, StrategyContext
from asrtool.distributed.update import NamedParameters
from asrtool.distributed.world import World
from asrtool.models.acoustic import build_model
from asrtool.models.precision import Precision
from asrtool.models.settings import Model
from asrtool.settings import Choice
from asrtool.train.loss import Task

NUM_UTTERANCES, NUM_FRAMES, NUM_FEATURES, NUM_TOKENS, LEN_TEXT = 16, 500, 40, 500, 20
WARMUP_STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--device", default="cuda", help="of the first learner")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 1024], help="cells of a layer and direction")
    options = parser.parse_args()
    if "RANK" in os.environ:
        if os.environ["RANK"] == "1":  # so that both are connected by gloo, which takes a GPU and a CPU together
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        measure_all(options)
    elif options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("error: torch sees no GPU; run this where it sees one, or see with --device cpu that the rest works")
    else:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *sys.argv]
        environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 2))}
        sys.exit(subprocess.run(command, env=environment).returncode)


def measure_all(options: argparse.Namespace) -> None:
    with learner() as world:
        if world.rank == 0:
            print("parameters messages device  steps ms/step  gossip skipped")
        for hidden_size in options.hidden:
            for message_type in ("fp32", "bf16"):
                settings = Model(Choice.of("encoder", "lstm", num_layers=options.layers, hidden_size=hidden_size))
                rows = world.gather(measure(settings, message_type, options, world))
                if world.rank == 0:
                    print(*rows, sep="\n", flush=True)


def measure(settings: Model, message_type: str, options: argparse.Namespace, world: World) -> str:
    """A row of the table: steps of this learner, the fraction of them that gossip took, and that of those skipped."""
    device = torch.device(options.device if world.rank == 0 else "cpu")
    torch.manual_seed(1)
    model = build_model(settings, NUM_FEATURES, NUM_TOKENS).to(device)
    task = Task(model, Precision(device, "fp32"))
    chosen = Choice.of("strategy", "adpsgd-fixed", message_type=message_type)
    strategy = chosen.load()(StrategyContext(task, model, make_optimizer, 5.0, chosen.settings, 1, world))
    assert isinstance(strategy, LocalReplica)
    strategy.start()
    batch = made_up_batch()
    for _ in range(WARMUP_STEPS):
        train(strategy, batch)
    strategy.synchronise()
    gossip_s, num_skipped, num_steps, begin = 0.0, 0, 0, time.perf_counter()
    while time.perf_counter() - begin < options.seconds:
        cost = train(strategy, batch)
        gossip_s += cost.comm_s
        num_skipped += cost.num_skipped
        num_steps += 1
    seconds = time.perf_counter() - begin
    strategy.synchronise()
    strategy.close()
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    row = f"{millions:8.1f} M {message_type:>8} {device.type:>6} {num_steps:6d} {1000 * seconds / num_steps:7.1f}"
    return f"{row} {gossip_s / seconds:7.1%} {num_skipped / num_steps:7.1%}"


def make_optimizer(named_parameters: NamedParameters) -> torch.optim.Optimizer:
    return torch.optim.SGD([parameter for _, parameter in named_parameters], lr=1e-4, momentum=0.9)


def made_up_batch() -> Any:
    """What a Task reads of a batch: random features and texts of equal lengths."""
    rng = np.random.default_rng(1)
    return SimpleNamespace(
        inputs_NT=rng.standard_normal((NUM_UTTERANCES, NUM_FRAMES, NUM_FEATURES), dtype=np.float32),
        input_lens_N=np.full(NUM_UTTERANCES, NUM_FRAMES),
        targets_NU=torch.from_numpy(rng.integers(1, NUM_TOKENS, (NUM_UTTERANCES, LEN_TEXT))),
        target_lens_N=torch.full((NUM_UTTERANCES,), LEN_TEXT),
    )


def train(strategy: LocalReplica, batch: Any) -> StepCost:
    """One step; what communication cost in it."""
    loss: Tensor = strategy.task(batch)
    (loss / (NUM_UTTERANCES * LEN_TEXT)).backward()
    _, cost = strategy.step()
    return cost


if __name__ == "__main__":
    main()
