"""Rates of a training by host, from the step records of its learners."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from asrtool.train.ledger import read_records

HOST = "host/"  # before its name, the kind of a line of metrics.jsonl


class HostRates:
    """Reader of the steps that the learners of a training in `out` record from now on.

    It runs with `num_learners`; others have joined. Their records go on after `num_bytes` each, as a checkpoint has
    them; by default after all that are there.
    """

    def __init__(
        self,
        out: Path,
        num_learners: int,
        num_bytes: Sequence[int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = out / "learners"
        self._num_learners = num_learners
        self._clock = clock
        self._time = clock()
        paths = self._folder.glob("*.jsonl")
        self._ends = (
            {int(path.stem): path.stat().st_size for path in paths} if num_bytes is None else dict(enumerate(num_bytes))
        )
        self._hosts: dict[int, str] = {}  # hosts of the learners that have trained

    def take(self) -> dict[str, dict[str, float]]:
        """Return the rates by host since the last call; empty for a single host.

        They are `learners` that train, `steps_per_s` of all of them, `wait_fraction` of their time in steps, mean
        `staleness`, `skipped` exchanges, and learners that were `lost` and that `joined`.
        """
        before, self._time = self._time, self._clock()
        new: dict[str, list[dict[str, Any]]] = {}
        for path in self._folder.glob("*.jsonl"):
            for record in self._read(path, int(path.stem)):
                self._hosts[int(path.stem)] = record["host"]
                new.setdefault(record["host"], []).append(record)
        if len({*self._hosts.values()}) < 2:
            return {}
        seconds = max(self._time - before, 1e-9)
        return {host: self._rates(host, new.get(host, []), seconds) for host in sorted({*self._hosts.values()})}

    def _read(self, path: Path, rank: int) -> Iterator[dict[str, Any]]:
        """Yield the new steps. The file of a lost learner may have become shorter."""
        begin = self._ends[rank] = min(self._ends.get(rank, 0), path.stat().st_size)
        for record, end in read_records(path, begin):
            self._ends[rank] = end
            if "host" in record:  # a virtual learner has none
                yield record

    def _rates(self, host: str, steps: list[dict[str, Any]], seconds: float) -> dict[str, float]:
        ranks = [rank for rank, other in self._hosts.items() if other == host]
        lost = sum((self._folder / f"{rank}.lost").exists() for rank in ranks)
        waited_s = sum(step["wait_s"] for step in steps)
        in_steps_s = waited_s + sum(step["compute_s"] + step["comm_s"] + step["data_s"] for step in steps)
        return {
            "learners": len(ranks) - lost,
            "steps_per_s": len(steps) / seconds,
            "wait_fraction": waited_s / in_steps_s if in_steps_s else 0.0,
            "staleness": sum(step["staleness"] for step in steps) / max(len(steps), 1),
            "skipped": sum(step["skipped"] for step in steps),
            "lost": lost,
            "joined": sum(rank >= self._num_learners for rank in ranks),
        }
