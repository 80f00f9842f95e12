"""Stand-in for a Kubernetes with Kubeflow Trainer: its API over HTTP, and pods that are processes of this machine."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/speech/trainjobs"
PODS = "/api/v1/namespaces/speech/pods"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: here, user: me, namespace: speech}}}}]
clusters: [{{name: here, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: me, user: {{token: secret}}}}]
"""


class Pod:
    """Pod of node `index`, whose container is a process with the variables that the controller sets."""

    def __init__(self, trainer: Mapping[str, Any], index: int, port: int, folder: Path) -> None:
        self.index, self.uid, self.created = index, str(uuid.uuid4()), time.time_ns()
        self.name = f"asrtool-node-0-{index}-{self.uid[:5]}"
        self.log = folder / f"{self.name}.log"
        set_by_controller = {
            "PET_NNODES": trainer["numNodes"], "PET_NPROC_PER_NODE": trainer["numProcPerNode"],
            "PET_NODE_RANK": index, "PET_MASTER_ADDR": "localhost", "PET_MASTER_PORT": port,
        }  # fmt: skip
        values = {entry["name"]: entry["value"] for entry in trainer["env"] if "value" in entry}
        environment = {**os.environ, **values, **{name: str(value) for name, value in set_by_controller.items()}}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                trainer["command"], env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def to_dict(self) -> dict[str, Any]:
        code = self.process.poll()
        phase = "Running" if code is None else "Failed" if code else "Succeeded"
        seconds, nanoseconds = divmod(self.created, 10**9)
        created = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds:09}Z"
        container = {"name": "node", "restartCount": 0, "ready": True, "image": "i", "imageID": "i"}
        metadata = {"name": self.name, "uid": self.uid, "creationTimestamp": created}
        return {"metadata": metadata, "status": {"phase": phase, "containerStatuses": [container]}}


class Cluster:
    """The cluster's objects: one TrainJob and its pods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job: dict[str, Any] | None = None
        self.pods: list[Pod] = []
        self.refuses = ""  # message with which a TrainJob is refused
        self.num_cut = 0  # answers with a log that are still to be cut off after the first lines
        self._port = 0

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.job = {**manifest, "metadata": {"name": manifest["metadata"]["generateName"] + "a1b2c"}}
        self._port = 20_000 + os.getpid() % 10_000
        self.pods = []
        for index in range(manifest["spec"]["trainer"]["numNodes"]):
            self._start(index)
        return self.job

    def _start(self, index: int) -> None:
        assert self.job
        self.pods.append(Pod(self.job["spec"]["trainer"], index, self._port, self.folder))

    def evict(self, index: int, warns: bool = True) -> None:
        """Stop the first process of a node's pod and end all, as the kubelet does; start another pod in its place."""
        pod = self._newest(index)
        if warns:
            pod.process.terminate()
            pod.process.wait()
        self._end(pod)
        self._start(index)

    def _end(self, pod: Pod) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pod.process.pid, signal.SIGKILL)
        pod.process.wait()

    def delete(self) -> None:
        self.job = None
        for pod in self.pods:
            self._end(pod)

    def _newest(self, index: int) -> Pod:
        return [pod for pod in self.pods if pod.index == index][-1]

    def state(self) -> dict[str, Any] | None:
        """The TrainJob, with the condition that its newest pods give it."""
        if self.job is None:
            return None
        codes = [self._newest(index).process.poll() for index in range(self.job["spec"]["trainer"]["numNodes"])]
        ended = {
            "type": "Failed" if any(codes) else "Complete",
            "status": "True",
            "message": f"pods ended with {codes}",
        }
        return {**self.job, "status": {"conditions": [] if None in codes else [ended]}}


def handler(cluster: Cluster) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, value: Any, code: int = 200) -> None:
            text = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self) -> None:
            manifest = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert urlsplit(self.path).path == JOBS
            assert parse_qs(urlsplit(self.path).query)["fieldValidation"] == ["Strict"]
            if cluster.refuses:
                self.answer({"kind": "Status", "message": cluster.refuses}, 422)
            else:
                self.answer(cluster.create(manifest), 201)

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path.startswith(JOBS):
                state = cluster.state()
                known = state and path == f"{JOBS}/{state['metadata']['name']}"
                self.answer(state) if known else self.answer({"kind": "Status", "message": "not found"}, 404)
            elif path == PODS:
                self.answer({"items": [pod.to_dict() for pod in cluster.pods if pod.index == 0]})
            else:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.send_log(next(pod for pod in cluster.pods if path == f"{PODS}/{pod.name}/log"))

        def send_log(self, pod: Pod) -> None:
            with open(pod.log, "rb") as log, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                ended = False
                while not ended:
                    ended = pod.process.poll() is not None
                    while chunk := log.read(1 << 16):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                        if cluster.num_cut:
                            cluster.num_cut -= 1
                            self.close_connection = True
                            return
                    time.sleep(0.05)
                self.wfile.write(b"0\r\n\r\n")

    return Handler


@contextlib.contextmanager
def cluster_at(folder: Path) -> Iterator[Cluster]:
    """Serve a cluster whose kubeconfig is `folder`/kubeconfig."""
    folder.mkdir(parents=True)
    cluster = Cluster(folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(cluster))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (folder / "kubeconfig").write_text(KUBECONFIG.format(port=server.server_port))
    try:
        yield cluster
    finally:
        cluster.delete()
        server.shutdown()
        server.server_close()
