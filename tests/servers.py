"""Servers on the loopback that hold a folder: one of HTTP, whose faults a test chooses, and one of S3."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from asrtool.data.remote import transfer
from asrtool.data.remote.cache import cached_set

BUCKET = "speech"
NOTHING = -(2**40)  # a fault: the connection is closed behind the heading


class WebServer(ThreadingHTTPServer):
    """Server of the files in a folder, in ranges, with an ETag made of size and time."""

    daemon_threads = True

    def __init__(self, folder: Path, delay_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
        self.folder = folder
        self.delay_s = delay_s  # before each answer
        self.knows_ranges = True
        self.requests: list[tuple[str, str, str]] = []  # method, path, range
        # path -> of its next requests, each a status, or after how many bytes the connection is closed, as -number
        self.faults: dict[str, list[int]] = defaultdict(list)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def got(self, name: str = "") -> list[str]:
        """The paths that were asked for by GET and end so."""
        return [path for method, path, _ in self.requests if method == "GET" and path.endswith(name)]


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body would wait 40 ms for the client to acknowledge the heading
    server: WebServer

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        asked = self.headers.get("Range", "")
        self.server.requests.append((self.command, self.path, asked))
        time.sleep(self.server.delay_s)
        faults = self.server.faults[self.path]
        fault = faults.pop(0) if faults else 0
        path = Path(self.translate_path(self.path))
        if fault > 0 or not path.is_file():
            self.send_error(fault or 404)
            return
        data = path.read_bytes()
        begin, end = 0, len(data)
        if asked and self.server.knows_ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or end) + 1, end) if last else end
        self.send_response(206 if asked and self.server.knows_ranges else 200)
        self.send_header("ETag", f'"{path.stat().st_mtime_ns:x}-{len(data):x}"')
        self.send_header("Content-Length", str(end - begin))
        if asked and self.server.knows_ranges:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        self.end_headers()
        if with_body:
            sent = 0 if fault == NOTHING else -fault or end - begin
            self.wfile.write(data[begin:end][:sent])
            self.close_connection = fault != 0

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def serving(folder: Path, delay_s: float = 0.0) -> Iterator[WebServer]:
    """A web server of `folder` in threads of this process."""
    server = WebServer(folder, delay_s)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def s3() -> Iterator[tuple[str, Any]]:
    """The address of an S3 server in threads of this process, with the bucket BUCKET, and a client of it."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"aws_access_key_id": "id", "aws_secret_access_key": "key"}
        with pytest.MonkeyPatch.context() as patched:
            without_proxy(patched)
            client = boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint, **keys)
        client.create_bucket(Bucket=BUCKET)
        yield endpoint, client
        client.close()
    finally:
        server.stop()


def patient_no_more(monkeypatch: pytest.MonkeyPatch, waits_s: tuple[float, ...]) -> None:
    """A server that fails is asked again after these; no proxy, and nothing remembered of another test."""
    monkeypatch.setattr(transfer, "WAITS_S", waits_s)
    without_proxy(monkeypatch)
    cached_set.cache_clear()
    transfer.s3_client.cache_clear()


def without_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


def upload(client: Any, folder: Path, prefix: str) -> str:
    """Copy the files of `folder` to below `prefix` in the bucket; the address."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes())
    return f"s3://{BUCKET}/{prefix}"
