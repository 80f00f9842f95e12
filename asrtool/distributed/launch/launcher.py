"""Start the learners of a training on this machine, and report how they ended.

Learners are forked from this process, after it has loaded what they need and before it has a second
thread: a child must not inherit threads and sockets. A connection of one learner that is copied to
another stays open after the launcher is killed. A forked learner waits for its environment, which
names the store of this process as the rendezvous. Once one has failed, all are ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch._C._distributed_c10d import TCPStore

from asrtool.child_processes import STOPS, fork_child, name_process, on_stop
from asrtool.distributed.launch.environment import LOST
from asrtool.errors import AsrtoolError

HOST = "localhost"
STOPPED = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)
SAVING_S = 30  # for a checkpoint after a signal to stop; then SIGKILL
WATCH_S, POLL_S = 0.1, 0.02  # while learners train, and while they end
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
    stops: list[int] = []
    on_stop(stops.append)
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    for rank, learner in enumerate(learners):
        learner.begin(_environment(rank, num_learners, store.port))
    failed = _watch(learners, stops)
    if stops:
        signal.signal(stops[0], before[signal.Signals(stops[0])])  # the command line's handler shows how to resume
        signal.raise_signal(stops[0])
    if failed:
        raise _describe_failure(failed, num_learners, describe_untrained)
    return False


@dataclass
class ForkedLearner:
    """A learner process, as its launcher sees it."""

    process: int
    pipe: int  # from which it reads its environment
    code: int | None = None  # after its end: exit code, or negative the signal that ended it

    def begin(self, environment: dict[str, str]) -> None:
        """Send it the environment, after which it trains; nothing if it has ended."""
        with contextlib.suppress(BrokenPipeError), open(self.pipe, "w", encoding="utf-8") as pipe:
            json.dump(environment, pipe)

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


def _watch(learners: Sequence[ForkedLearner], stops: Sequence[int]) -> list[tuple[int, int]]:
    """Wait until all have ended; return the failed ones in the order of failure.

    Each is a rank and an exit code. At the first failure, or the first signal in `stops`, all
    others are stopped.
    """
    failed: dict[int, int] = {}
    while not (failed or stops):
        if _have_ended(learners, failed):
            return list(failed.items())
        time.sleep(WATCH_S)
    for number in (stops[0] if stops else signal.SIGTERM, signal.SIGKILL):
        for learner in learners:
            learner.send(number)
        until = time.monotonic() + SAVING_S
        while not _have_ended(learners, failed) and time.monotonic() < until:
            time.sleep(POLL_S)
    return list(failed.items())


def _have_ended(learners: Sequence[ForkedLearner], failed: dict[int, int]) -> bool:
    """Return whether all have ended; add exit codes of failed ones to `failed`."""
    ended = [learner.has_ended() for learner in learners]  # calls all, also after one that trains
    for rank, learner in enumerate(learners):
        if learner.code:
            failed.setdefault(rank, learner.code)
    return all(ended)


def _environment(rank: int, num_learners: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun documents."""
    values = {
        **dict.fromkeys(("LOCAL_RANK", "RANK", "ROLE_RANK"), rank),
        **dict.fromkeys(("LOCAL_WORLD_SIZE", "WORLD_SIZE", "ROLE_WORLD_SIZE"), num_learners),
        "GROUP_RANK": 0,
        "GROUP_WORLD_SIZE": 1,
        "ROLE_NAME": "learner",
        "MASTER_ADDR": HOST,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "asrtool",
        "TORCHELASTIC_USE_AGENT_STORE": True,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    return {name: str(value) for name, value in values.items()}


def _describe_failure(
    failed: Sequence[tuple[int, int]], num_learners: int, describe_untrained: Callable[[int], str]
) -> AsrtoolError:
    """Describe the learner that failed by itself, and before others."""
    rank, code = min(failed, key=lambda one: one[1] == LOST)
    if code in STOPPED:
        return AsrtoolError("a learner was asked to stop", "run the same command to resume")
    who = f"learner {rank} of {num_learners} on {os.uname().nodename}"
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    hint = "run the same command again: training resumes from the last checkpoint"
    return AsrtoolError(
        f"{who} {how}{describe_untrained(rank)}", hint if code < 0 else f"see its message above, then {hint}"
    )
