"""Measure gradients, speed and memory of the paper's model, and gossip, on a GPU.

    benchmarks/bench.py gpu [gradients] [speed] [gossip] [--seconds 20] [--device cuda]

gradients: gradients of one batch in each number format, against fp32 on the CPU.
speed: peak memory, frames a second and model FLOP utilisation of a training step by batch size and number format. The
    utilisation is the share of the rate of a large bf16 matrix product, which is measured first.
gossip: two learners by adpsgd-fixed on the same random batch, the first on the GPU, the second on the CPU. Gossip is
    its share of the time of the computing stream or thread; skipped is the share of steps without an exchange, because
    copies or the previous exchange had not finished.

The models are `ctc`, --config swb2000 --config lstm_paper, and `hybrid`, with --config hybrid as well. `--device cpu`
uses small models and batches.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from asrtool.distributed.launch.learner import learner
from asrtool.distributed.strategies.replica import LocalReplica
from asrtool.distributed.strategies.strategy import StepCost, StrategyContext
from asrtool.distributed.strategies.update import NamedParameters
from asrtool.distributed.world import World
from asrtool.models.acoustic import AcousticModel, build_model
from asrtool.models.objectives.decision_tree import Tree
from asrtool.models.precision import Precision
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.train.loop.loss import LossModule

CONF = Path(__file__).resolve().parents[1] / "recipes" / "swbd" / "conf"
SYSTEMS = {"ctc": ("swb2000", "lstm_paper"), "hybrid": ("swb2000", "hybrid", "lstm_paper")}
SMALL = ("model.lstm.num_layers=2", "model.lstm.hidden_size=32", "tree.num_leaves=500")  # for --device cpu
NUM_TOKENS = {"ctc": 1000, "hybrid": 42}
LENGTH_S = {"ctc": 5.0, "hybrid": 0.21}  # of an utterance, or of a piece of one
BATCHES_S = (120, 1200, 2400)
NUM_UTTERANCES, NUM_FRAMES, NUM_FEATURES, LEN_TEXT = 16, 500, 40, 20  # of gossip
WARMUP_STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[[], "gradients", "speed", "gossip"], help="default: all")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement of gossip")
    parser.add_argument("--device", default="cuda", help="of the first learner")
    options = parser.parse_args()
    what = options.what or ["gradients", "speed", "gossip"]
    if "RANK" in os.environ:
        if os.environ["RANK"] == "1":  # gloo connects a GPU and a CPU, NCCL does not
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        measure_gossip(options)
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("error: torch sees no GPU; run this on a machine with one, or try it with --device cpu")
    if "gradients" in what:
        measure_gradients(options.device)
    if "speed" in what:
        measure_speed(options.device)
    if "gossip" in what:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *sys.argv]
        environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 2))}
        sys.exit(subprocess.run(command, env=environment).returncode)


def build(system: str, device: str) -> tuple[AcousticModel, int]:
    """Build the model of `system` on the CPU; return it with its number of inputs.

    Its weights are the same each time.
    """
    overrides = SMALL if device == "cpu" else ()
    config = load_config([CONF / f"{name}.toml" for name in SYSTEMS[system]], overrides)
    torch.manual_seed(1)
    tree, num_inputs = None, config.features.num_features
    if system == "hybrid":
        leaves_VV2 = np.ones((NUM_TOKENS[system], NUM_TOKENS[system], 2), dtype=np.int32)
        tree = Tree(leaves_VV2, np.ones(config.tree.num_leaves, dtype=np.int64))
    model = build_model(config.model, num_inputs, NUM_TOKENS[system], tree)
    return model, num_inputs


def batch_of(system: str, seconds: float, model: AcousticModel, num_inputs: int) -> Any:
    """Generate utterances of equal length, as a LossModule reads them."""
    num_frames = round(100 * LENGTH_S[system])
    num_utterances = max(1, round(seconds / LENGTH_S[system]))
    output = model.objective.output
    assert isinstance(output, nn.Linear)
    len_text = num_frames if system == "hybrid" else num_frames // 25
    return made_up_batch(num_utterances, num_frames, num_inputs, output.out_features, len_text)


def measure_gradients(device: str) -> None:
    """Print how far the gradients of a batch are from those in fp32 on the CPU."""
    print("system format device        loss  |g-g32|/|g32|  cosine  worst parameter")
    for system in SYSTEMS:
        model, num_inputs = build(system, device)
        batch = batch_of(system, BATCHES_S[0] if device == "cuda" else 6, model, num_inputs)
        expected: dict[str, Tensor] = {}
        for place, name in [("cpu", "fp32"), *((device, name) for name in formats(device))]:
            loss, found = gradients(model.to(place), batch, Precision(torch.device(place), name))
            expected = expected or found
            worst, key = max((distance(found[key], expected[key]), key) for key in expected)
            one, other = (torch.cat([part[key].flatten() for key in expected]) for part in (found, expected))
            cosine = float(nn.functional.cosine_similarity(one, other, dim=0))
            row = f"{system:>6} {name:>6} {place:>6} {loss:11.2f} {distance(one, other):14.1e} {cosine:7.5f}"
            print(f"{row}  {worst:.1e} {key}", flush=True)


def gradients(model: AcousticModel, batch: Any, precision: Precision) -> tuple[float, dict[str, Tensor]]:
    """The loss, and the gradients in fp64 on the CPU by the names of the parameters."""
    model.train()
    for module in model.modules():  # masks of dropout differ between devices
        if isinstance(module, nn.Dropout):
            module.eval()
    loss = LossModule(model, precision)(batch)
    loss.backward()
    named = model.named_parameters()
    found = {name: weight.grad.double().cpu() for name, weight in named if weight.grad is not None}
    model.zero_grad(set_to_none=True)
    return loss.item(), found


def distance(one: Tensor, other: Tensor) -> float:
    """Return the norm of the difference as a share of the norm of `other`."""
    return float((one - other).norm() / other.norm().clamp(min=1e-30))


def formats(device: str) -> list[str]:
    """The number formats of training; oneDNN has no LSTM in fp16 on a CPU."""
    return ["fp32", "bf16", "fp16"] if device == "cuda" else ["fp32", "bf16"]


def measure_speed(device: str) -> None:
    """Print memory and speed of steps: forward, backward, clipping, SGD with momentum."""
    peak = product_rate(device)
    print(f"a matrix product in bf16: {peak / 1e12:.0f} TFLOP/s")
    print("system format batch_s peak GiB ms/step   frames/s TFLOP/s utilisation")
    for system in SYSTEMS:
        model, num_inputs = build(system, device)
        model = model.to(device).train()
        optimizer = make_optimizer(list(model.named_parameters()))
        num_weights = sum(weight.numel() for weight in model.parameters() if weight.ndim > 1)
        for name in formats(device):
            task = LossModule(model, Precision(torch.device(device), name))
            for seconds in BATCHES_S if device == "cuda" else (6,):
                batch = batch_of(system, seconds, model, num_inputs)
                num_frames = batch.inputs_NT.shape[0] * batch.inputs_NT.shape[1]
                try:
                    step_s, peak_bytes = time_step(task, optimizer, batch, device)
                except torch.cuda.OutOfMemoryError:
                    print(f"{system:>6} {name:>6} {seconds:7d} out of memory", flush=True)
                    torch.cuda.empty_cache()
                    continue
                rate = 6 * num_weights * num_frames / step_s  # each weight once a frame, in three products
                row = f"{system:>6} {name:>6} {seconds:7d} {peak_bytes / 2**30:8.2f} {1000 * step_s:7.1f}"
                print(f"{row} {num_frames / step_s:10.0f} {rate / 1e12:7.1f} {rate / peak:11.1%}", flush=True)


def product_rate(device: str) -> float:
    """Floating-point operations a second of a large matrix product in bf16."""
    size = 8192 if device == "cuda" else 512
    one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(WARMUP_STEPS):
        one @ other
    begin = now(device)
    for _ in range(10):
        one @ other
    return 10 * 2 * size**3 / (now(device) - begin)


def time_step(task: LossModule, optimizer: torch.optim.Optimizer, batch: Any, device: str) -> tuple[float, int]:
    """Median seconds of a step, and the largest number of bytes of the GPU in use."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(WARMUP_STEPS + 5):
        begin = now(device)
        optimizer.zero_grad(set_to_none=True)
        (task(batch) / batch.inputs_NT.shape[0]).backward()
        nn.utils.clip_grad_norm_(task.model.parameters(), 5.0)
        optimizer.step()
        times.append(now(device) - begin)
    peak_bytes = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return float(np.median(times[WARMUP_STEPS:])), peak_bytes


