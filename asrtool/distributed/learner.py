"""What surrounds the work of a learner: joining the others, and ending when one of them is lost."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator

from asrtool.distributed.environment import LOST
from asrtool.distributed.heartbeat import Heartbeat
from asrtool.distributed.world import World, init_collectives, join_learners, leave_world
from asrtool.errors import AsrtoolError
from asrtool.parent import end_with

# What gloo, the store and exchanges say when the other end is gone.
GONE = ("connection", "gloo", "socket", "broken pipe", "recvvalue", "sendbytes", "has not answered")

RENDEZVOUS_HINT = "check that MASTER_ADDR and MASTER_PORT name a free port of the machine of learner 0"


@contextlib.contextmanager
def learner() -> Iterator[World]:
    """Inside, this process is one of the learners that the environment names. Where it loses another, it exits.

    Raises AsrtoolError where the rendezvous fails.
    """
    end_with(os.getppid())
    with _rendezvous():
        world = join_learners()
    if world.rank:
        logging.getLogger().setLevel(logging.WARNING)  # learner 0 tells how it goes
    try:
        with Heartbeat(world):
            with _rendezvous():
                init_collectives(world)
            yield world
            world.barrier()
    except KeyboardInterrupt:  # the launcher, which got it as well, says so once
        raise SystemExit(128 + signal.SIGINT) from None
    except Exception as error:
        if not _tells_of_loss(error):
            # Others end when this one leaves, and the launcher then stops all; how this one ends is its own error.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            raise
        logging.warning("learner %d ends: it has lost another", world.rank)
        logging.debug("%s", error)
        os._exit(LOST)  # threads and connections may wait for the one that is lost
    finally:
        leave_world()


@contextlib.contextmanager
def _rendezvous() -> Iterator[None]:
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # one of Python would wait for the last learner to come
    try:
        yield
    except RuntimeError as error:
        raise AsrtoolError(f"rendezvous failed: {str(error).splitlines()[0]}", RENDEZVOUS_HINT) from error
    finally:
        signal.signal(signal.SIGTERM, handler)


def _tells_of_loss(error: Exception) -> bool:
    gone = any(sign in str(error).lower() for sign in GONE)
    return gone and isinstance(error, RuntimeError | ConnectionError)
