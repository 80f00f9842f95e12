"""A command as a subprocess: its output, its exit code, and signals."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from asrtool.files import locked
from asrtool.recipe import process

RUN = ("run", "choose another place with --work")
TOY = Path(__file__).with_name("toy.py")
ENDED_S = 480  # bounds a hang, however slow the machine


def run_code(code: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setattr(process, "START", code)
    log = io.BytesIO()
    return process.run_logged([], log), log.getvalue().decode()


def test_output_and_errors_go_to_the_log_and_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr); sys.exit(7)"
    assert run_code(code, monkeypatch) == (7, "out\nerr\n")
    assert capfd.readouterr().err == "out\nerr\n"


def test_of_a_quiet_run_warnings_and_errors_of_a_command_are_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process, "is_quiet", lambda: True)
    lines = [
        "2026-11-28 06:00:00 INFO begun",
        "table",
        "2026-11-28 06:00:01 WARNING few",
        "error: x; do y",
        "no error: z",
    ]
    assert run_code(f"print({chr(10).join(lines)!r})", monkeypatch) == (0, "\n".join(lines) + "\n")
    assert capfd.readouterr().err == f"{lines[2]}\n{lines[3]}\n"


def test_the_log_holds_the_last_state_of_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    code = r"import sys; sys.stdout.write('10%\r20%\rended\nand more')"
    assert run_code(code, monkeypatch) == (0, "ended\nand more\n")


def test_a_command_ended_by_a_signal_has_exit_code_128_and_more(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run_code(code, monkeypatch)[0] == 137


def test_a_child_left_behind_does_not_hold_up_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid)"
    exit_code, output = run_code(code, monkeypatch)
    os.kill(int(output), signal.SIGKILL)  # still there: it was not waited for
    assert exit_code == 0


def test_what_a_command_writes_as_it_ends_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poll, quiet, looked_at = select.poll, [True], tmp_path / "looked at"

    class Late:
        """Output that is empty at the first look; then the command has written and ended."""

        def register(self, read_end: int, events: int) -> None:
            self.found, self.hang_up = poll(), poll()
            self.found.register(read_end, events)
            self.hang_up.register(read_end, 0)

        def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
            if not quiet:
                return self.found.poll(timeout_ms)
            quiet.clear()
            looked_at.touch()
            assert self.hang_up.poll(1000 * ENDED_S)
            time.sleep(0.1)
            return []

    monkeypatch.setattr(select, "poll", Late)
    code = f"import pathlib, time\nwhile not pathlib.Path({str(looked_at)!r}).exists(): time.sleep(0.01)\n"
    code += "print('why it failed'); raise SystemExit(3)"
    assert run_code(code, monkeypatch) == (3, "why it failed\n")
    assert not quiet


def test_a_signal_that_comes_while_a_command_is_started_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = subprocess.Popen, []

    def interrupted(*args: object, **kwargs: object) -> object:
        started.append(start(*args, **kwargs))  # type: ignore[call-overload]
        wait_for(tmp_path / "ready")
        signal.raise_signal(signal.SIGINT)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    code = "import pathlib, signal, sys, time; signal.signal(signal.SIGINT, lambda *_: sys.exit(5))\n"
    code += f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\nfor _ in range(2000): time.sleep(0.01)"
    with pytest.raises(KeyboardInterrupt):
        run_code(code, monkeypatch)
    assert started[0].wait(ENDED_S) == 5


def test_modules_of_the_current_directory_are_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "asrtool.py").write_text("raise SystemExit('the wrong asrtool')")
    finished = subprocess.run(
        [sys.executable, "-c", process.START, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert finished.stdout.startswith("asrtool, version")


def test_on_a_terminal_the_command_sees_a_terminal_of_the_same_size(tmp_path: Path) -> None:
    child = "import os, sys; print(sys.stderr.isatty(), os.get_terminal_size(2).columns)"
    script = (
        "import fcntl, struct, sys, termios; from asrtool.recipe import process\n"
        "fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack('HHHH', 30, 91, 0, 0))\n"
        f"process.START = {child!r}\n"
        f"with open({str(tmp_path / 'log')!r}, 'wb') as log: process.run_logged([], log)\n"
    )
    shown, terminal = pty.openpty()
    subprocess.run([sys.executable, "-c", script], stderr=terminal, check=True)
    assert os.read(shown, 1000) == b"True 91\r\n"
    assert (tmp_path / "log").read_text() == "True 91\n"
    os.close(shown)
    os.close(terminal)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run whose only stage has begun and would take a minute."""
    run = subprocess.Popen([sys.executable, str(TOY), str(tmp_path)], stderr=subprocess.PIPE, text=True)
    wait_for(tmp_path / "exp" / "long.txt")
    yield run
    run.kill()
    run.communicate()


def wait_for(path: Path) -> None:
    until = time.monotonic() + ENDED_S
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_signal_is_passed_on_and_leaves_no_finished_stage(
    waiting: subprocess.Popen[str], tmp_path: Path, number: int, exit_code: int
) -> None:
    waiting.send_signal(number)
    waiting.communicate(timeout=ENDED_S)
    assert waiting.returncode == exit_code
    assert (tmp_path / "exp" / "long.signal").read_text() == str(int(number))
    assert json.loads((tmp_path / "exp" / ".stages" / "long.json").read_text()) == {"finished": False}
    assert (tmp_path / "exp" / "logs" / "00-long.log").read_text().endswith(", stopped\n")


def test_a_second_signal_kills_a_command_that_stays(waiting: subprocess.Popen[str], tmp_path: Path) -> None:
    (tmp_path / "exp" / "long.stays").touch()
    waiting.send_signal(signal.SIGTERM)
    wait_for(tmp_path / "exp" / "long.signal")
    waiting.send_signal(signal.SIGTERM)
    waiting.communicate(timeout=ENDED_S)
    assert waiting.returncode == 128 + signal.SIGTERM
    assert (tmp_path / "exp" / "long.signal").read_text() == str(int(signal.SIGTERM))  # the second one was SIGKILL


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends a child with its parent")
def test_a_killed_run_takes_its_command_with_it(waiting: subprocess.Popen[str], tmp_path: Path) -> None:
    waiting.kill()
    wait_for(tmp_path / "exp" / "long.signal")


def test_a_lock_that_a_child_of_a_killed_run_still_holds_is_waited_for(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from asrtool.files import locked\n"
        "with locked(Path(sys.argv[1]), 'run', ''):\n"
        "    if os.fork() == 0:\n"
        "        print('held', flush=True)\n"
        "        sys.stdin.read(1)\n"
        "        os._exit(0)\n"
        "    os._exit(1)\n"
    )
    words = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin
        assert run.stdout
        assert run.stdout.readline() == "held\n"
        assert run.wait(ENDED_S) == 1
        with pytest.raises(BlockingIOError), open(tmp_path / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ends = threading.Timer(0.3, run.stdin.close)
        ends.start()
        with locked(tmp_path, *RUN):
            assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
        ends.join()
