"""Write the records of a simulated training, as asrtool train writes them.

`learners/R.jsonl`, metrics, inputs and summary, for `asrtool plot` and the report; `inputs.json` marks it as
simulated. At most MAX_STEPS steps are written, 300 bytes each.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from asrtool.files import write_folder, write_text
from asrtool.predict.simulate.events import Begin, End, Event
from asrtool.predict.simulate.outcome import Outcome
from asrtool.predict.simulate.scenario import Scenario
from asrtool.predict.simulate.simulate import cases, simulate
from asrtool.settings.schema import Choice

MAX_STEPS = 200_000
LOG_EVERY = 10  # steps of learner 0


def write_records(scenario: Scenario, out: Path) -> Iterator[Path]:
    """Write a folder ``STRATEGY-N`` for each case of `scenario`, and yield it."""
    for strategy, number in cases(scenario):
        folder = out / f"{strategy.table}-{number}"
        shown, of_all = shorten(scenario, number)
        if of_all < 1:
            logging.warning("%s: records of the first %.2g %% of the training", folder, 100 * of_all)
        out.mkdir(parents=True, exist_ok=True)
        with write_folder(folder, "train.json") as path:
            write_training(shown, strategy, number, path, of_all)
        yield folder


def shorten(scenario: Scenario, num_learners: int) -> tuple[Scenario, float]:
    """Return the first MAX_STEPS steps of `scenario` as one epoch, and the fraction."""
    job = scenario.job
    batch = job.global_batch / num_learners or job.batch
    num_steps = job.num_samples * job.num_epochs / batch
    if num_steps <= MAX_STEPS:
        return scenario, 1.0
    epoch = min(job.num_samples, int(MAX_STEPS * batch))
    num_epochs = max(1, int(MAX_STEPS * batch // epoch))
    part = dataclasses.replace(job, num_samples=epoch, num_epochs=num_epochs)
    return dataclasses.replace(scenario, job=part), epoch * num_epochs / (job.num_samples * job.num_epochs)


def write_training(scenario: Scenario, strategy: Choice, num_learners: int, path: Path, of_all: float) -> None:
    """Simulate, and write what a training leaves behind into the folder `path`."""
    (path / "learners").mkdir()
    with Writer(path, scenario, num_learners) as writer:
        outcome = simulate(scenario, strategy, num_learners, writer.take)
        writer.report(outcome.seconds)
    settings = {
        "distributed": {"strategy": strategy.name},
        "emulation": {"compute_ms": None, "simulated": True},
    }
    inputs = {"settings": settings, "sha256": {}, "num_learners": num_learners}
    write_text(path / "inputs.json", json.dumps(inputs, indent=1) + "\n")
    write_text(path / "train.json", json.dumps(summary(scenario, outcome, of_all), indent=1) + "\n")


def summary(scenario: Scenario, outcome: Outcome, of_all: float) -> dict[str, Any]:
    """Return the content of train.json that is known without model and data."""
    return {
        "simulated": True,
        "fraction_of_training": of_all,
        "num_steps": outcome.num_batches,
        "num_epochs": scenario.job.num_epochs,
        "num_samples": round(outcome.num_batches * outcome.batch),
        "seconds": outcome.seconds,
        "num_parameters": round(1e6 * scenario.job.parameters_m),
        "strategy": outcome.strategy,
        "num_learners": outcome.num_learners,
        "lost": outcome.num_losses,
        "joined": outcome.num_joined,
    }


class Writer:
    """Follows the events of a training, and writes its steps. Opened when entered."""

    def __init__(self, path: Path, scenario: Scenario, num_learners: int) -> None:
        self._path = path
        self._batch = scenario.job.global_batch / num_learners or scenario.job.batch
        self._num_samples, self._num_batches = 0, 0
        self._begun: dict[int, Begin] = {}
        self._files: dict[int, IO[str]] = {}
        self._last_s = 0.0
        self._num_reported = 0

    def __enter__(self) -> Writer:
        self._metrics = open(self._path / "metrics.jsonl", "w", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._metrics, *self._files.values()):
            file.close()

    def take(self, event: Event) -> None:
        """Write the beginnings and ends of steps; other events do not matter here."""
        if isinstance(event, Begin):
            self._begun[event.learner] = event
        elif isinstance(event, End) and (begun := self._begun.pop(event.learner)).position is not None:
            self._write(begun, begun.position, event)

    def _write(self, begun: Begin, position: int, end: End) -> None:
        self._num_batches += 1
        self._num_samples = round(self._num_batches * self._batch)
        line = {
            "epoch": begun.epoch + 1,
            "batch": position,
            "step": self._num_batches,
            "samples": self._num_samples,
            "loss": 0.0,
            "begin": round(end.begin_s, 6),
            "compute_s": round(end.compute_s, 6),
            "comm_s": round(end.comm_s, 6),
            "wait_s": round(end.wait_s, 6),
            "data_s": round(end.data_s, 6),
            "staleness": end.staleness,
            "bytes": end.num_bytes,
            "partners": list(end.partners),
            "skipped": end.num_skipped,
            "utterances": round(self._batch),
            "frames": 0,
            "padded_frames": 0,
        }
        if end.learner not in self._files:
            path = self._path / "learners" / f"{end.learner}.jsonl"
            self._files[end.learner] = open(path, "w", encoding="utf-8")  # noqa: SIM115
        self._files[end.learner].write(json.dumps(line) + "\n")
        self._last_s = end.at_s
        if end.learner == 0 and self._num_batches >= self._num_reported + LOG_EVERY:
            self.report(end.at_s)

    def report(self, seconds: float) -> None:
        """A line of metrics.jsonl: how far all learners are."""
        self._num_reported = self._num_batches
        line = {"kind": "train", "step": self._num_batches, "samples": self._num_samples, "seconds": seconds}
        self._metrics.write(json.dumps(line) + "\n")
