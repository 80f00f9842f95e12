"""Joining: a further learner finds a running training by `OUT/rendezvous.json`.

The first learner writes the file. It has the address of the store, and the generation that runs. A
learner that joins draws the next number from the store. There it finds the state from which
training began or was resumed, so that it makes the same plan, and the changes of the members since.
It builds its model, takes the weights of another learner, and adds itself to the members. Then it
trains as any of them. It can be lost before and after each of these; then no learner has its
number.

Needs no torch before it draws a number.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.distributed.launch.environment import JOINED
from asrtool.errors import AsrtoolError
from asrtool.files import read_object, write_text

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

    from asrtool.distributed.world import World

LOOPBACK = ("localhost", "127.", "::1")
ANSWER_S = 10.0  # for a store that is there
BEGIN = "begin"
NUMBER = "joining"  # counter of learners that have drawn a number


def rendezvous_path(out: Path) -> Path:
    """Return the file by which learners find the training in `out`."""
    return out / "rendezvous.json"


def publish_rendezvous(out: Path, world: World, begin: Mapping[str, Any]) -> None:
    """Publish the address of `world`; learners that join read `begin`."""
    world.store.set(BEGIN, json.dumps({**begin, "time": time.time()}))
    place = {
        "address": world.address if world.rank == 0 else os.environ["MASTER_ADDR"],
        "port": int(os.environ["MASTER_PORT"]),
        "attempt": world.generation,
        "num_learners": world.size,
        "local_size": world.local_size,
        "machine": socket.gethostname(),
    }
    write_text(rendezvous_path(out), json.dumps(place, indent=1) + "\n")


def read_initial_state(store: Store) -> tuple[dict[str, Any], float]:
    """Return `begin` of `publish_rendezvous`, and its age in seconds."""
    begin = json.loads(store.get(BEGIN))
    return begin, max(0.0, time.time() - begin.pop("time"))


def is_current(out: Path, generation: str) -> bool:
    """Return whether `generation` still trains in `out`.

    A process that starts another removes the file before it ends those that joined
    (`supervisor.end_joined`).
    """
    return bool(read_object(rendezvous_path(out)).get("attempt") == generation)


def reach_store(out: Path) -> None:
    """Connect to the store of a training of several hosts in `out`.

    OSError if it does not answer, ConnectionRefusedError or FileNotFoundError if none runs.
    """
    place = json.loads(rendezvous_path(out).read_bytes())
    if place["address"].startswith(LOOPBACK):
        raise ConnectionRefusedError("all learners are on one host")
    socket.create_connection((place["address"], place["port"]), ANSWER_S).close()


def join_training(out: Path) -> int:
    """Set the environment of a further learner; AsrtoolError if none can join."""
    not_running = AsrtoolError(
        f"{out}: no training that a learner can join is running there",
        "start or resume it by the same command without --join, with two learners or more",
    )
    place = read_object(rendezvous_path(out))
    if not place:
        raise not_running
    is_here = place["machine"] == socket.gethostname()
    if place["address"].startswith(LOOPBACK) and not is_here:
        raise AsrtoolError(
            f"{out}: the store of the training there is at {place['address']}, which only {place['machine']} reaches",
            f"join it on {place['machine']}, or start such trainings on distributed.interface, a network of both",
        )
    try:
        number = place["num_learners"] + int(_open_store(place).add(NUMBER, 1)) - 1
    except (OSError, RuntimeError):  # the generation has ended
        raise not_running from None
    environment = {
        "MASTER_ADDR": place["address"],
        "MASTER_PORT": place["port"],
        "RANK": number,
        "WORLD_SIZE": place["num_learners"],
        "LOCAL_RANK": number if is_here else 0,
        "LOCAL_WORLD_SIZE": place["local_size"] if is_here else 1,
        JOINED: place["attempt"],
    }
    local = {name: os.environ[name] for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE") if name in os.environ}
    os.environ.update({name: str(value) for name, value in environment.items()} | local)
    return number


def find_store(out: Path) -> Store | None:
    """Return the store of the training that runs in `out`; None if none runs."""
    try:
        return _open_store(json.loads(rendezvous_path(out).read_bytes()))
    except (OSError, ValueError, RuntimeError):
        return None


def _open_store(place: Mapping[str, Any]) -> Store:
    """Return the store of a training in which learners train.

    OSError or RuntimeError if `place` has no such store.
    """
    from datetime import timedelta

    from torch._C._distributed_c10d import TCPStore

    from asrtool.distributed.launch.generation import generation_store

    address, port = place["address"], place["port"]
    socket.create_connection((address, port), ANSWER_S).close()  # torch tries again if nothing listens
    whole = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=ANSWER_S))
    store = generation_store(place["attempt"], whole)
    if not store.check([BEGIN]):
        raise RuntimeError("another store")
    return store
