"""Measure CPU seconds and peak memory of the stages before training, at full size.

    benchmarks/bench.py scale [--folder /tmp/scale]            # 11,699 + 2,438 calls, 2.4 million utterances
    benchmarks/bench.py scale --scale 0.05 --only fisher split

Releases as large as Fisher and Switchboard are generated (scale_releases.py) once in the folder, a few GB. Commands are
the recipe's, with its configuration swb2000, tested on Hub5'00 alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from asrtool.recipe.stages import COMMON, PREPARE

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ("--config", str(ROOT / "recipes" / "swbd" / "conf" / "swb2000.toml"), "--set", "data.test=hub5")
CORPORA = {"swbd": "train", "fisher": "train", "hub5": "test"}
LANGUAGE = ("tokenizer", "lang", "lm", "graph")


@dataclass(frozen=True)
class Step:
    """A row of the table: a command, and a description of its output."""

    name: str
    command: list[str]
    size: Callable[[], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/asrtool-scale"), help="for releases and results")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the calls")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="of the table; earlier ones must have run")
    options = parser.parse_args()
    folder = options.folder.absolute() / f"{options.scale:g}"
    if not (folder / "releases").is_dir():
        in_process(make, folder / "releases", options.scale)
    print("| | CPU s | of which children | s | peak GiB | of a child | |\n|---|---|---|---|---|---|---|", flush=True)
    for step in steps(folder / "releases", folder / "work"):
        if not options.only or step.name in options.only:
            in_process(run, step.command, folder / f"{step.name}.json")
            took = json.loads((folder / f"{step.name}.json").read_text(encoding="utf-8"))
            cells = [f"{took['cpu_s']:.1f}", f"{took['children_cpu_s']:.1f}", f"{took['wall_s']:.0f}"]
            cells += [f"{took['peak_gib']:.2f}", f"{took['children_peak_gib']:.2f}", step.size()]
            print(f"| {step.name} | {' | '.join(cells)} |", flush=True)


def steps(releases: Path, work: Path) -> list[Step]:
    """Return all steps in order, with the commands of the recipe."""
    corpora = work / "manifests" / "corpora"
    found = []
    for name, part in CORPORA.items():
        command = ["asrtool", "prepare", name, str(releases), str(corpora / name), *SETTINGS]
        found.append(Step(name, command, lambda folder=corpora / name / part: utterances(folder)))  # type: ignore[misc]
    split = recipe_line(PREPARE.run[1].text, work)
    found.append(Step("split", split, lambda: utterances(work / "manifests" / "train")))
    lines = {stage.name: stage.run[0].text for stage in COMMON if stage.name in LANGUAGE}
    sizes = {"lm": lambda: ngrams(work / "lm" / "G.arpa"), "graph": lambda: graph_size(work / "graph")}
    return [*found, *(Step(name, recipe_line(line, work), sizes.get(name, str)) for name, line in lines.items())]


def recipe_line(text: str, work: Path) -> list[str]:
    return [*text.replace("--config {config}", "").format(work=work).split(), *SETTINGS]


def in_process(function: Callable[..., None], *arguments: object) -> None:
    """Call a function in a process of its own, which starts with little memory."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"error: {function.__name__} {arguments[0]} failed with exit code {process.exitcode}")


def make(folder: Path, scale: float) -> None:
    from scale_releases import make_releases

    from asrtool.files import write_folder

    with write_folder(folder) as temporary:
        make_releases(temporary, scale)


def run(command: list[str], report: Path) -> None:
    """Run a command in this process, and write its CPU seconds and peak memory."""
    from asrtool.cli.main import main as run_command

    begin, code = time.monotonic(), 0
    sys.argv = command
    try:
        run_command()
    except SystemExit as end:
        code = int(bool(end.code))
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = (
        Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    )  # maxrss of a child begins at its parent's
    took = {
        "wall_s": time.monotonic() - begin,
        "children_cpu_s": children.ru_utime + children.ru_stime,
        "peak_gib": next(int(row.split()[1]) for row in rows if row.startswith("VmHWM")) / 2**20,
        "children_peak_gib": children.ru_maxrss / 2**20,
    }
    took["cpu_s"] = own.ru_utime + own.ru_stime + took["children_cpu_s"]
    report.write_text(json.dumps(took), encoding="utf-8")
    sys.exit(code)


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
