"""Features that were interrupted: what is finished stays, the rest is computed, and the bytes are the same."""

from __future__ import annotations

import dataclasses
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile

from asrtool.corpus import features as features_module
from asrtool.corpus.features import compute_features
from asrtool.corpus.manifest import read_manifests, write_manifests
from asrtool.corpus.settings import Features
from asrtool.errors import AsrtoolError
from asrtool.files import write_in_parts
from asrtool.settings import Choice

MakeManifests = Callable[..., Path]
SMALL = Features(
    type=Choice.of("features", "fbank", num_mel_bins=23), shard_cuts=6, num_jobs=1, speeds=(1.0,), bad_fraction=0.5
)

# Each run is a fork of one process that has loaded torch, and has not computed with it. It kills itself before the n-th
# change of the file system below the folder of features.
DRIVER = """
import os, signal, sys
from pathlib import Path
from asrtool.corpus.features import compute_features
from tests.unit.corpus.test_resume_features import SMALL

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}

def run(out, kill_at):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    num = 0
    def count(event, arguments):
        nonlocal num
        writes = event == "open" and isinstance(arguments[1], str) and arguments[1][:1] in "wax"
        if (writes or event in CHANGES) and str(out) in str(arguments[0]):
            num += 1
            if num == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    compute_features(Path(sys.argv[1]), out, SMALL, code="the same")
    os._exit(0)

root, first, step = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
assert run(root / "whole", 0) == 0
at = first
while run(root / f"{at}", at) == signal.SIGKILL:
    assert run(root / f"{at}", 0) == 0
    at += step
"""


def read_all(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def times(out: Path) -> dict[str, int]:
    """Of the records of shards: one that is computed again has another."""
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in sorted(out.glob("*/shard.*"))}


def computed(out: Path, before: dict[str, int]) -> list[str]:
    return [name for name, time in times(out).items() if before.get(name) != time]


