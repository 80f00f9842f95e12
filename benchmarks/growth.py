"""Measure how the cost of each stage grows with the corpus.

    benchmarks/bench.py growth [--hours 1 4 16] [--set KEY=VALUE]

Runs the recipe swbd on mini corpora of these hours of training speech, with test sets in proportion and one epoch at
one speed. Each stage is a command. Exponents are the slopes of CPU time and peak memory between the last two sizes in
logarithms: 1 is linear. Peak memory is the largest process.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import tempfile
from pathlib import Path

from trainings import Run, options_of, run

TEST_MINUTES_PER_HOUR = 8
SETTINGS = ("features.speeds=1.0", "train.num_epochs=1", "train.batch_s=60", "average.num=1")
STAGES = (
    "corpus", "prepare", "features", "tokenizer", "lang", "lm", "graph", "train", "average", "decode", "score",
    "report",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, nargs="+", default=[1.0, 4.0, 16.0])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sizes = [stages(Path(folder) / f"{hours:g}", hours, options.set) for hours in options.hours]
    hours = [f"{size:g} h" for size in options.hours]
    print(f"| stage | CPU s of {', '.join(hours)} | exponent | peak GiB | exponent |\n|---|---|---|---|---|")
    for name, runs in zip(STAGES, zip(*sizes, strict=True), strict=True):
        cells = [name]
        for values in ([one.cpu_s for one in runs], [one.peak_gib for one in runs]):
            slopes = [
                math.log(now / before) / math.log(size / smaller)
                for (before, now), (smaller, size) in zip(
                    itertools.pairwise(values), itertools.pairwise(options.hours), strict=True
                )
            ]
            cells += [", ".join(f"{value:.3g}" for value in values), f"{slopes[-1]:.2f}"]
        print(f"| {' | '.join(cells)} |")


def stages(work: Path, hours: float, settings: list[str]) -> list[Run]:
    """Run all stages for so many hours of training speech."""
    work.mkdir(parents=True)
    sizes = (f"mini.train_hours={hours}", f"mini.test_minutes={TEST_MINUTES_PER_HOUR * hours}")
    line = [Path(sys.executable).with_name("asrtool"), "run", "--recipe", "swbd", "--work", work / "exp"]
    line += options_of([*SETTINGS, *sizes, *settings])
    return [run([*line, "--stage", name, "--stop-stage", name], work) for name in STAGES]


if __name__ == "__main__":
    main()
