"""Start the learners of a training on this machine, and report how they ended.

Learners are forked from this process, after it has loaded what they need and before it has a second
thread: a child must not inherit threads and sockets. A connection of one learner that is copied to
another stays open after the launcher is killed. A forked learner waits for its environment. Torch's
elastic agent chooses where the learners meet, and ends all of them once one has failed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from asrtool.child_processes import STOPS, fork_child, name_process, on_stop
from asrtool.distributed.launch.environment import LOST
from asrtool.errors import AsrtoolError

RUN_ID = "asrtool"
STOPPED = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)
SAVING_S = 30  # for a checkpoint after a signal to stop; then SIGKILL
POLL_S = 0.02
TASKS = Path("/proc/self/task")  # the threads of this process, on Linux
JOINED_S = 5.0  # within which the kernel forgets a thread that has been joined


def launch_learners(num_learners: int, describe_untrained: Callable[[int], str]) -> bool:
    """Fork the learners of a training: True in each of them, with its environment.

    In this process False, after all have ended well. It raises AsrtoolError with the learner that
    failed first and the batches that it had not trained, by `describe_untrained(rank)`. A signal
    that stopped all is raised again, after they have saved a checkpoint and exited. AsrtoolError
    also if this process has other threads, and in a learner if this process had used CUDA.
    """
    learners = fork_learners(num_learners)
    if not learners:
        if torch.cuda._is_in_bad_fork():
            raise AsrtoolError(
                "CUDA was used before learners were forked; expected that no module uses it at its import",
                "use the GPU in functions of your components, or set PYTORCH_NVML_BASED_CUDA_CHECK=1",
            )
        return True
    before = {number: signal.getsignal(number) for number in STOPS}
    try:
        failures = _watch(learners)
    except SignalException as stopped:
        signal.signal(stopped.sigval, before[stopped.sigval])  # the command line's handler shows how to resume
        signal.raise_signal(stopped.sigval)
    else:
        if failures:
            raise _describe_failure(failures, num_learners, describe_untrained)
    return False


@dataclass
class ForkedLearner:
    """A learner process, as its launcher sees it."""

    process: int
    pipe: int  # from which it reads its environment
    code: int | None = None  # after its end: exit code, or negative the signal that ended it

    def begin(self, environment: Mapping[str, str]) -> None:
        """Send it the environment, after which it trains; nothing if it has ended."""
        with contextlib.suppress(BrokenPipeError), open(self.pipe, "w", encoding="utf-8") as pipe:
            json.dump(dict(environment), pipe)

    def has_ended(self) -> bool:
        """Return whether it has ended; then `code` is known."""
        if self.code is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if process else None
        return self.code is not None

    def send(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if not self.has_ended():
            os.kill(self.process, number)


def fork_learners(num: int) -> list[ForkedLearner]:
    """Fork `num` processes, which end with this one; an empty list in each of them.

    It returns there after the environment has come. Signals to stop wait until
    `asrtool.child_processes.on_stop`. `ps` shows the processes as `learner R`. AsrtoolError if this
    process has other threads.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a process that ignores it, as under some schedulers, cannot wait
    _check_threads()
    learners: list[ForkedLearner] = []
    gc.freeze()  # else a collection in a learner would write to, and so copy, all pages that it shares with others
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # Ctrl-C before it trains ends a learner silently; the launcher reports it.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for rank in range(num):
        reading, writing = os.pipe()
        process = fork_child()
        if process == 0:
            name_process(f"learner {rank}")
            for other in (writing, *(learner.pipe for learner in learners)):
                os.close(other)
            _read_environment(reading)
            return []
        os.close(reading)
        learners.append(ForkedLearner(process, writing))
    return learners


def _read_environment(pipe: int) -> None:
    with open(pipe, encoding="utf-8") as file:
        environment = file.read()
    if not environment:  # the launcher has ended
        sys.exit(128 + signal.SIGTERM)
    os.environ.update(json.loads(environment))


