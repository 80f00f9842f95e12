"""Trainings as TrainJobs: their manifests, and what becomes of them in a stand-in whose pods are processes here."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes_api import Cluster, cluster_at
from rendezvous import ENDED_S, wait_until
from toy_task import TOY_CONFIG, assert_trained_once, write_toy

from asrtool.distributed.launch.environment import find_pod
from asrtool.errors import AsrtoolError
from asrtool.jobs.job import TrainingJob
from asrtool.jobs.kubernetes import make_manifest
from asrtool.settings.launch import Kubernetes

Start = Callable[..., subprocess.Popen[str]]
ASRTOOL = Path(sys.executable).with_name("asrtool")
FAKE = """#!/bin/sh
echo "pod $PET_NODE_RANK of $PET_NNODES: $*"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The volume, which is the current folder."""
    (tmp_path / "volume").mkdir()
    monkeypatch.chdir(tmp_path / "volume")
    return tmp_path / "volume"


def manifest_of(here: Path, **settings: object) -> dict:
    named = {"image": "registry/asrtool:cpu", "claim": "asr-work", "mount": str(here), **settings}
    return make_manifest(Kubernetes(**named), TrainingJob(["train", "f f", "out"], Path("out"), True))  # type: ignore[arg-type]


def test_an_image_and_a_claim_are_all_that_a_trainjob_needs(here: Path) -> None:
    trainer = manifest_of(here)["spec"]["trainer"]
    command = f"cd {here} && exec asrtool train 'f f' out --set launch.place=local"
    assert trainer["command"] == ["bash", "-c", command]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (1, 1)
    assert trainer["resourcesPerNode"]["limits"] == {"cpu": "1"}


@pytest.mark.parametrize(
    "settings",
    [{}, {"nodes": 4, "gpus_per_node": 8, "cpus_per_learner": 6, "memory_per_node": "64Gi", "s3_secret": "s3"}],
)
def test_kubeflow_takes_the_manifest_as_it_is(settings: dict, here: Path) -> None:
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="needs kubeflow-trainer-api, of the extra dev")
    manifest = manifest_of(here, **settings)
    read = models.TrainerV1alpha1TrainJob.from_dict(manifest)
    assert json.loads(json.dumps(read.to_dict())) == manifest  # an unknown field would be left out


def test_settings_become_resources_and_secrets(here: Path) -> None:
    manifest = manifest_of(here, nodes=4, gpus_per_node=8, cpus_per_learner=6, memory_per_node="64Gi", s3_secret="s3")
    trainer = manifest["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (4, 8)
    assert trainer["resourcesPerNode"]["limits"] == {"cpu": "48", "memory": "64Gi", "nvidia.com/gpu": "8"}
    assert {entry["name"] for entry in trainer["env"]} == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"image": ""}, r"launch\.kubernetes\.image is empty"),
        ({"claim": ""}, r"launch\.kubernetes\.claim is empty"),
        ({"mount": "/elsewhere"}, r"is outside of launch\.kubernetes\.mount=/elsewhere"),
    ],
)
def test_a_manifest_that_cannot_work_is_refused(settings: dict, message: str, here: Path) -> None:
    with pytest.raises(AsrtoolError, match=message):
        manifest_of(here, **settings)


def test_a_pod_has_its_share_of_the_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_pod(0) is None
    values = {"NNODES": "2", "NPROC_PER_NODE": "4", "NODE_RANK": "1", "MASTER_ADDR": "h0", "MASTER_PORT": "29500"}
    for name, value in values.items():
        monkeypatch.setenv(f"PET_{name}", value)
    pod = find_pod(8)
    assert pod
    local = {"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}
    others = {"RANK": "7", "WORLD_SIZE": "8", "MASTER_ADDR": "h0", "MASTER_PORT": "29500"}
    assert pod.environment(3, joins=False) == {**local, **others}
    assert pod.environment(3, joins=True) == local
    with pytest.raises(AsrtoolError, match=r"num_learners .* is 3, but this pod is one of 2 with 4 learners each"):
        find_pod(3)
    monkeypatch.setenv("PET_NPROC_PER_NODE", "auto")
    with pytest.raises(AsrtoolError, match=r"PET_NPROC_PER_NODE is .auto."):
        find_pod(0)
    monkeypatch.setenv("RANK", "0")  # a learner, under torchrun
    assert find_pod(0) is None


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    pytest.importorskip("kubernetes", reason="needs kubernetes, of the extra dev")
    with cluster_at(tmp_path / "cluster") as found:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "cluster" / "kubeconfig"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("PATH", f"{ASRTOOL.parent}{os.pathsep}{os.environ['PATH']}")
        yield found


@pytest.fixture
def fake_asrtool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Path:
    """Script in the place of asrtool in pods."""
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin" / "asrtool"
    path.write_text(FAKE)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    return path


@pytest.fixture
def start(here: Path) -> Iterator[Start]:
    """Start a training by Kubernetes in the volume."""
    with contextlib.ExitStack() as stack:

        def begin(*words: object) -> subprocess.Popen[str]:
            strategy = ["--strategy", "adpsgd-random"]
            line = [ASRTOOL, "train", *words[:3], *strategy, *words[3:], "--launch", "kubernetes"]
            for name, value in {"image": "i", "claim": "c", "mount": here, "nodes": 2}.items():
                line += ["--set", f"launch.kubernetes.{name}={value}"]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = stack.enter_context(subprocess.Popen([*map(str, line)], cwd=here, text=True, **pipes))  # type: ignore[call-overload]
            stack.callback(process.kill)
            return process  # type: ignore[no-any-return]

        yield begin


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, log = process.communicate(timeout=ENDED_S)
    return process.returncode, log


def test_the_command_submits_and_shows_the_log_of_the_first_pod(start: Start, here: Path, fake_asrtool: Path) -> None:
    fake_asrtool.write_text(FAKE + "[ $PET_NODE_RANK = 1 ] || { mkdir out; echo {} > out/train.json; }\n")
    code, log = end(start("f", "t", "out"))
    assert code == 0, log
    assert "submitted job asrtool-out-a1b2c" in log
    assert "pod 0 of 2: train f t out" in log
    assert "pod 1" not in log
    assert "pod 0 of 2" in (here / "out.job" / "asrtool-out-a1b2c.log").read_text()
    manifest = yaml.safe_load((here / "out.job" / "job.yaml").read_text())
    assert manifest["kind"] == "TrainJob"


def test_a_log_whose_connection_is_lost_goes_on_where_it_was(
    start: Start, fake_asrtool: Path, cluster: Cluster
) -> None:
    fake_asrtool.write_text(FAKE + "sleep 2; echo later\nexit 3\n")
    cluster.num_cut = 1
    _, log = end(start("f", "t", "out"))
    assert log.count("pod 0 of 2") == log.count("later") == 1


def test_a_training_that_fails_is_one_line_with_the_condition(start: Start, here: Path, fake_asrtool: Path) -> None:
    fake_asrtool.write_text(FAKE + "exit 3\n")
    code, log = end(start("f", "t", "out"))
    assert code == 1
    assert log.splitlines()[-1].startswith("error: job asrtool-out-a1b2c ended (Failed: pods ended with [3, 3])")


def test_a_refused_trainjob_is_one_line(start: Start, cluster: Cluster) -> None:
    cluster.refuses = "spec.trainer.image: forbidden registry"
    code, log = end(start("f", "t", "out"))
    assert code == 1
    assert "error: the cluster refuses to create the TrainJob: 422" in log
    assert "forbidden registry" in log


def test_a_running_job_is_followed_again_and_one_that_is_deleted_ends(
    start: Start, fake_asrtool: Path, cluster: Cluster
) -> None:
    fake_asrtool.write_text(FAKE + "while [ ! -e go ]; do sleep 0.1; done; echo went on\n")
    process = start("f", "t", "out")
    assert process.stderr
    while "pod 0 of 2" not in (line := process.stderr.readline()):
        assert line
    process.send_signal(2)
    code, log = end(process)
    assert code == 130
    assert "job asrtool-out-a1b2c continues" in log
    assert "kubectl -n speech delete trainjob asrtool-out-a1b2c" in log
    process = start("f", "t", "out")
    assert process.stderr
    while "of this training runs: its log follows" not in (line := process.stderr.readline()):
        assert line
    cluster.delete()
    code, log = end(process)
    assert code == 1
    assert "ended (deleted)" in log


def test_a_dry_run_prints_the_trainjob_and_needs_no_cluster(start: Start, here: Path) -> None:
    process = start("f", "t", "out", "--dry-run")
    text, log = process.communicate(timeout=ENDED_S)
    assert process.returncode == 0, log
    assert yaml.safe_load(text)["spec"]["trainer"]["numNodes"] == 2
    assert not list(here.iterdir())


def begin_training(start: Start, here: Path, strategy: str, compute_ms: int, *options: str) -> subprocess.Popen[str]:
    """A training of some 430 batches, which has a checkpoint."""
    write_toy(here / "data", 240, 6)
    (here / "toy.toml").write_text(TOY_CONFIG.replace("batch_s = 1.5", "batch_s = 0.9"))
    words = ("data/features", "data/tokenizer", "out", "--config", "toy.toml", "--strategy", strategy)
    process = start(*words, "--compute-ms", compute_ms, *options)
    wait_until(lambda: bool(list((here / "out" / "checkpoints").glob("step-*.pt"))))
    return process


@pytest.mark.slow
def test_others_train_on_without_an_evicted_pod_and_all_resume_after_the_first_one(
    start: Start, here: Path, cluster: Cluster
) -> None:
    process = begin_training(start, here, "adpsgd-random", 150)
    first = cluster.pods[0]
    cluster.evict(1)
    wait_until(lambda: "learner 2 joined: 2 train" in first.log.read_text())
    assert "learner 1 left: 1 trains without it" in first.log.read_text()
    cluster.evict(0)
    code, log = end(process)
    assert code == 0, log
    assert log.count("resuming after step") == 1
    assert_trained_once(here / "out", 3 * 240)
    assert len(list((here / "out" / "learners").glob("*.jsonl"))) == 3


@pytest.mark.slow
def test_learners_that_cannot_join_have_the_others_resume_with_them(start: Start, here: Path, cluster: Cluster) -> None:
    """The pod is lost without a word, and the others train on until another one has come."""
    more = ("--set", "launch.kubernetes.learners_per_node=2", "--set", "distributed.timeout_s=8")
    process = begin_training(start, here, "h-adpsgd", 300, *more)
    cluster.evict(1, warns=False)
    code, log = end(process)
    assert code == 0, log
    assert log.count("resuming after step") == 1
    assert_trained_once(here / "out", 3 * 240)
    assert len(list((here / "out" / "learners").glob("*.jsonl"))) == 4
