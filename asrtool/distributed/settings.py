"""Settings of learners that train together."""

from __future__ import annotations

from dataclasses import dataclass

from asrtool.settings import Choice, at_least, between, choice, interface_or_subnet, named, one_of, positive

MESSAGE_TYPES = ("fp32", "bf16")
SURVIVING = ("adpsgd", "adpsgd-fixed", "adpsgd-random", "none")  # strategies whose learners train without those lost


@dataclass(frozen=True)
class Distributed:
    """Learners that train together."""

    strategy: Choice = choice("strategy", "single")  # how learners combine gradients and weights
    num_learners: int = 0  # processes on this machine; 0 is one for single, else one per GPU or core
    lr_scale: float = 1.0  # learning rate as a multiple of that of the schedule
    interface: str = ""  # network on which learners exchange weights, by name or subnet; empty is that of MASTER_ADDR
    timeout_s: float = 20.0  # seconds without a sign of life after which a learner is taken for lost

    @property
    def survives(self) -> bool:
        """Whether the others train without a learner that is lost."""
        return self.strategy.name in SURVIVING

    def __post_init__(self) -> None:
        positive("distributed", self, "timeout_s")
        interface_or_subnet("distributed.interface", self.interface)
        at_least(0, "distributed", self, "num_learners")
        positive("distributed", self, "lr_scale")


@dataclass(frozen=True)
class AllReduce:
    """The same weights at all learners."""

    message_type: str = "fp32"  # or bf16: gradients that learners average

    def __post_init__(self) -> None:
        one_of("distributed.allreduce.message_type", self.message_type, MESSAGE_TYPES)


@dataclass(frozen=True)
class DelayByOne:
    """The mean over all learners, taken while they compute."""

    message_type: str = "fp32"  # or bf16: what learners have changed since the last mean

    def __post_init__(self) -> None:
        one_of("distributed.adpsgd-d1.message_type", self.message_type, MESSAGE_TYPES)


@dataclass(frozen=True)
class Gossip:
    """Asynchronous decentralised SGD on a ring that the name of the strategy gives."""

    message_type: str = "fp32"  # or bf16: weights that learners exchange

    def __post_init__(self) -> None:
        one_of("message_type", self.message_type, MESSAGE_TYPES)


@dataclass(frozen=True)
class AdPsgd:
    """Asynchronous decentralised SGD on any ring."""

    ring: str = named("ring", "random")  # fixed, random, or package.module:function
    message_type: str = "fp32"  # or bf16: weights that learners exchange

    def __post_init__(self) -> None:
        one_of("distributed.adpsgd.message_type", self.message_type, MESSAGE_TYPES)


@dataclass(frozen=True)
class Hierarchical:
    """Gradients averaged within a super-learner, weights mixed between them."""

    node_size: int = 0  # learners of a super-learner; 0 is all of a machine
    outer: str = "adpsgd-random"  # how super-learners mix; or adpsgd-fixed, adpsgd-d1
    message_type: str = "fp32"  # or bf16: gradients within super-learners, and what is exchanged between them

    def __post_init__(self) -> None:
        at_least(0, "distributed.h-adpsgd", self, "node_size")
        one_of("distributed.h-adpsgd.outer", self.outer, ("adpsgd-fixed", "adpsgd-random", "adpsgd-d1"))
        one_of("distributed.h-adpsgd.message_type", self.message_type, MESSAGE_TYPES)


@dataclass(frozen=True)
class Bmuf:
    """Blockwise model-update filtering."""

    block_steps: int = 8  # steps between two averages
    block_momentum: float = 0.5  # 0 is plain periodic averaging
    block_rate: float = 1.0  # fraction of a block's change that is taken
    nesterov: bool = False  # a block begins where the momentum alone would take the weights next
    message_type: str = "fp32"  # or bf16: what learners have changed in a block

    def __post_init__(self) -> None:
        at_least(1, "distributed.bmuf", self, "block_steps")
        between("distributed.bmuf.block_momentum", self.block_momentum, 0, 0.99)
        positive("distributed.bmuf", self, "block_rate")
        one_of("distributed.bmuf.message_type", self.message_type, MESSAGE_TYPES)


@dataclass(frozen=True)
class Servers:
    """Asynchronous SGD with parameter servers."""

    num_servers: int = 1  # beside as many learners, each with its part of the weights

    def __post_init__(self) -> None:
        at_least(1, "distributed.ps-async", self, "num_servers")
