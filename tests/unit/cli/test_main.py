"""The frame of the command line: help, errors, exit codes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import error_of, run_command
from servers import patient_no_more

from asrtool.cli.main import cli, main
from asrtool.settings import registry

ASRTOOL = [sys.executable, "-c", "from asrtool.cli.main import main; main()"]


def asrtool(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ASRTOOL, *words], cwd=cwd, capture_output=True, text=True, check=False)


def test_prepare_takes_every_corpus_and_every_layout() -> None:
    output = run_command("prepare", "--help").output
    taken = set(re.findall(r"^  (\w+) ", output.partition("Commands:")[2], re.MULTILINE))
    assert taken == {"all", "split", "text", "kaldi", "folder", "manifest", "lhotse", "shar", *registry.names("corpus")}
    assert "RT-03" in output


def test_a_misspelled_command_gets_the_nearest_one_and_exit_code_2() -> None:
    finished = asrtool("trian")
    assert finished.returncode == 2
    assert finished.stderr.endswith("Error: No such command 'trian'. Did you mean 'train'?\n")


def test_a_persons_mistake_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    finished = asrtool("run", "--recipe", "none", cwd=tmp_path)
    assert finished.returncode == 1
    assert finished.stderr.startswith("error: none: no recipe")
    assert finished.stderr.count("\n") == 1


@pytest.mark.parametrize(("place", "option"), [(0, "--debug"), (1, "--verbose"), (3, "--debug")])
def test_verbose_shows_the_traceback_wherever_it_stands(place: int, option: str, tmp_path: Path) -> None:
    words = ["run", "--recipe", "none"]
    words.insert(place, option)
    finished = asrtool(*words, cwd=tmp_path)
    assert finished.returncode == 1
    assert "Traceback" in finished.stderr


LIST = ["run", "--list", "--work", "work"]


@pytest.mark.parametrize("words", [["--quiet", *LIST], [*LIST, "--quiet"]])
def test_quiet_leaves_results_and_errors(words: list[str], tmp_path: Path) -> None:
    loud, quiet = asrtool(*LIST, cwd=tmp_path), asrtool(*words, cwd=tmp_path)
    assert "INFO no recipe is named" in loud.stderr
    assert (quiet.stdout, quiet.stderr) == (loud.stdout, "")
    assert asrtool("--quiet", "run", "--recipe", "none", cwd=tmp_path).stderr.startswith("error: none: no recipe")


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    finished = subprocess.run([*ASRTOOL, "--help"], stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert finished.stderr == ""
    assert finished.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_the_last_line_says_how_to_resume(number: int, tmp_path: Path) -> None:
    script = (
        "import click, time; from asrtool.cli import main\n"
        "@main.cli.command()\n"
        "def wait():\n"
        f"    open({str(tmp_path / 'ready')!r}, 'w').close()\n"
        # Not in one piece: a signal just before a sleep is heeded after it.
        "    for _ in range(6000): time.sleep(0.01)\n"
        "main.COMMANDS['wait'] = ('asrtool.cli.main:wait', ''); main.wait = wait\n"
        "main.main()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, "wait"], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "ready").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert errors.lstrip() == "stopped; to resume: asrtool wait\n"


def test_an_error_of_the_system_names_the_file_and_no_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise PermissionError(13, "Permission denied", "/sealed/out")

    monkeypatch.setattr(cli, "main", fail)
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == "error: /sealed/out: Permission denied; check the path and its permissions\n"


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)]
)
def test_threads_sleep_soon_unless_the_environment_says_how_they_wait(
    given: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "")  # so that what main sets is forgotten afterwards
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["asrtool", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert os.environ.get("GOMP_SPINCOUNT") == expected


def test_only_an_argument_that_can_be_fetched_may_be_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    patient_no_more(monkeypatch, ())
    address = "http://127.0.0.1:9/x"
    for line, said in (
        (f"train {address} tokenizer out", "Connection refused"),
        (f"info {address}", "Connection refused"),
        (f"train features tokenizer {address}", "an address, expected a file"),
        (f"lm {address} words.txt out", "an address, expected a file"),
    ):
        assert said in str(error_of(*line.split()))
