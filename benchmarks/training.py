"""Utterances a second of `asrtool train` against a bare loop over the same batches, which lie in memory.

    .venv/bin/python benchmarks/training.py EXP [--rounds 3] [--set KEY=VALUE]

Both train two epochs on what a demo leaves in EXP, by the settings of its training, on one thread, and take turns. The
bare loop draws no masks, writes nothing and evaluates nothing: forward, backward, clipping and the optimizer. `steps`
counts the command from the first step of each epoch to the end of its last one, with what is saved and logged between
them; `all` as well evaluations, and the checkpoint at the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from asrtool.models.precision import choose_precision
from asrtool.settings.toml_files import load_config
from asrtool.train.loop.loss import Task
from asrtool.train.optimisation.optimizer import build_optimizer
from asrtool.train.train import build_components

NUM_EPOCHS = 2
SETTINGS = (f"train.num_epochs={NUM_EPOCHS}", "train.num_threads=1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exp", type=Path, metavar="EXP", help="a work folder with features, a tokenizer and config/")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    settings = [*SETTINGS, *options.settings]
    ratios = []
    for _ in range(options.rounds):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            bare = pool.apply(bare_rate, (options.exp, settings))
        steps, everything = command_rates(options.exp, settings)
        ratios.append((steps / bare, everything / bare))
        print(
            f"bare {bare:.2f} utterances/s; the command: steps {steps / bare:.3f}, all {everything / bare:.3f}",
            flush=True,
        )
    medians = map(statistics.median, zip(*ratios, strict=True))
    print("median: steps {:.3f}, all {:.3f} of the bare loop".format(*medians))


def bare_rate(exp: Path, settings: list[str]) -> float:
    """Of the bare loop."""
    config = load_config([exp / "config/train.toml"], settings)
    components = build_components(exp / "features", exp / "tokenizer", config)
    source = components.train_set
    batches = [source.read(planned) for epoch in range(NUM_EPOCHS) for planned in source.plan(epoch, 0, {})]
    torch.set_num_threads(1)
    precision = choose_precision(config.train.precision)
    task = Task(components.model.to(precision.device), precision)
    optimizer = build_optimizer(list(components.model.named_parameters()), config.train)
    begin = time.perf_counter()
    for batch in batches:
        (task(batch) / batch.normaliser).backward()
        torch.nn.utils.clip_grad_norm_(components.model.parameters(), config.train.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return sum(len(batch.ids) for batch in batches) / (time.perf_counter() - begin)


def command_rates(exp: Path, settings: list[str]) -> tuple[float, float]:
    """Of `asrtool train`: between the first step and the last one, and with all that the loop does."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "train"
        command = [Path(sys.executable).with_name("asrtool"), "train", exp / "features", exp / "tokenizer", out]
        command += ["--config", exp / "config/train.toml", *(word for item in settings for word in ("--set", item))]
        trained = subprocess.run(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        if trained.returncode:
            raise SystemExit(trained.stderr)
        steps = list(map(json.loads, (out / "learners/0.jsonl").read_text().splitlines()))
        final = json.loads((out / "train.json").read_text())
        spans_s = [span_s(list(of_epoch)) for _, of_epoch in itertools.groupby(steps, key=lambda step: step["epoch"])]
        return final["num_samples"] / sum(spans_s), final["num_samples"] / final["seconds"]


def span_s(steps: list[dict[str, float]]) -> float:
    """From the begin of the first to the end of the last."""
    return steps[-1]["begin"] + steps[-1]["compute_s"] - steps[0]["begin"]


if __name__ == "__main__":
    main()
