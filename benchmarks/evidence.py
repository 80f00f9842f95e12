"""Test the claims of the papers by runs, and print the table of docs/evidence.md.

    benchmarks/bench.py evidence [--work WORK] [--only NAME ...] [--table]

Finished runs in WORK are kept. `--table` runs nothing and prints the claims that were tested. Use an idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import convergence
from trainings import Trainings, asrtool, end, final, python, records, spread

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
AGREES, DISAGREES, PARTLY, UNSEEN = "agrees", "disagrees", "agrees in part", "not seen at this scale"


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

    def converged(self, name: str, options: str) -> list[convergence.Trained]:
        """Train virtual learners; each result has its loss on dev after each epoch."""
        results = self.work.parent / name
        python(convergence.__file__, self.exp / "features", self.exp / "tokenizer", results, *options.split())
        return convergence.read(results)


@dataclass(frozen=True)
class Finding:
    """Result of the test of a claim."""

    figure: str  # with least and greatest of the seeds
    scale: str
    seeds: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A claim and its test."""

    name: str
    text: str
    source: str
    test: Callable[[Runs], Finding]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exp", type=Path, default=EXP, help="work folder of a demo")
    parser.add_argument("--work", type=Path, default=Path("recipes/swbd/exp-evidence"))
    parser.add_argument("--only", nargs="+", choices=[claim.name for claim in CLAIMS])
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    for claim in CLAIMS:
        path = options.work / f"{claim.name}.json"
        if not options.table and (not options.only or claim.name in options.only):
            print(f"== {claim.name}", flush=True)
            finding = claim.test(Runs(options.exp, options.work / "train", SETTINGS))
            path.write_text(json.dumps(asdict(finding)) + "\n", encoding="utf-8")
    print("\n".join(table(options.work)))


def table(work: Path) -> Iterator[str]:
    """Yield the rows of claims that were tested."""
    yield "| claim | source | command | scale, seeds | figure | verdict |"
    yield "|---|---|---|---|---|---|"
    for claim in CLAIMS:
        path = work / f"{claim.name}.json"
        if path.exists():
            found = Finding(**json.loads(path.read_text(encoding="utf-8")))
            command = f"`--only {claim.name}`"
            cells = [claim.text, claim.source, command, f"{found.scale}; {found.seeds}", found.figure]
            yield f"| {' | '.join(cells)} | **{found.verdict}** |"


def stragglers(runs: Runs) -> Finding:
    """Steps a second with a slow learner, of those without communication."""
    none = [runs.speed("none", 8, seed, slow=True) for seed in TWO]
    found = {
        name: [runs.speed(name, 8, seed, slow=True) / alone for seed, alone in zip(TWO, none, strict=True)]
        for name in RINGS
    }
    found["allreduce"] = [runs.speed("allreduce", 8, TWO[0], slow=True) / none[0]]
    least = min(min(found[name]) for name in RINGS)
    return Finding(
        "steps a second, of those without communication: "
        + "; ".join(f"{name} {spread(values)}" for name, values in found.items()),
        "`asrtool train`, 8 learners, 100 ms a step emulated, learner 0 ten times slower",
        "2 seeds, allreduce 1",
        AGREES if least >= 0.9 > 0.5 > max(found["allreduce"]) else DISAGREES,
    )


def equal_speeds(runs: Runs) -> Finding:
    """Loss and speed of the three variants with equal learners and a large batch."""
    names = ("adpsgd-d1", *RINGS, "allreduce")
    none = [runs.speed("none", 8, seed) for seed in TWO]
    speeds = {
        name: [runs.speed(name, 8, seed) / alone for seed, alone in zip(TWO, none, strict=True)] for name in names
    }
    finished = runs.converged("large.jsonl", LARGE)
    losses = {name: convergence.best_of(one for one in finished if one["strategy"] == name).losses for name in names}
    is_lowest = all(losses["adpsgd-d1"][seed] < losses[ring][seed] for ring in RINGS for seed in SEEDS)
    is_highest = all(losses["adpsgd-d1"][seed] > losses[ring][seed] for ring in RINGS for seed in SEEDS)
    is_fast = min(speeds["adpsgd-d1"]) > NEARLY * max(max(speeds[ring]) for ring in RINGS)
    return Finding(
        "steps a second, of those without communication: "
        + "; ".join(f"{name} {spread(values)}" for name, values in speeds.items())
        + "; loss on dev: "
        + "; ".join(f"{name} {spread(list(by_seed.values()))}" for name, by_seed in losses.items()),
        "8 learners, all equal: `asrtool train`, 100 ms a step emulated; virtual learners, batches of 112 s, the demo's"
        " features, LSTM of 1 x 64, CTC, three epochs, best of three rates",
        "2 seeds of the speed, 3 of the loss",
        AGREES if is_lowest and is_fast else PARTLY if is_lowest else DISAGREES if is_highest else UNSEEN,
    )


