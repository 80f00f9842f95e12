"""Learners of two hosts, as hosts are installed: they reach each other, or end by a line that says what to set."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hosts import Host, two_hosts, why_not
from learners import MANY_BATCHES, batches_trained, planned
from warm import warm_context
from warm_torchrun import WarmTorchrun

from asrtool.settings import registry

pytestmark = pytest.mark.usefixtures("hosts_here")
slow = pytest.mark.slow
ENDED_S = 150  # bounds a hang, however slow the machine
PATIENT = ("--set", "distributed.timeout_s=100")  # a learner that a busy machine keeps waiting is not lost
IPV4 = ("10.79.0.1/24", "10.79.0.2/24")
DEBIAN = ({"h1": "127.0.1.1", "h2": "10.79.0.2"}, {"h2": "127.0.1.1", "h1": "10.79.0.1"})
FAST = "adpsgd-random"
EACH = [
    pytest.param(name, marks=() if name == FAST else slow)
    for name in registry.names("strategy")
    if name not in ("single", "hogwild")
]


@pytest.fixture(scope="module")
def hosts_here() -> None:
    """Skips the tests if there can be none."""
    if why := why_not():
        pytest.skip(why)
    warm_context()  # its processes have the environment of its start, which a test below changes


@pytest.fixture(scope="module")
def debian(hosts_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Hosts whose own name is that of a loopback address, as Debian and Ubuntu have it."""
    with two_hosts(tmp_path_factory.mktemp("debian"), IPV4, DEBIAN) as hosts:
        yield hosts


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
        environments: Sequence[Mapping[str, str]] = ({}, {}),
        endpoint: str = "h1",
    ) -> tuple[list[int | None], list[str]]:
        """The exit codes and logs of both; `agent` are the options of each torchrun."""
        torchrun, asrtool = (str(Path(sys.executable).with_name(name)) for name in ("torchrun", "asrtool"))
        num = "2" if strategy == "h-adpsgd" else "1"
        words = ["--nnodes", "2", "--nproc-per-node", num, "--rdzv-backend", "c10d", "--rdzv-id", "two"]
        train = ["--rdzv-endpoint", f"{endpoint}:29500", "--no-python", asrtool, "train"]
        train += [str(path) for path in (self.toy / "features", self.toy / "tokenizer", self.out)]
        train += ["--config", str(self.config), "--strategy", strategy, *options]
        with contextlib.ExitStack() as stack:
            agents = []
            for host, more, environment, path in zip(hosts, agent, environments, self.logs, strict=True):
                log = stack.enter_context(open(path, "w"))
                with pytest.MonkeyPatch.context() as patch:
                    for name, value in environment.items():
                        patch.setenv(name, value)
                    agents.append(WarmTorchrun([torchrun, *words, *more, *train], log, log, host))
                stack.callback(agents[-1].kill)
            for one in agents:
                one.wait(ENDED_S)
        return [one.returncode for one in agents], [path.read_text() for path in self.logs]

    def check(self, *args: object, **options: object) -> None:
        """Train, by learners of both hosts, each batch once."""
        codes, logs = self.run(*args, **options)  # type: ignore[arg-type]
        assert codes == [0, 0], "\n".join(logs)
        assert batches_trained(self.out) == planned(self.toy, self.config)
        assert (self.out / "train.json").exists()

    def has_trained(self) -> bool:
        """Whether a learner has made a step."""
        return any(path.read_text() for path in (self.out / "learners").glob("*.jsonl"))


@pytest.fixture
def trainings(toy: Path, tmp_path: Path) -> Trainings:
    return Trainings(toy, tmp_path)


@pytest.mark.parametrize("strategy", EACH)
def test_hosts_as_debian_installs_them_train_without_any_setting(
    strategy: str, debian: list[Host], trainings: Trainings
) -> None:
    trainings.check(debian, strategy, *PATIENT)


@slow
@pytest.mark.parametrize(("strategy", "interface"), [("allreduce", "eth0"), ("adpsgd-random", "10.79.0.0/24")])
def test_they_train_on_the_network_that_the_user_chooses(
    strategy: str, interface: str, debian: list[Host], trainings: Trainings
) -> None:
    trainings.check(debian, strategy, *PATIENT, "--set", f"distributed.interface={interface}")


@slow
@pytest.mark.parametrize(
    ("strategy", "options"),
    [("allreduce", ()), ("adpsgd-random", ("--set", "distributed.interface=fd79::/64")), ("ps-async", ())],
)
def test_hosts_that_have_ipv6_alone_train(
    strategy: str, options: tuple[str, ...], trainings: Trainings, tmp_path: Path
) -> None:
    names = {"h1": "fd79::1", "h2": "fd79::2"}
    with two_hosts(tmp_path, ("fd79::1/64", "fd79::2/64"), (names, names)) as hosts:
        trainings.check(hosts, strategy, *PATIENT, *options)


