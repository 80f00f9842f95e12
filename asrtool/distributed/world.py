"""World: the rank of this learner, and collectives of all learners.

torchrun, or the launcher here, sets rank and rendezvous address in the environment of every
process. Collectives are torch.distributed's: gloo for tensors on the host, NCCL for tensors on a
GPU that no other learner uses.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as collectives
import torch.distributed.nn.functional  # while there is no group: its default arguments would keep one
from torch import Tensor
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from asrtool.distributed.launch import addresses
from asrtool.distributed.launch.environment import SERVED, agents_met, is_learner, joined_generation, serves_store
from asrtool.distributed.launch.generation import generation_store, host_key, join_generation
from asrtool.distributed.members.members import Members, TakenForLost
from asrtool.distributed.transport.sockets import ANSWER_TIMEOUT_S

Value = TypeVar("Value")
# A learner may be a hundred times slower than another that waits for it. A dead one is detected by its heartbeat.
COLLECTIVE_TIMEOUT = timedelta(hours=2)
# Machines start their learners at the same time; one that reads Python and torch from a slow disk may need minutes
# longer.
RENDEZVOUS_TIMEOUT = timedelta(minutes=5)
JOIN_TIMEOUT = timedelta(seconds=20)  # for a connection to a store that answered a moment ago
MESSAGE_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}  # types that a `message_type` of the settings names


@dataclass
class World:
    """Learners 0 to size - 1; this process is `rank`, and sends nothing if alone."""

    rank: int = 0
    size: int = 1
    local_size: int = 1  # learners on this machine
    store: Any = None  # torch.distributed.Store of this generation, None if alone
    group: Any = None  # torch.distributed.ProcessGroup
    generation: str = ""  # token, before each key of the store
    address: str = addresses.LOOPBACK  # address at which all sockets of this learner listen
    members: Members | None = None  # if the others train on without a lost learner
    joins: bool = False  # True if this learner joins a running training, which began with `size` learners
    ranks: Sequence[int] = ()  # in a collective, in order, if not 0 to size - 1
    parent: World | None = None  # world that this is a part of
    parent_ranks: Sequence[int] = ()  # the ranks there of the learners of this part
    subgroups: list[tuple[World, Sequence[Sequence[int]]]] = field(default_factory=list)  # by `split`, with the groups

    @property
    def index(self) -> int:
        """Index of this learner in a collective."""
        return self.ranks.index(self.rank) if self.ranks else self.rank

    @property
    def live(self) -> Sequence[int]:
        """Learners that train. Raises TakenForLost if this one is lost for the others."""
        if self.parent:
            parent_live = set(self.parent.live)
            return [place for place, rank in enumerate(self.parent_ranks) if rank in parent_live]
        if not self.members:
            return range(self.size)
        live = self.members.live
        if loss := self.members.losses.get(self.rank):
            raise TakenForLost(f"the others took it for lost: it {loss.why}")
        return live

    def rank_of(self, learner: int) -> int:
        """Return the rank of `learner` in the parent world, if there is one."""
        return self.parent_ranks[learner] if self.parent else learner

    @property
    def is_first(self) -> bool:
        """True for the first learner that trains, which makes checkpoints and reports."""
        return self.rank == self.live[0]

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all learners, by index."""
        values = [value] * self.size
        if self.size > 1:
            collectives.all_gather_object(values, value, group=self.group)
        return values

    def barrier(self) -> None:
        """Wait until all learners call this; RuntimeError at once if one has died."""
        self.gather(None)

    def mean(self, values_P: Tensor, message_type: torch.dtype = torch.float32) -> None:
        """Replace `values_P`, float32, by the mean over learners, the same bits for all.

        With other messages, values and their sums are rounded to that type on the way; the last
        division is in float32.
        """
        if self.size > 1:
            message_P = values_P.to(message_type)  # float32: the very same
            collectives.all_reduce(message_P, group=self.group)
            values_P.copy_(message_P)
            values_P /= self.size

    def mean_beyond(self, base_P: Tensor, values_P: Tensor, message_type: torch.dtype) -> None:
        """Average as `mean` does, rounding the difference to `base_P`, the same for all."""
        if message_type == torch.float32:
            self.mean(values_P)
        else:
            values_P -= base_P
            self.mean(values_P, message_type)
            values_P += base_P

    def all_gather(self, slices_P: list[Tensor], own_P: Tensor) -> None:
        """Fill `slices_P`, one for each learner, with `own_P` of each."""
        collectives.all_gather(slices_P, own_P.clone(), group=self.group)

    def regroup(self) -> None:
        """Use the members for collectives from now on.

        All of them call this, after which no other joins. RuntimeError if one is lost.
        """
        assert self.members
        if not (self.members.losses or self.members.joined):
            return
        leave_world()
        self.ranks, self.size, self.group = self.live, len(self.live), None
        if self.size > 1:
            connect(self, "members")
        for part, groups in self.subgroups:
            part.ranks, part.size, part.group = part.live, len(part.live), None
            self._connect(part, groups)

    def split(self, groups: Sequence[Sequence[int]]) -> World:
        """Return this learner's group; all learners call this, with the same groups."""
        (mine,) = (ranks for ranks in groups if self.rank in ranks)
        part = World(mine.index(self.rank), len(mine), min(self.local_size, len(mine)), self.store)
        part.address, part.parent, part.parent_ranks = self.address, self, mine
        self.subgroups.append((part, groups))
        self._connect(part, groups)
        return part

    def _connect(self, part: World, groups: Sequence[Sequence[int]]) -> None:
        """Connect the learners of `part`; all learners make all groups that have members."""
        for ranks in groups:
            members = [member for member, rank in enumerate(self.ranks or range(self.size)) if rank in ranks]
            if self.size > 1 and members:
                group = collectives.new_group(members, timeout=COLLECTIVE_TIMEOUT)
                part.group = group if self.rank in ranks else part.group


