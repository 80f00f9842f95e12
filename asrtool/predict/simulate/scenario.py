"""Scenarios: all settings of a simulation, from files and overrides.

Each section is a class. Files of `scenarios/` are given by name, custom ones by path.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asrtool.errors import AsrtoolError
from asrtool.settings import registry
from asrtool.settings.config import to_table
from asrtool.settings.documentation import meanings
from asrtool.settings.schema import Choice, at_least, between, choices, field_types, one_of, positive
from asrtool.settings.toml_files import build_section, read_given
from asrtool.settings.values import format_key, format_value, nearest

DISTRIBUTIONS = ("constant", "lognormal", "exponential")
FOLDER = Path(__file__).parent / "scenarios"
HINT = "correct the value in the scenario or in --set"


@dataclass(frozen=True)
class Job:
    """Size and length of the training."""

    parameters_m: float = 43.15  # millions of parameters of the model
    num_samples: int = 1_000_000  # of an epoch
    num_epochs: int = 1  # passes over them
    batch: int = 128  # samples of a step of one learner
    global_batch: int = 0  # samples of a step of all learners, for batch of each; 0 is none
    seed: int = 1  # of all that is drawn

    def __post_init__(self) -> None:
        positive("job", self, "parameters_m")
        at_least(1, "job", self, "num_samples", "num_epochs", "batch")
        at_least(0, "job", self, "global_batch", "seed")


@dataclass(frozen=True)
class Distributed:
    """Learners and strategies to compare; tables of strategies as for asrtool train."""

    strategy: tuple[Choice, ...] = choices("strategy", *(name for name in registry.names("strategy")))  # which ones
    num_learners: tuple[int, ...] = (8,)  # how many of them, each number by itself
    timeout_s: float = 20.0  # seconds without a sign of life after which a learner is taken for lost

    def __post_init__(self) -> None:
        for name, values in (("strategy", self.strategy), ("num_learners", self.num_learners)):
            if not values:
                raise ValueError(f"distributed.{name} is empty, expected one or more")
        for number in self.num_learners:
            if number < 1:
                raise ValueError(f"distributed.num_learners is {number}, expected 1 or more")
        positive("distributed", self, "timeout_s")


@dataclass(frozen=True)
class Compute:
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

    def __post_init__(self) -> None:
        positive("compute", self, "ms")
        at_least(0, "compute", self, "samples_per_s", "batch", "fixed_ms", "spread", "update_ms", "cpu_ms")
        one_of("compute.distribution", self.distribution, DISTRIBUTIONS)
        between("compute.forward_fraction", self.forward_fraction, 0, 1)
        if self.spread and self.distribution != "lognormal":
            raise ValueError(
                f"compute.spread is {self.spread:g} but compute.distribution is {self.distribution},"
                ' which has none: set compute.distribution = "lognormal"'
            )


@dataclass(frozen=True)
class Network:
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

    def __post_init__(self) -> None:
        at_least(
            0, "network", self, "learners_per_node", "latency_us", "inner_latency_us", "host_gbyte_per_s", "mix_ms"
        )
        positive("network", self, "gbit_per_s", "inner_gbit_per_s", "bucket_mb", "efficiency")
        between("network.efficiency", self.efficiency, 0, 1)


@dataclass(frozen=True)
class Slow:
    """Stragglers: learners and single steps that are slower than others."""

    learners: tuple[str, ...] = ()  # LEARNER:FACTOR, how many times longer it computes, as --slow of asrtool train
    step_probability: float = 0.0  # of a step of any learner to take step_factor times as long
    step_factor: float = 2.0  # of such a step

    def __post_init__(self) -> None:
        between("slow.step_probability", self.step_probability, 0, 1)
        positive("slow", self, "step_factor")
        for learner, factor in self.factors().items():
            if not factor > 0:
                raise ValueError(f"slow.learners has {learner}:{factor:g}, expected a factor of more than 0")

    def factors(self) -> dict[int, float]:
        """Return learner -> factor of its computing time."""
        return dict(_pair("slow.learners", text, "LEARNER:FACTOR", "0:10") for text in self.learners)


@dataclass(frozen=True)
class Faults:
    """Losses and joins; learners that cannot train without one all start again."""

    lost: tuple[str, ...] = ()  # LEARNER:HOURS, who is lost when
    mtbf_h: float = 0.0  # mean hours between two losses of a learner, which are drawn; 0 is none
    join_h: tuple[float, ...] = ()  # hours after which a learner more joins, where the strategy lets it
    restart_s: float = 60.0  # from where a loss is known until all train again, from the last checkpoint

    def __post_init__(self) -> None:
        at_least(0, "faults", self, "mtbf_h", "restart_s")
        for text in self.lost:
            _pair("faults.lost", text, "LEARNER:HOURS", "3:2.5")
        if any(hours <= 0 for hours in self.join_h):
            raise ValueError(f"faults.join_h is {list(self.join_h)}, expected more than 0 hours")

    def lost_at(self) -> list[tuple[float, int]]:
        """Return seconds and learner of each of `lost`, sorted by time."""
        pairs = (_pair("faults.lost", text, "", "") for text in self.lost)
        return sorted((3600 * hours, int(learner)) for learner, hours in pairs)


@dataclass(frozen=True)
class Loading:
    """Batches, which a learner reads one ahead."""

    ms: float = 0.0  # to read a batch, beside the step before; a learner waits for what is longer than that
    spread: float = 0.0  # standard deviation / mean

    def __post_init__(self) -> None:
        at_least(0, "loading", self, "ms", "spread")


@dataclass(frozen=True)
class Saving:
    """Pauses of learners between steps."""

    start_s: float = 0.0  # until the first step
    every_steps: int = 0  # of a learner from one checkpoint to the next; one more after each epoch
    checkpoint_s: float = 0.0  # for which a learner stands still at a checkpoint
    evaluation_s: float = 0.0  # of dev by one learner after an epoch; those that step together share it
    end_s: float = 0.0  # after the last step

    def __post_init__(self) -> None:
        at_least(0, "saving", self, "start_s", "every_steps", "checkpoint_s", "evaluation_s", "end_s")


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
        found = {}
        for text in self.hours:
            parts = text.split(":")
            try:
                found[parts[0], int(parts[1])] = float(parts[2])
            except (IndexError, ValueError):
                raise ValueError(
                    f"published.hours has {text!r}, expected STRATEGY:LEARNERS:HOURS, for example allreduce:8:24.5"
                ) from None
        return found


def _pair(name: str, text: str, form: str, example: str) -> tuple[int, float]:
    learner, _, value = text.partition(":")
    try:
        pair = int(learner), float(value)
    except ValueError:
        pair = -1, 0.0
    if pair[0] < 0 or pair[1] < 0:
        raise ValueError(f"{name} has {text!r}, expected {form}, for example {example}")
    return pair


@dataclass(frozen=True)
class Scenario:
    """A field is a section of the TOML file."""

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


def names() -> list[str]:
    """Return the names of the built-in scenarios."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find(name: str) -> Path:
    """Return the file of a scenario by name or path; AsrtoolError if none."""
    known = names()
    if name in known:
        return FOLDER / f"{name}.toml"
    if Path(name).is_file():
        return Path(name)
    what = f"no scenario and no file {name!r}; the scenarios are {', '.join(known)}"
    raise AsrtoolError(
        what, f"{nearest(name, known) or 'choose one of these.'} A file of your own: docs/guide/simulate.md"
    )


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
    return "\n".join(line for name in CLASSES for line in _lines(name, getattr(scenario, name)))


def _lines(name: str, section: Any) -> Iterator[str]:
    about = (type(section).__doc__ or "").partition("\n")[0]
    yield f"[{name}]  # {about}"
    comments, table = meanings(type(section)), to_table(section)
    for key in field_types(type(section)):
        yield f"{key} = {format_value(table[key])}  # {comments[key]}"
    yield ""
    for key, inner in table.items():
        if isinstance(inner, dict):
            yield f"[{name}.{format_key(key)}]"
            yield from (f"{inner_key} = {format_value(value)}" for inner_key, value in inner.items())
            yield ""
