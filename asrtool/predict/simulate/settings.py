"""Settings of a simulation: training, learners, network and faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asrtool.settings import registry
from asrtool.settings.schema import Choice, at_least, between, choices, one_of, positive

DISTRIBUTIONS = ("constant", "lognormal", "exponential")


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
    forward_fraction: float = 0.3333  # of the step before the first gradient is there
    cpu_ms: float = 0.0  # part of the step that needs one of network.cores_per_node
    update_ms: float = 0.0  # part of the step behind the last gradient, which no message overlaps: the optimizer

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
    """Stragglers: learners, steps and times that are slower than others."""

    learners: tuple[str, ...] = ()  # LEARNER:FACTOR, how many times longer it computes, as --slow of asrtool train
    step_probability: float = 0.0  # of a step of any learner to take step_factor times as long
    step_factor: float = 2.0  # of such a step
    phase_every_h: float = 0.0  # mean hours of a learner from one slow phase to the next; 0 is none
    phase_s: float = 60.0  # mean seconds of such a phase
    phase_factor: float = 5.0  # times that a step in it takes as long

    def __post_init__(self) -> None:
        between("slow.step_probability", self.step_probability, 0, 1)
        at_least(0, "slow", self, "phase_every_h")
        positive("slow", self, "step_factor", "phase_s", "phase_factor")
        for learner, factor in self.factors().items():
            if not factor > 0:
                raise ValueError(f"slow.learners has {learner}:{factor:g}, expected a factor of more than 0")

    def factors(self) -> dict[int, float]:
        """Learner -> how many times longer it computes."""
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
        """Seconds and learner of each of `lost`, in this order."""
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
        """Strategy and number of learners -> hours."""
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


def check_ranks(name: str, ranks: Sequence[int], num_learners: int) -> None:
    """Raise ValueError if a rank is not below `num_learners`."""
    for rank in ranks:
        if rank >= num_learners:
            raise ValueError(f"{name} names learner {rank}, but there are {num_learners}: 0 to {num_learners - 1}")