def join_learners(interface: str = "", timeout_s: float = ANSWER_TIMEOUT_S) -> World:
    """Wait until all learners have joined and reach each other.

    Returns a world of one if the environment names no learners. AsrtoolError if another has not
    come, for `timeout_s` if torchrun has seen all hosts start, or is not reached.
    """
    if not is_learner():
        return World()
    if generation := joined_generation():
        return _join_running(generation, interface, timeout_s)
    patience_s = timeout_s if agents_met() else RENDEZVOUS_TIMEOUT.total_seconds()
    reached = None if serves_store() else addresses.reach_rendezvous(patience_s)
    if SERVED in os.environ:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store: Store = TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, is_master=False, timeout=RENDEZVOUS_TIMEOUT
        )
    else:
        store, rank, size = next(iter(rendezvous("env://", timeout=RENDEZVOUS_TIMEOUT)))
    store.set_timeout(COLLECTIVE_TIMEOUT)
    reached = reached or addresses.reach_rendezvous(patience_s)
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if local_size == size:  # the launcher watches them
        patience_s = COLLECTIVE_TIMEOUT.total_seconds()
    generation = join_generation(store, rank, size, patience_s)
    world = World(rank, size, local_size, generation_store(generation, store), generation=generation)
    if local_size == size:
        world.address = addresses.own_address(interface, reached)
    else:
        endpoints = addresses.connect_learners(world.store, rank, size, interface, reached, timeout_s)
        world.address = endpoints[rank].address
        if interface:
            os.environ["MASTER_ADDR"] = endpoints[0].address  # for heartbeats and learners that join
    addresses.use_for_groups(world.address, several_hosts=local_size < size)
    return world


def _join_running(generation: str, interface: str, timeout_s: float) -> World:
    """Return the world of a learner that joins; it is in no collective before the end."""
    reached = addresses.reach_rendezvous(timeout_s)
    whole = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=JOIN_TIMEOUT)
    whole.set_timeout(COLLECTIVE_TIMEOUT)
    rank, size, local_size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    store = generation_store(generation, whole)
    store.set(host_key(rank), socket.gethostname())
    address = addresses.own_address(interface, reached, lambda: addresses.known_addresses(store, size))
    addresses.use_for_groups(address, several_hosts=True)
    return World(rank, size, local_size, store, generation=generation, address=address, joins=True)


def init_collectives(world: World) -> None:
    """Connect all learners after `join_learners`, except one that joins them."""
    if world.store is None:
        return
    if torch.cuda.is_available():
        choose_gpu()
    if not world.joins:
        connect(world, "collectives")


def connect(world: World, prefix: str) -> None:
    """Make the group of the learners of `world`, which all call this."""
    store = PrefixStore(prefix, world.store)
    backend = "cpu:gloo,cuda:nccl" if _have_own_gpus(world, store) else "gloo"
    collectives.init_process_group(
        backend, store=store, rank=world.index, world_size=world.size, timeout=COLLECTIVE_TIMEOUT
    )


def _have_own_gpus(world: World, store: PrefixStore) -> bool:
    """Return whether NCCL can connect all learners: it refuses two on a GPU."""
    store.set(f"gpu/{world.index}", str(world.local_size <= torch.cuda.device_count()))
    return all(store.get(f"gpu/{rank}") == b"True" for rank in range(world.size))


def choose_gpu() -> None:
    """Take another GPU than the other learners of this machine, if there are enough."""
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())


def leave_world() -> None:
    """Undo `init_collectives`, and end the threads of gloo.

    They end with the last reference to their group. A thread that still frees a tensor when Python
    exits ends the process by SIGABRT ("terminate called without an active exception"): it waits for
    Python's lock, and is ended in a destructor.
    """
    if collectives.is_initialized():
        gc.collect()  # a strategy may hold a group in a cycle, as DistributedDataParallel does
        collectives.destroy_process_group()
        gc.collect()


def all_reduce_bytes(values: Tensor, world: World, message_type: torch.dtype = torch.float32) -> int:
    """Return the bytes a learner sends: each part goes to the sum, and comes back."""
    return 2 * values.numel() * message_type.itemsize * (world.size - 1) // world.size
