"""Starting the learners of a training on this machine, by torch's elastic launcher, and reporting how they ended."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from asrtool.distributed.environment import LOST
from asrtool.errors import AsrtoolError

# Modules are not searched in the current directory: a person's own `local` or `utils` there would be taken for ours.
# Ctrl-C before it trains ends a learner without a traceback; the launcher reports it.
START = (
    "import signal; signal.getsignal(2) == signal.SIG_IGN or signal.signal(2, signal.SIG_DFL);"
    " import sys; sys.path[:1] == [''] and sys.path.pop(0); from asrtool.parent import end_with; end_with({parent});"
    " from asrtool.cli.main import main; main()"
)
STOPPED = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)
SAVING_S = 30  # for a checkpoint after a signal to stop; then SIGKILL


def launch_learners(words: Sequence[str], num_learners: int, describe_untrained: Callable[[int], str]) -> None:
    """Run ``asrtool`` with the arguments `words` in `num_learners` processes, the learners of a training.

    Raises AsrtoolError naming the learner that failed first, and what it had not trained, by
    `describe_untrained`(rank). A signal that stopped all is raised again here, once they have saved a checkpoint and
    exited.
    """
    # It logs how it starts and kills processes; what matters of that is reported below.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before a learner chooses; saves a line of the launcher, too
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_learners,
        run_id="asrtool",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(),
        shutdown_timeout=SAVING_S,
        **_signals(),
    )
    try:
        elastic_launch(config, sys.executable)("-c", START.format(parent=os.getpid()), *words)
    except SignalException as stopped:
        signal.signal(stopped.sigval, signal.SIG_DFL)
        signal.raise_signal(stopped.sigval)
    except ChildFailedError as error:
        raise _describe_failure(error.failures, num_learners, describe_untrained) from None


def _signals() -> dict[str, Any]:
    """Those that the launcher handles: without SIGHUP under nohup, which ignores it."""
    if "signals_to_handle" not in LaunchConfig.__dataclass_fields__:  # an older torch
        return {}
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    handled = [number.name for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    return {"signals_to_handle": ",".join(handled)}


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