def _check_threads() -> None:
    """Raise AsrtoolError for other threads, whose locks a learner would wait for."""
    found = [_describe(thread) for thread in threading.enumerate() if thread is not threading.current_thread()]
    if not found and (num := _count_native()):
        found = [f"{num} of OpenMP or another library"]
    if found:
        raise AsrtoolError(
            f"cannot fork learners: this process already has threads: {', '.join(found)}; expected that no module "
            "starts one at its import",
            "start threads and compute in functions of your components, or start learners by torchrun",
        )


def _describe(thread: threading.Thread) -> str:
    """Return its name, and the Python file that it runs, if any."""
    frame = sys._current_frames().get(thread.ident or 0)
    files = [inner.f_code.co_filename for inner, _ in traceback.walk_stack(frame)] if frame else []
    own = [file for file in files if file != threading.__file__]
    return f"{thread.name} of {own[-1]}" if own else thread.name


def _count_native() -> int:
    """Count the threads left after a fork, before which OpenBLAS ends its own."""
    if not TASKS.exists() or _count_others() == 0:
        return 0
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    until = time.monotonic() + JOINED_S
    while _count_others() and time.monotonic() < until:
        time.sleep(POLL_S)
    return _count_others()


def _count_others() -> int:
    return len(os.listdir(TASKS)) - 1


def _watch(learners: Sequence[ForkedLearner]) -> dict[int, ProcessFailure]:
    """Train until all have ended; return the failures. SignalException to stop."""
    # Torch logs how it starts and kills processes; what matters of that is reported here.
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


class Agent(SimpleElasticAgent):
    """Torch's elastic agent over forked learners; it starts none again."""

    def __init__(self, spec: WorkerSpec, learners: Sequence[ForkedLearner]) -> None:
        super().__init__(spec)
        self.learners = learners

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, int]:
        for learner, worker in zip(self.learners, worker_group.workers, strict=True):
            learner.begin(_environment(worker, worker_group))
        return {rank: learner.process for rank, learner in enumerate(self.learners)}

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        have_ended = self._have_ended()
        first = self._failures()
        if first:
            self._shutdown()
            later = {rank: failure for rank, failure in self._failures().items() if rank not in first}
            return RunResult(WorkerState.FAILED, failures=first | later)
        if have_ended:
            return RunResult(WorkerState.SUCCEEDED, return_values=dict.fromkeys(range(len(self.learners))))
        return RunResult(WorkerState.HEALTHY)

    def _have_ended(self) -> bool:
        ended = [learner.has_ended() for learner in self.learners]  # calls all, also after one that trains
        return all(ended)

    def _failures(self) -> dict[int, ProcessFailure]:
        return {
            rank: ProcessFailure(rank, learner.process, learner.code, error_file="")
            for rank, learner in enumerate(self.learners)
            if learner.code
        }

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._shutdown()

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 0) -> None:
        """Signal the learners, and kill those that run after SAVING_S."""
        for number in (death_sig, signal.SIGKILL):
            for learner in self.learners:
                learner.send(number)
            until = time.monotonic() + SAVING_S
            while not self._have_ended() and time.monotonic() < until:
                time.sleep(POLL_S)


def _environment(worker: Worker, group: WorkerGroup) -> dict[str, str]:
    """Return the variables that torchrun documents."""
    values = {
        "LOCAL_RANK": worker.local_rank,
        "RANK": worker.global_rank,
        "GROUP_RANK": group.group_rank,
        "ROLE_RANK": worker.role_rank,
        "ROLE_NAME": group.spec.role,
        "LOCAL_WORLD_SIZE": group.spec.local_world_size,
        "WORLD_SIZE": worker.world_size,
        "GROUP_WORLD_SIZE": group.group_world_size,
        "ROLE_WORLD_SIZE": worker.role_world_size,
        "MASTER_ADDR": group.master_addr,
        "MASTER_PORT": group.master_port,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": group.spec.max_restarts,
        "TORCHELASTIC_RUN_ID": group.spec.rdzv_handler.get_run_id(),
        "TORCHELASTIC_USE_AGENT_STORE": group.spec.rdzv_handler.use_agent_store,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    return {name: str(value) for name, value in values.items()}


def _describe_failure(
    failures: dict[int, ProcessFailure], num_learners: int, describe_untrained: Callable[[int], str]
) -> AsrtoolError:
    """Describe the learner that failed by itself, and before others."""
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
