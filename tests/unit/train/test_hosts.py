"""Learners of two hosts, as hosts are installed: they reach each other, or end by a line that says what to set."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hosts import Host, two_hosts, why_not
from learners import MANY_BATCHES, batches_trained, planned
from rendezvous import ENDED_S, wait_until
from trainings import summary

from asrtool.settings import registry

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hosts_here")]
PATIENT = ("--set", "distributed.timeout_s=100")  # a learner that a busy machine keeps waiting is not lost
IPV4 = ("10.79.0.1/24", "10.79.0.2/24")
NAMES_V6 = {"h1": "fd79::1", "h2": "fd79::2"}
KINDS = {
    # Their own name is that of a loopback address, as Debian and Ubuntu have it.
    "debian": (IPV4, ({"h1": "127.0.1.1", "h2": "10.79.0.2"}, {"h2": "127.0.1.1", "h1": "10.79.0.1"})),
    # Their own name is that of an interface that leads nowhere.
    "astray": (IPV4, ({"h1": "10.80.0.1", "h2": "10.79.0.2"}, {"h2": "10.80.0.2", "h1": "10.79.0.1"})),
    # They resolve only their own name, as two workstations without DNS.
    "nameless": (IPV4, ({"h1": "127.0.1.1"}, {"h2": "127.0.1.1"})),
    "ipv6": (("fd79::1/64", "fd79::2/64"), (NAMES_V6, NAMES_V6)),
}
IS_HOST = ("--rdzv-conf", "is_host=1")
EACH = [name for name in registry.names("strategy") if name not in ("single", "hogwild")]


def on(interface: str, timeout_s: int = 100) -> tuple[str, ...]:
    return ("--set", f"distributed.interface={interface}", "--set", f"distributed.timeout_s={timeout_s}")


@pytest.fixture(scope="module")
def hosts_here() -> None:
    """Skips the tests if there can be none."""
    if why := why_not():
        pytest.skip(why)


@pytest.fixture(scope="module")
def hosts_of(hosts_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[Host]]]:
    """Make the two hosts of a kind, once."""
    made: dict[str, list[Host]] = {}
    with contextlib.ExitStack() as stack:

        def make(kind: str) -> list[Host]:
            if kind not in made:
                made[kind] = stack.enter_context(two_hosts(tmp_path_factory.mktemp(kind), *KINDS[kind]))
                for number, host in enumerate(made[kind] if kind == "astray" else [], 1):
                    host.ip("link add eth1 type veth peer name nowhere")
                    host.ip(f"addr add 10.80.0.{number}/24 dev eth1")
                    for name in ("eth1", "nowhere"):
                        host.ip(f"link set {name} up")
            return made[kind]

        yield make


class Trainings:
    """Trainings of the toy task in a folder, by a torchrun of each host."""

    def __init__(self, toy: Path, folder: Path) -> None:
        self.toy, self.out, self.config = toy, folder / "train", folder / "toy.toml"
        self.logs = [folder / "h1.log", folder / "h2.log"]
        self.config.write_text(MANY_BATCHES.replace("num_epochs = 3", "num_epochs = 1"))

    def run(
        self,
        hosts: Sequence[Host],
        strategy: str,
        *options: str,
        agent: Sequence[Sequence[str]] = ((), ()),
        gloo: str = "",
        endpoint: str = "h1",
    ) -> tuple[list[int | None], list[str]]:
        """The exit codes and logs of both; `agent` are the options of each torchrun, `gloo` an interface."""
        torchrun, asrtool = (str(Path(sys.executable).with_name(name)) for name in ("torchrun", "asrtool"))
        num = "2" if strategy == "h-adpsgd" else "1"
        words = ["--nnodes", "2", "--nproc-per-node", num, "--rdzv-backend", "c10d", "--rdzv-id", "two"]
        train = ["--rdzv-endpoint", f"{endpoint}:29500", "--no-python", asrtool, "train"]
        train += [str(path) for path in (self.toy / "features", self.toy / "tokenizer", self.out)]
        train += ["--config", str(self.config), "--strategy", strategy, *options]
        with contextlib.ExitStack() as stack:
            agents = []
            for host, more, path in zip(hosts, agent, self.logs, strict=True):
                log = stack.enter_context(open(path, "w"))
                command = host.command([torchrun, *words, *more, *train])
                env = {**os.environ, "GLOO_SOCKET_IFNAME": gloo} if gloo else None
                agents.append(stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log, env=env)))
                stack.callback(agents[-1].kill)
            for one in agents:
                one.wait(ENDED_S)
        return [one.returncode for one in agents], [path.read_text() for path in self.logs]


@pytest.fixture
def trainings(toy: Path, tmp_path: Path) -> Trainings:
    return Trainings(toy, tmp_path)


LOCAL = {"agent": ((*IS_HOST, "--local-addr", "10.79.0.1"), ("--local-addr", "10.79.0.2")), "endpoint": "10.79.0.1"}


@pytest.mark.parametrize(
    ("kind", "strategy", "options", "torchrun"),
    [
        *(("debian", name, PATIENT, {}) for name in EACH),
        ("debian", "allreduce", on("eth0"), {}),
        ("debian", "adpsgd-random", on("10.79.0.0/24"), {}),
        ("ipv6", "allreduce", PATIENT, {}),
        ("ipv6", "adpsgd-random", on("fd79::/64"), {}),
        ("ipv6", "ps-async", PATIENT, {}),
        ("astray", "allreduce", PATIENT, {}),
        ("astray", "adpsgd-random", on("eth0"), {}),
        ("nameless", "adpsgd-random", PATIENT, LOCAL),
    ],
)
def test_learners_of_two_hosts_train_each_batch_once(
    kind: str, strategy: str, options: Sequence[str], torchrun: dict[str, Any], hosts_of, trainings
) -> None:
    """Hosts as Debian installs them, without any setting; on the network that the user chooses; on others."""
    codes, logs = trainings.run(hosts_of(kind), strategy, *options, **torchrun)
    assert codes == [0, 0], "\n".join(logs)
    assert batches_trained(trainings.out) == planned(trainings.toy, trainings.config)


UNREACHED = ("learner 0 on h1 cannot reach a learner at 10.80.0.2 of h2 from ", "(by eth1); set distributed.interface")
LACKED = ("error: learner 1 on h2: distributed.interface is '10.79.0.1/32'; this host has lo (127.0.0.1), eth0 ",)
NOT_FOUND = ("learner 1 on h2 cannot reach the rendezvous at h1:", "which has no known address: ", "--local-addr")
LATE = ("rendezvous timed out after 6 s: rank 1 of 2 missing",)
BY_ADDRESS = {"agent": (IS_HOST, ()), "endpoint": "10.79.0.1"}


@pytest.mark.parametrize(
    ("kind", "options", "torchrun", "expected"),
    [
        ("astray", on("eth1", 16), {}, (UNREACHED, UNREACHED)),
        ("debian", on("10.79.0.1/32"), {}, (LACKED, LACKED)),
        ("astray", on("", 16), {"gloo": "eth1"}, 2 * (("GLOO_SOCKET_IFNAME=eth1",),)),  # the user's is kept
        ("nameless", on("", 6), BY_ADDRESS, (LATE, NOT_FOUND)),
    ],
)
def test_learners_that_do_not_reach_each_other_end_by_the_line_that_says_what_to_set(
    kind: str, options: Sequence[str], torchrun: dict[str, Any], expected: Sequence[Sequence[str]], hosts_of, trainings
) -> None:
    codes, logs = trainings.run(hosts_of(kind), "adpsgd-random", *options, **torchrun)
    assert codes == [1, 1]
    for log, lines in zip(logs, expected, strict=True):
        assert all(line in log for line in lines), log
    assert not any(path.read_text() for path in (trainings.out / "learners").glob("*.jsonl"))  # none made a step


def test_learners_of_a_host_that_was_cut_off_join_again(hosts_of, trainings) -> None:
    """The others train on without them, for long enough that they come back in time."""
    trainings.config.write_text(trainings.config.read_text().replace("num_epochs = 1", "num_epochs = 80"))
    hosts, h1_log = hosts_of("debian"), trainings.logs[0]
    options = ("--compute-ms", "200", "--set", "distributed.timeout_s=8")

    def record(rank: int) -> dict[str, Any]:
        """Return the first record of a learner, if there is one."""
        path = trainings.out / "learners" / f"{rank}.jsonl"
        lines = path.read_text().splitlines(True) if path.exists() else []
        return json.loads(lines[0]) if lines and lines[0].endswith("\n") else {}

    with ThreadPoolExecutor() as pool:
        running = pool.submit(trainings.run, hosts, "adpsgd-random", *options, agent=2 * [("--nproc-per-node", "2")])

        def wait_for(is_so: Callable[[], bool]) -> None:
            wait_until(lambda: is_so() or running.done(), h1_log.read_text)
            assert is_so(), running.result()[1]

        wait_for(lambda: all(map(record, range(4))))
        cut_off = [rank for rank in range(4) if record(rank)["host"] == "h2"]
        hosts[1].ip("link set eth0 down")
        wait_for(lambda: ": 2 train without it" in h1_log.read_text())
        hosts[1].ip("link set eth0 up")
        wait_for(lambda: all(map(record, (4, 5))))
        codes, logs = running.result()
    assert codes == [0, 0], "\n".join(logs)
    assert [record(rank)["host"] for rank in (4, 5)] == ["h2", "h2"]
    assert all(f"learner {rank} was cut off from the others" in logs[1] for rank in cut_off)
    ended = summary(trainings.out)
    assert (sorted(map(int, ended["lost"])), sorted(ended["joined"])) == (cut_off, [4, 5])
    assert batches_trained(trainings.out) == planned(trainings.toy, trainings.config)
