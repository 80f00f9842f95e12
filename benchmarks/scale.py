"""Measure CPU seconds and peak memory of the stages before training, at full size.

    benchmarks/bench.py scale [--folder /tmp/scale]            # 11,699 + 2,438 calls, 2.4 million utterances
    benchmarks/bench.py scale --scale 0.05 --only fisher split

Releases as large as Fisher and Switchboard are generated (scale_releases.py) once in the folder, a few GB. Commands are
the recipe's, with its configuration swb2000, tested on Hub5'00 alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainings import python, run

from asrtool.recipe.stages import COMMON, PREPARE

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ("--config", str(ROOT / "recipes" / "swbd" / "conf" / "swb2000.toml"), "--set", "data.test=hub5")
CORPORA = {"swbd": "train", "fisher": "train", "hub5": "test"}
LANGUAGE = ("tokenizer", "lang", "lm", "graph")


@dataclass(frozen=True)
class Step:
    """A row of the table: words behind `asrtool`, and a description of the output."""

    name: str
    words: list[str]
    size: Callable[[], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/asrtool-scale"), help="for releases and results")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the calls")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="of the table; earlier ones must have run")
    options = parser.parse_args()
    folder = options.folder.absolute() / f"{options.scale:g}"
    if not (folder / "releases").is_dir():
        python(Path(__file__).with_name("scale_releases.py"), folder / "releases", options.scale)
    print("| | CPU s | peak GiB | |\n|---|---|---|---|", flush=True)
    for step in steps(folder / "releases", folder / "work"):
        if not options.only or step.name in options.only:
            took = run([Path(sys.executable).with_name("asrtool"), *step.words], folder)
            print(f"| {step.name} | {took.cpu_s:.1f} | {took.peak_gib:.2f} | {step.size()} |", flush=True)


def steps(releases: Path, work: Path) -> list[Step]:
    """Return all steps in order, with the commands of the recipe."""
    corpora = work / "manifests" / "corpora"
    found = []
    for name, part in CORPORA.items():
        words = ["prepare", name, str(releases), str(corpora / name), *SETTINGS]
        found.append(Step(name, words, lambda folder=corpora / name / part: utterances(folder)))  # type: ignore[misc]
    split = recipe_line(PREPARE.run[1].text, work)
    found.append(Step("split", split, lambda: utterances(work / "manifests" / "train")))
    lines = {stage.name: stage.run[0].text for stage in COMMON if stage.name in LANGUAGE}
    sizes = {"lm": lambda: ngrams(work / "lm" / "G.arpa"), "graph": lambda: graph_size(work / "graph")}
    return [*found, *(Step(name, recipe_line(line, work), sizes.get(name, str)) for name, line in lines.items())]


def recipe_line(text: str, work: Path) -> list[str]:
    _, *words = text.replace("--config {config}", "").format(work=work).split()
    return [*words, *SETTINGS]


def graph_size(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.0f} MB"


def utterances(manifest: Path) -> str:
    """Describe a folder of manifests."""
    report = json.loads((manifest / "report.json").read_text(encoding="utf-8"))
    return f"{report['num_utterances']:,} utterances, {report['speech_hours']:.0f} h"


def ngrams(arpa: Path) -> str:
    """Return the number of n-grams that the header declares."""
    with arpa.open(encoding="utf-8") as file:
        lines = (line for line, _ in zip(file, range(20), strict=False))
        return f"{sum(int(line.split('=')[1]) for line in lines if line.startswith('ngram ')):,} n-grams"


if __name__ == "__main__":
    main()