@pytest.fixture(scope="module")
def astray(hosts_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Hosts whose own name is that of an interface that leads nowhere."""
    names = ({"h1": "10.80.0.1", "h2": "10.79.0.2"}, {"h2": "10.80.0.2", "h1": "10.79.0.1"})
    with two_hosts(tmp_path_factory.mktemp("astray"), IPV4, names) as hosts:
        for number, host in enumerate(hosts, 1):
            host.ip("link add eth1 type veth peer name nowhere")
            host.ip(f"addr add 10.80.0.{number}/24 dev eth1")
            for name in ("eth1", "nowhere"):
                host.ip(f"link set {name} up")
        yield hosts


@slow
@pytest.mark.parametrize(
    ("strategy", "options"), [("allreduce", ()), ("adpsgd-random", ("--set", "distributed.interface=eth0"))]
)
def test_an_interface_that_leads_nowhere_is_not_used(
    strategy: str, options: tuple[str, ...], astray: list[Host], trainings: Trainings
) -> None:
    trainings.check(astray, strategy, *PATIENT, *options)


@slow
def test_learners_that_do_not_reach_each_other_end_by_the_line_that_says_what_to_set(
    astray: list[Host], trainings: Trainings
) -> None:
    codes, logs = trainings.run(
        astray, "adpsgd-random", "--set", "distributed.interface=eth1", "--set", "distributed.timeout_s=16"
    )
    assert codes == [1, 1]
    for log in logs:
        assert "error: learner 0 on h1 cannot reach a learner at 10.80.0.2 of h2 from 10.80.0.1: " in log
        assert "(by eth1); set distributed.interface" in log
    assert not trainings.has_trained()


@slow
def test_an_interface_that_one_host_lacks_ends_both_by_the_line_that_names_it(
    debian: list[Host], trainings: Trainings
) -> None:
    codes, logs = trainings.run(debian, "adpsgd-random", "--set", "distributed.interface=10.79.0.1/32", *PATIENT)
    assert codes == [1, 1]
    expected = "distributed.interface is '10.79.0.1/32'; this host has lo (127.0.0.1), eth0 (10.79.0.2)"
    assert all(f"error: learner 1 on h2: {expected}" in log for log in logs), logs


@slow
def test_the_interface_of_the_environment_is_kept_and_named_if_it_leads_nowhere(
    astray: list[Host], trainings: Trainings
) -> None:
    chosen = {"GLOO_SOCKET_IFNAME": "eth1"}
    codes, logs = trainings.run(
        astray, "adpsgd-random", "--set", "distributed.timeout_s=16", environments=(chosen, chosen)
    )
    assert codes == [1, 1]  # of torchrun
    assert all("GLOO_SOCKET_IFNAME=eth1" in log for log in logs), logs
    assert not trainings.has_trained()


@pytest.fixture
def nameless(tmp_path: Path) -> Iterator[list[Host]]:
    """Hosts that know no name but their own, as two workstations without DNS."""
    with two_hosts(tmp_path, IPV4, ({"h1": "127.0.1.1"}, {"h2": "127.0.1.1"})) as hosts:
        yield hosts


IS_HOST = ("--rdzv-conf", "is_host=1")


@slow
def test_hosts_without_names_train_with_two_options_of_torchrun(nameless: list[Host], trainings: Trainings) -> None:
    agent = (*IS_HOST, "--local-addr", "10.79.0.1"), ("--local-addr", "10.79.0.2")
    trainings.check(nameless, "adpsgd-random", *PATIENT, agent=agent, endpoint="10.79.0.1")


@slow
def test_if_one_host_does_not_find_the_rendezvous_both_end_within_the_timeout(
    nameless: list[Host], trainings: Trainings
) -> None:
    codes, logs = trainings.run(
        nameless, "adpsgd-random", "--set", "distributed.timeout_s=6", agent=(IS_HOST, ()), endpoint="10.79.0.1"
    )
    assert codes == [1, 1]
    assert "rendezvous timed out after 6 s: rank 1 of 2 missing" in logs[0]
    assert "error: learner 1 on h2 cannot reach the rendezvous at h1:" in logs[1]
    assert "(MASTER_ADDR), of which no address is known: " in logs[1]
    assert "--local-addr" in logs[1]
    assert not trainings.has_trained()
