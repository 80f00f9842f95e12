"""Train a recipe's model by virtual learners: by a cluster model, or by a log.

WORK is a work folder of `asrtool run` with features. The training is its stage train. It writes the files of a training
in virtual seconds; `model.pt` is the mean of all learners at the end, and there are no checkpoints.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from asrtool.data.manifests.sets import training_features
from asrtool.distributed.members.members import learner_file
from asrtool.errors import AsrtoolError
from asrtool.files import write_folder, write_text
from asrtool.models.acoustic import save_model
from asrtool.models.objectives.topology import uses_tree
from asrtool.predict.simulate.events import Emit, Event
from asrtool.predict.simulate.scenario import Faults, Scenario
from asrtool.predict.simulate.simulate import cases, check_cases
from asrtool.predict.theory.measure import read_config
from asrtool.predict.virtual.events import epoch_sizes, follow_simulation, replay
from asrtool.predict.virtual.learners import Evaluated, Stepped, VirtualLearners, check_rule
from asrtool.settings.config import Config, to_table
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_section
from asrtool.train.inputs import FINAL, INPUTS
from asrtool.train.job import Components
from asrtool.train.loop.metrics import Reports
from asrtool.train.loop.step_records import Lines, Step, record_of
from asrtool.train.train import acoustic_job

REPLAYED = ("model", "augment", "specaugment", "train", "distributed")  # sections that inputs.json has


@dataclass(frozen=True)
class Result:
    """Result of a training by virtual learners."""

    strategy: str
    num_learners: int
    seconds: float  # seconds of virtual time
    dev_losses: list[float]  # after each epoch
    num_steps: int
    computed_s: float  # seconds of this computation

    def __str__(self) -> str:
        losses = ", ".join(f"{loss:.4f}" for loss in self.dev_losses)
        learners = f"{self.num_learners} learner{'s' * (self.num_learners > 1)}"
        return (
            f"{self.strategy}, {learners}: {self.seconds / 3600:.3g} h of virtual time; loss on dev {losses};"
            f" {self.num_steps} steps in {self.computed_s:.0f} s here, {self.num_steps / self.computed_s:.1f} a second"
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON."""
        return {**asdict(self), "steps_per_s": self.num_steps / self.computed_s}


def train_cases(
    work: Path, overrides: Iterable[str], scenario: Scenario, is_chosen: bool, logged: Path | None, out: Path
) -> Iterator[Result]:
    """Train the cases of `scenario` in folders ``STRATEGY-N``, or replay `logged`.

    Without a chosen strategy, the training of `work` has its own.
    """
    config = read_config(work, [], list(overrides))
    if logged:
        yield train_as_logged(work, config, logged, out)
        return
    if not is_chosen:
        distributed = replace(scenario.distributed, strategy=(config.distributed.strategy,))
        scenario = replace(scenario, distributed=distributed)
    found = cases(scenario)
    check_cases([(scenario, *case) for case in found])
    for strategy, _ in found:
        check_rule(strategy)
    for strategy, num_learners in found:
        yield train_by_model(work, config, scenario, strategy, num_learners, out / f"{strategy.table}-{num_learners}")


def train_by_model(
    work: Path, config: Config, scenario: Scenario, strategy: Choice, num_learners: int, out: Path
) -> Result:
    """Train in virtual time and write to `out`. Raises Diverged and AsrtoolError."""
    if scenario.faults != Faults():
        what = "faults of the scenario: virtual learners are not lost and do not join"
        raise AsrtoolError(what, "leave [faults] out")
    if getattr(strategy.settings, "node_size", None) == 0:  # node size of the cluster model
        own = replace(strategy.settings, node_size=scenario.network.node_size(num_learners))
        strategy = replace(strategy, settings=own)
    distributed = replace(config.distributed, strategy=strategy, num_learners=num_learners)

    def follow(learners: VirtualLearners, take: Emit) -> float:
        sizes = epoch_sizes(learners.step_plan.plan, learners.job.optimisation.num_epochs)
        round_size = learners.rule.assignment_rule.round_size(num_learners)
        return follow_simulation(scenario, strategy, num_learners, sizes, round_size, take)

    return _train(work, replace(config, distributed=distributed), num_learners, follow, out)


