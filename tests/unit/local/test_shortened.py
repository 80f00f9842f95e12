"""Decoding of shorten: a process that is killed, a disk that is full, files that are broken."""

from __future__ import annotations

import logging
import multiprocessing
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrtool.data.manifests.manifest import Drop
from asrtool.data.workers import processes
from asrtool.errors import AsrtoolError
from asrtool.local.releases import shortened
from asrtool.local.releases.shortened import decode_shortened
from asrtool.local.utterances import Sound

Usage = namedtuple("Usage", "total used free")
NUM_SAMPLES = 4000


def write_shortened(path: Path) -> Sound:
    """A header that says shorten; what is behind it only sph2pipe reads."""
    lines = ["NIST_1A", "   1024", "sample_rate -i 8000", "channel_count -i 1", f"sample_count -i {NUM_SAMPLES}",
             "sample_n_bytes -i 2", "sample_coding -s26 pcm,embedded-shorten-v2.00", "end_head", ""]  # fmt: skip
    path.write_bytes("\n".join(lines).encode().ljust(1024) + b"ajkg" + path.name.encode())
    return Sound(path, NUM_SAMPLES, 8000)


def samples(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1000, 1000, NUM_SAMPLES, dtype=np.int16)


@pytest.fixture
def sounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Sound]:
    """Six, and a program for them that writes the WAV beside each."""
    for seed in range(6):
        soundfile.write(tmp_path / f"call{seed}.sph.wav", samples(seed), 8000)
    program = tmp_path / "bin" / "sph2pipe"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'case "$4" in *call3.sph) mkdir {tmp_path}/killed 2>/dev/null && kill -9 $PPID && exit 1;; esac\n'
        f'case "$4" in *call5.sph) test -e {tmp_path}/broken && echo "cut off" >&2 && exit 1;; esac\n'
        'cat "$4.wav"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    # A server that forks would have the PATH of when it began.
    monkeypatch.setattr(processes, "process_context", lambda _: multiprocessing.get_context("spawn"))
    return {f"call{seed}": write_shortened(tmp_path / f"call{seed}.sph") for seed in range(6)}


def test_a_process_that_is_killed_costs_nothing(sounds: dict[str, Sound], tmp_path: Path) -> None:
    drops: list[Drop] = []
    found = decode_shortened(sounds, tmp_path / "m" / "audio", drops)
    assert (tmp_path / "killed").is_dir()
    assert not drops
    for seed in range(6):
        sound = found[f"call{seed}"]
        assert (sound.num_samples, sound.path.parent) == (NUM_SAMPLES, tmp_path / "m" / "audio")
        np.testing.assert_array_equal(soundfile.read(sound.path, dtype="int16")[0], samples(seed))


def test_what_cannot_be_decoded_is_set_aside_and_the_rest_not_decoded_again(
    sounds: dict[str, Sound], tmp_path: Path
) -> None:
    (tmp_path / "broken").touch()
    drops: list[Drop] = []
    assert set(decode_shortened(sounds, tmp_path / "audio", drops)) == {f"call{seed}" for seed in range(5)}
    assert [(drop.id, drop.reason) for drop in drops] == [("call5", "unusable audio")]
    assert "cut off" in drops[0].detail
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "audio").iterdir()}
    (tmp_path / "broken").unlink()
    assert len(decode_shortened(sounds, tmp_path / "audio", [])) == 6
    assert before == {name: (tmp_path / "audio" / name).stat().st_mtime_ns for name in before}


def test_a_file_of_the_same_name_is_decoded_anew(sounds: dict[str, Sound], tmp_path: Path) -> None:
    """Into one folder, with an older set in it and a file of a user."""
    (tmp_path / "audio").mkdir()
    (tmp_path / "audio" / "a.flac").write_bytes(b"of a user")
    soundfile.write(tmp_path / "b.wav", samples(0), 8000)
    plain = {"b": Sound(tmp_path / "b.wav", NUM_SAMPLES, 8000)}  # which stays where it is
    assert decode_shortened(plain, tmp_path / "audio", []) == plain
    for seed in (0, 1):
        decoded = decode_shortened({"a": sounds[f"call{seed}"]}, tmp_path / "audio", [])["a"].path
        np.testing.assert_array_equal(soundfile.read(decoded, dtype="int16")[0], samples(seed))
    assert (tmp_path / "audio" / "a.flac").read_bytes() == b"of a user"


def test_a_disk_without_room_is_found_before_anything_is_decoded(
    sounds: dict[str, Sound], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    needed = 6 * NUM_SAMPLES * shortened.BYTES_A_SAMPLE
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, int(needed) - 1))
    with pytest.raises(
        AsrtoolError, match=r"audio: audio with shorten or of joined files needs about 2.28e-05 GB of disk"
    ):
        decode_shortened(sounds, tmp_path / "m" / "audio", [])
    assert not (tmp_path / "m").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, int(needed) + 1))
    decode_shortened(sounds, tmp_path / "m" / "audio", [])
    assert "decoded once, by sph2pipe: about" in caplog.text
