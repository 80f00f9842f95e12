"""Train as a TrainJob of Kubeflow Trainer v2: manifest, submission, and log.

A pod is a node: its launcher starts the learners. When a pod is evicted or lost, Kubernetes makes another one, whose
learners join the others, or all resume. The volume of the work folder is mounted at the same place here and in
the pods. The folder OUT.job has the manifest `job.yaml`, the name of the last job in `name`, and its log `NAME.log`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from asrtool.errors import AsrtoolError, require
from asrtool.files import write_text
from asrtool.jobs.job import TrainingJob
from asrtool.settings.launch import Kubernetes

GROUP, VERSION, PLURAL = "trainer.kubeflow.org", "v1alpha1", "trainjobs"
NODE = "node"  # in the runtime, the replicated job that trains, and its container
FIRST_POD = "jobset.sigs.k8s.io/jobset-name={},jobset.sigs.k8s.io/replicatedjob-name=node,"
FIRST_POD += "batch.kubernetes.io/job-completion-index=0"
SAVING_S = 120  # for a checkpoint, before a pod that is asked to stop is killed
POLL_S = 2.0
MANIFEST = "job.yaml"
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")  # keys of launch.kubernetes.s3_secret
IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubernetesCluster:
    """Cluster of the kubeconfig, or around this pod, for a job.

    Raises AsrtoolError if a setting or the package `kubernetes` is missing, the cluster cannot be reached or refuses
    the job.
    """

    def __init__(self, settings: Kubernetes, job: TrainingJob) -> None:
        self._job = job
        self._manifest = make_manifest(settings, job)
        self._namespace = settings.namespace
        self._api: Any = None

    def text(self) -> str:
        """Return the TrainJob for `kubectl create -f -`."""
        return yaml.safe_dump(self._manifest, sort_keys=False)

    def submit(self) -> str:
        """Create the TrainJob and return its name."""
        api, namespace = self._connect(), self._namespace
        with _reporting("create the TrainJob"):
            created = api.CustomObjectsApi().create_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, self._manifest, field_validation="Strict"
            )
        self._job.folder.mkdir(parents=True, exist_ok=True)
        write_text(self._job.folder / MANIFEST, self.text())
        name: str = created["metadata"]["name"]
        return name

    def is_running(self, name: str) -> bool:
        """Return whether a TrainJob waits or runs."""
        return not self.describe_end(name)

    def follow(self, name: str) -> None:
        """Copy the log of the first pod, and of those that replace it, until the end.

        The log goes to standard error and to OUT.job/NAME.log.
        """
        num_printed: dict[tuple[str, int], int] = {}  # pod and restart of its container -> lines
        why = ""
        with open(self._job.folder / f"{name}.log", "ab") as log:
            while True:
                ended = self.describe_end(name)
                pod = self._first_pod(name)
                if pod is None or pod.status.phase == "Pending":
                    before, why = why, _why_pending(pod)
                    if why != before and not ended:
                        logging.info("job %s waits for its pods: %s", name, why)
                else:
                    statuses = pod.status.container_statuses or []
                    of = pod.metadata.uid, sum(status.restart_count for status in statuses)
                    num_printed.setdefault(of, 0)
                    for line in self._lines(pod.metadata.name, num_printed[of]):
                        num_printed[of] += 1
                        log.write(line + b"\n")
                        sys.stderr.buffer.write(line + b"\n")
                        sys.stderr.flush()
                if ended:
                    return
                time.sleep(POLL_S)

    def describe_end(self, name: str) -> str:
        """Describe the end of a TrainJob by its conditions; '' if it has not ended."""
        api = self._connect()
        with _reporting(f"read the TrainJob {name}"):
            try:
                job = api.CustomObjectsApi().get_namespaced_custom_object(GROUP, VERSION, self._namespace, PLURAL, name)
            except api.ApiException as error:
                if error.status == 404:
                    return "deleted"
                raise
        for condition in job.get("status", {}).get("conditions", ()):
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                return f"{condition['type']}: {condition.get('message') or condition.get('reason', '')}"
        return ""

    def command_to_end(self, name: str) -> str:
        """Return the command line that ends a TrainJob."""
        return f"kubectl -n {self._namespace} delete trainjob {name}"

    def _connect(self) -> Any:
        """Return the module `kubernetes.client`, configured for the cluster."""
        if self._api is None:
            hint = "pip install 'asrtool[kubernetes]', or use --dry-run and kubectl"
            require("kubernetes", "launch.place = kubernetes", hint)
            from kubernetes import client, config

            here = "default"
            try:
                try:
                    config.load_incluster_config()
                    here = IN_POD.read_text(encoding="utf-8")
                except config.ConfigException:
                    config.load_kube_config()
                    here = config.list_kube_config_contexts()[1]["context"].get("namespace", here)
            except config.ConfigException as error:
                what = f"launch.place is kubernetes, and no cluster is known here: {error}"
                raise AsrtoolError(what, "set KUBECONFIG, or use --dry-run and kubectl elsewhere") from error
            self._namespace = self._namespace or here
            self._api = client
        return self._api

    def _first_pod(self, name: str) -> Any:
        """Return the newest pod of node 0, or None."""
        with _reporting(f"list the pods of {name}"):
            pods = (
                self._connect().CoreV1Api().list_namespaced_pod(self._namespace, label_selector=FIRST_POD.format(name))
            )
        return max(pods.items, key=lambda pod: pod.metadata.creation_timestamp, default=None)

    def _lines(self, pod: str, begin: int) -> Iterator[bytes]:
        """Yield the lines of a pod's log from number `begin` on, as they come.

        Ends with the container, and if the connection is lost or the pod is gone.
        """
        api = self._connect()
        import urllib3

        with contextlib.suppress(api.ApiException, urllib3.exceptions.HTTPError):
            log = api.CoreV1Api().read_namespaced_pod_log(
                pod, self._namespace, container=NODE, follow=True, _preload_content=False
            )
            for number, line in enumerate(_split(log.stream())):
                if number >= begin:
                    yield line


def make_manifest(settings: Kubernetes, job: TrainingJob) -> dict[str, Any]:
    """Return the TrainJob; AsrtoolError if a setting is missing."""
    for name, what in (("image", "an image of asrtool"), ("claim", "a volume claim that has the work folder")):
        if not getattr(settings, name):
            raise AsrtoolError(
                f"launch.kubernetes.{name} is empty, expected {what}", f"--set launch.kubernetes.{name}=NAME"
            )
    for folder in (Path.cwd(), job.out.absolute()):
        if not folder.is_relative_to(settings.mount):
            raise AsrtoolError(
                f"{folder} is outside of launch.kubernetes.mount={settings.mount}, so the pods do not see it",
                "run the command in a folder of that volume, or name the folder where it is mounted",
            )
    num_learners = settings.num_learners_per_node
    resources = {"cpu": str(num_learners * settings.cpus_per_learner)}
    if settings.memory_per_node:
        resources["memory"] = settings.memory_per_node
    if settings.gpus_per_node:
        resources["nvidia.com/gpu"] = str(settings.gpus_per_node)
    secrets = [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": settings.s3_secret, "key": key}}}
        for key in KEYS
        if settings.s3_secret
    ]
    pod: dict[str, Any] = {
        "terminationGracePeriodSeconds": SAVING_S,
        "volumes": [
            {"name": "work", "persistentVolumeClaim": {"claimName": settings.claim}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},  # /dev/shm of a container has 64 MB
        ],
        "containers": [
            {
                "name": NODE,
                "volumeMounts": [
                    {"name": "work", "mountPath": settings.mount},
                    {"name": "shm", "mountPath": "/dev/shm"},
                ],
            }
        ],
    }
    if user := os.getuid():  # files on the volume belong to the user of this command
        pod["securityContext"] = {"runAsUser": user, "runAsGroup": os.getgid()}
    node = {"name": NODE, "template": {"spec": {"template": {"spec": pod}}}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "TrainJob",
        "metadata": {"generateName": f"asrtool-{_label(job.out.name)}-"},
        "spec": {
            "runtimeRef": {"name": settings.runtime},
            "trainer": {
                "image": settings.image,
                "command": ["bash", "-c", f"cd {shlex.quote(str(Path.cwd()))} && exec {shlex.join(job.job_argv)}"],
                "numNodes": settings.nodes,
                "numProcPerNode": num_learners,
                "resourcesPerNode": {"requests": resources, "limits": resources},
                "env": secrets,
            },
            "runtimePatches": [
                {
                    "manager": "asrtool",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}},
                }
            ],
        },
    }


def _why_pending(pod: Any) -> str:
    """Return the reason from Kubernetes for which a pod does not run yet."""
    if pod is None:
        return "none is there yet"
    waiting = [status.state.waiting for status in pod.status.container_statuses or [] if status.state.waiting]
    reasons = [*waiting, *(condition for condition in pod.status.conditions or [] if condition.status == "False")]
    return next((f"{one.reason}: {one.message or ''}" for one in reasons if one.reason), "pending")


def _label(text: str) -> str:
    """Return `text` as a part of a name in Kubernetes: lower case, digits, hyphens."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower())[:30].strip("-")


def _split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the whole lines of `chunks`, and the rest."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


@contextlib.contextmanager
def _reporting(what: str) -> Iterator[None]:
    """Raise AsrtoolError if the cluster refuses a request or cannot be reached."""
    import urllib3
    from kubernetes import client

    try:
        yield
    except client.ApiException as error:
        message = f"{error.status} {error.reason}: {' '.join(str(error.body or '').split())[:300]}"
        raise AsrtoolError(f"the cluster refuses to {what}: {message}", "see docs/how-to/kubernetes.md") from error
    except urllib3.exceptions.HTTPError as error:
        raise AsrtoolError(f"the cluster cannot be reached to {what}: {error}", "check KUBECONFIG") from error