def train_as_logged(work: Path, config: Config, logged: Path, out: Path) -> Result:
    """Train step by step as the log of `logged`, and write to `out`; raises as replay."""
    if not (logged / INPUTS).is_file():
        what = f"{logged / INPUTS} is missing: {logged} is no OUT of asrtool train"
        raise AsrtoolError(what, "asrtool train --events, and name its OUT for --replay")
    inputs = json.loads((logged / INPUTS).read_text(encoding="utf-8"))
    for name in REPLAYED:
        table = {**to_table(getattr(config, name)), **inputs["settings"][name]}
        config = replace(config, **{name: load_section(name, table, str(logged / INPUTS))})
    num_learners = inputs["num_learners"]
    events = replay(logged, config.distributed, num_learners)

    def follow(learners: VirtualLearners, take: Emit) -> float:
        if other := learners.job.inputs.first_difference(logged / INPUTS):
            what = f"{logged}: trained with other settings or data than {work} has ({other})"
            raise AsrtoolError(what, "name its work directory for --train")
        at_s = 0.0
        for event in events:
            take(event)
            at_s = event.at_s
        return at_s

    return _train(work, config, num_learners, follow, out)


def _train(
    work: Path, config: Config, num_learners: int, follow: Callable[[VirtualLearners, Emit], float], out: Path
) -> Result:
    targets = work / "realign" if uses_tree(config.model.objective) else None
    features = training_features(work / "features", work / "cut", config.data)
    begin = time.perf_counter()
    out.parent.mkdir(parents=True, exist_ok=True)
    with write_folder(out, FINAL) as folder, contextlib.ExitStack() as stack:
        job = acoustic_job(features, work / "tokenizer", folder, config, targets=targets)
        torch.manual_seed(job.optimisation.seed)
        components = job.build(num_learners)
        learners = VirtualLearners(job, components, num_learners)
        records = VirtualRecords(folder, learners, components, stack)

        def take(event: Event) -> None:
            for found in learners.take(event):
                records.write(found)

        seconds = follow(learners, take)
        for evaluated in learners.end(seconds):
            records.write(evaluated)
        records.end()
    logging.info("%s is trained", out)
    computed_s = time.perf_counter() - begin
    name, num_steps = job.distributed.strategy.name, learners.state.step
    return Result(name, num_learners, seconds, records.dev_losses, num_steps, computed_s)


class VirtualRecords:
    """Records in `out` of the training of `learners`; `stack` closes them."""

    def __init__(
        self, out: Path, learners: VirtualLearners, components: Components, stack: contextlib.ExitStack
    ) -> None:
        self._out, self._learners, self._components, self._job = out, learners, components, learners.job
        self._now_s = 0.0
        self.dev_losses: list[float] = []  # after each epoch
        self._reports = Reports(
            self._job.optimisation, learners.total_samples, out, learners.state, is_first=True, time=lambda: self._now_s
        )
        self._lines = [Lines(learner_file(out, learner, "jsonl")) for learner in learners.state.learners]
        settings = {**self._job.inputs.settings, "simulation": {"learners": "virtual"}}
        inputs = replace(self._job.inputs, settings=settings)
        write_text(out / INPUTS, inputs.to_json(len(self._lines)))
        self._lines[0].path.parent.mkdir()
        for lines in self._lines:
            lines.open()
            stack.callback(lines.close)
        stack.enter_context(self._reports)

    def write(self, found: Stepped | Evaluated) -> None:
        """Write the results of virtual learners; AsrtoolError if the disk is full."""
        state, reports = self._learners.state, self._reports
        if isinstance(found, Evaluated):
            self._now_s, place = max(self._now_s, found.at_s), found.place
            reports.lap_s()
            if len(self._lines) > 1:
                reports.report_learners(place.step, found.consensus)
            state = replace(state, step=place.step, epoch=place.epoch, samples=place.samples)
            self.dev_losses.append(reports.report_dev(found.losses, state))
            return
        trained, end = found.trained, found.end
        batch, after, number = trained.batch, trained.after, trained.number
        assert batch
        assert number
        self._now_s = max(self._now_s, end.at_s)
        batch.wait_s = end.data_s
        cost = end._replace(staleness=trained.staleness).cost
        computed = trained.nats, trained.figures, trained.grad_norm
        step = Step(after.step, after.samples, *computed, end.begin_s, end.compute_s, cost)
        self._lines[end.learner].write(record_of(number, step, batch, trained.num_samples))
        state.step += 1
        state.samples += trained.num_samples
        state.frames += batch.frames
        state.padded_frames += batch.padded_frames
        if end.learner == 0:
            reports.begin_epoch(number.epoch, after.step, self._components.train_set.portions)
            reports.add(batch, step)
            if reports.is_due(after.step):
                reports.report(number.epoch, after.step, after.samples, found.rate)

    def end(self) -> None:
        """Write the model and the summary, after the last event."""
        state, model, losses = self._learners.state, self._learners.model.eval(), self.dev_losses
        save_model(self._out / "model.pt", model, self._components.info)
        summary = {
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
        write_text(self._out / FINAL, json.dumps(summary, indent=1) + "\n")
