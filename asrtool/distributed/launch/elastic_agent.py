"""torch's elastic agent over learners that are there already: how they begin, are watched and ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from asrtool.distributed.launch.fork_launcher import Forked

SAVING_S = 30  # for a checkpoint after a signal to stop; then SIGKILL
POLL_S = 0.02


class Agent(SimpleElasticAgent):
    """The agent of a machine that has all learners, and starts none again.

    It does what torch's own agent does that starts processes; the methods are those that an agent has to have.
    """

    def __init__(self, spec: WorkerSpec, learners: Sequence[Forked]) -> None:
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
        ended = [learner.has_ended() for learner in self.learners]  # all are asked, also behind one that trains
        return all(ended)

    def _failures(self) -> dict[int, ProcessFailure]:
        """Those that have been seen to fail, by rank."""
        return {
            rank: ProcessFailure(rank, learner.process, learner.code, error_file="")
            for rank, learner in enumerate(self.learners)
            if learner.code
        }

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._shutdown()

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 0) -> None:
        """Signal the learners, and kill those that run after SAVING_S; torch passes a `timeout` from 2.12 on."""
        for number in (death_sig, signal.SIGKILL):
            for learner in self.learners:
                learner.send(number)
            until = time.monotonic() + SAVING_S
            while not self._have_ended() and time.monotonic() < until:
                time.sleep(POLL_S)


def _environment(worker: Worker, group: WorkerGroup) -> dict[str, str]:
    """The variables that torchrun documents."""
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
