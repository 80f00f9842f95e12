"""Files of a virtual training: `learners/`, metrics, train.json, `model.pt`.

Seconds are virtual. `model.pt` is the mean of all learners at the end; there are no checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

from asrtool.distributed.work.work_queue import BatchNumber
from asrtool.files import write_text
from asrtool.models.acoustic import save_model
from asrtool.predict.virtual.learners import Evaluated, Stepped, VirtualLearners
from asrtool.train.inputs import FINAL, INPUTS
from asrtool.train.job import Components
from asrtool.train.ledger import records_path
from asrtool.train.loop.metrics import Reports
from asrtool.train.loop.step_records import Lines, Step, record_of


class VirtualRecords:
    """Records in `out` of the training of `learners`; `stack` closes them."""

    def __init__(
        self, out: Path, learners: VirtualLearners, components: Components, stack: contextlib.ExitStack
    ) -> None:
        self._out = out
        self._learners = learners
        self._components = components
        self._now_s = 0.0
        self.dev_losses: list[float] = []  # after each epoch
        self._job = learners.job
        self._reports = Reports(
            self._job.optimisation, learners.total_samples, out, learners.state, is_first=True, time=lambda: self._now_s
        )
        self._lines = [Lines(records_path(out, learner)) for learner in learners.state.learners]
        settings = {**self._job.inputs.settings, "simulation": {"learners": "virtual"}}
        inputs = dataclasses.replace(self._job.inputs, settings=settings)
        write_text(out / INPUTS, inputs.to_json(len(self._lines)))
        self._lines[0].path.parent.mkdir()
        for lines in self._lines:
            lines.open()
            stack.callback(lines.close)
        stack.enter_context(self._reports)

    def write(self, found: Stepped | Evaluated) -> None:
        """Write the results of virtual learners; AsrtoolError when the disk is full."""
        if isinstance(found, Stepped):
            self._now_s = max(self._now_s, found.end.at_s)
            self._write_step(found)
        else:
            self._now_s = max(self._now_s, found.at_s)
            self._write_evaluated(found)

    def _write_step(self, found: Stepped) -> None:
        trained, end, state = found.trained, found.end, self._learners.state
        begin, batch, after = trained.begin, trained.batch, trained.after
        assert batch
        assert begin.position is not None
        batch.wait_s = end.data_s
        cost = end._replace(staleness=trained.staleness).cost
        computed = trained.nats, trained.figures, trained.grad_norm
        step = Step(after.step, after.samples, *computed, end.begin_s, end.compute_s, cost)
        number = BatchNumber(begin.epoch, begin.position)
        self._lines[end.learner].write(record_of(number, step, batch, trained.num_samples))
        state.step += 1
        state.samples += trained.num_samples
        state.frames += batch.frames
        state.padded_frames += batch.padded_frames
        if end.learner == 0:
            self._reports.begin_epoch(begin.epoch, after.step, self._components.train_set.portions)
            self._reports.add(batch, step)
            if self._reports.is_due(after.step):
                self._reports.report(begin.epoch, after.step, after.samples, found.rate)

    def _write_evaluated(self, found: Evaluated) -> None:
        self._reports.lap_s()
        if len(self._lines) > 1:
            self._reports.report_learners(found.place.step, found.consensus)
        place = found.place
        state = dataclasses.replace(self._learners.state, step=place.step, epoch=place.epoch, samples=place.samples)
        self.dev_losses.append(self._reports.report_dev(found.losses, state))

    def end(self) -> None:
        """After the last event: the model, and the summary."""
        self._learners.model.eval()
        save_model(self._out / "model.pt", self._learners.model, self._components.info)
        write_text(self._out / FINAL, json.dumps(self._summary(), indent=1) + "\n")

    def _summary(self) -> dict[str, Any]:
        state, model, losses = self._learners.state, self._learners.model, self.dev_losses
        return {
            "simulated": True,
            "num_steps": state.step,
            "num_epochs": len(losses),
            "num_samples": state.samples,
            **self._components.train_set.describe(),
            "seconds": state.seconds,
            "frames_per_s": state.frames / state.seconds,
            "padding_fraction": 1 - state.frames / state.padded_frames,
            "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
            "dev_loss": losses[-1],
            "best_dev_loss": min(losses),
            "best_epoch": 1 + losses.index(min(losses)),
            "stopped_early": False,
            "strategy": self._job.distributed.strategy.name,
            "num_learners": len(self._lines),
            "lost": {},
            "joined": [],
            "num_threads": state.num_threads,
            "precision": state.precision,
            "code": [self._job.code],
            "checkpoints": [],
        }
