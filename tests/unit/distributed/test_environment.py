"""Environment variables of learners, also of srun, the address of their host, and which processes train together."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections import defaultdict

import pytest
from learner_threads import at_once
from torch.distributed import HashStore, PrefixStore

from asrtool.distributed.launch import addresses, generation
from asrtool.distributed.launch.addresses import (
    address_on,
    address_towards,
    connect_learners,
    interface_of,
    own_address,
    own_addresses,
    reach_rendezvous,
)
from asrtool.distributed.launch.environment import adopt_task, check_environment, first_host
from asrtool.distributed.launch.generation import generation_store, host_key, join_generation
from asrtool.distributed.transport.sockets import url_of
from asrtool.errors import AsrtoolError

GOOD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("WORLD_SIZE", "", "WORLD_SIZE is '' in the environment of a learner, expected 1 to"),
        ("RANK", "one", "RANK is 'one' in the environment of a learner, expected 0 to 1; start learners with torchrun"),
        ("RANK", "2", "RANK is '2'"),  # it would wait for ever
        ("MASTER_PORT", "65536", "MASTER_PORT is '65536' in the environment of a learner, expected 1 to 65535"),
    ],
)
def test_a_value_that_cannot_be_is_named(name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for known, good in GOOD.items():
        monkeypatch.setenv(known, good)
    check_environment(0)
    monkeypatch.setenv(name, value)
    with pytest.raises(AsrtoolError) as error:
        check_environment(0)
    assert str(error.value).startswith(message)


def test_learners_that_the_user_asks_for_beside_others_of_the_environment_are_refused(monkeypatch) -> None:
    """torchrun or a container may leave such variables; one learner would train without a warning."""
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, GOOD[name])
    check_environment(2)
    with pytest.raises(AsrtoolError) as error:
        check_environment(3)
    assert str(error.value).startswith(
        "distributed.num_learners (--num-learners) is 3, but RANK=1 and WORLD_SIZE=2 in the environment make this "
        "process learner 1 of 2; unset RANK and WORLD_SIZE"
    )
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    check_environment(3)


STEP = {
    "SLURM_STEP_NUM_TASKS": "11",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
    "SLURM_STEP_NODELIST": "localhost,n[1-2]",
    "SLURM_STEP_LAUNCHER_PORT": "41017",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
}
ADOPTED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of a task, which a test may change."""
    monkeypatch.setattr(os, "environ", {**STEP})
    return monkeypatch


def test_a_task_has_the_ranks_of_its_step_and_a_port_of_its_own(step: pytest.MonkeyPatch) -> None:
    adopt_task(0)
    assert [os.environ[name] for name in ADOPTED] == ["9", "11", "1", "3", "localhost"]
    ports = set()
    for port in (32_768, 41_017, 60_999):  # of srun, which no other program has there
        step.setattr(os, "environ", {**STEP, "SLURM_STEP_LAUNCHER_PORT": str(port)})
        adopt_task(11)
        ports.add(int(os.environ["MASTER_PORT"]))
    assert len(ports) == 3
    assert all(1024 < port < 32_768 for port in ports)


@pytest.mark.parametrize(
    "other",
    [
        {"SLURM_STEP_NUM_TASKS": "1"},  # a command of one task, which starts learners itself
        {"SLURM_STEP_NUM_TASKS": None, "SLURM_NTASKS": "4"},  # a batch script, which has SLURM_PROCID too
        {"RANK": "3"},  # torchrun in a task
    ],
)
def test_others_are_no_learners_by_it(step: pytest.MonkeyPatch, other: dict[str, str | None]) -> None:
    environment = {name: value for name, value in {**STEP, **other}.items() if value}
    step.setattr(os, "environ", {**environment})
    adopt_task(4)
    assert os.environ == environment


@pytest.mark.usefixtures("step")
def test_another_number_of_learners_is_one_line_that_names_both() -> None:
    with pytest.raises(AsrtoolError) as error:
        adopt_task(4)
    assert str(error.value) == (
        "distributed.num_learners (--num-learners) is 4, but srun started 11 tasks, each of which is a learner"
        " (SLURM_STEP_NUM_TASKS); leave out --num-learners, or start 4 tasks"
    )


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("n1", "n1"), ("a,b", "a"), ("gpu-a[001-004,7]-ib,m2", "gpu-a001-ib"), ("r[2,5]c[0-3]", "r2c0")],
)
def test_the_first_name_of_a_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


