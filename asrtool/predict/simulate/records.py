"""Write the records of a simulated training, as asrtool train writes them.

`learners/R.jsonl`, metrics, inputs and summary, for `asrtool plot` and the report; `inputs.json` marks it as
simulated. At most MAX_STEPS steps are written, 300 bytes each.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asrtool.distributed.work.work_queue import BatchNumber
from asrtool.files import write_folder, write_text
from asrtool.predict.simulate.events import Begin, End, Event
from asrtool.predict.simulate.outcome import Outcome
from asrtool.predict.simulate.scenario import Scenario
from asrtool.predict.simulate.simulate import cases, simulate
from asrtool.settings.schema import Choice
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.loop.step_records import Step, record_of

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
    """Simulate; write the files of a training into the folder `path`."""
    writer = Writer(scenario, num_learners)
    outcome = simulate(scenario, strategy, num_learners, writer.take)
    writer.report(outcome.seconds)
    (path / "learners").mkdir()
    for name, lines in writer.files.items():
        write_text(path / name, "".join(lines))
    emulation = {"compute_ms": None, "simulated": True}
    settings = {"distributed": {"strategy": strategy.name}, "emulation": emulation}
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
    """Lines of the files of a training, from its events."""

    def __init__(self, scenario: Scenario, num_learners: int) -> None:
        self.files: defaultdict[str, list[str]] = defaultdict(list)  # name -> lines
        self._batch = scenario.job.global_batch / num_learners or scenario.job.batch
        self._num_batches, self._num_reported = 0, 0
        self._begun: dict[int, Begin] = {}
        nothing, none_N = np.zeros((0, 0)), np.zeros(0, np.int64)
        self._no_speech = TrainingBatch([], nothing, none_N, torch.empty(0, 0), torch.empty(0), 1)

    @property
    def _num_samples(self) -> int:
        return round(self._num_batches * self._batch)

    def take(self, event: Event) -> None:
        """Add the step of an End that has a batch; other events do not matter here."""
        if isinstance(event, Begin):
            self._begun[event.learner] = event
        elif isinstance(event, End) and (begun := self._begun.pop(event.learner)).position is not None:
            self._add_step(begun, begun.position, event)

    def _add_step(self, begun: Begin, position: int, end: End) -> None:
        self._num_batches += 1
        self._no_speech.wait_s = end.data_s
        step = Step(self._num_batches, self._num_samples, 0.0, {}, 0.0, end.begin_s, end.compute_s, end.cost)
        number = BatchNumber(begun.epoch, position)
        line = record_of(number, step, self._no_speech, round(self._batch))
        self.files[f"learners/{end.learner}.jsonl"].append(json.dumps(line) + "\n")
        if end.learner == 0 and self._num_batches >= self._num_reported + LOG_EVERY:
            self.report(end.at_s)

    def report(self, seconds: float) -> None:
        """Add a line of metrics: how far all learners are."""
        self._num_reported = self._num_batches
        line = {"kind": "train", "step": self._num_batches, "samples": self._num_samples, "seconds": seconds}
        self.files["metrics.jsonl"].append(json.dumps(line) + "\n")
