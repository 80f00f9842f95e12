"""CPU seconds that the simulator takes, by strategy.

    .venv/bin/python benchmarks/sim_speed.py [--learners 128] [--steps 100000] [--only NAME ...] [--python]

With --python by events in Python, which yield what happens to weights: a hundredth of the steps will do.
"""

from __future__ import annotations

import argparse
import time

from asrtool.predict.simulate.scenario import load_scenario
from asrtool.predict.simulate.simulate import simulate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learners", type=int, default=128)
    parser.add_argument("--steps", type=int, default=100_000, help="of each learner")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--python", action="store_true")
    options = parser.parse_args()
    settings = [
        f"job.num_samples={128 * options.learners * options.steps}",
        "compute.distribution=lognormal",
        "compute.spread=0.1",
        f"slow.learners={options.learners - 1}:2",
    ]
    scenario = load_scenario([], settings)
    for strategy in scenario.distributed.strategy:
        if strategy.name == "single" or (options.only and strategy.name not in options.only):
            continue
        begin = time.process_time()
        simulate(scenario, strategy, options.learners, (lambda _: None) if options.python else None)
        seconds = time.process_time() - begin
        each_us = 1e6 * seconds / options.learners / options.steps
        print(f"{strategy.name:14} {seconds:8.2f} s, {each_us:.3f} us a step of a learner", flush=True)


if __name__ == "__main__":
    main()
