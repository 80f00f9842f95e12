"""Features and fingerprints computed by workers of a Dask cluster: the same as by processes of this machine."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dask_cluster import Cluster, needs_dask, running_cluster
from tones import PLAIN, read_all

from asrtool.data.duplicates.same_audio import find_same_audio
from asrtool.data.features.compute_sets import compute_features
from asrtool.data.workers import executor
from asrtool.data.workers.executor import dask_map
from asrtool.errors import AsrtoolError

SMALL = dataclasses.replace(PLAIN, shard_cuts=6)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("dask")) as found:
        yield found


@needs_dask
def test_workers_compute_the_same_bytes_and_find_the_same_audio(
    cluster: Cluster, make_manifests: Callable[..., Path], tmp_path: Path
) -> None:
    manifests = make_manifests(train=2)
    remote = dataclasses.replace(SMALL, executor=f"dask:{cluster.address}")
    for name, features in (("here", SMALL), ("there", remote)):
        compute_features(manifests, tmp_path / name, features, code="c")
    assert read_all(tmp_path / "there") == read_all(tmp_path / "here")
    shutil.copy(tmp_path / "audio" / "train0.wav", tmp_path / "audio" / "test0.wav")
    found = [find_same_audio(manifests, ["test"], ["train"], features) for features in (SMALL, remote)]
    assert found[0]
    assert found[0] == found[1]
    assert not list(manifests.glob(".*"))


@dataclasses.dataclass(frozen=True)
class Job:
    """The n-th of `folder`, where each begun leaves a file with the number of its process."""

    folder: Path
    number: int


def work(job: Job) -> int:
    begun = job.folder / f"{job.number}.{len(list(job.folder.glob(f'{job.number}.*')))}"
    begun.write_text(str(os.getpid()))
    time.sleep(0.2 if job.number != 5 or begun.suffix != ".0" else 60)  # the first time it would take long
    return job.number**2


@needs_dask
def test_a_killed_worker_costs_its_piece_only(cluster: Cluster, tmp_path: Path) -> None:
    """This ends one of the two workers."""
    jobs = [Job(tmp_path, n) for n in range(12)]
    with dask_map(cluster.address, "features.executor") as map_pieces:
        results = map_pieces(work, jobs)
        found = [next(results) for _ in range(5)]  # else a result that it still holds would be lost with the worker
        while not (tmp_path / "5.0").exists() or not (tmp_path / "5.0").read_text():
            assert all(process.is_alive() for process in cluster.processes)
            time.sleep(0.05)
        os.kill(int((tmp_path / "5.0").read_text()), signal.SIGKILL)
        found += list(results)
    assert found == [n**2 for n in range(12)]
    assert sorted(tmp_path.glob("5.*")) == [tmp_path / "5.0", tmp_path / "5.1"]
    assert [path.name for path in tmp_path.glob("*.1")] == ["5.1"]


@needs_dask
def test_no_worker_that_is_left_and_a_scheduler_that_ends_are_one_line(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This ends the cluster, so it is the last test of it."""
    monkeypatch.setattr(executor, "LOOK_S", 0)
    monkeypatch.setattr(executor, "PATIENCE_S", 0.3)
    start = rf"start some with `dask worker {cluster.address} --nworkers N --nthreads 1`"
    with dask_map(cluster.address, "features.executor") as map_pieces:
        for process in cluster.processes[1:]:
            process.kill()
        with pytest.raises(AsrtoolError, match=f"has had no worker for 0 minutes; {start}, then run the same command"):
            next(map_pieces(work, [Job(tmp_path, 5)]))
        assert caplog.text.count("has no worker left: start some with `dask worker") == 1
        monkeypatch.setattr(executor, "LOOK_S", 60)  # a look at a scheduler that is gone would take long
        results = map_pieces(work, [Job(tmp_path, 5)])
        cluster.processes[0].kill()
        with pytest.raises(
            AsrtoolError, match=r"the Dask scheduler ended before .*; start scheduler and workers again"
        ):
            next(results)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.slow
@needs_dask
def test_workers_with_several_threads_are_refused(tmp_path: Path) -> None:
    message = "has a worker with 2 threads, expected workers with one thread; start them with `dask worker tcp"
    with (
        running_cluster(tmp_path, threads=2) as several,
        pytest.raises(AsrtoolError, match=message),
        dask_map(several.address, "features.executor"),
    ):
        pass


@needs_dask
def test_no_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asrtool.data.workers.executor.CONNECT_S", 0.5)
    message = r"no Dask scheduler at 'tcp://127\.0\.0\.1:9'.*; start one"
    with pytest.raises(AsrtoolError, match=message), dask_map("tcp://127.0.0.1:9", "features.executor"):
        pass


def test_without_the_package_the_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    message = r"needs the package distributed.*pip install 'asrtool\[dask\]'"
    with pytest.raises(AsrtoolError, match=message), dask_map("tcp://127.0.0.1:9", "features.executor"):
        pass
