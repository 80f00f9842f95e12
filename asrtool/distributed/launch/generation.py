"""Generation of a training: the processes that train together until a restart.

torchrun starts all learners again after one has died or machines have joined or left, and keeps its
store. With a static rendezvous the machines do not even restart at the same time: new learners of
one may look for each other while learners of another still end. So nothing that an earlier
generation left in the store may count in a later one.

Learner 0 draws a token and publishes it. Each other learner answers under the newest token by a
random text of its own. After all have answered, learner 0 publishes these texts, and a learner that
finds its own text there trains with the others. A text that answers a new token is from a live
process, since it did not exist before. A learner that died after its answer and was started
again finds the text of its predecessor: it waits for the next token, and its heartbeat is missed.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable, Iterator

from torch.distributed.distributed_c10d import PrefixStore, Store

from asrtool.errors import AsrtoolError

POLL_S = 0.05
BEGAN = "began"  # the texts of all learners but the first, by rank; empty for one that has not come in time
NUM_COME = "num_come"  # learners that have come, in all generations


def join_generation(store: Store, rank: int, size: int, timeout_s: float) -> str:
    """Wait until all `size` learners are there; return the token of the generation.

    The token is the same for all. Their keys belong below it (`generation_store`), with the names
    of their hosts (`host_key`). AsrtoolError if some are missing and none has come for
    `timeout_s`.
    """
    store.add(NUM_COME, 1)
    polls = _polls(timeout_s, lambda: store.add(NUM_COME, 0))
    missing = _lead(store, size, polls) if rank == 0 else _follow(store, rank, size, polls)
    if isinstance(missing, str):
        return missing
    raise AsrtoolError(
        f"rendezvous timed out after {timeout_s:g} s: rank {', '.join(map(str, missing))} of {size} missing",
        "see the logs of these ranks and their hosts, which say what they could not reach, then run the same command "
        "again",
    )


def generation_store(generation: str, store: Store) -> Store:
    """Return the part of `store` for the keys of `generation`."""
    return PrefixStore(generation, store)


def host_key(learner: int) -> str:
    """Return the key of the host name of `learner`."""
    return f"host{learner}"


def _lead(store: Store, size: int, polls: Iterator[None]) -> str | list[int]:
    """Draw a token as learner 0; return it, or the learners that have not answered."""
    token = secrets.token_hex(8)
    generation = generation_store(token, store)
    generation.set(host_key(0), socket.gethostname())
    store.set(_newest(size), token)
    missing = list(range(1, size))
    for _ in polls:
        missing = [rank for rank in missing if not generation.check([_answer(rank)])]
        if not missing:
            break
    generation.set(
        BEGAN, json.dumps(["" if rank in missing else _read(generation, _answer(rank)) for rank in range(1, size)])
    )
    return missing or token


def _follow(store: Store, rank: int, size: int, polls: Iterator[None]) -> str | list[int]:
    """Answer as another learner; return the token, or the learners that have not."""
    own, token = secrets.token_hex(8), ""
    for _ in polls:
        newest = _read(store, _newest(size))
        if newest != token:
            token = newest
            generation = generation_store(token, store)
            generation.set(host_key(rank), socket.gethostname())
            generation.set(_answer(rank), own)
        if token and generation.check([BEGAN]) and (texts := json.loads(_read(generation, BEGAN)))[rank - 1] == own:
            return [other for other, text in enumerate(texts, 1) if not text] or token
    # If all others have answered the token, learner 0 that drew it is gone.
    return [other for other in range(1, size) if token and not generation.check([_answer(other)])] or [0]


def _newest(size: int) -> str:
    """Return the key of the newest token for `size` learners."""
    return f"generation of {size}"


def _answer(rank: int) -> str:
    return f"answer{rank}"


def _read(store: Store, key: str) -> str:
    """Return the value of `key`; empty if there is no such key."""
    return str(store.get(key).decode()) if store.check([key]) else ""


def _polls(timeout_s: float, num_come: Callable[[], int]) -> Iterator[None]:
    """Yield until `num_come` has not grown for `timeout_s`."""
    known, until = -1, 0.0
    while (num := num_come()) > known or time.monotonic() < until:
        known, until = num, until if num == known else time.monotonic() + timeout_s
        yield
        time.sleep(POLL_S)
