"""Life of a learner process: it joins the others, and exits if one is lost."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterator

from asrtool.child_processes import end_with
from asrtool.distributed.launch.environment import LOST
from asrtool.distributed.members.heartbeat import Heartbeat, has_error, report_error, report_fault
from asrtool.distributed.members.members import Members, Survival, TakenForLost
from asrtool.distributed.transport.sockets import ANSWER_TIMEOUT_S
from asrtool.distributed.world import World, init_collectives, join_learners, leave_world
from asrtool.errors import AsrtoolError

# In messages of gloo, the store and exchanges when the other end is gone.
GONE = ("connection", "gloo", "socket", "broken pipe", "recvvalue", "sendbytes", "has not answered")
NETWORKS = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@contextlib.contextmanager
def learner(
    timeout_s: float = ANSWER_TIMEOUT_S, survival: Survival | None = None, interface: str = ""
) -> Iterator[World]:
    """Connect this learner to the others of the environment, inside the context.

    The process exits if another learner is lost, which is after `timeout_s` without a sign of life.
    With `survival` it stays, as a member of the world, once all are connected. Learners reach each
    other on `interface` if it is named. AsrtoolError if the rendezvous fails.
    """
    end_with(os.getppid())
    with _rendezvous():
        world = join_learners(interface, timeout_s)
    if world.rank and not world.joins:
        logging.getLogger().setLevel(logging.WARNING)  # learner 0 logs the progress
    is_connected = False
    try:
        with Heartbeat(world, timeout_s, survival):
            with _rendezvous():
                init_collectives(world)
            is_connected = True
            if survival and world.size > 1:
                world.members = Members(world.size, world.rank)
                if world.joins:
                    world.members.refresh(world.store)
            yield world
            world.barrier()
    except KeyboardInterrupt:  # the launcher, which got it as well, reports it once
        raise SystemExit(128 + signal.SIGINT) from None
    except SystemExit as stopped:  # the same by SIGTERM, which the command line raises as a kind of SystemExit
        raise SystemExit(stopped.code) from None
    except Exception as error:
        if not is_connected and world.store:
            report_fault(world.store, str(error))
        is_own = is_connected and isinstance(error, AsrtoolError)  # not of a connection that another one has closed
        if not _means_loss(error) and (is_own or not has_error(world)):
            # Others exit when this one leaves, and the launcher then stops all; this one exits by its own error.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if not report_error(world, str(error)):
                raise
        elif not has_error(world):
            why = error if isinstance(error, TakenForLost) else "it lost the connection to another"
            logging.warning("learner %d exits: %s", world.rank, why)
        os._exit(LOST)  # threads and connections may wait for the one that is lost
    finally:
        world.subgroups.clear()  # they refer to their groups
        leave_world()


@contextlib.contextmanager
def _rendezvous() -> Iterator[None]:
    # A handler in Python would run only after the last learner has joined.
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    except RuntimeError as error:
        rank, host = os.environ.get("RANK"), socket.gethostname()
        networks = ", ".join(f"{name}={os.environ[name]}" for name in NETWORKS if name in os.environ)
        raise AsrtoolError(
            f"learner {rank} on {host} was not connected: {str(error).splitlines()[0]}",
            f"check the network that torch uses ({networks or 'that of the host name'}), and that MASTER_ADDR and "
            "MASTER_PORT name a free port of the host of learner 0",
        ) from error
    finally:
        signal.signal(signal.SIGTERM, handler)


def _means_loss(error: Exception) -> bool:
    gone = any(sign in str(error).lower() for sign in GONE)
    return isinstance(error, TakenForLost) or (gone and isinstance(error, RuntimeError | ConnectionError))
