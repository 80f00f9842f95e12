"""Pieces of work handed to processes: their order, and what becomes of one whose process is killed."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from asrtool.data.workers.processes import TRIES, process_context, process_map
from asrtool.errors import AsrtoolError


@dataclasses.dataclass(frozen=True)
class Job:
    """An item with a folder that remembers how often it was begun."""

    folder: Path
    number: int
    fault: str = ""
    times: int = 0

    @property
    def name(self) -> str:
        return f"shard {self.number:06d}"


def work(job: Job) -> int:
    (job.folder / f"{job.number}.{len(list(job.folder.glob(f'{job.number}.*')))}").touch()
    if job.fault and len(list(job.folder.glob(f"{job.number}.*"))) <= job.times:
        if job.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(5, "Input/output error")
    return job.number**2


@pytest.mark.parametrize(("fault", "num_jobs"), [("error", 1), ("error", 2), ("kill", 2)])  # one runs in this process
def test_a_fault_that_passes_costs_its_piece_only(tmp_path: Path, fault: str, num_jobs: int) -> None:
    jobs = [Job(tmp_path, n, fault if n in (3, 7) else "", TRIES - 1) for n in range(12)]
    with process_map(__name__, num_jobs) as map_pieces:
        assert list(map_pieces(work, jobs)) == [n**2 for n in range(12)]
        assert list(map_pieces(work, jobs[:2])) == [0, 1]
    begun = [len(list(tmp_path.glob(f"{n}.*"))) for n in range(12)]
    assert begun == [2, 2, 1, TRIES, 1, 1, 1, TRIES, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("fault", "why"), [("kill", "its process was ended by signal 9"), ("error", r"\[Errno 5\] Input/output error")]
)
def test_a_piece_that_fails_each_time_is_named_with_the_cause(tmp_path: Path, fault: str, why: str) -> None:
    jobs = [Job(tmp_path, n, fault if n == 1 else "", TRIES) for n in range(4)]
    message = f"shard 000001 failed 3 times, the last time because {why}.*; run the same command again"
    with process_map(__name__, 2) as map_pieces, pytest.raises(AsrtoolError, match=message) as raised:
        list(map_pieces(work, jobs))
    assert "\n" not in str(raised.value)
    assert len(list(tmp_path.glob("1.*"))) == TRIES


def test_a_long_name_of_the_folder_of_temporary_files_is_no_hindrance(monkeypatch: pytest.MonkeyPatch) -> None:
    assert process_context(__name__).get_start_method() == "forkserver"
    monkeypatch.setattr("tempfile.tempdir", "/" + "long" * 40)
    assert process_context(__name__).get_start_method() == "spawn"


def test_pieces_are_read_a_little_ahead_of_the_results_and_processes_end_with_the_reader(tmp_path: Path) -> None:
    read = []

    def items():
        for n in range(1000):
            read.append(n)
            yield Job(tmp_path, n)

    with process_map(__name__, 2) as map_pieces:
        results = map_pieces(work, items())
        assert [next(results) for _ in range(3)] == [0, 1, 4]
        assert len(read) < 20
        results.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()
