"""Decoding by the workers of a Dask cluster: the same as by processes of this machine."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from commands import run_command
from dask_cluster import Cluster, needs_dask, running_cluster
from made_up import write_graph
from toy_work import FEATURES, SENTENCES, make_work

from asrtool.data.features.cmvn import Moments, write_cmvn
from asrtool.data.storage.index import Utterance, write_index
from asrtool.data.storage.shard import write_shard
from asrtool.data.workers.executor import keep_open
from asrtool.decode.parameters import Axis, DecodingParameters
from asrtool.decode.search.method import SearchMethod, SearchResult
from asrtool.decode.words import Word
from asrtool.settings.schema import SEARCHED

NUM_UTTERANCES = 12
METHODS = "greedy,beam,graph,rescore"
WATCHED = "test_cluster:Watched"


class Watched(SearchMethod):
    """Search that leaves a file each time it is opened, and a letter for each utterance searched.

    The first worker to come to an utterance without sound is killed there.
    """

    @dataclasses.dataclass(frozen=True)
    class Settings:
        folder: str = ""
        steps: tuple[int, ...] = (1, 2)
        objectives: ClassVar[tuple[str, ...]] = ("ctc",)

    def axes(self) -> Sequence[Axis]:
        return (Axis("step", self.settings.steps),)

    def open(self, values: Mapping[str, Sequence[float]]) -> None:
        (Path(self.settings.folder) / f"opened-{os.getpid()}-{os.urandom(4).hex()}").touch()

    def search(self, scores_TV: np.ndarray, parameters: DecodingParameters) -> SearchResult:
        name = f"{len(scores_TV)}-{parameters['step']:g}"
        fatal = Path(self.settings.folder) / "fatal"
        if fatal.exists() and len(scores_TV) == 7:
            fatal.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        with (Path(self.settings.folder) / f"searched-{name}").open("a") as file:
            file.write("x")
        return SearchResult((Word(name, 0.0, 0.01, 1.0),))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("dask")) as found:
        yield found


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is decoded with; the model is random, and sure of what it says."""
    work = make_work(tmp_path_factory.mktemp("toy") / "work", "none")
    write_graph(work, work / "sentences.txt")
    for name in ("dev", "test"):
        write_features(work / "features" / name)
    return work


def write_features(folder: Path) -> None:
    """Utterances of which no two have as many rows."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(len(folder.name))
    items = []
    for i, num_frames in enumerate(3 * (5 + random.permutation(NUM_UTTERANCES))):
        utterance = Utterance(
            f"u{i:02}", "r", "A", 10.0 * i, int(num_frames) / 100, "s", SENTENCES[i % 4], 0, int(num_frames)
        )
        items.append((utterance, random.normal(size=(num_frames, FEATURES.num_features)).astype(np.float32) * 3))
    utterances = write_shard(folder, 0, items, FEATURES)
    write_index(folder, utterances)
    write_cmvn(folder, {}, Moments.of(np.concatenate([feats_TF for _, feats_TF in items])))


def run(work: Path, command: str, *words: object, executor: str = "local", methods: str = METHODS) -> None:
    """Batches hold one or two utterances."""
    options = [word for name in SEARCHED for word in (f"--{name}", work / name)]
    settings = [f"decode.methods={methods}", "decode.num_jobs=1", "decode.batch_s=0.6"]
    options += [word for each in settings for word in ("--set", each)]
    run_command(command, work / "average" / "model.pt", *words, *options, "--executor", executor)


@pytest.mark.slow
@needs_dask
def test_workers_find_what_processes_find(cluster: Cluster, work: Path, tmp_path: Path) -> None:
    executors = {"here": "local", "there": f"dask:{cluster.address}"}
    for name, executor in executors.items():
        out = tmp_path / name
        run(work, "tune", work / "features" / "dev", out / "tune", executor=executor)
        words = ("--tuning", out / "tune" / "tuning.json")
        run(work, "decode", work / "features", out / "decode", *words, executor=executor)
    files = sorted(path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*") if path.is_file())
    assert len(files) == 2 + 2 * 3 * 4 + 1 + 2  # with marks of both folders
    assert files == sorted(
        path.relative_to(tmp_path / "there") for path in (tmp_path / "there").rglob("*") if path.is_file()
    )
    for file in files:
        if file.name not in ("decode.json", ".asrtool"):  # CPU seconds, and their digest
            assert (tmp_path / "there" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()
    assert (tmp_path / "here" / "decode" / "test" / "graph.ctm").read_text().count("\n") > 5


@needs_dask
def test_a_worker_that_is_killed_costs_its_batch_and_each_opens_once(
    cluster: Cluster, work: Path, tmp_path: Path
) -> None:
    """This ends one of the two workers, so it is the last test of the cluster."""
    executor = f"dask:{cluster.address}"
    words = ["--set", f"decode.Watched.folder={tmp_path}"]
    (tmp_path / "fatal").touch()
    run(work, "tune", work / "features" / "dev", tmp_path / "out", *words, executor=executor, methods=WATCHED)
    assert not (tmp_path / "fatal").exists()
    searched = {path.name: path.read_text() for path in tmp_path.glob("searched-*")}
    assert len(searched) == 2 * NUM_UTTERANCES
    twice = [name for name, times in searched.items() if times != "x"]
    assert len(twice) <= 1  # beside the one without sound in its batch
    opened = [path.name.split("-")[1] for path in tmp_path.glob("opened-*")]
    assert len(opened) == len(set(opened)) == 2
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == ["tuning.json", "tuning.tsv"]


def test_what_was_held_goes_before_another_is_opened() -> None:
    alive: list[str] = []

    class Large:
        def __init__(self, name: str) -> None:
            assert not alive, f"{alive} beside {name}"
            self.name = name
            alive.append(name)

        def __del__(self) -> None:
            alive.remove(self.name)

    held = [keep_open("test", name, lambda name=name: Large(name)).name for name in ("a", "a", "b", "a")]  # type: ignore[misc]
    assert held == ["a", "a", "b", "a"]
    assert keep_open("other", "a", lambda: 3) == 3
    assert alive == ["a"]
