"""What the moving average of the weights costs a step: `train.ema_decay`, for the model of the papers.

.venv/bin/python benchmarks/moving_average.py
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch

from asrtool.config_file import load_config
from asrtool.distributed.ema import Ema
from asrtool.models.acoustic import build_model

PAPER = Path(__file__).parents[1] / "recipes" / "swbd" / "conf" / "lstm_paper.toml"
NUM_BINS, NUM_TOKENS, NUM_STEPS = 160, 32_000, 40


def main() -> None:
    torch.set_num_threads(1)
    model = build_model(load_config([PAPER]).model, NUM_BINS, NUM_TOKENS)
    ema = Ema(model, 0.999)
    seconds = []
    for _ in range(NUM_STEPS):
        begin = time.thread_time()
        ema.update()
        seconds.append(time.thread_time() - begin)
    num_weights = sum(parameter.numel() for parameter in model.parameters())
    print(f"{num_weights:,} weights: {1000 * statistics.median(seconds):.0f} ms of CPU time a step")


if __name__ == "__main__":
    main()
