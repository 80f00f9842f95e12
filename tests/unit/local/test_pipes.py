"""Commands of wav.scp: which need a shell, by what a shell does with them, and what becomes of their audio."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from small_releases import read_jsonl, supervisions

from asrtool.cli.main import cli
from asrtool.cli.prepare import prepare
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.kaldi import prepare_kaldi
from asrtool.local.layouts.wav_scp import read_pipe
from asrtool.settings.config import Config
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=1.0)
WriteScp = Callable[..., Path]


@pytest.fixture
def kaldi(tmp_path: Path) -> WriteScp:
    """Writes a data directory with wav.scp of these places, by id, beside audio/a.wav of a second."""
    samples = np.random.default_rng(1).integers(-3000, 3000, 8000, dtype=np.int16)
    (tmp_path / "audio").mkdir()
    soundfile.write(tmp_path / "audio" / "a.wav", samples, 8000)

    def write(**places: str) -> Path:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        (folder / "wav.scp").write_text("".join(f"{id_} {place}\n" for id_, place in places.items()))
        (folder / "text").write_text("".join(f"{id_} yes\n" for id_ in places))
        (folder / "utt2spk").write_text("".join(f"{id_} {id_}\n" for id_ in places))
        return folder

    return write


def samples_of(out: Path) -> dict[str, np.ndarray]:
    entries = read_jsonl(out / "recordings.jsonl.gz")
    return {entry["id"]: soundfile.read(entry["sources"][0]["source"], dtype="int16")[0] for entry in entries}


def test_a_command_is_run_without_a_shell_and_its_audio_is_that_of_the_file(kaldi: WriteScp, tmp_path: Path) -> None:
    wav = bytearray((tmp_path / "audio" / "a.wav").read_bytes())
    wav[4:8] = wav[40:44] = b"\xff\xff\xff\xff"  # sizes as sox and ffmpeg write them to pipes
    (tmp_path / "audio" / "streamed.wav").write_bytes(wav)
    data = kaldi(plain="audio/a.wav", piped="cat audio/streamed.wav |", quoted="cat 'audio'/\"a.wav\" |")
    prepare_kaldi(data, tmp_path / "m", Data(), "own")
    found = samples_of(tmp_path / "m")
    for id_ in ("piped", "quoted"):
        np.testing.assert_array_equal(found[id_], found["plain"])
    assert [s["text"] for s in supervisions(tmp_path / "m")] == ["yes"] * 3


def test_a_second_run_runs_nothing_but_what_reads_a_file_that_has_changed(kaldi: WriteScp, tmp_path: Path) -> None:
    note = f"{sys.executable} -c 'import shutil, sys; open(\"ran\", \"a\").write(\".\"); " \
           "shutil.copyfileobj(open(sys.argv[1], \"rb\"), sys.stdout.buffer)'"  # fmt: skip
    note = note.replace('"ran"', f'"{tmp_path}/ran"')
    data = kaldi(a=f"{note} audio/a.wav |", b=f"{note} audio/a.wav |")
    for _ in range(2):
        prepare_kaldi(data, tmp_path / "m", Data(), "own")
        assert (tmp_path / "ran").read_text() == "."  # and two alike run once
    os.utime(tmp_path / "audio" / "a.wav", (0, 0))  # other audio of the same name
    prepare_kaldi(data, tmp_path / "m", Data(), "own")
    assert (tmp_path / "ran").read_text() == ".."


@pytest.mark.parametrize(
    ("command", "sign"),
    [
        ("sph2pipe -f wav -p -c 1 x.sph | sox -t wav - -r 8000 - |", r"\|"),
        ("sph2pipe -f wav x.sph; touch y |", ";"),
        ("cat < x.wav |", "<"),
        ("cat x.wav > y |", ">"),
        ("cat $DIR/x.wav |", r"\$"),
        ('cat "$DIR/x.wav" |', '"'),
        ("cat `which x` |", "`"),
        ("cat *.wav |", r"\*"),
        ("cat x?.wav |", r"\?"),
        ("cat [ab].wav |", r"\["),
        ("cat {a,b}.wav |", r"\{"),
        ("cat ~/x.wav |", "~"),
        ("cat x & |", "&"),
        ("LC_ALL=C cat x |", "LC_ALL="),
        ("cat 'x.wav |", "'"),
        ('cat "x\\$.wav" |', '"'),
        ("cat x\\|", r"\\"),
    ],
)
def test_what_needs_a_shell_is_one_line_that_names_the_option_and_never_run(
    command: str, sign: str, kaldi: WriteScp, tmp_path: Path
) -> None:
    data = kaldi(r1="audio/a.wav", r2=command)
    message = (
        rf"wav.scp, line 2: r2 is the command .*, whose {sign} needs a shell; add --allow-pipes \(data.allow_pipes"
    )
    with pytest.raises(AsrtoolError, match=message) as caught:
        prepare_kaldi(data, tmp_path / "m", Data(), "own")
    assert "\n" not in str(caught.value)


def test_with_the_option_a_shell_runs_it(kaldi: WriteScp, tmp_path: Path) -> None:
    data = kaldi(plain="audio/a.wav", piped=f"cat {tmp_path}/audio/*.wav | cat |")
    words = ["kaldi", str(data), str(tmp_path / "m")]
    refused = CliRunner().invoke(prepare, words)
    assert isinstance(refused.exception, AsrtoolError)
    done = CliRunner().invoke(prepare, [*words, "--allow-pipes"], catch_exceptions=False)
    assert done.exit_code == 0
    found = samples_of(tmp_path / "m")
    np.testing.assert_array_equal(found["piped"], found["plain"])
    assert not Config().data.allow_pipes


def test_a_command_that_fails_is_one_line_with_its_code_and_last_message(kaldi: WriteScp, tmp_path: Path) -> None:
    say = "import sys; print('first', 'last words', sep=chr(10), file=sys.stderr); sys.exit(3)"
    data = kaldi(good="audio/a.wav", bad=f"{sys.executable} -c {shlex.quote(say)} |", none="true |", text="echo hi |")
    prepare_kaldi(data, tmp_path / "m", LENIENT, "own")
    lines = (tmp_path / "m" / "dropped.tsv").read_text().splitlines()[1:]
    details = {line.split("\t")[0]: line.split("\t")[2] for line in reversed(lines)}  # the first of each
    assert details["bad"].startswith(f"{sys.executable} -c ")
    assert details["bad"].endswith("sys.exit(3)': exit code 3: last words")
    assert details["none"].startswith("true: no readable audio")
    assert details["text"].startswith("echo hi: no readable audio")
    assert details["text"].endswith("it says nothing")
    with pytest.raises(AsrtoolError, match=r"the first is bad: unusable audio: .*: exit code 3: last words"):
        prepare_kaldi(data, tmp_path / "m", Data(), "own")


def test_a_program_that_is_not_there_is_named_before_anything_is_run(kaldi: WriteScp, tmp_path: Path) -> None:
    data = kaldi(r1=f"touch {tmp_path}/ran |", r2="no-such-program x.wav |")
    with pytest.raises(AsrtoolError, match=r"line 2: r2 runs no-such-program, which is not installed; install it, or"):
        prepare_kaldi(data, tmp_path / "m", Data(), "own")
    assert not (tmp_path / "ran").exists()


SAFE = st.text("ab1 /._-=+,:@%^é'\"\\$*;|<>(){}[]~#&!`?\n", min_size=1, max_size=8)


@given(st.lists(SAFE, max_size=4))
def test_arguments_that_are_quoted_need_no_shell_and_stay_as_they_are(words: list[str]) -> None:
    found = read_pipe(shlex.join(["printf", *words]), Path("/nowhere"), False, "x")
    assert found == ("printf", *words)


@given(st.text("ab '\"\\$*;|<>(){}[]~#&`?=\n", max_size=12) | st.text("ab'\"\\ ~#$", max_size=9))
def test_what_is_run_without_a_shell_is_what_a_shell_would_run(text: str) -> None:
    """Against sh itself, which prints its words one by one."""
    command = f"printf %s\\\\n x {text}"
    try:
        words = read_pipe(command, Path("/nowhere"), False, "x")
    except AsrtoolError:
        return
    by_shell = subprocess.run(["sh", "-c", command], capture_output=True, cwd="/", check=True).stdout
    assert subprocess.run(words, capture_output=True, check=True).stdout == by_shell


@pytest.mark.parametrize("given", [False, True])
def test_a_model_does_not_say_that_a_shell_may_run_the_commands_of_a_test_set(
    given: bool, kaldi: WriteScp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was trained with: it may come from somebody else, and so may the data."""

    def evaluate(_: None, name: str, prepare: Callable[[Path, Data], None], out: Path) -> dict[Any, Any]:
        prepare(out / name, Data(allow_pipes=True))
        return {}

    monkeypatch.setattr("asrtool.bundle.evaluate.evaluate", evaluate)
    monkeypatch.setattr("asrtool.bundle.trained.open_trained", lambda _: contextlib.nullcontext())
    data = kaldi(a=f"cat {tmp_path}/audio/a.wav | cat |")
    words = ["decode", str(tmp_path), str(data), str(tmp_path / "out"), *(["--allow-pipes"] if given else [])]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, AsrtoolError) is not given
    assert (tmp_path / "out" / "data" / "recordings.jsonl.gz").is_file() is given
