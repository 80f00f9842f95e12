"""Test the claims of docs/evidence.md by runs, and print figures and verdicts.

    benchmarks/bench.py evidence [--work WORK] [--only NAME ...] [--table]

Finished runs in WORK are kept. `--table` runs nothing and prints the claims that were tested. Use an idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import convergence
from trainings import Trainings, asrtool, end, final, python, records

EXP = Path("recipes/swbd/exp")
COMPUTE_MS, SLOW = 100, "0:10"  # of an emulated step; learner 0 is ten times slower
SETTINGS = ("train.batch_s=10", "train.num_epochs=1", "distributed.h-adpsgd.node_size=2")
LATE = 0.5  # fraction of a training after which learners are as far apart as they stay
SEEDS = (1, 2, 3)
BATCH_S = 50  # of the demo; the kernels of bf16 gain nothing on a fifth of that
NEARLY = 0.97  # as fast
TWO = (1, 2)  # where steps are emulated, and speed alone counts
LIMITS = (
    "--strategies allreduce,adpsgd-random --learners 1 4 16 --scales 1,4,16 --rates 0.1,0.2,0.4 --epochs 3"
    " --reference-batch-s 28 --seeds 1,2,3"
)
LARGE = (
    "--strategies adpsgd-d1,adpsgd-fixed,adpsgd-random,allreduce --learners 8 --scales 4 --rates 0.2,0.4,0.8 --epochs 3"
    " --reference-batch-s 28 --seeds 1,2,3"
)
WEEK_H = 168  # of one V100
PUBLISHED_BATCHES = 3.0  # 12,288 to 4,096
RINGS = ("adpsgd-fixed", "adpsgd-random")
EQUAL = "swbd:1,librispeech:1"
AGREES, DISAGREES, PARTLY, UNSEEN = "agrees", "disagrees", "agrees in part", "not seen at this scale"

Figures = dict[str, list[float]]  # a value a seed, by what was measured
Finding = tuple[Figures, str]  # with the verdict


class Runs(Trainings):
    """Trainings of the demo's model and data that test claims."""

    def seeded(self, strategy: str, num_learners: int, seed: int, *options: str, sets: Sequence[str] = ()) -> Path:
        return self.train(strategy, num_learners, *options, sets=(f"train.seed={seed}", *sets))

    def emulated(self, strategy: str, num_learners: int, seed: int, slow: bool = False) -> Path:
        """Train with a wait in place of compute."""
        options = ["--compute-ms", str(COMPUTE_MS), *(["--slow", SLOW] if slow else [])]
        sets = ("train.save_every_steps=0",) if strategy == "none" else ()
        return self.seeded(strategy, num_learners, seed, *options, sets=sets)

    def speed(self, strategy: str, num_learners: int, seed: int, slow: bool = False) -> float:
        """Steps a second of all learners with emulated compute, after all have begun."""
        out = self.emulated(strategy, num_learners, seed, slow)
        learners = records(out)
        begin, stop = max(steps[0]["begin"] for steps in learners), (out / "train.json").stat().st_mtime
        if strategy == "none":
            stop = min(end(steps[-1]) for steps in learners)
        return sum(begin < end(step) <= stop for steps in learners for step in steps) / (stop - begin)

    def attained(self, names: Sequence[str], slow: bool = False) -> Figures:
        """Steps a second of 8 learners, as a fraction of those without communication."""
        none = {seed: self.speed("none", 8, seed, slow) for seed in TWO}
        return {name: [self.speed(name, 8, seed, slow) / none[seed] for seed in TWO] for name in names}

    def converged(self, name: str, options: str) -> list[convergence.Trained]:
        """Train virtual learners; each result has its loss on dev after each epoch."""
        results = self.work.parent / name
        python(convergence.__file__, self.exp / "features", self.exp / "tokenizer", results, *options.split())
        return convergence.read(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exp", type=Path, default=EXP, help="work folder of a demo")
    parser.add_argument("--work", type=Path, default=Path("recipes/swbd/exp-evidence"))
    parser.add_argument(
        "--only", nargs="+", choices=CLAIMS, default=list(CLAIMS), metavar="NAME", help=", ".join(CLAIMS)
    )
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    for name in () if options.table else options.only:
        print(f"== {name}", flush=True)
        finding = CLAIMS[name](Runs(options.exp, options.work / "train", SETTINGS))
        (options.work / f"{name}.json").write_text(json.dumps(finding) + "\n", encoding="utf-8")
    print("| `--only` | mean (least, greatest) of the seeds | verdict |\n|---|---|---|")
    for name in CLAIMS:
        path = options.work / f"{name}.json"
        if path.exists():
            figures, verdict = json.loads(path.read_text(encoding="utf-8"))
            print(f"| {name} | {'; '.join(f'{what} {spread(found)}' for what, found in figures.items())} | {verdict} |")


def spread(values: list[float]) -> str:
    digits = 3 if max(values) > 0.1 else 4
    return f"{statistics.fmean(values):.{digits}f} ({min(values):.{digits}f}, {max(values):.{digits}f})"


def stragglers(runs: Runs) -> Finding:
    """Steps a second with a slow learner, of those without communication."""
    found = runs.attained([*RINGS, "allreduce"], slow=True)
    least = min(min(found[name]) for name in RINGS)
    return found, AGREES if least >= 0.9 > 0.5 > max(found["allreduce"]) else DISAGREES


def equal_speeds(runs: Runs) -> Finding:
    """Loss and speed of the three variants with equal learners and a large batch."""
    speeds = runs.attained(("adpsgd-d1", *RINGS, "allreduce"))
    finished = runs.converged("large.jsonl", LARGE)
    losses = {name: convergence.best_of(one for one in finished if one["strategy"] == name).losses for name in speeds}
    is_lowest = all(losses["adpsgd-d1"][seed] < losses[ring][seed] for ring in RINGS for seed in SEEDS)
    is_highest = all(losses["adpsgd-d1"][seed] > losses[ring][seed] for ring in RINGS for seed in SEEDS)
    is_fast = min(speeds["adpsgd-d1"]) > NEARLY * max(max(speeds[ring]) for ring in RINGS)
    figures = {f"steps a second, {name}": values for name, values in speeds.items()}
    figures |= {f"loss on dev, {name}": list(by_seed.values()) for name, by_seed in losses.items()}
    return figures, AGREES if is_lowest and is_fast else PARTLY if is_lowest else DISAGREES if is_highest else UNSEEN


def random_mixes(runs: Runs) -> Finding:
    """Consensus distances of both rings."""
    found = {name: [distance(runs.seeded(name, 8, seed)) for seed in SEEDS] for name in RINGS}
    fixed, drawn = (found[name] for name in RINGS)
    return found, AGREES if max(drawn) < min(fixed) else DISAGREES


def distance(out: Path) -> float:
    """Mean consensus distance after LATE of a training."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [(line["step"], line["consensus_distance"]) for line in lines if line["kind"] == "learners"]
    return statistics.fmean(value for step, value in found if step >= LATE * found[-1][0])


def traffic(runs: Runs) -> Finding:
    """MB that leave a node of two learners for each utterance."""
    flat, nodes = ([mb_between(runs.emulated(name, 8, seed)) for seed in TWO] for name in ("adpsgd-random", "h-adpsgd"))
    return {"adpsgd-random": flat, "h-adpsgd": nodes}, AGREES if max(nodes) < min(flat) else DISAGREES


def mb_between(out: Path) -> float:
    """Sum the bytes that leave nodes of two learners, in MB an utterance.

    On a ring, bytes inside a node go to partners; in h-adpsgd, they average gradients and gather slices.
    """
    learners = records(out)
    within = 4 * (1 + 1 / 2) * final(out)["num_parameters"]  # 2 (n - 1) / n of gradients, (n - 1) / n of slices; n = 2
    total = 0.0
    for rank, steps in enumerate(learners):
        for step in steps:
            if out.name.startswith("h-"):
                total += max(0, step["bytes"] - within)
            elif step["partners"]:
                outside = [partner // 2 != rank // 2 for partner in step["partners"]]
                total += step["bytes"] * statistics.fmean(outside)
    return total / 1e6 / sum(step["utterances"] for steps in learners for step in steps)


def scaling(runs: Runs) -> Finding:
    """Steps a second of L learners, as a fraction of L times one learner's."""
    alone = {seed: runs.speed("single", 1, seed) for seed in TWO}
    found = {
        f"{name}, {num}": [runs.speed(name, num, seed) / alone[seed] / num for seed in TWO]
        for name in ("adpsgd-random", "adpsgd-d1", "allreduce")
        for num in (2, 4, 8)
    }
    least = min(min(values) for name, values in found.items() if not name.startswith("allreduce"))
    return found, AGREES if least >= 0.9 else DISAGREES


def batch_limits(runs: Runs) -> Finding:
    """Largest batch with a loss within CLOSE of one learner's, by allreduce and ring."""
    finished = runs.converged("limits.jsonl", LIMITS)
    alone = [trained for trained in finished if (trained["strategy"], trained["scale"]) == ("single", 1)]
    found, limits = {"single": losses_of(alone)}, {}
    for name, num in (("allreduce", 4), ("adpsgd-random", 4), ("allreduce", 16), ("adpsgd-random", 16)):
        cells = [trained for trained in finished if (trained["strategy"], trained.get("learners")) == (name, num)]
        limits[name, num] = 0
        for scale in sorted({cell["scale"] for cell in cells}):
            of_scale = [cell for cell in cells if cell["scale"] == scale]
            found[f"{name}, {num}, {scale}x"] = losses_of(of_scale)
            if convergence.is_close(convergence.best_of(of_scale), alone):
                limits[name, num] = scale
    both = [(limits["adpsgd-random", num], limits["allreduce", num]) for num in (4, 16)]
    ratios = [ring / mean if mean else math.inf for ring, mean in both if ring or mean]
    if ratios and min(ratios) >= PUBLISHED_BATCHES:
        return found, AGREES
    return found, DISAGREES if ratios and max(ratios) < 1 else UNSEEN


def losses_of(cells: list[convergence.Trained]) -> list[float]:
    return list(convergence.best_of(cells).losses.values())


def forty_times(_: Runs) -> Finding:
    """Simulated speed-up of the published system, by both assumptions on a step."""
    speedups = []
    for sets in ((), ("--set", "compute.fixed_ms=282")):  # in proportion to the batch, or the same for each
        words = ["--scenario", "swb2000-v100", "--num-learners", "64", "--strategy", "h-adpsgd", "--json", *sets]
        (row,) = json.loads(asrtool("simulate", *words))
        speedups.append(WEEK_H / float(row["hours"]))
    return {"predicted": speedups}, PARTLY if min(speedups) <= 40 <= max(speedups) else DISAGREES


def mixing(runs: Runs) -> Finding:
    """Error rates in both domains by mix."""
    printed = python(Path(__file__).with_name("mix.py"), runs.work.parent / "mix", "--seeds", "1,2")
    found: Figures = {}
    for mix, *rates in re.findall(r"seed \d+, (\S+): .*?test ([\d.]+) %; .*?test ([\d.]+) %", printed, re.MULTILINE):
        for domain, rate in zip(("telephone", "wide-band"), rates, strict=True):
            found.setdefault(f"{mix}, {domain}", []).append(float(rate))
    sums = {mix: sum(found[f"{mix}, telephone"] + found[f"{mix}, wide-band"]) for mix in ("utterances", EQUAL)}
    return found, AGREES if sums["utterances"] < sums[EQUAL] else DISAGREES


def half_precision(runs: Runs) -> Finding:
    """Seconds and loss of one learner in bf16, as a fraction of those in fp32."""
    ratios: Figures = {"seconds": [], "dev loss": []}
    for seed in SEEDS:
        full, half = (
            final(runs.seeded("single", 1, seed, sets=(f"train.batch_s={BATCH_S}", f"train.precision={name}")))
            for name in ("fp32", "bf16")
        )
        ratios["seconds"].append(half["seconds"] / full["seconds"])
        ratios["dev loss"].append(half["dev_loss"] / full["dev_loss"])
    return ratios, PARTLY if max(ratios["seconds"]) < 1 and max(ratios["dev loss"]) < 1.05 else DISAGREES


CLAIMS: dict[str, Callable[[Runs], Finding]] = {
    "batch-limits": batch_limits,
    "stragglers": stragglers,
    "equal-speeds": equal_speeds,
    "random-mixes": random_mixes,
    "traffic": traffic,
    "scaling": scaling,
    "forty-times": forty_times,
    "mixing": mixing,
    "half-precision": half_precision,
}


if __name__ == "__main__":
    main()
