"""Heartbeat: detects that a learner has died or hangs, on any machine.

It starts after all have joined the rendezvous. A thread of each learner increments a counter in the
store, and watches the counter of the next learner. If that stands still for `timeout_s`, the thread
reports it in the store, and all learners exit. (The launcher notices a death on its own machine
sooner.) Beats are counted, not seconds: after all were suspended and resumed (Ctrl-Z, a cluster
that suspends jobs), more time has passed for each than it has seen another stand still.

If others train on without a lost learner, the thread adds its loss to the changes of the members
instead, with the learners of its host that stand still as well. It does so also if a supervisor has
reported that the learner was killed (members.supervisor). It first reports the loss itself, and
waits a moment. In it a supervisor kills a learner that only seemed dead; without one, a learner
exits when it finds itself lost. A learner that averages its gradients with others takes them with
it: the whole node must be reported and stand still before it is lost, in one change.

The store itself may be on a machine that is lost without a closed connection; then a request to it
never returns. So with several machines a second thread watches the first. (On one machine, a
launcher that is suspended and resumed loses nothing.)
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from types import TracebackType

from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import Store

from asrtool.distributed.launch.environment import LOST
from asrtool.distributed.launch.generation import generation_store, host_key
from asrtool.distributed.members.members import LEFT, Members, Survival, node_of
from asrtool.distributed.members.supervisor import report_lost, report_node, why_lost
from asrtool.distributed.world import World

BEAT_S = 2.0
FAULT = "fault"  # key of the fault that ends all learners
ERROR = "error"  # key that is set once a learner has printed the error that ends all
NUM_KILLED = 2  # silent beats after which a learner that is reported as lost has been killed


class Heartbeat:
    """Context that beats, and ends the process, even if it waits, after a loss."""

    def __init__(self, world: World, timeout_s: float, survival: Survival | None = None) -> None:
        """Take the `survival` of the training if `world` has members."""
        self.rank = world.rank
        self.world = world
        self.survival = survival
        self.next = (world.rank + 1) % world.size
        self._num_silent_max = max(1, round(timeout_s / BEAT_S))
        self._silent_s = timeout_s
        self._num_beats = 0
        self._end = threading.Event()
        runs = [self._run, self._watch] if world.local_size < world.size else [self._run]
        self._threads = [threading.Thread(target=run, name="heartbeat", daemon=True) for run in runs]

    def __enter__(self) -> Heartbeat:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end.set()
        for thread in self._threads:  # a request to the store while Python exits would end in SIGABRT
            thread.join(self._silent_s)

    def _run(self) -> None:
        # A client of its own: the computing thread's client is blocked while it waits for a key.
        try:
            store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
            self._beat(generation_store(self.world.generation, store))
        except RuntimeError as error:
            if not self._end.wait(BEAT_S):  # at the end the others may be gone a moment earlier
                self._give_up(f"{_store_name()} is gone ({str(error).splitlines()[0]})")

    def _watch(self) -> None:
        seen = num_silent = 0
        while not self._end.wait(BEAT_S):
            num_silent = 0 if self._num_beats > seen else num_silent + 1
            seen = self._num_beats
            if num_silent >= self._num_silent_max:
                self._give_up(f"{_store_name()} has not answered for {self._silent_s:g} s")

    def _beat(self, store: Store) -> None:
        silence = _Silence(store)
        while not self._end.wait(BEAT_S):
            store.add(f"beat{self.rank}", 1)
            if store.check([ERROR]):
                os._exit(LOST)
            members = self.world.members  # there are some once all are connected
            if members:
                self._find_next(store, members)
            if members and self.survival and not members.closed:
                self._watch_others(silence, members, self.survival)
            elif silence.of(self.next) >= self._num_silent_max:
                who = f"learner {self.next} on {silence.host(self.next)}"
                report_fault(store, f"{who} has given no sign of life for {self._silent_s:g} s")
            self._num_beats += 1
            if store.check([FAULT]):
                self._give_up(store.get(FAULT).decode())

    def _find_next(self, store: Store, members: Members) -> None:
        members.refresh(store)
        live = members.live  # before the losses, to which another thread may add
        if loss := members.losses.get(self.rank):
            if loss.why != LEFT:
                self._give_up(f"the others took it for lost: it {loss.why}")
            self._end.set()
            return
        joins = self.rank not in live  # it watches no other so far
        self.next = self.rank if joins else live[(live.index(self.rank) + 1) % len(live)]

    def _watch_others(self, silence: _Silence, members: Members, survival: Survival) -> None:
        """Lose the next learner, and others of its host, once their nodes stand still."""
        if self.next == self.rank:
            return
        out, node_size, host = survival.out, survival.node_size, silence.host(self.next)
        near = [rank for rank in members.live if rank == self.next or silence.host(rank) == host]
        nodes = {rank: node_of(rank, node_size) for rank in near}
        silent = {rank: silence.of(rank) for rank in sorted({*itertools.chain(*nodes.values())})}
        lost: set[int] = set()
        for rank, node in nodes.items():
            if silent[rank] >= NUM_KILLED and why_lost(out, rank):
                report_node(out, rank, node)
                lost |= {*node} if min(silent[other] for other in node) >= NUM_KILLED else set()
            elif silent[rank] >= self._num_silent_max:
                report_lost(out, rank, f"has given no sign of life for {self._silent_s:g} s")
        if lost:
            members.lose(silence.store, *(survival.examine(out, rank, why_lost(out, rank)) for rank in sorted(lost)))

    def _give_up(self, why: str) -> None:
        with contextlib.suppress(Exception):
            logging.error("learner %d exits: %s", self.rank, why)
        os._exit(LOST)


def report_fault(store: Store, why: str) -> None:
    """Publish a fault: all learners exit by their next beat with the message `why`."""
    with contextlib.suppress(RuntimeError):  # the store is gone, and they exit for that
        store.set(FAULT, why)


def report_error(world: World, why: str) -> bool:
    """Publish the error `why` of this learner; return whether another has it as well.

    If all are on one machine, the others exit by their next beat, without a message. On several,
    and in a learner that joined, this does nothing.
    """
    with contextlib.suppress(RuntimeError):
        if world.store and not world.joins and world.local_size == world.size:
            world.store.set(ERROR, "")
            return bool(world.store.add(f"{ERROR} {why}", 1) > 1)
    return False


def has_error(world: World) -> bool:
    """Return whether another learner has published its error."""
    with contextlib.suppress(RuntimeError):
        return bool(world.store and world.store.check([ERROR]))
    return False


class _Silence:
    """Number of beats for which learners have stood still."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._seen: dict[int, tuple[int, int]] = {}
        self._hosts: dict[int, str] = {}

    def of(self, rank: int) -> int:
        """Count the silent beats of learner `rank`; called once a beat."""
        count = self.store.add(f"beat{rank}", 0)
        before, num_silent = self._seen.get(rank, (0, 0))
        self._seen[rank] = count, 0 if count > before else num_silent + 1
        return self._seen[rank][1]

    def host(self, rank: int) -> str:
        """Return the host name of learner `rank`; a unique one if it has published none."""
        if rank not in self._hosts and self.store.check([host_key(rank)]):
            self._hosts[rank] = self.store.get(host_key(rank)).decode()
        return self._hosts.get(rank, f"host of {rank}")


def _store_name() -> str:
    return f"the rendezvous store, {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']},"
