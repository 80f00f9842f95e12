"""Measure the loss on dev of each strategy by global batch, 1x to 32x.

    benchmarks/bench.py limits FEATURES TOKENIZER RESULTS.jsonl [--seeds 1,2,3] [--learners 1 4 16 64]

A cell is a strategy, a number of learners and a global batch. Each is trained with several rates and seeds; its loss is
the one after the last epoch at the rate of the lowest mean over seeds. One learner is `single`. Learners are virtual,
in lock-step (asrtool.predict.virtual). A cell needs an utterance in each learner's part of the batch. A finished
training is a line of RESULTS.jsonl, and is kept; `--table` only prints the table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from asrtool.predict.simulate.events import Event
from asrtool.predict.simulate.scenario import load_scenario
from asrtool.predict.virtual.events import epoch_sizes, follow_simulation
from asrtool.predict.virtual.learners import Diverged, Evaluated, VirtualLearners
from asrtool.settings.config import Config
from asrtool.settings.toml_files import load_config
from asrtool.train.inputs import Inputs
from asrtool.train.job import Job
from asrtool.train.train import build_components

STRATEGIES = ("allreduce", "adpsgd-fixed", "adpsgd-random", "adpsgd-pairs", "adpsgd-d1", "bmuf")
DIVERGED = 3.0  # times the lowest loss on dev: it is not reached again in time
CLOSE = 1.05  # of the loss of one learner
SETTINGS = (
    "specaugment.num_time_masks=0",
    "specaugment.num_freq_masks=0",
    "model.lstm.dropout=0",
    "train.optimizer=sgd",
    "train.sgd.weight_decay=0",
    "train.schedule=halving",
    "train.halving.warmup_fraction=0.25",
    "train.halving.hold_fraction=0.25",
    "distributed.bmuf.block_steps=4",
)
Trained = dict[str, Any]  # a line of the results


def main() -> None:
    parser = make_parser(__doc__)
    parser.set_defaults(
        strategies=",".join(STRATEGIES),
        scales="1,2,4,8,16,32",
        reference_batch_s=26.0,
        rates="0.05,0.1,0.2,0.4",
        epochs=8,
    )
    parser.add_argument(
        "--least-batch-s", type=float, default=6.5, help="of a learner: it has to hold the longest utterance"
    )
    parser.add_argument("--learners", type=int, nargs="+", default=[4])
    options = parser.parse_args()
    print_table(finish(options, cells(options), lambda cell, _: train(cell, options)), options)


def make_parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--strategies")
    parser.add_argument("--scales")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--reference-batch-s", type=float, help="of all learners together, at 1x")
    parser.add_argument("--rates", help="learning rates, the same for every batch")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--table", action="store_true", help="print the table of what is finished")
    return parser


def finish(
    options: argparse.Namespace, wanted: Iterable[Trained], train: Callable[[Trained, list[Trained]], Trained]
) -> list[Trained]:
    """Train the cells that are not in the results; return all results."""
    torch.set_num_threads(1)
    finished = read(options.results)
    for cell in () if options.table else wanted:
        if not any(cell.items() <= trained.items() for trained in finished):
            finished.append(train(cell, finished))
            write(options.results, finished[-1])
            print(json.dumps(finished[-1]), flush=True)
    return finished


def cells(options: argparse.Namespace) -> Iterator[Trained]:
    """Yield the trainings seed by seed: finished ones soon make a whole table."""
    names, scales = options.strategies.split(","), list(map(int, options.scales.split(",")))
    seeds, rates = map(int, options.seeds.split(",")), list(map(float, options.rates.split(",")))
    for seed, scale, rate in itertools.product(seeds, scales, rates):
        cell = question(options) | {"seed": seed, "scale": scale, "rate": rate}
        if scale == 1 or 1 in options.learners:
            yield cell | {"strategy": "single"}
        for num_learners, name in itertools.product(options.learners, names):
            if num_learners > 1 and options.reference_batch_s * scale / num_learners >= options.least_batch_s:
                yield cell | {"strategy": name, "learners": num_learners}


def question(options: argparse.Namespace) -> Trained:
    """Return the settings that all trainings of a table share."""
    names = ("reference_batch_s", "epochs", "layers", "hidden")
    return {"features": str(options.features), **{name: getattr(options, name) for name in names}}


def train(cell: Trained, options: argparse.Namespace) -> Trained:
    num_learners = cell.get("learners", 1)
    begin = time.process_time()
    config = config_of(cell, num_learners)
    job = Job(
        out=options.results.parent,
        inputs=Inputs({}),
        optimisation=config.train,
        distributed=config.distributed,
        build=lambda num: build_components(options.features, options.tokenizer, config, num),
    )
    torch.manual_seed(cell["seed"])
    losses = list(losses_of(VirtualLearners(job, job.build(num_learners), num_learners)))
    return cell | {"losses": losses, "cpu_s": round(time.process_time() - begin, 1)}


def losses_of(learners: VirtualLearners) -> Iterator[float]:
    """Yield the loss on dev of the mean weights after each epoch, until it diverges."""
    distributed, settings = learners.job.distributed, learners.job.optimisation
    num_learners, events = len(learners.epochs), list[Event]()
    sizes = epoch_sizes(learners.step_plan.plan, settings.num_epochs)
    round_size = learners.rule.assignment_rule.round_size(num_learners)
    equal = load_scenario([], [f"job.seed={settings.seed}", "network.learners_per_node=0"])
    follow_simulation(equal, distributed.strategy, num_learners, sizes, round_size, events.append)
    lowest = math.inf
    try:
        for found in learners.follow(events):
            if isinstance(found, Evaluated):
                loss = found.losses.means()["loss"]
                lowest = min(lowest, loss)
                if not loss < DIVERGED * lowest:
                    return
                yield loss
    except Diverged:
        return


def config_of(cell: Trained, num_learners: int) -> Config:
    own = (
        f"model.lstm.num_layers={cell['layers']}",
        f"model.lstm.hidden_size={cell['hidden']}",
        f"train.seed={cell['seed']}",
        f"train.num_epochs={cell['epochs']}",
        f"train.peak_lr={cell['rate']}",
        f"train.batch_s={cell['reference_batch_s'] * cell['scale'] / num_learners}",
        f"distributed.strategy={cell['strategy']}",
        f"distributed.num_learners={num_learners}",
    )
    return load_config([], (*SETTINGS, *own))


def read(results: Path) -> list[Trained]:
    """The finished trainings; a line that a kill cut off is not one."""
    found = []
    for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def write(results: Path, trained: Trained) -> None:
    """Add a line, also behind one that was cut off."""
    with results.open("ab+") as file:
        file.seek(max(0, file.tell() - 1))
        begin = b"" if file.read() in (b"", b"\n") else b"\n"
        file.write(begin + json.dumps(trained).encode() + b"\n")


def print_table(finished: Iterable[Trained], options: argparse.Namespace) -> None:
    """Print loss and rate of each cell, and the largest batch CLOSE to `single`.

    Both have the same seeds.
    """
    of_cell: dict[tuple[str, int], list[Trained]] = defaultdict(list)
    for trained in sorted(finished, key=lambda trained: trained.get("learners", 0)):
        name = trained["strategy"]
        if question(options).items() <= trained.items():
            row = name if name == "single" else f"{name}, {trained['learners']}"
            of_cell[row, trained["scale"]].append(trained)
    scales = sorted({scale for _, scale in of_cell})
    print("| strategy, learners |", " | ".join(f"{scale}x" for scale in scales), f"| within {CLOSE - 1:.0%} up to |")
    print("|---" * (len(scales) + 2) + "|")
    for name in dict.fromkeys(name for name, _ in of_cell):
        bests = {scale: best_of(of_cell[name, scale]) for scale in scales if (name, scale) in of_cell}
        texts = [str(bests.get(scale, "")) for scale in scales]
        close = [f"{scale}x" for scale, best in bests.items() if is_close(best, of_cell["single", 1])]
        print(f"| {name} |", " | ".join(texts), f"| {(close or ['none'])[-1]} |")
    print("In brackets: seeds, rates.")


@dataclass(frozen=True)
class Best:
    """Rate of a cell with the lowest mean loss, of the rates with the most seeds."""

    losses: dict[int, float]  # by seed
    rate: float
    num_rates: int

    @property
    def loss(self) -> float:
        return statistics.fmean(self.losses.values())

    def __str__(self) -> str:
        return f"{self.loss:.3f} at {self.rate:g} ({len(self.losses)}, {self.num_rates})"


def best_of(trainings: Iterable[Trained]) -> Best:
    of_rate: dict[float, dict[int, float]] = defaultdict(dict)
    for trained in trainings:
        whole = len(trained["losses"]) == trained["epochs"]
        of_rate[trained["rate"]][trained["seed"]] = trained["losses"][-1] if whole else math.inf
    num_seeds = max(map(len, of_rate.values()))
    most = {rate: losses for rate, losses in of_rate.items() if len(losses) == num_seeds}
    rate = min(most, key=lambda rate: statistics.fmean(most[rate].values()))
    return Best(most[rate], rate, len(most))


def is_close(best: Best, alone: Sequence[Trained]) -> bool:
    """Test if the loss is within CLOSE of one learner's with the same seeds."""
    same = [trained for trained in alone if trained["seed"] in best.losses]
    return bool(same) and best.loss <= CLOSE * best_of(same).loss


if __name__ == "__main__":
    main()
