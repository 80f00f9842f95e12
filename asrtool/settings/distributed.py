"""Settings of learners that train together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from asrtool.settings import registry
from asrtool.settings.schema import (
    Choice,
    at_least,
    between,
    choice,
    component_name,
    interface_or_subnet,
    one_of,
    positive,
)

if TYPE_CHECKING:
    from asrtool.settings.config import Config


@dataclass(frozen=True)
class Distributed:
    """Learners that train together."""

    strategy: Choice = choice("strategy", "single")  # how learners combine gradients and weights
    num_learners: int = 0  # processes on this machine; 0 is one for single, else one per GPU or core
    lr_scale: float = 1.0  # learning rate as a multiple of that of the schedule, for any number of learners
    global_batch_s: float = 0.0  # seconds of speech in a step of all learners, for train.batch_s of each; 0 is none
    reference_batch_s: float = 0.0  # global batch that train.peak_lr is for; the rate grows with the batch; 0 is none
    interface: str = ""  # network of all learners, by name or subnet; empty is the one on the way to the rendezvous
    timeout_s: float = 20.0  # seconds without a sign of life after which a learner is taken for lost
    on_stop: str = "all"  # learners that stop if one of several hosts is asked to: all; leave: that learner alone

    @property
    def survives(self) -> bool:
        """True if others train on without a lost learner."""
        return self._says("survives")

    @property
    def joinable(self) -> bool:
        """True if a learner can join a running training."""
        return self._says("joinable")

    def node_size(self, local_size: int) -> int:
        """Return how many learners are lost together: those that step together.

        `local_size` learners are on this machine.
        """
        return getattr(self.strategy.settings, "node_size", 0) or local_size if self._says("of_nodes") else 1

    def _says(self, what: str) -> bool:
        """Return a flag of the strategy's settings; custom ones may lack it."""
        return bool(getattr(self.strategy.settings, what, False))

    def __post_init__(self) -> None:
        positive("distributed", self, "timeout_s")
        one_of("distributed.on_stop", self.on_stop, ("all", "leave"))
        interface_or_subnet("distributed.interface", self.interface)
        at_least(0, "distributed", self, "num_learners", "global_batch_s", "reference_batch_s")
        positive("distributed", self, "lr_scale")

    def check(self, config: Config) -> None:
        """Check the number of learners, and that one setting alone scales the rate."""
        self._check_number(config.launch.place)
        if not self.reference_batch_s:
            return
        what, schedule = f"distributed.reference_batch_s is {self.reference_batch_s:g}", config.train.schedule
        if not self.global_batch_s:
            raise ValueError(f"{what} but distributed.global_batch_s is not set: set both, or neither")
        if self.lr_scale != 1:
            raise ValueError(
                f"{what} and distributed.lr_scale {self.lr_scale:g}, which both scale the rate: leave one of them out"
            )
        if self._says("step_each"):
            raise ValueError(
                f"{what} but with strategy {self.strategy.name} each learner's batch is a step by itself, so the rate"
                " does not follow the batch of all: leave it out, and set train.peak_lr"
            )
        if not getattr(schedule.settings, "warmup_fraction", 0):
            raise ValueError(
                f"{what} but train.schedule {schedule.name} has no warm-up from that batch's rate:"
                f" set train.{schedule.table}.warmup_fraction, or choose a schedule that has one"
            )

    def _check_number(self, place: Choice) -> None:
        """Check the number of learners, as far as it is known before they start."""
        name, nodes = self.strategy.name, getattr(place.settings, "nodes", 0)
        num = nodes * place.settings.num_learners_per_node if nodes else self.num_learners
        if self.num_learners not in (0, num):
            raise ValueError(
                f"distributed.num_learners is {self.num_learners}, but {nodes} nodes of launch.{place.name} have {num}:"
                f" leave it out, or set launch.{place.name}.learners_per_node"
            )
        if name == "hogwild" and nodes > 1:
            what = f"distributed.strategy is {name} with {num} learners of {nodes} nodes"
            raise ValueError(f"{what}, and needs the memory of one: choose another one, as ps-async")
        self.check_learners(num)

    def check_learners(self, num: int) -> None:
        """Raise ValueError if the strategy cannot have `num` learners; 0 is not known yet."""
        name = self.strategy.name
        what = f"distributed.strategy is {name} with {num} learners"
        if name == "single" and num > 1:
            raise ValueError(f"{what}: choose another one, for example adpsgd-random")
        if num % (size := getattr(self.strategy.settings, "node_size", 0) or 1):
            raise ValueError(f"{what}, and distributed.{name}.node_size is {size}: expected one that divides it")
        if num and getattr(self.strategy.settings, "num_servers", 0) > num:
            raise ValueError(f"{what}, and distributed.{name}.num_servers is larger: expected {num} at most")

    def rate_factor(self, num_learners: int, initial_num_learners: int) -> float | None:
        """Return the batch over the reference batch; None without a reference.

        Each learner keeps the batch that it had with the number of learners that training has begun with.
        """
        if not self.reference_batch_s:
            return None
        return self.global_batch_s * num_learners / initial_num_learners / self.reference_batch_s


