"""Environment variables of a learner, set by torchrun, srun, or a launcher here.

Needs no torch.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from dataclasses import dataclass

from asrtool.errors import AsrtoolError

POD_SIZE = ("PET_NNODES", "PET_NPROC_PER_NODE")  # size of a pod of Kubeflow Trainer, as for torchrun
JOINED = "ASRTOOL_JOINED_GENERATION"  # token of the running generation that this process joins
SERVED = "ASRTOOL_STORE_SERVED"  # set if another process than a learner serves the rendezvous store
# Ports of the rendezvous of a step, below those that systems give out. It follows from the port of its srun, which
# another job on this host does not have, be it of another Slurm.
FIRST_PORT, NUM_PORTS = 15_000, 15_000
LOST = 75  # exit code of a learner that exits because it lost another; EX_TEMPFAIL of sysexits.h
REPORTED = 65  # exit code for its launcher of a learner that has printed an AsrtoolError; EX_DATAERR


def is_learner() -> bool:
    """Return whether this process was started as one of several learners."""
    return "RANK" in os.environ and "MASTER_ADDR" in os.environ


def joined_generation() -> str:
    """Return the token of the generation that this process joins; empty if none."""
    return os.environ.get(JOINED, "")


def agents_met() -> bool:
    """Return whether torchrun's agents met on all hosts before the first start."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"


def serves_store() -> bool:
    """Return whether this process serves the store: learner 0 without torchrun's."""
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    return os.environ.get("RANK") == "0" and not agent and SERVED not in os.environ


def adopt_task(num_learners: int) -> None:
    """Set the variables of torchrun for a task of ``srun``, which is a learner.

    A step has SLURM_STEP_NUM_TASKS; SLURM_PROCID and SLURM_NTASKS are also in a batch script, which is no learner.
    torchrun in a step goes first. Raises AsrtoolError if `num_learners` contradicts.
    """
    size = int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))
    if size < 2 or "RANK" in os.environ:
        return
    if num_learners not in (0, size):
        raise AsrtoolError(
            f"distributed.num_learners (--num-learners) is {num_learners}, but srun started {size} tasks, each of "
            "which is a learner (SLURM_STEP_NUM_TASKS)",
            f"leave out --num-learners, or start {num_learners} tasks",
        )
    os.environ |= {
        "RANK": os.environ["SLURM_PROCID"],
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": os.environ["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(_tasks_of_node()),
        "MASTER_ADDR": _address_of(first_host(os.environ["SLURM_STEP_NODELIST"])),
        "MASTER_PORT": str(FIRST_PORT + int(os.environ["SLURM_STEP_LAUNCHER_PORT"]) % NUM_PORTS),
    }


@dataclass(frozen=True)
class Pod:
    """A pod of a TrainJob, whose launcher starts its share of the learners."""

    index: int
    num_pods: int
    num_learners: int  # of each pod

    @property
    def size(self) -> int:
        """Number of learners of all pods."""
        return self.num_pods * self.num_learners

    def environment(self, place: int, joins: bool) -> dict[str, str]:
        """Return the variables of its learner `place`, as torchrun sets them.

        One that is to join a training that runs gets the others there.
        """
        local = {"LOCAL_RANK": str(place), "LOCAL_WORLD_SIZE": str(self.num_learners)}
        if joins:
            return local
        return {
            **local,
            "RANK": str(self.index * self.num_learners + place),
            "WORLD_SIZE": str(self.size),
            "MASTER_ADDR": os.environ["PET_MASTER_ADDR"],
            "MASTER_PORT": os.environ["PET_MASTER_PORT"],
        }


def find_pod(num_learners: int) -> Pod | None:
    """Return the pod of this process; None elsewhere, and in a learner.

    It is known by the PET_* variables. Raises AsrtoolError if `num_learners` contradicts.
    """
    if "PET_NNODES" not in os.environ or "RANK" in os.environ:
        return None
    pod = Pod(_number("PET_NODE_RANK", 0, 2**31), *(_number(name, 1, 2**31) for name in POD_SIZE))
    if num_learners not in (0, pod.size):
        raise AsrtoolError(
            f"distributed.num_learners (--num-learners) is {num_learners}, but this pod is one of {pod.num_pods} with "
            f"{pod.num_learners} learners each (PET_NNODES, PET_NPROC_PER_NODE)",
            "leave out --num-learners, or change numNodes and numProcPerNode of the TrainJob",
        )
    return pod


def first_host(node_list: str) -> str:
    """Return the first name of a list of Slurm such as ``n[1-3,7],m2``."""
    name = re.match(r"[^,\[]+(\[[^\]]*\][^,\[]*)*", node_list)
    assert name, node_list
    return re.sub(r"\[([^\]]*)\]", lambda ranges: re.split("[-,]", ranges[1])[0], name[0])


def _tasks_of_node() -> int:
    """Return the number of tasks on this node, of a list such as ``4(x2),3``."""
    counts: list[int] = []
    for part in os.environ["SLURM_STEP_TASKS_PER_NODE"].split(","):
        number, _, times = part.rstrip(")").partition("(x")
        counts += [int(number)] * int(times or 1)
    return counts[int(os.environ["SLURM_NODEID"])]


def _address_of(node: str) -> str:
    """Return the name of a node, or its address in Slurm if the name is unknown."""
    try:
        socket.getaddrinfo(node, None)
    except OSError:
        done = subprocess.run(["scontrol", "show", "node", node], capture_output=True, text=True)
        found = re.search(r"NodeAddr=(\S+)", done.stdout)
        return found[1] if found else node
    return node


def check_environment(num_learners: int) -> None:
    """Raise AsrtoolError if a variable is missing, out of range, or contradicts."""
    rank, *sizes = (os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if num_learners and rank and sizes[0] and str(num_learners) not in sizes:
        raise AsrtoolError(
            f"distributed.num_learners (--num-learners) is {num_learners}, but RANK={rank} and WORLD_SIZE={sizes[0]} "
            f"in the environment make this process learner {rank} of {sizes[0]}",
            "unset RANK and WORLD_SIZE, which torchrun and some containers set, to start learners here, or set "
            "distributed.num_learners=0 to train as that learner",
        )
    if not is_learner():
        return
    size = _number("WORLD_SIZE", 1, 2**31)
    _number("RANK", 0, size)
    _number("MASTER_PORT", 1, 2**16)


def _number(name: str, first: int, end: int) -> int:
    """Return the value of the variable `name`, from `first` to `end` - 1."""
    text = os.environ.get(name, "")
    if text.isdecimal() and first <= int(text) < end:
        return int(text)
    raise AsrtoolError(
        f"{name} is {text!r} in the environment of a learner, expected {first} to {end - 1}",
        "start learners with torchrun, which sets it, or unset RANK, MASTER_ADDR and PET_NNODES to start them here",
    )