def random_mixes(runs: Runs) -> Finding:
    """Consensus distances of both rings."""
    found = {name: [distance(runs.seeded(name, 8, seed)) for seed in SEEDS] for name in RINGS}
    fixed, drawn = (found[name] for name in RINGS)
    return Finding(
        "; ".join(f"consensus distance, {name} {spread(values, 4)}" for name, values in found.items()),
        "`asrtool train`, 8 learners, the demo's model and data, one epoch",
        "3 seeds",
        AGREES if max(drawn) < min(fixed) else DISAGREES,
    )


def distance(out: Path) -> float:
    """Mean consensus distance after LATE of a training."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [(line["step"], line["consensus_distance"]) for line in lines if line["kind"] == "learners"]
    return statistics.fmean(value for step, value in found if step >= LATE * found[-1][0])


def traffic(runs: Runs) -> Finding:
    """MB that leave a node of two learners for each utterance."""
    found = {
        name: [_mb_between(runs.emulated(name, 8, seed)) for seed in TWO] for name in ("adpsgd-random", "h-adpsgd")
    }
    flat, nodes = found["adpsgd-random"], found["h-adpsgd"]
    return Finding(
        "; ".join(f"MB an utterance, {name} {spread(values)}" for name, values in found.items()),
        "`asrtool train`, 8 learners in nodes of 2",
        "2 seeds",
        AGREES if max(nodes) < min(flat) else DISAGREES,
    )


def _mb_between(out: Path) -> float:
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
    alone = [runs.speed("single", 1, seed) for seed in TWO]
    found = {
        (name, num): [runs.speed(name, num, seed) / one / num for seed, one in zip(TWO, alone, strict=True)]
        for name in ("adpsgd-random", "adpsgd-d1", "allreduce")
        for num in (2, 4, 8)
    }
    least = min(min(values) for (name, _), values in found.items() if name != "allreduce")
    return Finding(
        "steps a second of L learners, of L times those of one: "
        + "; ".join(f"{name}, {num} learners {spread(values)}" for (name, num), values in found.items()),
        "`asrtool train`, 100 ms a step emulated",
        "2 seeds",
        AGREES if least >= 0.9 else DISAGREES,
    )


def batch_limits(runs: Runs) -> Finding:
    """Largest batch with a loss within CLOSE of one learner's, by allreduce and ring."""
    finished = runs.converged("limits.jsonl", LIMITS)
    alone = [trained for trained in finished if (trained["strategy"], trained["scale"]) == ("single", 1)]
    limits, texts = {}, [f"one learner {_spread_of(alone)}"]
    for name, num in (("allreduce", 4), ("adpsgd-random", 4), ("allreduce", 16), ("adpsgd-random", 16)):
        cells = [trained for trained in finished if (trained["strategy"], trained.get("learners")) == (name, num)]
        of_scale = {scale: [cell for cell in cells if cell["scale"] == scale] for scale in _scales(cells)}
        close = [
            scale for scale, of_one in of_scale.items() if convergence.is_close(convergence.best_of(of_one), alone)
        ]
        limits[name, num] = max(close, default=0)
        texts.append(
            f"{name}, {num}: " + ", ".join(f"{_spread_of(of_one)} at {scale}x" for scale, of_one in of_scale.items())
        )
    both = [(limits["adpsgd-random", num], limits["allreduce", num]) for num in (4, 16)]
    ratios = [ring / mean if mean else math.inf for ring, mean in both if ring or mean]
    return Finding(
        "loss on dev: " + "; ".join(texts),
        "virtual learners, the demo's features, LSTM of 1 x 64, CTC, three epochs, best of three rates, 1x is 28 s",
        "3 seeds",
        _verdict_of(ratios),
    )


def _verdict_of(ratios: list[float]) -> str:
    """Verdict on the ratios of the largest batches, ring to allreduce."""
    if ratios and min(ratios) >= PUBLISHED_BATCHES:
        return AGREES
    return DISAGREES if ratios and max(ratios) < 1 else UNSEEN


