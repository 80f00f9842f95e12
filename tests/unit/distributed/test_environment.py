"""The environment variables of a learner, and those of srun, by which a task becomes the learner that it is."""

from __future__ import annotations

import os

import pytest

from asrtool.distributed.launch.environment import adopt_task, check_environment, first_host
from asrtool.errors import AsrtoolError

GOOD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("WORLD_SIZE", "", "WORLD_SIZE is '' in the environment of a learner, expected 1 to"),
        ("WORLD_SIZE", "0", "WORLD_SIZE is '0'"),
        ("RANK", "one", "RANK is 'one' in the environment of a learner, expected 0 to 1; start learners with torchrun"),
        ("RANK", "2", "RANK is '2'"),  # it would wait for ever
        ("RANK", "-1", "RANK is '-1'"),
        ("MASTER_PORT", "", "MASTER_PORT is ''"),
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


@pytest.mark.parametrize("names", [("RANK", "WORLD_SIZE"), tuple(GOOD)])
def test_learners_that_the_user_asks_for_beside_others_of_the_environment_are_refused(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torchrun or a container leaves them: else one learner would train in silence."""
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    for name in names:
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
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
}
ADOPTED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of a task, which a test may change."""
    monkeypatch.setattr(os, "environ", {**STEP})
    return monkeypatch


def test_a_task_has_the_ranks_of_its_step_and_a_port_of_its_own(step: pytest.MonkeyPatch) -> None:
    adopt_task(0)
    assert [os.environ[name] for name in ADOPTED[:5]] == ["9", "11", "1", "3", "localhost"]
    ports = set()
    for job in ("17", "18"):
        for number in ("0", "1"):
            step.setattr(os, "environ", {**STEP, "SLURM_JOB_ID": job, "SLURM_STEP_ID": number})
            adopt_task(11)
            ports.add(int(os.environ["MASTER_PORT"]))
    assert len(ports) == 4
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
    [("n1", "n1"), ("n[1-3,7],m2", "n1"), ("gpu-a[001-004]-ib", "gpu-a001-ib"), ("a,b", "a"), ("r[2,5]c[0-3]", "r2c0")],
)
def test_the_first_name_of_a_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first