ADDRESSES = [("lo", "127.0.0.1"), ("eth0", "10.2.0.5"), ("eth1", "10.1.0.5"), ("eth1", "fd79::5")]


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this host two networks."""
    monkeypatch.setattr(addresses, "own_addresses", lambda: ADDRESSES)


@pytest.mark.parametrize(
    ("reached", "others", "expected"),
    [
        (("127.0.0.1", False), ("", "127.0.0.1"), "127.0.0.1"),
        (("127.0.0.1", False), ("", "10.0.0.2", "10.0.0.3"), "towards 10.0.0.2"),  # Debian's 127.0.1.1
        (("10.3.0.1", False), ("", "10.0.0.2"), "towards 10.0.0.2"),  # the name of an interface that leads nowhere
        (("10.0.0.1", True), ("10.3.0.2",), "10.0.0.1"),
    ],
)
def test_the_host_of_the_rendezvous_takes_the_address_towards_another_and_others_that_towards_it(
    reached: tuple[str, bool], others: tuple[str, ...], expected: str, monkeypatch
) -> None:
    monkeypatch.setattr(addresses, "address_towards", lambda address: f"towards {address}")
    assert own_address("", reached, lambda: others) == expected


def test_the_address_towards_this_host_is_its_loopback_address_and_has_its_interface() -> None:
    assert address_towards("127.0.1.1") == "127.0.0.1"
    assert ("lo", "127.0.0.1") in own_addresses()
    assert interface_of("127.0.0.1") == "lo"
    assert address_on("lo") == address_on("127.0.0.0/8") == "127.0.0.1"


@pytest.mark.parametrize(
    ("interface", "expected"), [("eth1", "10.1.0.5"), ("10.1.2.3/16", "10.1.0.5"), ("fd79::/64", "fd79::5")]
)
def test_a_chosen_interface_goes_before_the_way_to_the_rendezvous(interface: str, expected: str, interfaces) -> None:
    assert own_address(interface, ("10.2.0.5", True)) == expected


@pytest.mark.parametrize("interface", ["ib0", "10.3.0.0/16", "eth"])
def test_an_interface_that_there_is_not_is_refused_with_those_that_there_are(interface: str, interfaces: None) -> None:
    with pytest.raises(AsrtoolError) as error:
        own_address(interface, ("10.2.0.5", True))
    assert str(error.value) == (
        f"distributed.interface is {interface!r}; this host has lo (127.0.0.1), eth0 (10.2.0.5), eth1 (10.1.0.5), "
        "eth1 (fd79::5); name an interface that all have, or a subnet that has an address of each"
    )


def test_zeromq_gets_an_address_of_ipv6_in_brackets() -> None:
    assert (url_of("10.1.0.5"), url_of("fd79::5")) == ("tcp://10.1.0.5", "tcp://[fd79::5]")


def test_learners_of_a_store_on_their_host_have_its_loopback_address_and_connect() -> None:
    store = HashStore()
    places = at_once(lambda rank: connect_learners(store, rank, 3, "", ("127.0.0.1", False), 60.0), range(3))
    assert [[place.address for place in found] for found in places] == [["127.0.0.1"] * 3] * 3


def test_learners_of_which_one_falls_silent_say_which() -> None:
    with pytest.raises(
        AsrtoolError, match=r"all learners met at the rendezvous, then rank 1 of 2 was silent for 0\.1 s"
    ):
        connect_learners(HashStore(), 0, 2, "", ("127.0.0.1", False), 0.1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("127.0.0.1", "learner 3 on {} cannot reach the rendezvous at 127.0.0.1:1 (127.0.0.1) from 127.0.0.1 (lo): "),
        (
            "no-such-host.invalid",
            "learner 3 on {} cannot reach the rendezvous at no-such-host.invalid:1 (MASTER_ADDR), which",
        ),
    ],
)
def test_a_rendezvous_that_is_not_reached_is_named_with_the_way_there(name: str, expected: str, monkeypatch) -> None:
    for variable, value in {"RANK": "3", "MASTER_ADDR": name, "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(AsrtoolError) as error:
        reach_rendezvous(0.0)
    assert str(error.value).startswith(expected.format(addresses.socket.gethostname()))
    assert "--local-addr" in str(error.value)


def test_the_interfaces_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(addresses, "own_addresses", lambda: ADDRESSES)
    environment = addresses.os.environ
    addresses.use_for_groups("10.1.0.5", several_hosts=False)
    assert (environment["GLOO_SOCKET_IFNAME"], environment.get("NCCL_SOCKET_IFNAME")) == ("eth7", None)
    addresses.use_for_groups("10.1.0.5", several_hosts=True)
    assert (environment["GLOO_SOCKET_IFNAME"], environment.get("NCCL_SOCKET_IFNAME")) == ("eth7", "=eth1")


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
    """A learner was killed."""


class MortalStore(PrefixStore):
    """Store of a learner that is killed after `num_polls` polls of the number of learners; never if None."""

    def __init__(self, store: HashStore, num_polls: int | None) -> None:
        super().__init__("shared", store)
        self.num_left = num_polls

    def add(self, key: str, number: int) -> int:
        if self.num_left is not None and number == 0:
            if self.num_left == 0:
                raise Killed
            self.num_left -= 1
        return super().add(key, number)


@pytest.mark.parametrize("seed", range(5))
def test_learners_killed_at_any_moment_and_started_again_end_in_one_generation(seed: int) -> None:
    """Each is killed after some polls, several times; who trains with one that is gone starts again, as by torchrun."""
    draw, lock, store = random.Random(seed), threading.Lock(), HashStore()
    kills = [[draw.randrange(6) for _ in range(draw.randrange(5))] for _ in range(SIZE)]
    joined: defaultdict[str, list[int]] = defaultdict(list)  # token -> ranks that took it, each life of them
    broken = set()

    def trains(token: str, rank: int) -> bool:
        """Return whether all learners of the generation joined; False if one is missing or gave up."""
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
            own_store = MortalStore(store, kills[rank][life] if life < len(kills[rank]) else None)
            try:
                token = join_generation(own_store, rank, SIZE, TIMEOUT_S)
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
