"""Which processes train together: never one of an earlier generation, and all of the newest in the end."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest
from learner_threads import at_once
from torch.distributed import HashStore

from asrtool.distributed.launch import generation
from asrtool.distributed.launch.generation import generation_store, host_key, join_generation
from asrtool.errors import AsrtoolError

SIZE = 3
TIMEOUT_S = 240


@pytest.fixture(autouse=True)
def polls_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "POLL_S", 0.002)


def test_learners_that_start_in_any_order_find_one_token_and_each_restart_another() -> None:
    """The store, as that of torchrun, has what all generations before have left."""
    store, tokens = HashStore(), set()

    def join(place: int, rank: int) -> str:
        time.sleep(place / 50)
        return join_generation(store, rank, SIZE, TIMEOUT_S)

    for order in itertools.permutations(range(SIZE)):
        (token,) = set(at_once(join, range(SIZE), order))
        assert generation_store(token, store).check([host_key(rank) for rank in range(SIZE)])
        tokens.add(token)
    assert len(tokens) == 6
    token = join_generation(store, 0, 1, TIMEOUT_S)  # those of before a change of membership are not waited for
    assert generation_store(token, store).check([host_key(0)])


class Killed(Exception):
    """A learner was."""


def polls_before_it_is_killed(num: int) -> Iterator[None]:
    yield from [None] * num
    raise Killed


@pytest.mark.parametrize("seed", range(5))
def test_learners_killed_at_any_moment_and_started_again_end_in_one_generation(seed: int, monkeypatch) -> None:
    """Each is killed after some polls, several times; who trains with one that is gone starts again, as by torchrun."""
    draw, lock, store = random.Random(seed), threading.Lock(), HashStore()
    kills = [[draw.randrange(6) for _ in range(draw.randrange(5))] for _ in range(SIZE)]
    joined: defaultdict[str, list[int]] = defaultdict(list)  # token -> ranks that took it, each life of them
    broken = set()
    unpatched, polls = generation._polls, threading.local()
    monkeypatch.setattr(generation, "_polls", lambda *_: polls.next)

    def trains(token: str, rank: int) -> bool:
        """Whether all of the generation are there; False where one does not come, or has given up."""
        with lock:
            joined[token].append(rank)
        until = time.monotonic() + 0.2
        while time.monotonic() < until and token not in broken:
            with lock:
                if len(joined[token]) == SIZE:
                    return True
            time.sleep(0.005)
        with lock:
            if len(joined[token]) == SIZE and token not in broken:
                return True
            broken.add(token)
        return False

    def lives(rank: int) -> str:
        for life in itertools.count():
            own_kills = kills[rank]
            polls.next = (
                polls_before_it_is_killed(own_kills[life]) if life < len(own_kills) else unpatched(TIMEOUT_S, int)
            )
            try:
                token = join_generation(store, rank, SIZE, TIMEOUT_S)
            except Killed:
                continue
            if trains(token, rank):
                return token
        raise AssertionError

    assert len(set(at_once(lives, range(SIZE)))) == 1
    for ranks in joined.values():
        assert len(set(ranks)) == len(ranks), "two lives of a learner in one generation"


def test_when_one_does_not_come_all_that_have_end_by_the_same_line() -> None:
    """The time counts from the last one that came: no learner of a host that did start waits on."""
    with pytest.raises(AsrtoolError, match="rank 0 of 3 missing"):
        join_generation(HashStore(), 1, SIZE, 0.1)
    store = HashStore()

    def fault(rank: int) -> str:
        with pytest.raises(AsrtoolError) as error:
            join_generation(store, rank, SIZE, 1.0 if rank == 0 else TIMEOUT_S)
        return str(error.value)

    first, second = at_once(fault, range(2))
    assert first.startswith("rendezvous timed out after 1 s: rank 2 of 3 missing")
    assert second.startswith(f"rendezvous timed out after {TIMEOUT_S} s: rank 2 of 3 missing")
