"""Run a benchmark: `benchmarks/bench.py CASE [OPTION ...]`; no CASE lists all.

Each case is a module of this folder with its own `--help`. README.md has the figures.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

DEMO = "recipes/swbd/exp"
# case -> module, first arguments, what it measures and how long it takes on two cores
CASES = {
    "peers": (
        "peers",
        (DEMO,),
        "asrtool and other tools on the same work; after `make demo`; needs cmake, boost, sctk; 40 min",
    ),
    "evidence": ("evidence", (), "claims of the papers, docs/evidence.md; after `make demo`; 3 h"),
    "sim": ("sim", (DEMO,), "throughput of every strategy, predicted and measured; after `make demo`; 45 min"),
    "dist": ("dist", (), "strategies beside other packages; needs the extra `bench`; 1 h"),
    "decode": ("decode", (DEMO,), "real-time factors of searches; after `make demo`; 5 min"),
    "scale": ("scale", (), "stages before training at the size of Fisher; 15 min, 10 GB"),
    "accuracy": ("accuracy", (), "error rates of recipes as they are, by three seeds; 6 h"),
    "growth": ("growth", (), "how the cost of each stage grows with the corpus; 10 min, 4 GB"),
    "index": ("start", (), "start of a training on 7 million utterances; 10 min, 3 GB"),
    "limits": ("convergence", (), "loss by strategy and batch, virtual learners; hours"),
    "noise": ("noise_batches", (), "gradient noise and sharpness by strategy; hours"),
    "mix": ("mix", ("recipes/swbd/exp-mix",), "error rates in two domains by data.mix; 15 min a seed"),
    "restarts": ("restarts", (), "batches trained once under random kills; 4 min a strategy"),
    "gpu": ("gpu", (), "gradients, speed and gossip on a GPU; 10 min"),
    "same-bits": ("same_bits", (), "equal bits of small systems in two checkouts; 15 min a checkout"),
}


def main() -> None:
    if sys.argv[1:2] == [] or sys.argv[1] not in CASES:
        print(__doc__, *(f"{name:10} {about}" for name, (_, _, about) in CASES.items()), sep="\n")
        sys.exit(sys.argv[1:] not in ([], ["--help"]))
    module, first, _ = CASES[sys.argv[1]]
    path = Path(__file__).with_name(f"{module}.py")
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path), *first, *sys.argv[2:]]
    runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    main()
