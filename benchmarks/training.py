"""Compare utterances a second of `asrtool train` with a bare loop.

    benchmarks/bench.py train [--rounds 3] [--set KEY=VALUE]

Both train two epochs of the demo in EXP with its settings, on one thread, in turns. The bare loop has its
batches in memory and computes forward, backward, clipping and the optimizer, without masks. `steps` counts the command
from the first step of each epoch to the end of its last, with checkpoints and logs between them; `all` adds evaluations
and the last checkpoint.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

import torch
from trainings import Record, asrtool, final, options_of, records

from asrtool.models.precision import choose_precision
from asrtool.settings.toml_files import load_config
from asrtool.train.loop.loss import LossModule
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
    """Return utterances a second of the bare loop."""
    config = load_config([exp / "config/train.toml"], settings)
    components = build_components(exp / "features", exp / "tokenizer", config)
    source = components.train_set
    batches = [source.read(planned) for epoch in range(NUM_EPOCHS) for planned in source.plan(epoch, 0, {})]
    torch.set_num_threads(1)
    precision = choose_precision(config.train.precision)
    task = LossModule(components.model.to(precision.device), precision)
    optimizer = build_optimizer(list(components.model.named_parameters()), config.train)
    begin = time.perf_counter()
    for batch in batches:
        (task(batch) / batch.normaliser).backward()
        torch.nn.utils.clip_grad_norm_(components.model.parameters(), config.train.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return sum(len(batch.ids) for batch in batches) / (time.perf_counter() - begin)


def command_rates(exp: Path, settings: list[str]) -> tuple[float, float]:
    """Return utterances a second of the steps of `asrtool train`, and of all it does."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "train"
        options = ["--config", exp / "config/train.toml", *options_of(settings)]
        asrtool("train", exp / "features", exp / "tokenizer", out, *options)
        by_epoch = itertools.groupby(records(out)[0], key=lambda step: step["epoch"])
        steps_s = sum(span_s(list(steps)) for _, steps in by_epoch)
        trained = final(out)
        return trained["num_samples"] / steps_s, trained["num_samples"] / trained["seconds"]


def span_s(steps: list[Record]) -> float:
    """Return seconds from the begin of the first step to the end of the last."""
    return float(steps[-1]["begin"] + steps[-1]["compute_s"] - steps[0]["begin"])


if __name__ == "__main__":
    main()
