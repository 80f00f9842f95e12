"""Kaldi data directories, as Kaldi's recipes lay them out and as lhotse reads them, and the commands in them."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner
from commands import error_of, run_command
from hypothesis import given
from hypothesis import strategies as st
from lhotse.kaldi import load_kaldi_data_dir
from lhotse.utils import add_durations
from memory import peak_bytes
from small_releases import dropped, read_jsonl, supervisions, write_sound, write_wav

from asrtool.cli.main import cli
from asrtool.data.manifests.manifest import Drop, read_drops
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.kaldi import length_s, prepare_kaldi
from asrtool.local.layouts.wav_scp import parse_pipe, read_pipe
from asrtool.settings.config import Config
from asrtool.settings.data import Data

LENIENT = Data(bad_fraction=0.9)
NAMES, RATES_HZ = ("north", "south", "west"), (8000, 11025, 16000)
DURATION_S = 20.0


@pytest.fixture
def stereo(tmp_path: Path) -> Path:
    path = write_sound(tmp_path / "audio" / "SW02001.SPH")
    data = tmp_path / "data"
    data.mkdir()
    (data / "wav.scp").write_text(
        "".join(f"x-{s} sph2pipe -f wav -p -c {c} {path} |\n" for s, c in (("A", 1), ("B", 2)))
    )
    (data / "segments").write_text("u1\tx-A 0 1\nu2\tx-B\t1 2\n")
    (data / "text").write_text("u1 t._v.'s on\nu2 yes\n")
    (data / "utt2spk").write_text("u1 a\nu2 b\n")
    return data


def test_two_pipes_of_a_file_are_the_channels_of_one_recording(
    stereo: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prepare_kaldi(stereo, tmp_path / "m", Data(), "x")
    found = [(s["recording_id"], s["channel"], s["text"]) for s in supervisions(tmp_path / "m")]
    assert found == [("sw02001", 0, "t v's on"), ("sw02001", 1, "yes")]
    (recording,) = read_jsonl(tmp_path / "m" / "recordings.jsonl.gz")
    assert recording["channel_ids"] == [0, 1]
    assert recording["sources"][0]["source"].endswith("SW02001.SPH")
    assert (tmp_path / "m" / "ref.stm").read_text().splitlines()[-1] == "sw02001/u2 B b 1.000 2.000 <O,x> yes"
    write_sound(tmp_path / "audio" / "SW02001.SPH", num_channels=1)
    with pytest.raises(AsrtoolError, match=r"SW02001.SPH: 1 channel, expected 2 channels; fix what"):
        prepare_kaldi(stereo, tmp_path / "m", Data(), "x")
    assert "several channels" not in caplog.text  # which could be mixed


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ("x-A sw02001 B\nx-B sw02001 A\n", r"line 1: x-A is channel 1 of .*, in reco2file_and_channel it is B"),
        ("x-A sw02001 A\nx-B sw02001 A\n", r"line 2: x-B is channel 2 of .*, in reco2file_and_channel it is A"),
        ("", r"line 2: x-B is of the recording 1, which is /a/1.sph in another line"),
    ],
)
def test_files_that_contradict_each_other_are_named(stereo: Path, tmp_path: Path, sides: str, message: str) -> None:
    (stereo / "reco2file_and_channel").write_text(sides)
    if not sides:
        (stereo / "wav.scp").write_text("x-A sph2pipe -c 1 /a/1.sph |\nx-B sph2pipe -c 2 /b/1.sph |\n")
    with pytest.raises(AsrtoolError, match=message):
        prepare_kaldi(stereo, tmp_path / "m", Data(), "x")


@pytest.mark.parametrize("words", ["-t 0:10 x.sph", "-c 3 x.sph", "-f wav x.sph out.wav", "-f wav 'x.sph", ""])
def test_other_commands_of_sph2pipe_are_commands_like_others(words: str) -> None:
    assert parse_pipe(f"sph2pipe {words} |") is None


def write_directory(folder: Path, num: int, names: Sequence[str] = NAMES) -> Path:
    """Recordings of three rates with `num` utterances of each, some of which overlap or begin together."""
    draw = random.Random(1)
    tables: dict[str, list[str]] = {}
    for name, rate_hz in zip(names, itertools.cycle(RATES_HZ), strict=False):
        path = folder.parent / f"{rate_hz}.wav"
        if not path.is_file():
            soundfile.write(path, np.zeros(int(DURATION_S * rate_hz)), rate_hz)
        tables.setdefault("wav.scp", []).append(f"{name} {path}")
        for number in range(num):
            id_, begin = f"{name}-{number:05d}", draw.choice([1.5, round(draw.uniform(0, 18), 5)])
            end = draw.choice([begin + 0.333, begin + draw.uniform(0.1, 2.0)])
            for table, value in (
                ("segments", f"{name} {begin} {end}"), ("text", f"word about nothing {draw.choice('abc')}"),
                ("utt2spk", f"speaker{draw.randrange(9)}"),
            ):  # fmt: skip
                tables.setdefault(table, []).append(f"{id_} {value}")
    folder.mkdir()
    for table, lines in tables.items():
        (folder / table).write_text("".join(f"{line}\n" for line in lines))
    return folder


@given(st.floats(0, 40_000), st.floats(0, 40_000), st.sampled_from([8000, 11025, 16000, 44100]))
def test_a_duration_is_that_of_lhotse(start_s: float, end_s: float, rate_hz: int) -> None:
    assert length_s(start_s, end_s, rate_hz) == add_durations(end_s, -start_s, sampling_rate=rate_hz)


def test_a_directory_is_read_as_by_lhotse_whatever_the_order_of_its_lines(tmp_path: Path) -> None:
    data = write_directory(tmp_path / "data", 20)
    (data / "reco2dur").write_text("".join(f"{name} {DURATION_S}\n" for name in NAMES))
    _, theirs, _ = load_kaldi_data_dir(data, max(RATES_HZ))
    prepare_kaldi(data, tmp_path / "m", Data(), "x")
    assert theirs is not None
    ordered = sorted(theirs, key=lambda s: (s.recording_id, s.start, s.channel, s.id))
    assert supervisions(tmp_path / "m") == [s.to_dict() for s in ordered]
    for number, path in enumerate(sorted(data.iterdir())):
        lines = path.read_text().splitlines(keepends=True)
        random.Random(number).shuffle(lines)
        path.write_text("".join(lines))
    prepare_kaldi(data, tmp_path / "n", Data(), "x")
    assert supervisions(tmp_path / "m") == supervisions(tmp_path / "n")
    assert (tmp_path / "m" / "ref.stm").read_bytes() == (tmp_path / "n" / "ref.stm").read_bytes()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_utterances(tmp_path: Path) -> None:
    """Only the compressed reference grows; objects and staged tables took 2,300 bytes each."""

    def peak(num_recordings: int) -> int:
        names = [f"call{number:02d}" for number in range(num_recordings)]
        data = write_directory(tmp_path / str(num_recordings), 60, names)
        return peak_bytes(lambda: prepare_kaldi(data, tmp_path / "m", Data(), "x"))

    assert (peak(18) - peak(9)) / (9 * 60) < 400


@pytest.fixture
def kaldi(tmp_path: Path) -> Path:
    root = tmp_path / "kaldi"
    write_wav(tmp_path / "audio" / "rec 1.wav", 5.0)
    write_wav(root / "local.wav", 3.0)
    (root / "wav.scp").write_text(f"r1 {tmp_path}/audio/rec 1.wav\nr2 local.wav\n")
    (root / "segments").write_text("u1 r1 0.0 2.0\nu2 r1 2.0 4.5\nu3 r2 0.5 -1\n")
    (root / "text").write_text("u1 Hello, there\nu2 [noise] YES\nu3 no\n")
    (root / "utt2spk").write_text("u1 s 1\nu2 s 1\nu3 s2\n")
    return root


def test_a_kaldi_directory_with_segments_becomes_manifests(kaldi: Path, tmp_path: Path) -> None:
    prepare_kaldi(kaldi, tmp_path / "m", Data(), "own")
    found = [
        (s["id"], s["recording_id"], s["start"], s["duration"], s["speaker"], s["text"])
        for s in supervisions(tmp_path / "m")
    ]
    assert found == [
        ("u1", "r1", 0.0, 2.0, "s-1", "hello there"),
        ("u2", "r1", 2.0, 2.5, "s-1", "[noise] yes"),
        ("u3", "r2", 0.5, 2.5, "s2", "no"),
    ]
    paths = [r["sources"][0]["source"] for r in read_jsonl(tmp_path / "m" / "recordings.jsonl.gz")]
    assert paths == [str(tmp_path / "audio" / "rec 1.wav"), str(kaldi / "local.wav")]

    (kaldi / "segments").unlink()  # then a file is an utterance
    (kaldi / "text").write_text("r1 hello\nr2 there\n")
    (kaldi / "utt2spk").write_text("r1 s1\nr2 s2\n")
    prepare_kaldi(kaldi, tmp_path / "m", Data(), "own")
    assert [(s["id"], s["duration"], s["speaker"]) for s in supervisions(tmp_path / "m")] == [
        ("r1", 5.0, "s1"),
        ("r2", 3.0, "s2"),
    ]
    (kaldi / "wav.scp").write_text((kaldi / "wav.scp").read_text().replace("r2 ", "r2 gone-"))
    prepare_kaldi(kaldi, tmp_path / "m", LENIENT, "own")
    assert read_drops(tmp_path / "m" / "dropped.tsv") == [
        Drop("r2", "unusable audio", f"{kaldi}/gone-local.wav: no such file")
    ]


def test_faults_of_a_kaldi_directory_are_set_aside(kaldi: Path, tmp_path: Path) -> None:
    (kaldi / "segments").write_text("u1 r1 0.0 2.0\nu2 r1 4.0 3.0\nu3 r9 0.5 1.0\nu4 r1 1.0 2.0\n")
    (kaldi / "text").write_text("u1 hello\nu2 yes\nu3 no\nu5 what\n")
    prepare_kaldi(kaldi, tmp_path / "m", LENIENT, "own")
    assert dropped(tmp_path / "m") == {
        "r2": "no transcript",
        "r9": "no audio",
        "u2": "bad times",
        "u3": "lost recording",
        "u4": "no text",
        "u5": "no segment",
    }


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("segments", "u1 r1 0.0\n", "segments: u1 'r1 0.0', expected recording, start and end"),
        ("segments", "u1 r1 nan 2.5\n", "segments: u1 'r1 nan 2.5', expected recording, start and end"),
        ("segments", "u1 r1 zero 1\n", "segments: u1 'r1 zero 1', expected recording, start and end"),
        ("utt2spk", "u1\n", "utt2spk, line 1: 'u1', expected an id and a value"),
        ("text", "u1 a\nu1 b\n", "text, line 2: u1 was there before"),
        ("text", "", "text: missing, expected a Kaldi data directory"),
    ],
)
def test_a_broken_kaldi_table_is_reported_with_its_line(
    kaldi: Path, tmp_path: Path, name: str, text: str, message: str
) -> None:
    (kaldi / name).write_text(text)
    if not text:
        (kaldi / name).unlink()
    with pytest.raises(AsrtoolError, match=message):
        prepare_kaldi(kaldi, tmp_path / "m", LENIENT, "own")


def test_tables_of_kaldi_that_are_not_utf8_cost_an_utterance_or_are_named(kaldi: Path, tmp_path: Path) -> None:
    (kaldi / "text").write_bytes(b"\xef\xbb\xbfu1 hello\nu2 caf\xe9\nu3 no\n")
    prepare_kaldi(kaldi, tmp_path / "m", LENIENT, "own")
    assert dropped(tmp_path / "m") == {"u2": "unknown characters"}
    (kaldi / "utt2spk").write_bytes(b"u1 s1\nu2 \xe9\n")
    with pytest.raises(AsrtoolError, match="utt2spk, line 2: byte 0xe9 is not UTF-8"):
        prepare_kaldi(kaldi, tmp_path / "m", LENIENT, "own")


def test_relative_paths_of_wav_scp_may_start_at_a_folder_above(kaldi: Path, tmp_path: Path) -> None:
    (kaldi / "wav.scp").write_text("r1 audio/rec 1.wav\nr2 local.wav\n")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "own_train").symlink_to(kaldi)
    prepare_kaldi(tmp_path / "corpus" / "own_train", tmp_path / "m", Data(), "own")
    assert len(supervisions(tmp_path / "m")) == 3
    (kaldi / "wav.scp").write_text("r1 audio/no.wav\nr2 local.wav\n")
    prepare_kaldi(kaldi, tmp_path / "m", LENIENT, "own")
    assert "kaldi/audio/no.wav: no such file" in (tmp_path / "m" / "dropped.tsv").read_text()


WriteScp = Callable[..., Path]


@pytest.fixture
def with_scp(tmp_path: Path) -> WriteScp:
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


def test_a_command_is_run_without_a_shell_and_its_audio_is_that_of_the_file(with_scp: WriteScp, tmp_path: Path) -> None:
    wav = bytearray((tmp_path / "audio" / "a.wav").read_bytes())
    wav[4:8] = wav[40:44] = b"\xff\xff\xff\xff"  # sizes as sox and ffmpeg write them to pipes
    (tmp_path / "audio" / "streamed.wav").write_bytes(wav)
    data = with_scp(plain="audio/a.wav", piped="cat audio/streamed.wav |", quoted="cat 'audio'/\"a.wav\" |")
    prepare_kaldi(data, tmp_path / "m", Data(), "own")
    found = samples_of(tmp_path / "m")
    for id_ in ("piped", "quoted"):
        np.testing.assert_array_equal(found[id_], found["plain"])
    assert [s["text"] for s in supervisions(tmp_path / "m")] == ["yes"] * 3


def test_a_second_run_runs_nothing_but_what_reads_a_file_that_has_changed(with_scp: WriteScp, tmp_path: Path) -> None:
    note = f"{sys.executable} -c 'import shutil, sys; open(\"ran\", \"a\").write(\".\"); " \
           "shutil.copyfileobj(open(sys.argv[1], \"rb\"), sys.stdout.buffer)'"  # fmt: skip
    note = note.replace('"ran"', f'"{tmp_path}/ran"')
    data = with_scp(a=f"{note} audio/a.wav |", b=f"{note} audio/a.wav |")
    for _ in range(2):
        prepare_kaldi(data, tmp_path / "m", Data(), "own")
        assert (tmp_path / "ran").read_text() == "."  # and two alike run once
    os.utime(tmp_path / "audio" / "a.wav", (0, 0))  # other audio of the same name
    prepare_kaldi(data, tmp_path / "m", Data(), "own")
    assert (tmp_path / "ran").read_text() == ".."


BY_SHELL = {
    "sph2pipe -f wav -p -c 1 x.sph | sox -t wav - -r 8000 -": "|", "sph2pipe -f wav x.sph; touch y": ";",
    "sph2pipe -f wav *.sph": "*", "cat < x.wav": "<", "cat x.wav > y": ">", "cat $DIR/x.wav": "$",
    'cat "$DIR/x.wav"': '"', "cat `which x`": "`", "cat *.wav": "*", "cat x?.wav": "?", "cat [ab].wav": "[",
    "cat {a,b}.wav": "{", "cat ~/x.wav": "~", "cat x &": "&", "LC_ALL=C cat x": "LC_ALL=", "cat 'x.wav": "'",
    'cat "x\\$.wav"': '"', "cat x\\": "\\",
}  # fmt: skip


def test_what_needs_a_shell_is_one_line_that_names_the_option_and_never_run(with_scp: WriteScp, tmp_path: Path) -> None:
    for command, sign in BY_SHELL.items():
        data = with_scp(r1="audio/a.wav", r2=f"{command}{'' if command.endswith(chr(92)) else ' '}|")
        expected = rf"line 2: r2 is the command .*, whose {re.escape(sign)} needs a shell; add --allow-pipes \(data.al"
        with pytest.raises(AsrtoolError, match=expected) as caught:
            prepare_kaldi(data, tmp_path / "m", Data(), "own")
        assert "\n" not in str(caught.value)


def test_with_the_option_a_shell_runs_it(with_scp: WriteScp, tmp_path: Path) -> None:
    data = with_scp(plain="audio/a.wav", piped=f"cat {tmp_path}/audio/*.wav | cat |")
    words = ["prepare", "kaldi", data, tmp_path / "m"]
    error_of(*words)
    run_command(*words, "--allow-pipes")
    found = samples_of(tmp_path / "m")
    np.testing.assert_array_equal(found["piped"], found["plain"])
    assert not Config().data.allow_pipes


def test_a_command_that_fails_is_one_line_with_its_code_and_last_message(with_scp: WriteScp, tmp_path: Path) -> None:
    say = "import sys; print('first', 'last words', sep=chr(10), file=sys.stderr); sys.exit(3)"
    data = with_scp(
        good="audio/a.wav", bad=f"{sys.executable} -c {shlex.quote(say)} |", none="true |", text="echo hi |"
    )
    prepare_kaldi(data, tmp_path / "m", LENIENT, "own")
    lines = (tmp_path / "m" / "dropped.tsv").read_text().splitlines()[1:]
    details = {line.split("\t")[0]: line.split("\t")[2] for line in reversed(lines)}  # the first of each
    assert details["bad"].startswith(f"{sys.executable} -c ")
    assert details["bad"].endswith("sys.exit(3)': exit code 3: last words")
    assert details["none"].startswith("true: no readable audio: it is empty")
    assert details["text"].startswith("echo hi: no readable audio")
    assert details["text"].endswith("no output")
    with pytest.raises(AsrtoolError, match=r"the first is bad: unusable audio: .*: exit code 3: last words"):
        prepare_kaldi(data, tmp_path / "m", Data(), "own")


def test_a_program_that_is_not_there_is_named_before_anything_is_run(with_scp: WriteScp, tmp_path: Path) -> None:
    data = with_scp(r1=f"touch {tmp_path}/ran |", r2="no-such-program x.wav |")
    with pytest.raises(AsrtoolError, match=r"line 2: r2 runs no-such-program, which is not installed; install it, or"):
        prepare_kaldi(data, tmp_path / "m", Data(), "own")
    assert not (tmp_path / "ran").exists()


@given(st.text("ab '\"\\$*;|<>(){}[]~#&`?=\n", max_size=12) | st.text("ab'\"\\ ~#$", max_size=9))
def test_what_is_run_without_a_shell_is_what_a_shell_would_run(text: str) -> None:
    """The expectation is sh itself, which prints its arguments one by one."""
    command = f"printf %s\\\\n x {text}"
    try:
        words = read_pipe(command, Path("/nowhere"), False, "x")
    except AsrtoolError:
        return
    by_shell = subprocess.run(["sh", "-c", command], capture_output=True, cwd="/", check=True).stdout
    assert subprocess.run(words, capture_output=True, check=True).stdout == by_shell


@pytest.mark.parametrize("given", [False, True])
def test_a_model_does_not_say_that_a_shell_may_run_the_commands_of_a_test_set(
    given: bool, with_scp: WriteScp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was trained with: it may come from somebody else, and so may the data."""

    def evaluate(_: None, name: str, prepare: Callable[[Path, Data], None], out: Path) -> dict[Any, Any]:
        prepare(out / name, Data(allow_pipes=True))
        return {}

    monkeypatch.setattr("asrtool.bundle.evaluate.evaluate", evaluate)
    monkeypatch.setattr("asrtool.bundle.trained.open_trained", lambda _: contextlib.nullcontext())
    data = with_scp(a=f"cat {tmp_path}/audio/a.wav | cat |")
    words = ["decode", str(tmp_path), str(data), str(tmp_path / "out"), *(["--allow-pipes"] if given else [])]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, AsrtoolError) is not given
    assert (tmp_path / "out" / "data" / "recordings.jsonl.gz").is_file() is given
