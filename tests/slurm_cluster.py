"""A private Slurm on this machine, for tests: its own munged, its own ports, no root."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
NUM_NODES = 6
DAEMONS = ("slurmctld", "slurmd", "munged")
READY_S = 60

# A requeued job waits for cred_expire, by default two minutes. CPUs=4 is believed, whatever the machine has.
CONFIG = """
ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,batch_sched_delay=0,bf_interval=2
ReturnToService=2
SlurmdTimeout=20
KillWait=30
MpiDefault=none
JobRequeue=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-6] NodeHostname={host} NodeAddr=127.0.0.1 Port={first}-{last} CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=n[1-2] Default=YES
PartitionName=mortal Nodes=n[3-4]
PartitionName=spare Nodes=n[5-6]
PartitionName=urgent Nodes=n[5-6] PriorityTier=2
"""


def needs_slurm(test: object) -> object:
    """Skip a test without Slurm, or elsewhere than on Linux."""
    missing = [name for name in DAEMONS if not shutil.which(name, path=PATH)]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not found: Debian's slurm-wlm, munge")(test)


@contextlib.contextmanager
def private_slurm(folder: Path) -> Iterator[Path]:
    """Run a Slurm of nodes n1 to n6 in `folder`; commands find it by SLURM_CONF, which is set inside.

    Raises AssertionError if it is not ready in READY_S.
    """
    for name in ("state", "spool", *(f"spool/n{i + 1}" for i in range(NUM_NODES))):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    key, port = folder / "munge.key", _free_ports(NUM_NODES + 1)
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    values = {"host": os.uname().nodename.split(".")[0], "user": getpass.getuser(), "folder": folder, "port": port}
    (folder / "slurm.conf").write_text(CONFIG.format(**values, first=port + 1, last=port + NUM_NODES))
    munged = ["munged", f"--socket={folder}/munge.sock", f"--key-file={key}", f"--pid-file={folder}/munged.pid"]
    munged += [f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed", "--num-threads=2", "--force"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", PATH)
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        for words in (munged, ["slurmctld"], *(["slurmd", "-N", f"n{i + 1}"] for i in range(NUM_NODES))):
            subprocess.run(words, check=True, capture_output=True)
        try:
            until = time.monotonic() + READY_S
            while len(_output("sinfo", "--noheader", "--Node", "--states=idle").splitlines()) < NUM_NODES:
                assert time.monotonic() < until, (folder / "slurmctld.log").read_text()
                time.sleep(0.1)
            yield folder
        finally:
            subprocess.run(["scancel", "--user", str(os.getuid())], capture_output=True)  # what a failed test has left
            for path in (*folder.glob("n*.pid"), folder / "slurmctld.pid", folder / "munged.pid"):
                _kill(signal.SIGTERM, path.read_text() if path.exists() else "")


def kill_node(folder: Path, node: str) -> None:
    """End a node as a power cut does: its daemon, the steps there, and all of their processes."""
    tasks = [line.split()[0] for line in _output("scontrol", "listpids", "*", node).splitlines()[1:]]
    tasks = [task for task in tasks if int(task) > 1]
    parents = {_output("ps", "-o", "ppid=", "-p", task).strip() for task in tasks} - {""}
    steps = [parent for parent in parents if "slurmstepd" in _output("ps", "-o", "comm=", "-p", parent)]
    _kill(signal.SIGKILL, (folder / f"{node}.pid").read_text(), *steps, *tasks)


def _output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True).stdout


def _kill(number: int, *processes: str) -> None:
    for process in filter(None, map(str.strip, processes)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), number)


def _free_ports(num: int) -> int:
    """The first of so many free ports in a row, below those that systems give out."""
    for first in range(17_000 + os.getpid() % 2_000, 32_000, num):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + num):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError("no free ports")