def test_killed_at_any_step_and_run_again_the_bytes_are_the_same(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests = make_manifests(train=2)
    command = [sys.executable, "-c", DRIVER, str(manifests), str(tmp_path / "out"), "4", "11"]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    expected = read_all(tmp_path / "out" / "whole")
    killed = [path for path in (tmp_path / "out").iterdir() if path.name != "whole"]
    assert len(killed) > 4, done
    for out in killed:
        assert read_all(out) == expected, out.name


class Stopped(Exception):
    """In place of a kill."""


def test_only_what_is_missing_is_computed(
    make_manifests: MakeManifests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests, out = make_manifests(train=5), tmp_path / "features"
    compute = features_module.compute_shard
    numbers = []

    def stopping(job, **rest) -> None:
        if len(numbers) == 2:
            raise Stopped
        numbers.append(job.number)
        compute(job, **rest)

    stopping.__module__ = compute.__module__
    with monkeypatch.context() as patch:
        patch.setattr(features_module, "compute_shard", stopping)
        with pytest.raises(Stopped):
            compute_features(manifests, out, SMALL, code="c")
        with pytest.raises(Stopped):  # of other code nothing is taken
            compute_features(manifests, out, SMALL, code="d")
        numbers.clear()
        with pytest.raises(Stopped):
            compute_features(manifests, out, SMALL, code="c")
        assert numbers == [0, 1]
        numbers.clear()
        with pytest.raises(Stopped):
            compute_features(manifests, out, SMALL, code="c")
        assert numbers == [2, 3]
    assert not (out / "train").exists()
    compute_features(manifests, out, SMALL, code="c")
    assert len(times(out)) == 7


def test_a_changed_segment_computes_its_shard_and_a_changed_setting_all(
    make_manifests: MakeManifests, tmp_path: Path
) -> None:
    manifests, out = make_manifests(train=3), tmp_path / "features"
    compute_features(manifests, out, SMALL, code="c")
    first = times(out)
    recordings, supervisions = (list(items) for items in read_manifests(manifests / "train"))
    supervisions[8] = dataclasses.replace(supervisions[8], duration=supervisions[8].duration - 0.5)
    write_manifests(manifests / "train", recordings, supervisions, [], 0.01, {})
    compute_features(manifests, out, SMALL, code="c")
    assert computed(out, first) == ["train/shard.000001.json.gz"]
    second = times(out)
    compute_features(manifests, out, dataclasses.replace(SMALL, cmvn="global", bad_fraction=0.1), code="c")
    assert computed(out, second) == []
    fresh = tmp_path / "fresh"
    compute_features(manifests, fresh, dataclasses.replace(SMALL, cmvn="global", bad_fraction=0.1), code="c")
    assert read_all(fresh) == read_all(out)
    compute_features(manifests, out, dataclasses.replace(SMALL, frame_shift_ms=12.5), code="c")
    assert len(computed(out, second)) == len(second)


def test_changed_audio_computes_the_shards_that_it_is_in(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests, out = make_manifests(train=3), tmp_path / "features"
    compute_features(manifests, out, SMALL, code="c")
    first = times(out)
    audio = tmp_path / "audio" / "train2.wav"
    samples, rate_hz = soundfile.read(audio)
    soundfile.write(audio, samples[::-1], rate_hz, subtype="PCM_16")
    compute_features(manifests, out, SMALL, code="c")
    assert computed(out, first) == ["train/shard.000002.json.gz"]


def test_audio_that_can_be_read_now_is_no_longer_left_out(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests, out = make_manifests(train=3), tmp_path / "features"
    audio = tmp_path / "audio" / "train1.wav"
    audio.rename(tmp_path / "away.wav")
    compute_features(manifests, out, SMALL, code="c")
    assert len((out / "train" / "dropped.tsv").read_text().splitlines()) == 1 + 6
    (tmp_path / "away.wav").rename(audio)
    compute_features(manifests, out, SMALL, code="c")
    assert (out / "train" / "dropped.tsv").read_text().splitlines() == ["id\treason\tdetail"]


@pytest.mark.parametrize("name", ["feats.000001.lca", "cuts.000001.jsonl.gz", "shard.000001.json.gz"])
@pytest.mark.parametrize("damage", ["cut off", "missing"])
def test_a_shard_that_lost_a_part_of_a_file_is_computed_again(
    make_manifests: MakeManifests, tmp_path: Path, name: str, damage: str
) -> None:
    manifests, out = make_manifests(train=3), tmp_path / "features"
    compute_features(manifests, out, SMALL, code="c")
    expected, first = read_all(out), times(out)
    path = out / "train" / name
    content = path.read_bytes()
    path.unlink() if damage == "missing" else path.write_bytes(content[: len(content) // 2])
    (out / "features.json").unlink()  # as where the machine stopped before it was written
    compute_features(manifests, out, SMALL, code="c")
    assert read_all(out) == expected
    assert computed(out, first) == ["train/shard.000001.json.gz"]


def test_two_commands_at_once_are_one_too_many(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests, out = make_manifests(), tmp_path / "features"
    out.mkdir()
    with (
        write_in_parts(out / "train", "index.jsonl"),
        pytest.raises(AsrtoolError, match=r"another command is running there \(process \d+\); wait for it"),
    ):
        compute_features(manifests, out, SMALL, code="c")


def test_a_recording_whose_utterances_lie_apart_is_named(make_manifests: MakeManifests, tmp_path: Path) -> None:
    manifests = make_manifests(train=2)
    path = manifests / "train" / "supervisions.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)
    path.write_bytes(gzip.compress("".join([*lines[1:], lines[0]]).encode()))
    assert json.loads(lines[0])["recording_id"] == "train0"
    with pytest.raises(AsrtoolError, match="utterances of recording train0 lie apart"):
        compute_features(manifests, tmp_path / "features", SMALL)
