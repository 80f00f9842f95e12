"""Read a training as arrays: steps, losses, consensus distance and drift."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrtool.distributed.members.supervisor import why_lost
from asrtool.errors import AsrtoolError

COUNTS = ("step", "samples", "staleness", "bytes", "skipped")
STEP = np.dtype(
    [(name, "i8") for name in COUNTS]
    + [("exchanges", "i8")]
    + [(name, "f8") for name in ("loss", "begin", "compute_s", "comm_s", "wait_s", "data_s")]
)
Floats = NDArray[np.float64]
OR_TRAIN = ", or name the OUT of asrtool train"  # advice if a file of a training is missing


@dataclass(frozen=True)
class TrainingRun:
    """Training, finished or running.

    Samples are utterances, losses nats a token, seconds of training.
    """

    folder: Path
    settings: dict[str, Any]  # settings of inputs.json
    summary: dict[str, Any]  # train.json; nothing before the end
    strategy: str
    emulated: bool  # computation was emulated or simulated, without losses
    simulated: bool  # the training was in virtual time (asrtool.predict.simulate)
    finished: bool
    seconds: float
    learners: dict[int, NDArray[np.void]]  # rank -> its steps, of type STEP, in the order of time
    partners: dict[int, list[int]]  # rank -> those with whom exchanges that it began were done, sorted
    hosts: dict[int, str]  # rank -> the host of its last step; none if unknown
    num_learners: int  # without those that joined
    lost: dict[int, str]  # learners that the others trained on without -> reason, '' if unknown
    joined: list[int]  # learners that came later
    dropped: list[int]  # learners that were left out when training was resumed with fewer
    host_rates: dict[str, Floats]  # host -> (.., 3): seconds of training, steps a second, staleness
    clock: Floats  # (.., 2): samples, the seconds they took; both grow
    dev: Floats  # (.., 4): samples, loss, fractions of targets and of words that are wrong (NaN if unknown)
    dev_epochs: list[int]  # number of ended epochs of each row of `dev`
    stopped_early: bool  # since the loss on dev fell no more
    num_overflows: int  # steps of learner 0 that were skipped, since fp16 overflowed
    corpora: dict[int, dict[str, dict[str, float]]]  # epoch -> corpus -> utterances, fraction, hours
    consensus: Floats  # (.., 3): samples, consensus distance, drift (NaN if unknown)

    @property
    def differ(self) -> bool:
        """True if learners ever had different weights."""
        return bool((self.consensus[:, 1] > 0).any())

    @property
    def best(self) -> int:
        """Row of `dev` with the lowest loss, the first of equal ones; NaN is not lower."""
        return int(np.where(np.isnan(self.dev[:, 1]), np.inf, self.dev[:, 1]).argmin())

    @property
    def day(self) -> str:
        """Day of the last step, in UTC."""
        return f"{datetime.fromtimestamp(float(self.all_steps()['begin'].max()), timezone.utc):%Y-%m-%d}"

    @property
    def num_steps(self) -> int:
        """Number of steps of all learners."""
        return sum(map(len, self.learners.values()))

    def lifetime_s(self, rank: int) -> float:
        """Return the seconds of a learner's training, from first to last step if not all."""
        steps = self.learners[rank]
        is_whole = rank not in {*self.lost, *self.joined, *self.dropped} or not len(steps)
        return self.seconds if is_whole else min(self.seconds, _span_s(steps))

    def seconds_at(self, samples: Floats) -> Floats:
        """Return the time of a sample count, interpolated between metrics lines."""
        return np.interp(samples, self.clock[:, 0], self.clock[:, 1])

    def all_steps(self) -> NDArray[np.void]:
        """Return the steps of all learners, in order of batch assignment."""
        steps = np.concatenate(list(self.learners.values()))
        return steps[np.argsort(steps["step"], kind="stable")]


def read_training(train: Path) -> TrainingRun:
    """Read the directory `train` that ``asrtool train`` writes.

    Holds 96 bytes a step. Raises AsrtoolError for a missing file, a line that is no record, and a training without a
    step.
    """
    content = read_json(train / "inputs.json", "train", OR_TRAIN)
    inputs = content["settings"]
    is_simulated = bool(inputs["emulation"].get("simulated"))
    learners, partners = {}, {}
    hosts: dict[int, str] = {}
    for rank, path in _find_learners(train / "learners").items():
        learners[rank], partners[rank], host = _read_steps(path)
        hosts |= {rank: host} if host else {}
    if not any(map(len, learners.values())):
        raise AsrtoolError(f"{train / 'learners'}: no learner has finished a step", "let the training continue")
    finished = (train / "train.json").exists()
    final = read_json(train / "train.json", "train", OR_TRAIN) if finished else {}
    num_begun = content.get("num_learners", len(learners))
    num_learners = final.get("num_learners", num_begun)
    others = [rank for rank in learners if rank >= num_begun]
    joined = others if is_simulated else final.get("joined", others)
    lines = list(_read_lines(train / "metrics.jsonl"))
    clock = [(0.0, 0.0), *_columns(lines, "train", "samples", "seconds")]
    seconds = final["seconds"] if finished else clock[-1][1]
    if len(clock) == 1:  # learner 0 logs the time; it may have had no batch, or not logged yet
        every = np.concatenate(list(learners.values()))
        seconds = seconds or _span_s(every)
        clock.append((float(every["samples"].max()), seconds))
    return TrainingRun(
        folder=train,
        settings=inputs,
        summary=final,
        strategy=inputs["distributed"]["strategy"],
        emulated=inputs["emulation"]["compute_ms"] is not None or is_simulated,
        simulated=is_simulated,
        finished=finished,
        seconds=seconds,
        learners=learners,
        partners=partners,
        hosts=hosts,
        num_learners=num_learners,
        lost={} if is_simulated else _read_lost(train, final),
        joined=joined,
        dropped=[rank for rank in learners if finished and rank >= num_learners and rank not in joined],
        host_rates=_read_host_rates(lines),
        clock=np.array(clock),
        dev=np.array(_columns(lines, "dev", "samples", "loss", "errors", "word_errors")).reshape(-1, 4),
        dev_epochs=[line["epoch"] for line in lines if line.get("kind") == "dev"],
        stopped_early=final.get("stopped_early", False),
        num_overflows=int(max((line.get("skipped_steps", 0) for line in lines), default=0)),
        corpora=_read_corpora(lines),
        consensus=_read_consensus(lines, learners),
    )


