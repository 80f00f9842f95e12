"""A headless Chromium to look at pages with, over the pipe of its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # which root and containers have not
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--autoplay-policy=no-user-gesture-required",
    "--remote-debugging-pipe",
)
TIMEOUT_S = 60.0


class Chromium:
    """A browser with one page."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, answers: int) -> None:
        self._process, self._to, self._answers = process, to, answers
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._read(TIMEOUT_S)).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a file on a screen of this size, and wait until it is loaded."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("document.readyState === 'complete' && location.protocol === 'file:'")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in JavaScript, or what it promises."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Return when the expression is true."""
        end = time.monotonic() + TIMEOUT_S
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.02)

    def press(self, key: str, code: int) -> None:
        """Press a key, such as Tab with the code 9."""
        text = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        for kind in ("keyDown", "keyUp"):
            extra = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **extra)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions, since the page was opened."""
        self.evaluate("new Promise(done => setTimeout(done, 50))")
        found = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                found.append(str(parameters["args"]))
            elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for, but for data that it holds."""
        sent = [event["params"]["request"]["url"] for event in self.events if event.get("method") == SENT]
        return [url for url in sent if not url.startswith("data:")]

    def accessible(self) -> list[dict[str, Any]]:
        """Nodes of the accessibility tree: {"role", "name"} and properties, in the order of the page."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            {
                "role": node["role"]["value"],
                "name": node.get("name", {}).get("value", ""),
                **{item["name"]: item["value"].get("value") for item in node.get("properties", [])},
            }
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Write what is seen, or the whole of the page, to a PNG file."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _read(self, timeout_s: float) -> dict[str, Any]:
        end = time.monotonic() + timeout_s
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"no answer of Chromium in {timeout_s} s"
            part = os.read(self._answers, 2**20)
            assert part, f"Chromium ended with {self._process.wait()}"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        found = json.loads(message)
        assert isinstance(found, dict)
        return found


SENT = "Network.requestWillBeSent"


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Chromium]:
    """Yield a browser that keeps its files in the folder `profile`; skips the test where none is installed."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium to look at the page with; Debian's: apt-get install chromium")
    asked, to = os.pipe()
    answers, answered = os.pipe()
    # It reads from 3 and writes to 4, which the copies are out of the way of.
    high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (asked, answered)]
    shell = ["bash", "-c", f'exec "$@" 3<&{high[0]} 4>&{high[1]}', "bash"]
    process = subprocess.Popen(
        [*shell, program, *OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=high,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    for end in (asked, answered, *high):
        os.close(end)
    try:
        yield Chromium(process, to, answers)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to)
        os.close(answers)
