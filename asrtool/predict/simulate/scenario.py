"""Scenarios: all settings of a simulation, from files and overrides."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.config import to_table
from asrtool.settings.documentation import meanings
from asrtool.settings.schema import Choice, at_least, between, choices, field_types, one_of, positive
from asrtool.settings.toml_files import build_section, read_given
from asrtool.settings.values import format_key, format_value, nearest

DISTRIBUTIONS = ("constant", "lognormal", "exponential")
SCENARIOS = {path.stem: path for path in sorted((Path(__file__).parent / "scenarios").glob("*.toml"))}
HINT = "correct the value in the scenario or in --set"


class Section:
    """A table of the file, named after its class; no number is below 0."""

    positive_fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        table = type(self).__name__.lower()
        positive(table, self, *self.positive_fields)
        at_least(0, table, self, *(name for name, value in vars(self).items() if isinstance(value, int | float)))


@dataclass(frozen=True)
class Job(Section):
    """Size and length of the training."""

    parameters_m: float = 43.15  # millions of parameters of the model
    num_samples: int = 1_000_000  # of an epoch
    num_epochs: int = 1  # passes over them
    batch: int = 128  # samples of a step of one learner
    global_batch: int = 0  # samples of a step of all learners, for batch of each; 0 is none
    seed: int = 1  # of all that is drawn

    positive_fields = ("parameters_m",)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, "job", self, "num_samples", "num_epochs", "batch")

    def batch_of(self, num_learners: int) -> float:
        """Return the samples of a step of one learner."""
        return self.global_batch / num_learners or self.batch


@dataclass(frozen=True)
class Distributed(Section):
    """Learners and strategies to compare; tables of strategies as for asrtool train."""

    strategy: tuple[Choice, ...] = choices("strategy", *(name for name in registry.names("strategy")))  # which ones
    num_learners: tuple[int, ...] = (8,)  # how many of them, each number by itself
    timeout_s: float = 20.0  # seconds without a sign of life after which a learner is taken for lost

    positive_fields = ("timeout_s",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("strategy", "num_learners"):
            if not getattr(self, name):
                raise ValueError(f"distributed.{name} is empty, expected one or more")
        for number in self.num_learners:
            if number < 1:
                raise ValueError(f"distributed.num_learners is {number}, expected 1 or more")


@dataclass(frozen=True)
class Compute(Section):
    """Duration of a step: data, forward, backward and optimizer."""

    ms: float = 100.0  # mean of a step
    samples_per_s: float = 0.0  # of one learner, for ms; 0 is none
    batch: int = 0  # samples that ms is for; 0 is job.batch
    fixed_ms: float = 0.0  # part of ms that is the same for any batch
    distribution: str = "constant"  # or lognormal, exponential
    spread: float = 0.0  # standard deviation of a step / mean, of lognormal
    trace: str = ""  # file with ms of a step in each line, or DIR of a training, for ms and distribution; empty is none
    forward_fraction: float = 0.3333  # of the step before the first gradient
    cpu_ms: float = 0.0  # part of the step that needs one of network.cores_per_node
    update_ms: float = 0.0  # part of the step after the last gradient, which no message overlaps: the optimizer

    positive_fields = ("ms",)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("compute.distribution", self.distribution, DISTRIBUTIONS)
        between("compute.forward_fraction", self.forward_fraction, 0, 1)
        if self.spread and self.distribution != "lognormal":
            raise ValueError(
                f"compute.spread is {self.spread:g} but compute.distribution is {self.distribution},"
                ' which has none: set compute.distribution = "lognormal"'
            )


@dataclass(frozen=True)
class Network(Section):
    """Links: one of each node to the others, and one of each learner in its node."""

    learners_per_node: int = 8  # of num_learners; 0 is all in one node
    gbit_per_s: float = 100.0  # line rate of a node, each way
    latency_us: float = 10.0  # of a message between nodes
    inner_gbit_per_s: float = 400.0  # of a learner within its node, each way
    inner_latency_us: float = 5.0  # of a message within a node
    node_gbit_per_s: float = 0.0  # of all messages within a node together; 0 is no limit
    cores_per_node: int = 0  # that learners of a node share, by compute.cpu_ms; 0 is one for each
    efficiency: float = 0.9  # fraction of both rates that messages get
    bucket_mb: float = 25.0  # gradients that are averaged at once while backward computes others
    host_gbyte_per_s: float = 0.0  # at which an end of an exchange, or a server, reads a message; 0 takes no time
    mix_ms: float = 0.0  # of a step, for copies of weights by which a learner sends and takes; none of allreduce

    positive_fields = ("gbit_per_s", "inner_gbit_per_s", "bucket_mb", "efficiency")

    def __post_init__(self) -> None:
        super().__post_init__()
        between("network.efficiency", self.efficiency, 0, 1)

    def node_size(self, num_learners: int) -> int:
        """Return the number of learners in a node, of `num_learners`."""
        return min(self.learners_per_node or num_learners, num_learners)


@dataclass(frozen=True)
class Slow(Section):
    """Stragglers: learners and single steps that are slower than others."""

    learners: tuple[str, ...] = ()  # LEARNER:FACTOR, how many times longer it computes, as --slow of asrtool train
    step_probability: float = 0.0  # of a step of any learner to take step_factor times as long
    step_factor: float = 2.0  # of such a step

    positive_fields = ("step_factor",)

    def __post_init__(self) -> None:
        super().__post_init__()
        between("slow.step_probability", self.step_probability, 0, 1)
        for learner, factor in self.factors().items():
            if not factor > 0:
                raise ValueError(f"slow.learners has {learner}:{factor:g}, expected a factor of more than 0")

    def factors(self) -> dict[int, float]:
        """Return learner -> factor of its computing time."""
        return dict(_parts("slow.learners", text, "LEARNER:FACTOR", "0:10", int, float) for text in self.learners)


@dataclass(frozen=True)
class Faults(Section):
    """Losses and joins; learners that cannot train without one all start again."""

    lost: tuple[str, ...] = ()  # LEARNER:HOURS, who is lost when
    mtbf_h: float = 0.0  # mean hours between two losses of a learner, which are drawn; 0 is none
    join_h: tuple[float, ...] = ()  # hours after which a learner more joins, where the strategy lets it
    restart_s: float = 60.0  # from where a loss is known until all train again, from the last checkpoint

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lost_at()
        if any(hours <= 0 for hours in self.join_h):
            raise ValueError(f"faults.join_h is {list(self.join_h)}, expected more than 0 hours")

    def lost_at(self) -> list[tuple[float, int]]:
        """Return seconds and learner of each of `lost`, sorted by time."""
        pairs = (_parts("faults.lost", text, "LEARNER:HOURS", "3:2.5", int, float) for text in self.lost)
        return sorted((3600 * hours, learner) for learner, hours in pairs)


@dataclass(frozen=True)
class Loading(Section):
    """Batches, which a learner reads one ahead."""

    ms: float = 0.0  # to read a batch, beside the step before; a learner waits for what is longer than that
    spread: float = 0.0  # standard deviation / mean


@dataclass(frozen=True)
class Saving(Section):
    """Pauses of learners between steps."""

    start_s: float = 0.0  # until the first step
    every_steps: int = 0  # of a learner from one checkpoint to the next; one more after each epoch
    checkpoint_s: float = 0.0  # for which a learner stands still at a checkpoint
    evaluation_s: float = 0.0  # of dev by one learner after an epoch; those that step together share it
    end_s: float = 0.0  # after the last step


@dataclass(frozen=True)
class Uncertain:
    """Settings with two ends, which give an interval of times."""

    low: tuple[str, ...] = ()  # SECTION.KEY=VALUE of one end
    high: tuple[str, ...] = ()  # of the other
    why: str = ""  # what it is that is not known


@dataclass(frozen=True)
class Published:
    """Published measurements to print beside the prediction."""

    hours: tuple[str, ...] = ()  # STRATEGY:LEARNERS:HOURS
    source: str = ""  # of these hours

    def __post_init__(self) -> None:
        self.by_case()

    def by_case(self) -> dict[tuple[str, int], float]:
        """Return (strategy, number of learners) -> hours."""
        form, example = "STRATEGY:LEARNERS:HOURS", "allreduce:8:24.5"
        found = (_parts("published.hours", text, form, example, str, int, float) for text in self.hours)
        return {(strategy, num_learners): hours for strategy, num_learners, hours in found}


def _parts(key: str, text: str, form: str, example: str, *types: Callable[[str], Any]) -> list[Any]:
    """Convert the parts of `text`; ValueError if it is not of this form."""
    try:
        parts = [convert(part) for convert, part in zip(types, text.split(":"), strict=True)]
    except ValueError:
        parts = [-1]
    if any(part < 0 for part in parts if not isinstance(part, str)):
        raise ValueError(f"{key} has {text!r}, expected {form}, for example {example}")
    return parts


@dataclass(frozen=True)
class Scenario:
    """Settings of a simulation; a field is a section of the TOML file."""

    job: Job = field(default_factory=Job)
    distributed: Distributed = field(default_factory=Distributed)
    compute: Compute = field(default_factory=Compute)
    network: Network = field(default_factory=Network)
    slow: Slow = field(default_factory=Slow)
    faults: Faults = field(default_factory=Faults)
    loading: Loading = field(default_factory=Loading)
    saving: Saving = field(default_factory=Saving)
    uncertain: Uncertain = field(default_factory=Uncertain)
    published: Published = field(default_factory=Published)


CLASSES: dict[str, Any] = typing.get_type_hints(Scenario)


def find(name: str) -> Path:
    """Return the file of a scenario by name or path; AsrtoolError if none."""
    path = SCENARIOS.get(name, Path(name))
    if path.is_file():
        return path
    hint = f"{nearest(name, SCENARIOS) or 'choose one of these.'} A file of your own: docs/guide/simulate.md"
    raise AsrtoolError(f"no scenario and no file {name!r}; the scenarios are {', '.join(SCENARIOS)}", hint)


def load_scenario(files: Iterable[Path] = (), overrides: Iterable[str] = ()) -> Scenario:
    """Read `files`, then `overrides`; later ones win. AsrtoolError as load_config."""
    given = read_given(files, overrides)
    for key in given.values:
        if key[0] not in CLASSES:
            what = f"{given.origins[key]}: unknown section {key[0]!r} of a scenario"
            raise AsrtoolError(what, nearest(key[0], CLASSES) or f"the sections are {', '.join(CLASSES)}")
    try:
        return Scenario(**{name: build_section(name, given, CLASSES) for name in CLASSES})
    except ValueError as error:
        raise AsrtoolError(str(error), HINT) from error


def load_ends(files: Sequence[Path] = (), overrides: Sequence[str] = ()) -> list[Scenario]:
    """Return the scenario, then the other ends of its `uncertain` settings.

    An override of the same key is certain.
    """
    scenario = load_scenario(files, overrides)
    ends = [load_scenario(files, [*end, *overrides]) for end in (scenario.uncertain.low, scenario.uncertain.high)]
    return [scenario, *(end for end in ends if end != scenario)]


def is_of_scenario(override: str) -> bool:
    """Return whether an override is for a section of a scenario."""
    return override.partition(".")[0] in CLASSES


def format_scenario(scenario: Scenario) -> str:
    """Format all settings with their meaning as a TOML file."""
    lines = []
    for name, section in vars(scenario).items():
        comments, table = meanings(type(section)), to_table(section)
        lines.append(f"[{name}]  # {type(section).__doc__}")
        lines += [f"{key} = {format_value(table[key])}  # {comments[key]}" for key in field_types(type(section))]
        for key, inner in table.items():
            if isinstance(inner, dict):
                lines += ["", f"[{name}.{format_key(key)}]"]
                lines += [f"{inner_key} = {format_value(value)}" for inner_key, value in inner.items()]
        lines.append("")
    return "\n".join(lines)