def _spread_of(cells: list[convergence.Trained]) -> str:
    return spread(list(convergence.best_of(cells).losses.values()))


def _scales(cells: list[convergence.Trained]) -> list[int]:
    return sorted({cell["scale"] for cell in cells})


def forty_times(runs: Runs) -> Finding:
    """Simulated speed-up of the published system, by both assumptions on a step."""
    speedups = []
    for sets in ((), ("--set", "compute.fixed_ms=282")):  # in proportion to the batch, or the same for each
        words = ["--scenario", "swb2000-v100", "--num-learners", "64", "--strategy", "h-adpsgd", "--json", *sets]
        (row,) = json.loads(asrtool("simulate", *words))
        speedups.append(WEEK_H / float(row["hours"]))
    low, high = sorted(speedups)
    return Finding(
        f"predicted: {low:.0f} to {high:.0f} times; the published week and 5.2 h make {WEEK_H / 5.2:.0f}",
        "`asrtool simulate --scenario swb2000-v100`, a step's time as the batch, or constant; nothing is run on GPUs",
        "no seeds",
        PARTLY if low <= 40 <= high else DISAGREES,
    )


def mixing(runs: Runs) -> Finding:
    """Error rates in both domains by mix."""
    printed = python(Path(__file__).with_name("mix.py"), runs.work.parent / "mix", "--seeds", "1,2")
    rates: dict[str, list[tuple[float, float]]] = {}
    for mix, telephone, wide in re.findall(
        r"seed \d+, (\S+): .*?test ([\d.]+) %; .*?test ([\d.]+) %", printed, re.MULTILINE
    ):
        rates.setdefault(mix, []).append((float(telephone), float(wide)))
    means = {mix: statistics.fmean(sum(pair) / 2 for pair in pairs) for mix, pairs in rates.items()}
    texts = (f"{mix} {', '.join(f'{t:.1f} and {w:.1f}' for t, w in pairs)}" for mix, pairs in rates.items())
    return Finding(
        "% WER, telephone and wide-band, a pair a seed: " + "; ".join(texts),
        "`asrtool train`, 42 minutes of telephone and 10 of wide-band speech, synthetic",
        "2 seeds",
        AGREES if means["utterances"] < means["swbd:1,librispeech:1"] else DISAGREES,
    )


def half_precision(runs: Runs) -> Finding:
    """Seconds and loss of one learner in bf16, as a fraction of those in fp32."""
    ratios: dict[str, list[float]] = {"seconds": [], "dev loss": []}
    for seed in SEEDS:
        full, half = (
            final(runs.seeded("single", 1, seed, sets=(f"train.batch_s={BATCH_S}", f"train.precision={name}")))
            for name in ("fp32", "bf16")
        )
        ratios["seconds"].append(half["seconds"] / full["seconds"])
        ratios["dev loss"].append(half["dev_loss"] / full["dev_loss"])
    saved = max(ratios["seconds"]) < 1 and max(ratios["dev loss"]) < 1.05
    return Finding(
        "bf16 of fp32: " + "; ".join(f"{name} {spread(values)}" for name, values in ratios.items()),
        f"`asrtool train`, one learner and thread, batches of {BATCH_S} s, a CPU with bf16; memory, which is that of a"
        " GPU, was not measured",
        "3 seeds",
        PARTLY if saved else DISAGREES,
    )


CLAIMS = (
    Claim(
        "batch-limits",
        "Batches up to 4,096 by averaged gradients, three times as large by AD-PSGD",
        "1907.05701, and a post on it",
        batch_limits,
    ),
    Claim("stragglers", "Fixed and random rings cope with slow learners", "2110.11199, 1904.04956", stragglers),
    Claim(
        "equal-speeds",
        "Where learners are equally fast, delay-by-one converges fastest of the three variants with large batches",
        "2110.11199",
        equal_speeds,
    ),
    Claim("random-mixes", "A random ring mixes faster than a fixed one", "2110.11199", random_mixes),
    Claim("traffic", "Hierarchical AD-PSGD saves traffic between nodes", "1907.05701", traffic),
    Claim("scaling", "Nearly linear speed-up", "1904.04956, 1907.05701", scaling),
    Claim("forty-times", "40 times as fast by H-ADPSGD on 64 GPUs", "1907.05701", forty_times),
    Claim("mixing", "Mixing corpora in proportion is better than in equal parts", "the authors' thesis", mixing),
    Claim("half-precision", "Mixed precision saves memory and time", "posts of the authors", half_precision),
)


if __name__ == "__main__":
    main()