def _read_corpora(lines: list[dict[str, Any]]) -> dict[int, dict[str, dict[str, float]]]:
    corpora: dict[int, dict[str, dict[str, float]]] = {}
    for line in lines:
        kind, _, name = str(line.get("kind")).partition("/")
        if kind == "corpus":
            corpora.setdefault(line["epoch"], {})[name] = line
    return corpora


def _read_lost(train: Path, final: dict[str, Any]) -> dict[int, str]:
    """Return why learners were lost; as long as the training runs, each has a file."""
    files = {path.stem: why_lost(train, int(path.stem)) for path in train.glob("learners/*.lost")}
    found = final.get("lost", files)
    return {int(rank): found[rank] for rank in sorted(found, key=int)}


def _read_host_rates(lines: list[dict[str, Any]]) -> dict[str, Floats]:
    """Return the rates of each host, at the time of the line of learner 0 before them."""
    rates: dict[str, list[tuple[float, ...]]] = {}
    seconds = 0.0
    for line in lines:
        kind, _, name = str(line.get("kind")).partition("/")
        if kind == "train":
            seconds = line["seconds"]
        elif kind == "host":
            rates.setdefault(name, []).append((seconds, line["steps_per_s"], line["staleness"]))
    return {name: np.array(rows) for name, rows in sorted(rates.items())}


def _find_learners(folder: Path) -> dict[int, Path]:
    files = {int(path.stem): path for path in folder.glob("*.jsonl") if path.stem.isdecimal()}
    if not files:
        raise AsrtoolError(
            f"{folder}: no steps of learners, expected 0.jsonl and so on",
            "run stage train again with --force, or asrtool train with another OUT",
        )
    return dict(sorted(files.items()))


def _read_steps(path: Path) -> tuple[NDArray[np.void], list[int], str]:
    """Read the steps of a learner, its partners, and its last host."""
    assert STEP.names
    partners: set[int] = set()
    host = ""

    def values(line: dict[str, Any]) -> tuple[Any, ...]:
        nonlocal host
        partners.update(line["partners"])
        host = line.get("host", host)
        line["exchanges"] = len(line["partners"])
        line["loss"] = np.nan if line["loss"] is None else line["loss"]
        return tuple(line[name] for name in STEP.names or ())

    try:
        return np.fromiter(map(values, _read_lines(path)), STEP), sorted(partners), host
    except (KeyError, TypeError, ValueError) as error:
        raise AsrtoolError(
            f"{path}: a line is no step of a learner: {error}", "train again into another OUT"
        ) from error


def _span_s(steps: NDArray[np.void]) -> float:
    """Return the seconds from the first step's start to the last one's end."""
    ends = steps["begin"] + steps["compute_s"] + steps["comm_s"] + steps["wait_s"]
    return float(ends.max() - (steps["begin"] - steps["data_s"]).min())


def _read_consensus(lines: list[dict[str, Any]], learners: dict[int, NDArray[np.void]]) -> Floats:
    """Read consensus distances; samples come from the record of the last step."""
    values = _columns(lines, "learners", "step", "consensus_distance", "drift")
    consensus = np.array(values, dtype=float).reshape(-1, 3)
    pairs = np.concatenate([steps[["step", "samples"]] for steps in learners.values()])
    pairs.sort(order="step")
    consensus[:, 0] = np.interp(consensus[:, 0], pairs["step"], pairs["samples"])
    return consensus


def _columns(lines: list[dict[str, Any]], kind: str, *names: str) -> list[tuple[float, ...]]:
    """Return the values of `names` in lines of a `kind`; NaN if missing."""
    return [tuple(line.get(name, np.nan) for name in names) for line in lines if line.get("kind") == kind]


def read_json(path: Path, stage: str, otherwise: str = "") -> dict[str, Any]:
    """Return the object in a file of `stage`; AsrtoolError if missing or broken."""
    try:
        content = json.loads(existing(path, stage, otherwise).read_bytes())
    except ValueError as error:
        raise AsrtoolError(f"{path}: broken JSON: {error}", f"run stage {stage} again with --force") from error
    assert isinstance(content, dict), f"{path} holds {type(content)}"
    return content


def existing(path: Path, stage: str, otherwise: str = "") -> Path:
    """Return the file `path` of `stage`; AsrtoolError if it is missing."""
    if not path.is_file():
        raise AsrtoolError(f"{path} is missing", f"run stage {stage} first{otherwise}")
    return path


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file, without an incomplete last line."""
    with open(existing(path, "train", OR_TRAIN), "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                content = json.loads(line)
            except ValueError as error:
                raise AsrtoolError(
                    f"{path}: line {number}: broken JSON: {error}", "remove the line, or train again into another OUT"
                ) from error
            yield content
