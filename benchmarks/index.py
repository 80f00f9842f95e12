"""A large set: the first and the second start of `asrtool train`, and the columns of many learners.

Bytes an utterance, seconds to open them and to plan an epoch, memory of learners, on a set of benchmarks/large_set.py.
Then the same of one learner for each data.mix of its three corpora.

    python benchmarks/index.py                      # 7 million utterances, 8 learners
    python benchmarks/index.py --num 200000 --learners 2
    python benchmarks/index.py --folder DIR         # keep the invented set there, for another run
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from large_set import BATCH_S, CORPORA, FEATURES, write_set
from start import print_starts

from asrtool.data.storage.index import SETTINGS
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.acoustic import build_model
from asrtool.settings.data import Mix
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.train import Shards as ShardsSettings
from asrtool.train.batches.plan import FAR
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import Epoch, SourceContext
from asrtool.train.inputs import ColumnsFolder

PLAIN = "utterances"
MIXES = (PLAIN, "hours", "temperature:2", ",".join(f"{name}:1" for name in CORPORA))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=7_000_000, help="utterances, all speeds together")
    parser.add_argument("--learners", type=int, default=8)
    parser.add_argument("--learner", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--mix", default=PLAIN, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="where the set is made once")
    options = parser.parse_args()
    if options.learner:
        be_learner(options.learner, options.mix)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = options.folder or Path(folder)
        if not (work / "features" / SETTINGS).exists():
            write_set(work, options.num)
        print_starts(work)
        shutil.rmtree(work / "train" / "index", ignore_errors=True)
        first = run_learner(work)
        print(f"{options.num} utterances, {first['tokens']:.1f} tokens in a text, a batch of {BATCH_S} s")
        print(f"{bytes_of(work / 'train' / 'index' / 'train') / options.num:.1f} bytes an utterance in files")
        took = f"{first['open_s']:.1f} s of CPU, then {first['own_mib']:.0f} MiB of its own"
        print(f"the learner that builds them: {took}")
        measure(work, options.learners)
        measure_mixes(work)


def open_set(work: Path, mix: Mix) -> Shards:
    """As each learner does."""
    tokenizer = Tokenizer.load(work / "tokenizer")
    model = build_model(
        Model(encoder=Choice.of("encoder", "lstm", num_layers=1, hidden_size=2)),
        FEATURES.num_features,
        tokenizer.num_tokens,
    )
    folder = ColumnsFolder(work / "train" / "index", {"features/train/index.jsonl": "benchmark"}, {})
    directory = work / "features" / "train"
    max_frames = int(BATCH_S * 1000 / FEATURES.frame_shift_ms)
    about_set = ShardsSettings(), directory, FEATURES, tokenizer.encode, model, max_frames, 1, folder
    return Shards(SourceContext(*about_set, mix=mix))


def run_learner(work: Path, mix: str = PLAIN) -> dict[str, Any]:
    """A learner by itself; what it reports."""
    process = start_learner(work, mix)
    line, _ = process.communicate("\n")
    assert process.returncode == 0
    return dict(json.loads(line))


def start_learner(work: Path, mix: str = PLAIN) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--learner", str(work), "--mix", mix]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def be_learner(work: Path, mix: str) -> None:
    """Open the set and plan an epoch; print what that took, and end when asked to."""
    before, begin = memory(), time.process_time()
    source = open_set(work, Mix.parse(mix))
    opened = time.process_time()
    gc.freeze()  # as the command
    epoch = Epoch(source, 0)
    num_batches = epoch.extend(FAR)
    planned, after = time.process_time(), memory()
    portions = source.portions(0)
    report = {
        "open_s": opened - begin,
        "plan_s": planned - opened,
        "portions_s": time.process_time() - planned,
        "fractions": {name: portion.fraction for name, portion in portions.items()},
        "batches": num_batches,
        "tokens": len(source.columns.tokens) / (len(source.columns.ends) - 1),
        "own_mib": after["own"] - before["own"],
        "shared_mib": after["mapped"] - before["mapped"],
    }
    print(json.dumps(report), flush=True)
    sys.stdin.readline()


def memory() -> dict[str, float]:
    """MiB that only this process has, and those of files that it maps, which the system has once."""
    rows = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    kib = {name: int(value.split()[0]) for name, _, value in (row.partition(":") for row in rows)}
    return {"own": kib["Private_Dirty"] / 1024, "mapped": (kib["Rss"] - kib["Private_Dirty"]) / 1024}


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def measure(work: Path, num_learners: int) -> None:
    """Learners side by side, one after the other in computing, all with their plan in memory at the end."""
    print("\n| learner | CPU s to open | CPU s to plan | MiB of its own | MiB shared |")
    print("|---|---|---|---|---|")
    learners = []
    try:
        for number in range(num_learners):
            learners.append(start_learner(work))
            assert learners[-1].stdout
            report = json.loads(learners[-1].stdout.readline())
            print(
                f"| {number} | {report['open_s']:.2f} | {report['plan_s']:.2f} | {report['own_mib']:.0f}"
                f" | {report['shared_mib']:.0f} |",
                flush=True,
            )
    finally:
        for learner in learners:
            learner.communicate("\n")


def measure_mixes(work: Path) -> None:
    """A learner by itself for each mix, the columns being there."""
    print("\n| data.mix | percent of each corpus | CPU s to open | CPU s to plan | CPU s to report | MiB of its own |")
    print("|---|---|---|---|---|---|")
    for mix in MIXES:
        report = run_learner(work, mix)
        parts = ", ".join(f"{name} {fraction:.0%}" for name, fraction in report["fractions"].items())
        print(
            f"| {mix} | {parts} | {report['open_s']:.2f} | {report['plan_s']:.2f} | {report['portions_s']:.2f}"
            f" | {report['own_mib']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
