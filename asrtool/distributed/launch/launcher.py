"""Start the learners of a training on this machine, and report their ends.

Learners are forked from this process, after it has loaded what they need and before it has a second
thread: a child must not inherit threads and sockets. A connection of one learner that is copied to
another stays open after the launcher is killed. The port of the rendezvous is taken before the
fork; the store of this process, which has threads, serves it after the fork, and learners wait for
that. Once one has failed, all are ended.

A pod of a TrainJob has the same launcher for its share of the learners. They meet at the store of the
first pod, and start again if another pod has ended them. For that the launcher is executed anew, since
by then it may have threads.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch._C._distributed_c10d import TCPStore

from asrtool.child_processes import STOP_SIGNALS, fork_child, name_process, on_stop
from asrtool.distributed.launch.environment import LOST, REPORTED, Pod
from asrtool.distributed.members.heartbeat import BEAT_S
from asrtool.errors import AsrtoolError

HOST = "localhost"
BACKLOG = 4096  # connections of learners before the store serves
STOPPED = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)
SAVING_S = 30  # for a checkpoint after a signal to stop; then SIGKILL
WATCH_S, POLL_S = 0.1, 0.02  # while learners train, and while they end
TASKS = Path("/proc/self/task")  # the threads of this process, on Linux
JOINED_S = 5.0  # within which the kernel forgets a thread that has been joined


def launch_learners(num_learners: int, describe_untrained: Callable[[int], str]) -> bool:
    """Fork the learners of a training: True in each of them, with its environment.

    In this process False, after all have ended well. It raises AsrtoolError with the learner that
    failed first and the batches that it had not trained, by `describe_untrained(rank)`, SystemExit
    if that one has printed an AsrtoolError. A signal that stopped all is raised again, after they
    have saved a checkpoint and exited. AsrtoolError also if this process has other threads, and in
    a learner if this process had used CUDA. `ps` shows learners as `learner R`; they end with this
    process.
    """
    try:  # on all interfaces: learners of other machines may join
        listening = socket.create_server(("", 0), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    except (OSError, ValueError):  # no IPv6 here
        listening = socket.create_server(("", 0), backlog=BACKLOG)
    port = listening.getsockname()[1]
    processes = _fork(num_learners, lambda rank: _environment(rank, num_learners, port))
    if not processes:
        listening.close()
        return True
    store = TCPStore(HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    failed = _wait(processes)
    del store  # the launcher has served it until here
    if failed:
        raise _describe_failure(failed, num_learners, describe_untrained)
    return False


def launch_in_pod(pod: Pod, describe_untrained: Callable[[int], str], joins: bool) -> bool:
    """Fork the learners of a pod as `launch_learners` does.

    They have no ranks if they are to join a training that runs. If all were ended by another pod,
    this process is executed anew, and they resume.
    """
    first = pod.index * pod.num_learners
    processes = _fork(pod.num_learners, lambda place: pod.environment(place, joins))
    if not processes:
        return True
    failed = [(first + place, code) for place, code in _wait(processes)]
    if failed and {code for _, code in failed} <= {LOST, *STOPPED}:
        logging.warning("the learners of this pod start again, since another pod has stopped or is lost")
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # another fork needs a process without threads
    if failed:
        raise _describe_failure(failed, pod.size, describe_untrained)
    return False


def _fork(num_learners: int, environment: Callable[[int], dict[str, str]]) -> list[int]:
    """Return the process numbers of learners; an empty list in each of them.

    Here signals to stop wait until `on_stop`.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a process that ignores it, as under some schedulers, cannot wait
    _check_threads()
    gc.freeze()  # else a collection in a learner would write to, and so copy, all pages that it shares with others
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # Ctrl-C before it trains ends a learner silently; the launcher reports it.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    processes = []
    for place in range(num_learners):
        process = fork_child()
        if process == 0:
            AsrtoolError.exit_code = REPORTED
            os.environ.update(environment(place))
            name_process(f"learner {os.environ.get('RANK', '')}")
            if torch.cuda._is_in_bad_fork():
                raise AsrtoolError(
                    "CUDA was used before learners were forked; expected that no module uses it at its import",
                    "use the GPU in functions of your components, or set PYTORCH_NVML_BASED_CUDA_CHECK=1",
                )
            return []
        processes.append(process)
    return processes


def _wait(processes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the result of `_watch`; a signal to stop takes effect after it."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    stops: list[int] = []
    on_stop(stops.append)
    failed = _watch(processes, stops)
    if stops:
        signal.signal(stops[0], before[signal.Signals(stops[0])])  # the command line's handler shows how to resume
        signal.raise_signal(stops[0])
    return failed


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

    def count_others() -> int:
        return len(os.listdir(TASKS)) - 1

    if not TASKS.exists() or count_others() == 0:
        return 0
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    until = time.monotonic() + JOINED_S
    while count_others() and time.monotonic() < until:
        time.sleep(POLL_S)
    return count_others()


def _watch(processes: Sequence[int], stops: Sequence[int]) -> list[tuple[int, int]]:
    """Wait until all have ended; return the failed ones in the order of failure.

    Each is a rank and an exit code, or negative the signal that ended it. At the first failure, or
    the first signal in `stops`, all others are stopped. After an error they exit by themselves.
    """
    running = dict(enumerate(processes))
    failed: list[tuple[int, int]] = []

    def look() -> None:
        for rank, process in list(running.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                del running[rank]
                if code := os.waitstatus_to_exitcode(status):
                    failed.append((rank, code))

    while running and not (failed or stops):
        time.sleep(WATCH_S)
        look()
    beats_s = 2 * BEAT_S if failed and failed[0][1] > 0 else 0.0  # signal 0 is none
    for number, wait_s in ((0, beats_s), (stops[0] if stops else signal.SIGTERM, SAVING_S), (signal.SIGKILL, SAVING_S)):
        for process in running.values():
            os.kill(process, number)
        until = time.monotonic() + wait_s
        while running and time.monotonic() < until:
            time.sleep(POLL_S)
            look()
    return failed


def _environment(rank: int, num_learners: int, port: int) -> dict[str, str]:
    """Return the variables that a learner reads, as torchrun sets them."""
    values = {
        **dict.fromkeys(("RANK", "LOCAL_RANK"), rank),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), num_learners),
        "MASTER_ADDR": HOST,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": "asrtool",
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_USE_AGENT_STORE": True,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    return {name: str(value) for name, value in values.items()}


def _describe_failure(
    failed: Sequence[tuple[int, int]], num_learners: int, describe_untrained: Callable[[int], str]
) -> AsrtoolError | SystemExit:
    """Describe the learner that failed by itself, and before others, unless it has."""
    rank, code = min(failed, key=lambda one: one[1] == LOST)
    if code == REPORTED:
        return SystemExit(1)
    if code in STOPPED:
        return AsrtoolError("a learner was asked to stop", "run the same command to resume")
    who = f"learner {rank} of {num_learners} on {os.uname().nodename}"
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    hint = "run the same command again: training resumes from the last checkpoint, if there is one"
    return AsrtoolError(
        f"{who} {how}{describe_untrained(rank)}", hint if code < 0 else f"see its message above, then {hint}"
    )
