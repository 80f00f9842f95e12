"""Compare the bits of five small systems between two checkouts.

    .venv/bin/python benchmarks/same_bits.py WORK OLD_CHECKOUT NEW_CHECKOUT
    .venv/bin/python benchmarks/same_bits.py WORK OLD_CHECKOUT --save old.json
    .venv/bin/python benchmarks/same_bits.py WORK NEW_CHECKOUT --against old.json

Each checkout, a folder with an environment .venv, runs the recipe swbd on the mini corpus, on one thread a process.
WORK is a new folder, 300 MB a checkout. Digests in a file hold for the same processor and packages.
Tensors are compared by name, type, shape and bytes, other files by their bytes. Exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
COMMON = ["features.num_jobs=1", "decode.num_jobs=1", "mini.train_hours=0.12", "train.batch_s=10", "train.peak_lr=0.01"]
AUGMENT = ["features.speeds=0.9,1.0,1.1", "features.keep_audio=true", "augment.tempo=0.9,1.1", "augment.band_prob=0.5"]
RESCORED = ["nnlm.enabled=true", "nnlm.num_epochs=2", "decode.methods=greedy,beam,graph,rescore"]
# system -> configurations, settings. Strategies are those whose bits do not depend on which learner is faster.
SYSTEMS = {
    "blstm-ctc": (["ci"], [*AUGMENT, *RESCORED]),
    "hybrid": (
        ["ci", "hybrid"],
        ["features.cmvn=global", "train.optimizer=sgd", "train.schedule=halving", "train.peak_lr=0.1"],
    ),
    "transducer": (["ci", "transducer"], ["features.storage=shar", "train.num_epochs=6"]),
    "allreduce": (["ci"], ["distributed.strategy=allreduce", "distributed.num_learners=2", "train.num_epochs=6"]),
    "bmuf": (["ci", "attention"], ["distributed.strategy=bmuf", "distributed.num_learners=2", "train.num_epochs=6"]),
}
# kind -> its files in the work folder of a run: none that holds a path, a time, or a digest of the code
KINDS = {
    "features": [
        "features/*/*.npz",
        "features/*/*.jsonl*",
        "features/*/feat*",
        "features/*/*.tsv",
        "features/*/words/*",
    ],
    "language": ["tokenizer/*", "lang/*", "lm/*", "graph/*"],
    "alignments": ["targets/**/*", "realign/**/*"],
    "tensors": ["**/*.pt"],
    "hypotheses": ["decode/*/*.ctm", "tune/tuning.tsv"],
    "scores": ["score/*/*/table.txt", "score/*/*/speakers.txt", "score/*/*/confusions.txt"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("checkouts", type=Path, nargs="+", metavar="CHECKOUT")
    parser.add_argument("--against", type=Path, metavar="JSON", help="digests of an earlier --save")
    parser.add_argument("--save", type=Path, metavar="JSON", help="write the digests of the last checkout")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="some of the default: %(default)s")
    options = parser.parse_args()
    names = options.systems.split(",")
    if options.work.exists():
        sys.exit(f"error: {options.work} exists; choose a new folder, for an earlier run may be of other code")
    sides = [json.loads(options.against.read_text(encoding="utf-8"))] if options.against else []
    for number, checkout in enumerate(options.checkouts):
        folder = options.work.absolute() / f"{number}-{checkout.resolve().name}"
        sides.append({name: digests_of_system(name, checkout.absolute(), folder / name) for name in names})
    if options.save:
        options.save.write_text(json.dumps(sides[-1], indent=1) + "\n", encoding="utf-8")
    if len(sides) > 1:
        sys.exit(compare(sides[0], sides[-1], names))


def digests_of_system(name: str, checkout: Path, folder: Path) -> dict[str, str]:
    """Train, decode and score the system; digests by ``kind file``."""
    configs, settings = SYSTEMS[name]
    line = [str(checkout / ".venv" / "bin" / "asrtool"), "run", "--recipe", str(checkout / "recipes" / "swbd")]
    line += [word for config in configs for word in ("--config", config)]
    line += [word for setting in (*COMMON, *settings) for word in ("--set", setting)]
    folder.mkdir(parents=True)
    start = time.monotonic()
    with open(folder / "run.log", "ab") as log:
        line += ["--work", str(folder), "--stop-stage", "score"]
        code = subprocess.run(line, cwd=folder, stdout=log, stderr=log, env={**os.environ, **ONE_THREAD}).returncode
    if code:
        sys.exit(f"error: {name} of {checkout} failed with exit code {code}, see {folder / 'run.log'}")
    found = dict(digests_of_files(folder))
    print(f"{checkout.name}: {name} took {time.monotonic() - start:.0f} s, {len(found)} digests", flush=True)
    return found


def digests_of_files(work: Path) -> Iterator[tuple[str, str]]:
    for kind, patterns in KINDS.items():
        for path in sorted({path for pattern in patterns for path in work.glob(pattern)}):
            if path.is_dir() or path.name.startswith("."):
                continue
            digest = hashlib.sha256()
            for part in contents(path):
                digest.update(part)
            yield f"{kind} {path.relative_to(work)}", digest.hexdigest()[:16]


def contents(path: Path) -> Iterator[bytes]:
    """Yield what is compared of a file."""
    if path.suffix == ".pt":
        for name, tensor in sorted(tensors_in(torch.load(path, map_location="cpu", weights_only=True))):
            yield f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode()
            yield tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    elif path.name == "table.txt":  # since 0.9 a line says by which rules it was scored
        yield b"".join(line for line in path.read_bytes().splitlines(True) if not line.startswith(b"scored "))
    else:
        yield path.read_bytes()


def tensors_in(content: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(content, torch.Tensor):
        yield name, content
    elif isinstance(content, (dict, list, tuple)):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in items:
            yield from tensors_in(value, f"{name}/{key}")


def compare(old: dict[str, dict[str, str]], new: dict[str, dict[str, str]], names: list[str]) -> int:
    """Print a table of what is equal and what differs; 1 if anything differs."""
    print(f"{'system':12} {'kind':12} {'equal':>6} {'different':>10}")
    faults = []
    for name in names:
        for kind in KINDS:
            keys = sorted(key for key in old[name].keys() | new[name].keys() if key.startswith(f"{kind} "))
            different = [key for key in keys if old[name].get(key) != new[name].get(key)]
            if keys:
                print(f"{name:12} {kind:12} {len(keys) - len(different):6} {len(different):10}")
            for key in different:
                what = "is missing" if key not in new[name] else "is new" if key not in old[name] else "differs"
                faults.append(f"{name}: {key} {what}")
    print("\n".join(faults) or "all digests are equal")
    return 1 if faults else 0


if __name__ == "__main__":
    main()
