"""Measure the error rates of recipes as they are, by several seeds.

    benchmarks/bench.py accuracy [--only demo an4] [--seeds 1 2 3] [--set KEY=VALUE]

demo and demo-10 are the recipe swbd on one and ten hours of the mini corpus. an4 is the recipe for AN4, own the one for
recordings of a user, given AN4's as Kaldi's tables; both have AN4's official test. AN4 is looked for in
../shared/data/an4. Work folders stay, and a second call continues.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from trainings import options_of, run

ROOT = Path(__file__).resolve().parents[1]
AN4 = ROOT.parent / "shared" / "data" / "an4"
RECIPES = {
    "demo": ("swbd", ()),
    "demo-10": ("swbd", ("mini.train_hours=10",)),
    "an4": ("an4", (f"paths.an4={AN4}",)),
    "own": ("own", ("paths.own_train=train", "paths.own_test=test")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/asrtool-accuracy"), help="for work folders")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    print("| recipe | test | method | WER % by seed | mean | CPU s |\n|---|---|---|---|---|---|", flush=True)
    for name in options.only:
        recipe, settings = RECIPES[name]
        works = [options.folder.absolute() / f"{name}-{seed}" for seed in options.seeds]
        cpu_s = []
        for work, seed in zip(works, options.seeds, strict=True):
            work.mkdir(parents=True, exist_ok=True)
            if name == "own":
                write_tables(work)
            line = [Path(sys.executable).with_name("asrtool"), "run", "--recipe", ROOT / "recipes" / recipe]
            words = options_of([*settings, *options.set, f"train.seed={seed}"])
            cpu_s.append(run([*line, "--work", work / "exp", *words], work).cpu_s)
        for path in sorted(works[0].glob("exp/score/*/*/score.json")):
            rates = [error_rate(work / path.relative_to(works[0])) for work in works]
            cells = [name, path.parts[-3], path.parts[-2], ", ".join(f"{rate:.1f}" for rate in rates)]
            print(
                f"| {' | '.join(cells)} | {statistics.mean(rates):.1f} | {statistics.median(cpu_s):.0f} |", flush=True
            )


def write_tables(folder: Path) -> None:
    """Write AN4's sets as folders train and test of Kaldi's wav.scp, text and utt2spk."""
    for name in ("train", "test"):
        lines = zip(
            *(read_lines(AN4 / "etc" / f"an4_{name}.{kind}") for kind in ("fileids", "transcription")), strict=True
        )
        rows = {Path(file).name: (file, text.split(" (")[0].strip("<s>/ ").lower()) for file, text in lines}
        (folder / name).mkdir(exist_ok=True)
        for table, cell in (
            ("wav.scp", lambda file, _: AN4 / "wav" / f"{file}.flac"),
            ("text", lambda _, text: text),
            ("utt2spk", lambda file, _: Path(file).parent.name),
        ):
            text = "".join(f"{utterance} {cell(*row)}\n" for utterance, row in sorted(rows.items()))
            (folder / name / table).write_text(text, encoding="utf-8")


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def error_rate(path: Path) -> float:
    """Read the word error rate of a score in percent."""
    counts = json.loads(path.read_text(encoding="utf-8"))["overall"]
    return float(100 * counts["err"] / counts["words"])


if __name__ == "__main__":
    main()
