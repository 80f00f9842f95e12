"""The transducer loss beside warprnnt-numba: what a step takes, in CPU seconds and memory, and whether they agree.

    pip install warprnnt-numba
    python benchmarks/transducer_loss.py

Both are given the outputs of a joint network, (N, T, U + 1, V), and give its gradient; the softmax is part of either.
Each run is a process of its own, so that the peak of its memory is its own; they are interleaved, and medians printed.
Without warprnnt-numba only ours is measured.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import time

import torch

REPEATS = 3
SHAPES = ((8, 150, 30, 200), (8, 300, 60, 200), (8, 150, 30, 500))  # utterances, rows, tokens, outputs
NAMES = ("ours", "warprnnt-numba")


def main() -> None:
    """Print a table, a row a shape and loss."""
    names = [name for name in NAMES if name == "ours" or importlib.util.find_spec("warprnnt_numba")]
    print(f"torch {torch.__version__}, one thread")
    print("   N    T    U    V  loss            value, nats  CPU s  peak MiB above the outputs and their gradient")
    for shape in SHAPES:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(REPEATS):
            for name, runs in found.items():
                command = [sys.executable, __file__, name, *map(str, shape)]
                runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        for name, runs in found.items():
            value, cpu_s, mib = (statistics.median(run[key] for run in runs) for key in ("value", "cpu_s", "mib"))
            print(
                f"{shape[0]:4} {shape[1]:4} {shape[2]:4} {shape[3]:4}  {name:<15} {value:11.3f} {cpu_s:6.2f} {mib:9.0f}"
            )


def measure(name: str, shape: tuple[int, ...]) -> dict[str, float]:
    """Forward and backward, the second time."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    num, rows, tokens, outputs = shape
    logits = torch.randn(num, rows, tokens + 1, outputs, requires_grad=True)
    targets = torch.randint(1, outputs, (num, tokens))
    logits.grad = torch.zeros_like(logits)
    lens, target_lens = torch.full((num,), rows), torch.full((num,), tokens)
    small = slice(1)
    step(name, logits[small, :9, :3], targets[small, :2], lens[small].clamp(max=9), target_lens[small].clamp(max=2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    value = step(name, logits, targets, lens, target_lens)
    cpu_s = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"value": value, "cpu_s": cpu_s, "mib": (peak - before) / 1024}


def step(
    name: str, logits: torch.Tensor, targets: torch.Tensor, lens: torch.Tensor, target_lens: torch.Tensor
) -> float:
    """The loss, after its backward pass."""
    if name == "ours":
        from asrtool.models.objectives.transducer import transducer_loss

        norm = logits.logsumexp(3)  # as asrtool/models/objectives/transducer.py
        wanted = targets[:, None, :, None].expand(-1, logits.shape[1], -1, 1)
        token = logits[:, :, :-1].gather(3, wanted).squeeze(3) - norm[:, :, :-1]
        loss = transducer_loss(logits[..., 0] - norm, token, lens, target_lens, one_a_row=False)
    else:
        from warprnnt_numba import RNNTLossNumba

        loss = RNNTLossNumba(blank=0, reduction="sum")(logits, targets.int(), lens.int(), target_lens.int()).sum()
    loss.backward()
    return float(loss)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], tuple(map(int, sys.argv[2:])))))
    else:
        main()
