"""Help of commands: every example runs, every option names its values."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from commands import run_command
from example_work import make_example_work
from warm import run_asrtool

from asrtool.cli.command import Command, Group
from asrtool.cli.main import COMMANDS, FIRST, cli

HEAVY = "torch matplotlib lhotse numpy scipy sentencepiece kaldifst kaldilm kaldi_decoder tensorboard"
READ_ONLY = ("data", "site")  # folders that nothing writes to
UNITS = "processes|milliseconds|words|utterances|seed|seconds|rate|steps|fraction|number of"


def walk(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """The words of every command, groups too, and the command."""
    yield " ".join(("asrtool", *words)), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found
            yield from walk(found, (*words, name))


TREE = dict(walk(cli))
EXAMPLES = [
    (name, re.sub(r"\s*\\\n\s*", " ", line))
    for name, command in TREE.items()
    for line in getattr(command, "examples", ())
]
RUN_LINE = next(line for name, line in EXAMPLES if name == "asrtool run" and "--work" in line)


def words_of(line: str) -> list[str]:
    """Return the arguments of `asrtool` in a line."""
    return shlex.split(line.rpartition("|")[2])[1:]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a person has run the line of `asrtool run`; to be copied."""
    folder = tmp_path_factory.mktemp("examples") / "here"
    folder.mkdir()
    make_example_work(folder, words_of(RUN_LINE))
    return folder


def test_every_command_has_an_example_of_itself() -> None:
    for name, command in TREE.items():
        lines = [line for of, line in EXAMPLES if of == name]
        assert all(f"{name} " in f"{line} " for line in lines), name
        assert lines or isinstance(command, Group), f"{name} has no example"


# `work` has run one, and a tutorial types a whole scenario, which takes minutes.
ALONE = [
    pytest.param(line, marks=[pytest.mark.slow] if name == "asrtool sweep" else [])
    for name, line in EXAMPLES
    if line != RUN_LINE and "--scenario" not in line
]


@pytest.mark.parametrize("line", ALONE)
def test_an_example_runs_as_it_stands(line: str, work: Path, tmp_path: Path) -> None:
    if "--onnx" in line:
        pytest.importorskip("onnx", reason="needs onnx, of the extra dev")
    here = tmp_path / "here"
    shutil.copytree(work, here, symlinks=True, ignore=lambda folder, _: READ_ONLY if Path(folder) == work else ())
    for name in READ_ONLY:
        (here / name).symlink_to(work / name)
    run_asrtool(words_of(line), here, here / "call.wav" if "|" in line else None)


def test_the_run_of_the_example_has_results(work: Path) -> None:
    assert "| graph |" in (work / "exp" / "RESULTS.md").read_text(encoding="utf-8")


def test_help_settings_and_lists_load_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys; from click.testing import CliRunner; from asrtool.cli.main import cli\n"
        "for line in sys.argv[1:]:\n"
        "    result = CliRunner().invoke(cli, line.split())\n"
        "    assert result.exit_code == 0, (line, result.output)\n"
        f"    loaded = [name for name in {HEAVY.split()!r} if name in sys.modules]\n"
        "    assert not loaded, (line, loaded)\n"
    )
    keys = ("", "train.optimizer", "distributed.strategy", "data.train", "features")
    lines = [*(f"config {key}" for key in keys), f"run --list --work {tmp_path}", "run --check"]
    lines += [f"{name.removeprefix('asrtool')} --help" for name in TREE]
    subprocess.run([sys.executable, "-c", script, *lines], check=True)


def test_the_help_lists_every_command_with_a_line() -> None:
    lines = run_command("--help").output.splitlines()
    for name, (_, text) in COMMANDS.items():
        assert any(line.split()[:1] == [name] and text[:30] in line for line in lines), name


def options() -> Iterator[tuple[str, click.Option, str]]:
    """Every option, and its line in the help."""
    for name, command in TREE.items():
        context = click.Context(command, info_name=name)
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                record = parameter.get_help_record(context)
                assert record, parameter.name
                yield f"{name} {parameter.opts[0]}", parameter, record[1]


def test_every_option_says_what_it_is_and_its_default() -> None:
    for name, option, text in options():
        assert option.help, name
        if not option.is_flag:
            assert "[default: " in text or "[required]" in text, name


def test_every_number_has_a_unit_or_says_what_it_counts() -> None:
    numbers = [
        (name, text)
        for name, option, text in options()
        if isinstance(
            option.type, (click.IntRange, click.FloatRange, click.types.IntParamType, click.types.FloatParamType)
        )
    ]
    assert len(numbers) >= 5
    for name, text in numbers:
        assert re.search(UNITS, text.lower()), f"{name}: {text}"


def test_options_are_grouped_and_each_is_in_the_help_once() -> None:
    for name, command in TREE.items():
        assert isinstance(command, Command), name
        known = {parameter.name for parameter in command.params}
        of_its_own = {title: names for title, names in command.groups.items() if title != "Settings"}
        assert {each for names in of_its_own.values() for each in names} <= known, name
        output = run_command(*name.split()[1:], "--help").output
        sections = re.search(r"^\w.*:\n(?s:.*?)(?=^Examples?:|\Z)", output, re.MULTILINE)
        assert sections, name
        lines = sections[0].splitlines()
        titles = [line[:-1] for line in lines if re.match(r"\S.*:$", line)]
        assert list(of_its_own) == titles[: len(of_its_own)], name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert len([line for line in lines if re.match(rf" +(-\w, )?{parameter.opts[0]}\b(?!-)", line)]) == 1, (
                    name,
                    parameter.opts,
                )
        assert len(command.params) < 9 or len(titles) >= 3, name


def test_without_a_command_the_ten_that_a_person_needs_first_are_shown() -> None:
    done = CliRunner().invoke(cli, [])
    assert done.exit_code == 0
    assert len(FIRST) == 10
    assert re.findall(r"^  (\w+) ", done.output, re.MULTILINE) == list(FIRST)
    assert set(FIRST) <= COMMANDS.keys()
    assert "asrtool --help" in done.output


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("asrtool tran", "transcribe"),
        ("asrtool score w", "wer"),
        ("asrtool run --st", "--stage"),
        ("asrtool prepare sw", "swbd"),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_tabulator_completes(shell: str, typed: str, expected: str) -> None:
    *before, last = typed.split()
    environment = {
        "_ASRTOOL_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": last if shell == "fish" else str(len(before)),
    }
    done = CliRunner().invoke(cli, prog_name="asrtool", env=environment)
    assert expected in re.split(r"[\s,]+", done.output), done.output


def test_bash_completes_by_what_the_guide_says() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "scripts.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"`(eval .*bash_source asrtool.*?)`", page)
    script = f"{line}; COMP_WORDS=(asrtool transc); COMP_CWORD=1; _asrtool_completion asrtool; echo ${{COMPREPLY[@]}}"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("transcribe\n", "")