def now(device: str) -> float:
    """Seconds, after the GPU has finished."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure_gossip(options: argparse.Namespace) -> None:
    with learner() as world:
        if world.rank == 0:
            print("parameters messages device  steps ms/step  gossip skipped")
        sizes = ((6, 512), (6, 1024)) if options.device == "cuda" else ((2, 64),)
        for num_layers, hidden_size in sizes:
            for message_type in ("fp32", "bf16"):
                settings = Model(Choice.of("encoder", "lstm", num_layers=num_layers, hidden_size=hidden_size))
                rows = world.gather(measure(settings, message_type, options, world))
                if world.rank == 0:
                    print(*rows, sep="\n", flush=True)


def measure(settings: Model, message_type: str, options: argparse.Namespace, world: World) -> str:
    """Train with gossip; return a row of the table for this learner."""
    device = torch.device(options.device if world.rank == 0 else "cpu")
    torch.manual_seed(1)
    model = build_model(settings, NUM_FEATURES, NUM_TOKENS["ctc"]).to(device)
    task = LossModule(model, Precision(device, "fp32"))
    chosen = Choice.of("strategy", "adpsgd-fixed", message_type=message_type)
    strategy = chosen.load()(StrategyContext(task, model, make_optimizer, 5.0, chosen.settings, 1, world))
    assert isinstance(strategy, LocalReplica)
    strategy.start()
    batch = made_up_batch(NUM_UTTERANCES, NUM_FRAMES, NUM_FEATURES, NUM_TOKENS["ctc"], LEN_TEXT)
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


def made_up_batch(num_utterances: int, num_frames: int, num_features: int, num_classes: int, len_text: int) -> Any:
    """Generate features and targets, as a LossModule reads them."""
    rng = np.random.default_rng(1)
    targets_NU = torch.from_numpy(rng.integers(1, num_classes, (num_utterances, len_text)))
    return SimpleNamespace(
        inputs_NT=rng.standard_normal((num_utterances, num_frames, num_features), dtype=np.float32),
        input_lens_N=np.full(num_utterances, num_frames),
        targets_NU=targets_NU,
        target_lens_N=torch.full((num_utterances,), len_text),
        others_NT=None,
    )


def train(strategy: LocalReplica, batch: Any) -> StepCost:
    """Make one step; return its cost of communication."""
    loss: Tensor = strategy.task(batch)
    (loss / (NUM_UTTERANCES * LEN_TEXT)).backward()
    _, cost = strategy.step()
    return cost


if __name__ == "__main__":
    main()
