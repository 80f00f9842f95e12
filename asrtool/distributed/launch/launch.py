"""Starting the learners of a training on this machine, and reporting how they ended.

They are forked from this process, once it has loaded what they need and before it has a second thread. Then torch's
elastic agent chooses where they find each other, and ends all once one has failed.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Sequence
from typing import NoReturn

import torch
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from asrtool.child_processes import STOPS, on_stop
from asrtool.distributed.launch.elastic_agent import Agent
from asrtool.distributed.launch.environment import LOST
from asrtool.distributed.launch.fork_launcher import Forked, fork_learners
from asrtool.errors import AsrtoolError

RUN_ID = "asrtool"
STOPPED = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)


def launch_learners(num_learners: int, describe_untrained: Callable[[int], str]) -> bool:
    """Fork `num_learners` processes, the learners of a training: True in each of these, which has its environment.

    In this process False, once all have ended well. Here it raises AsrtoolError naming the learner that failed first,
    and what it had not trained, by `describe_untrained`(rank). A signal that stopped all is raised again here, once
    they have saved a checkpoint and exited. AsrtoolError also where this process has threads, before any is forked, and
    in a learner where it had begun to use CUDA.
    """
    learners = fork_learners(num_learners)
    if not learners:
        _check_cuda()
        return True
    before = {number: signal.getsignal(number) for number in STOPS}
    try:
        failures = _watch(learners)
    except SignalException as stopped:
        signal.signal(stopped.sigval, before[stopped.sigval])  # that of the command line says how to resume
        signal.raise_signal(stopped.sigval)
    else:
        if failures:
            raise _describe_failure(failures, num_learners, describe_untrained)
    return False


def _check_cuda() -> None:
    if torch.cuda._is_in_bad_fork():
        raise AsrtoolError(
            "CUDA was in use before learners were forked, expected that no module uses it when it is imported",
            "have your own components ask for a GPU in a function, or set PYTORCH_NVML_BASED_CUDA_CHECK=1",
        )


def _watch(learners: Sequence[Forked]) -> dict[int, ProcessFailure]:
    """Have them train, until all have ended; those that failed. SignalException where this process is to stop."""
    # It logs how it starts and kills processes; what matters of that is reported here.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    on_stop(_raise_stop)
    rendezvous = get_rendezvous_handler(
        RendezvousParameters("c10d", "localhost:0", RUN_ID, min_nodes=1, max_nodes=1, local_addr="localhost")
    )
    spec = WorkerSpec("learner", len(learners), rendezvous, entrypoint=RUN_ID, max_restarts=0, local_addr="localhost")
    failures = Agent(spec, learners).run().failures
    rendezvous.shutdown()
    return failures


def _raise_stop(number: int) -> NoReturn:
    raise SignalException(f"got signal {number}", signal.Signals(number))


def _describe_failure(
    failures: dict[int, ProcessFailure], num_learners: int, describe_untrained: Callable[[int], str]
) -> AsrtoolError:
    """Name the learner that failed by itself, and before others."""
    in_order = sorted(failures.items(), key=lambda item: (item[1].exitcode == LOST, item[1].timestamp))
    rank, failure = in_order[0]
    if failure.exitcode in STOPPED:
        return AsrtoolError("a learner was asked to stop", "run the same command to resume")
    who = f"learner {rank} of {num_learners} on {os.uname().nodename}"
    how = f"was ended by {failure.signal_name()}" if failure.exitcode < 0 else f"ended with code {failure.exitcode}"
    hint = "run the same command again: training resumes from the last checkpoint"
    return AsrtoolError(
        f"{who} {how}{describe_untrained(rank)}",
        hint if failure.exitcode < 0 else f"see its message above, then {hint}",
    )