def joinable_strategies() -> list[str]:
    """Return the built-in strategies that learners can join."""
    found = registry.names("strategy")
    return [name for name in found if getattr(registry.settings_class("strategy", name), "joinable", False)]


# Settings of a strategy may say by class variables what learners can do, all of it false where they do not:
# `survives`, train without those that are lost; `joinable`, let others join; `of_nodes`, step together in nodes of
# their setting `node_size`, which are lost together; `step_each`, make a step of the common weights of each batch.


@dataclass(frozen=True)
class Messages:
    """Base of strategies whose learners exchange tensors."""

    message_type: str = "fp32"  # of what learners send to each other; or bf16, which halves it

    def __post_init__(self) -> None:
        one_of("message_type", self.message_type, ("fp32", "bf16"))


@dataclass(frozen=True)
class AllReduce(Messages):
    """Synchronous SGD: all learners have the same weights."""


@dataclass(frozen=True)
class DelayByOne(Messages):
    """The mean over all learners, taken while they compute."""


@dataclass(frozen=True)
class RandomRing(Messages):
    """Asynchronous decentralised SGD on a ring that the name of the strategy gives."""

    survives: ClassVar[bool] = True
    joinable: ClassVar[bool] = True
    ring: ClassVar[str] = "random"


@dataclass(frozen=True)
class FixedRing(RandomRing):
    """Asynchronous decentralised SGD on a ring that the name of the strategy gives."""

    ring: ClassVar[str] = "fixed"


@dataclass(frozen=True)
class Pairs(Messages):
    """AD-PSGD as first published: learners of even rank average with odd ones."""


@dataclass(frozen=True)
class AdPsgd(Messages):
    """Asynchronous decentralised SGD on any ring."""

    survives: ClassVar[bool] = True
    joinable: ClassVar[bool] = True

    ring: str = component_name("ring", "random")  # fixed, random, or package.module:function


@dataclass(frozen=True)
class Hierarchical(Messages):
    """Gradients averaged within a super-learner, weights mixed between them."""

    of_nodes: ClassVar[bool] = True

    node_size: int = 0  # learners of a super-learner; 0 is all of a machine
    outer: str = "adpsgd-random"  # how super-learners mix; or adpsgd-fixed, adpsgd-d1

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, "distributed.h-adpsgd", self, "node_size")
        one_of("distributed.h-adpsgd.outer", self.outer, ("adpsgd-fixed", "adpsgd-random", "adpsgd-d1"))

    @property
    def survives(self) -> bool:
        """True if super-learners wait for nobody."""
        return self.outer != "adpsgd-d1"


@dataclass(frozen=True)
class Bmuf(Messages):
    """Blockwise model-update filtering."""

    block_steps: int = 8  # steps between two averages
    block_momentum: float = 0.5  # 0 is plain periodic averaging
    block_rate: float = 1.0  # fraction of a block's change that is taken
    nesterov: bool = False  # a block begins where the momentum alone would take the weights next

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, "distributed.bmuf", self, "block_steps")
        between("distributed.bmuf.block_momentum", self.block_momentum, 0, 0.99)
        positive("distributed.bmuf", self, "block_rate")


@dataclass(frozen=True)
class Servers(Messages):
    """Asynchronous SGD with parameter servers."""

    section: ClassVar[str] = "distributed.ps-async"
    step_each: ClassVar[bool] = True

    num_servers: int = 1  # beside as many learners, each with its part of the weights

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, self.section, self, "num_servers")


@dataclass(frozen=True)
class SynchronousServers(Servers):
    """Synchronous SGD with parameter servers."""

    section: ClassVar[str] = "distributed.ps-sync"
    step_each: ClassVar[bool] = False


@dataclass(frozen=True)
class Hogwild:
    """Asynchronous SGD in shared memory, without locks."""

    step_each: ClassVar[bool] = True


@dataclass(frozen=True)
class NoMixing:
    """Learners that never exchange anything: what the others are compared with."""

    survives: ClassVar[bool] = True
    joinable: ClassVar[bool] = True
