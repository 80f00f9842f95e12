"""Write the records of a simulated training, as asrtool train writes them.

`learners/R.jsonl`, metrics, inputs and summary, for `asrtool plot` and the report; `inputs.json` marks it as
simulated. At most MAX_STEPS steps are written, 300 bytes each.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from asrtool.distributed.work.work_queue import BatchNumber
from asrtool.files import write_folder, write_text
from asrtool.predict.simulate.events import Begin, End, Event
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
        shown, part_of_all = shorten(scenario, number)
        if part_of_all < 1:
            logging.warning("%s: records of the first %.2g %% of the training", folder, 100 * part_of_all)
        out.mkdir(parents=True, exist_ok=True)
        with write_folder(folder, "train.json") as path:
            _write_training(shown, strategy, number, path, part_of_all)
        yield folder


def shorten(scenario: Scenario, num_learners: int) -> tuple[Scenario, float]:
    """Return the first MAX_STEPS steps of `scenario` as one epoch, and the fraction."""
    job, batch = scenario.job, scenario.job.batch_of(num_learners)
    num_samples = job.num_samples * job.num_epochs
    if num_samples / batch <= MAX_STEPS:
        return scenario, 1.0
    epoch = min(job.num_samples, int(MAX_STEPS * batch))
    num_epochs = max(1, int(MAX_STEPS * batch // epoch))
    part = replace(job, num_samples=epoch, num_epochs=num_epochs)
    return replace(scenario, job=part), epoch * num_epochs / num_samples


def _write_training(scenario: Scenario, strategy: Choice, num_learners: int, path: Path, part_of_all: float) -> None:
    """Simulate; write the files of a training into the folder `path`."""
    files: defaultdict[str, list[str]] = defaultdict(list)  # name -> lines
    begun: dict[int, Begin] = {}
    batch = scenario.job.batch_of(num_learners)
    num_batches = num_reported = 0
    nothing, none_N = np.zeros((0, 0)), np.zeros(0, np.int64)
    no_speech = TrainingBatch([], nothing, none_N, torch.empty(0, 0), torch.empty(0), 1)

    def report(seconds: float) -> None:
        """Add a line of metrics: the progress of all learners."""
        nonlocal num_reported
        num_reported = num_batches
        line = {"kind": "train", "step": num_batches, "samples": round(num_batches * batch), "seconds": seconds}
        files["metrics.jsonl"].append(json.dumps(line) + "\n")

    def take(event: Event) -> None:
        """Add the step of an End that has a batch; other events do not matter here."""
        nonlocal num_batches
        if isinstance(event, Begin):
            begun[event.learner] = event
        if not isinstance(event, End) or (begin := begun.pop(event.learner)).position is None:
            return
        num_batches += 1
        no_speech.wait_s = event.data_s
        samples = round(num_batches * batch)
        step = Step(num_batches, samples, 0.0, {}, 0.0, event.begin_s, event.compute_s, event.cost)
        line = record_of(BatchNumber(begin.epoch, begin.position), step, no_speech, round(batch))
        files[f"learners/{event.learner}.jsonl"].append(json.dumps(line) + "\n")
        if event.learner == 0 and num_batches >= num_reported + LOG_EVERY:
            report(event.at_s)

    outcome = simulate(scenario, strategy, num_learners, take)
    report(outcome.seconds)
    (path / "learners").mkdir()
    for name, lines in files.items():
        write_text(path / name, "".join(lines))
    emulation = {"compute_ms": None, "simulated": True}
    settings = {"distributed": {"strategy": strategy.name}, "emulation": emulation}
    inputs = {"settings": settings, "sha256": {}, "num_learners": num_learners}
    write_text(path / "inputs.json", json.dumps(inputs, indent=1) + "\n")
    summary = {  # all that is known without model and data
        "simulated": True,
        "fraction_of_training": part_of_all,
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
    write_text(path / "train.json", json.dumps(summary, indent=1) + "\n")
