"""Further rows of benchmarks/scale.py: what is not on the way from releases to the graph, at full size or a part."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scale_sizes import NUM_CALLS, SETS, SHORTENED

PART = "benchmarks/scale_part.py"
ROOT = Path(__file__).resolve().parents[1]
FEATURES = ("features.speeds=0.9,1.0,1.1", "features.fbank.num_mel_bins=80", "features.num_jobs=1")


@dataclass(frozen=True)
class Step:
    """A row of the table: a command, and what says how much it did."""

    name: str
    command: list[str]
    size: Callable[[], str]
    inputs: tuple[str, ...] = ()  # folders beside the releases, made once by scale_inputs.py
    out: Path | None = None  # is removed before
    missing: str = ""  # why it cannot be run


def further_steps(folder: Path) -> list[Step]:
    rows = (changes_first, changes_again, shorten, own, features, cut, score, report)
    return [row(folder) for row in rows]


def changes_first(folder: Path) -> Step:
    """Digests of Switchboard's audio, an eighth of the bytes of all releases, with nothing in the cache."""
    command = [PART, "changes", str(folder / "changes"), str(folder / "releases" / "LDC97S62")]
    return Step("changes, first", command, lambda: _bytes(folder / "releases" / "LDC97S62"), out=folder / "changes")


def changes_again(folder: Path) -> Step:
    """The same with all of them in the cache."""
    first = changes_first(folder)
    return Step("changes, again", first.command, first.size)


def shorten(folder: Path) -> Step:
    """A hundred files of 3 s on two channels, five minutes; Fisher has 1,950 hours."""
    command = [PART, "shorten", str(folder / "shortened"), str(folder / "shorten-out")]
    missing = "" if SHORTENED.exists() else f"no {SHORTENED.name} in shared/data/sph beside the checkout"
    size = lambda: f"{len(list((folder / 'shorten-out').iterdir()))} files of 3 s, two channels"  # noqa: E731
    inputs = ("shortened",)
    return Step("shorten", command, size, inputs, folder / "shorten-out", missing)


def own(folder: Path) -> Step:
    """A hundred hours of single files."""
    command = [
        "asrtool",
        "prepare",
        "own",
        str(folder / "own"),
        str(folder / "own-out"),
        "--set",
        "features.resample=true",
    ]
    size = lambda: _lines(folder / "own" / "own_train" / "manifest.json", "files")  # noqa: E731
    return Step("prepare own", command, size, ("own",), folder / "own-out")


def features(folder: Path) -> Step:
    """Ten calls of noise by one process, shards computed; features_parent.py has the parent of 14,137 calls."""
    command = ["asrtool", "features", str(folder / "calls" / "manifests"), str(folder / "features")]
    command += [word for setting in FEATURES for word in ("--set", setting)]
    size = lambda: f"{_bytes(folder / 'features')} of {NUM_CALLS} calls of noise, 1 in 1,400"  # noqa: E731
    return Step("features", command, size, ("calls",), folder / "features")


def cut(folder: Path) -> Step:
    """Pieces of the same calls behind the features of seven million utterances; alignment is no part of it."""
    base, manifests, out = folder / "index" / "features", folder / "calls" / "manifests" / "long", folder / "cut"
    command = [PART, "cut", str(base), str(manifests), str(out)]
    size = lambda: f"{_bytes(out)} of files, none of them a link"  # noqa: E731
    return Step("cut, without alignment", command, size, ("calls", "index"), out)


def score(folder: Path) -> Step:
    """Dev, Hub5'00 and RT-03 by two methods."""
    run = folder / "decoded"
    command = ["asrtool", "score", "all", *(str(run / name) for name in ("decode", "manifests", "score"))]
    return Step("score", command, functools.partial(_segments, run), ("decoded",))


def report(folder: Path) -> Step:
    """Of the same, and of records of eight learners."""
    run = folder / "decoded"
    command = ["asrtool", "report", str(run), "--clips", "0"]
    return Step("report", command, functools.partial(_segments, run))


def _segments(run: Path) -> str:
    references = ((run / "manifests" / name / "ref.stm").read_text(encoding="utf-8").splitlines() for name in SETS)
    num = sum(not line.startswith(";;") for lines in references for line in lines)
    return f"{num:,} segments by two methods"


def _lines(path: Path, unit: str) -> str:
    with path.open("rb") as file:
        return f"{sum(1 for _ in file):,} {unit}"


def _bytes(folder: Path) -> str:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return f"{sum(path.stat().st_size for path in files) / 1e9:.2f} GB"


def clear(path: Path | None) -> None:
    """Remove what a run before has left."""
    if path:
        shutil.rmtree(path, ignore_errors=True)
