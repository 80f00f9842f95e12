"""Manifest folders: checks, counts, faults of files, and the fraction that may be set aside."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from lhotse import AudioSource, Recording, RecordingSet, SupervisionSegment, SupervisionSet

from asrtool.corpus.manifest import Drop, check_manifests, read_manifests, write_manifests
from asrtool.errors import AsrtoolError


def recording(id_: str, duration_s: float = 10.0) -> Recording:
    num_samples = int(duration_s * 8000)
    return Recording(id_, [AudioSource("file", [0, 1], f"/audio/{id_}.sph")], 8000, num_samples, duration_s, [0, 1])


def segment(id_: str, start_s: float = 1.0, duration_s: float = 2.0, channel: int = 0) -> SupervisionSegment:
    return SupervisionSegment(id_, id_.split("-")[0], start_s, duration_s, channel, "hello there", speaker=f"{id_}-s")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    out = tmp_path / "swbd"
    drops = [Drop("a-9", "empty", "[silence]"), Drop("a-8", "empty"), Drop("b-9", "foreign", "<german\tja>")]
    segments = [segment("b-1"), segment("a-2", channel=1), segment("a-1")]
    write_manifests(out, [recording("b"), recording("a"), recording("c")], segments, drops, 0.01, {"ref.stm": "x\n"})
    return out


def test_what_is_written_is_read_back_in_order(written: Path) -> None:
    recordings, supervisions = read_manifests(written)
    assert [r.id for r in recordings] == ["a", "b"]
    assert [s.id for s in supervisions] == ["a-1", "a-2", "b-1"]
    assert (written / "ref.stm").read_text() == "x\n"


def test_lhotse_reads_the_same(written: Path) -> None:
    assert list(RecordingSet.from_file(written / "recordings.jsonl.gz")) == list(read_manifests(written)[0])
    assert list(SupervisionSet.from_file(written / "supervisions.jsonl.gz")) == list(read_manifests(written)[1])


def test_numbers_hours_and_drops_by_reason_are_reported(written: Path) -> None:
    report = json.loads((written / "report.json").read_text())
    assert report["dropped"] == {"empty": 2, "foreign": 1}
    assert (report["num_recordings"], report["num_utterances"], report["num_speakers"]) == (2, 3, 3)
    assert (report["num_words"], report["speech_hours"], report["audio_hours"]) == (6, 0.0017, 0.0056)
    assert (written / "dropped.tsv").read_text().splitlines()[3] == "b-9\tforeign\t<german ja>"


def test_the_same_manifest_is_the_same_bytes(written: Path) -> None:
    before = (written / "supervisions.jsonl.gz").read_bytes()
    recordings, supervisions = read_manifests(written)
    write_manifests(written, recordings, supervisions, [], 0.01, {})
    assert (written / "supervisions.jsonl.gz").read_bytes() == before


def test_a_cut_off_manifest_is_reported_with_its_line(written: Path) -> None:
    path = written / "supervisions.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(AsrtoolError, match=r"supervisions.jsonl.gz: corrupt after line \d: EOFError"):
        read_manifests(written)


def test_a_broken_line_is_reported_with_its_number(written: Path) -> None:
    path = written / "recordings.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    path.write_bytes(gzip.compress("\n".join([lines[0], lines[1][:30]]).encode()))
    with pytest.raises(AsrtoolError, match=r"recordings.jsonl.gz: corrupt after line 1: JSONDecodeError"):
        read_manifests(written)


def test_a_file_that_is_no_gzip_is_reported(written: Path) -> None:
    (written / "recordings.jsonl.gz").write_text("hello")
    with pytest.raises(AsrtoolError, match=r"recordings.jsonl.gz: corrupt after line 0: BadGzipFile"):
        read_manifests(written)


def test_a_line_too_few_is_reported(written: Path) -> None:
    path = written / "supervisions.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)
    path.write_bytes(gzip.compress("".join(lines[:-1]).encode()))
    with pytest.raises(AsrtoolError, match=r"supervisions.jsonl.gz: 2 lines, expected 3 as in report.json"):
        read_manifests(written)


def test_a_folder_without_its_report_is_half_written(written: Path) -> None:
    (written / "report.json").unlink()
    with pytest.raises(AsrtoolError, match="swbd: half-written"):
        read_manifests(written)
    with pytest.raises(AsrtoolError, match="no such folder of manifests"):
        read_manifests(written.parent / "fisher")


def test_a_refused_manifest_leaves_the_one_before_it(written: Path) -> None:
    with pytest.raises(AsrtoolError, match="does not exist in its corresponding Recording"):
        write_manifests(written, [recording("a")], [segment("a-1", channel=2)], [], 0.01, {})
    assert len(read_manifests(written)[1]) == 3


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([segment("a-1", start_s=9.0)], "a-1: exceeded the bounds"),
        ([segment("a-1", channel=5)], "channel 5 does not exist"),
        ([segment("a-1"), segment("a-1")], "utterance id a-1 occurs more than once"),
        ([segment("z-1")], "z-1 references non-existent recording z"),
        ([segment("a-1", duration_s=0.0)], "duration has to be greater than 0"),
    ],
)
def test_an_inconsistent_manifest_is_reported_with_its_id(segments: list[SupervisionSegment], message: str) -> None:
    with pytest.raises(AsrtoolError, match=message):
        check_manifests([recording("a")], segments, Path("swbd"))


def test_faults_up_to_the_limit_are_listed(tmp_path: Path) -> None:
    names = [f"r{i}" for i in range(99)]
    drops = [Drop("bad", "unusable audio", "truncated")]
    write_manifests(tmp_path / "m", map(recording, names), map(segment, names), drops, 0.01, {})
    assert "bad\tunusable audio\ttruncated" in (tmp_path / "m" / "dropped.tsv").read_text()


def test_faults_beyond_the_limit_end_the_stage_with_the_list(tmp_path: Path) -> None:
    names = [f"r{i}" for i in range(97)]
    drops = [Drop("b1", "unusable audio", "truncated"), Drop("b2", "no transcript"), Drop("b2", "no audio")]
    message = (
        r"m: 2 of 99 recordings cannot be used \(2.0%, the limit data.bad_fraction is 1.0%\); the first is b1:"
        r" unusable audio: truncated; fix what .*m.dropped.tsv lists"
    )
    with pytest.raises(AsrtoolError, match=message):
        write_manifests(tmp_path / "m", map(recording, names), map(segment, names), drops, 0.01, {})
    assert (tmp_path / "m.dropped.tsv").read_text().count("b2\t") == 2
    assert not (tmp_path / "m").exists()


def test_what_is_left_out_on_purpose_is_no_fault(tmp_path: Path) -> None:
    drops = [Drop(f"a-{i}", "empty") for i in range(100)]
    write_manifests(tmp_path / "m", [recording("a")], [segment("a-200")], drops, 0.0, {})
    assert json.loads((tmp_path / "m" / "report.json").read_text())["dropped"] == {"empty": 100}


def test_a_corpus_without_one_usable_utterance_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AsrtoolError, match=r"m: not one usable utterance; see the reasons in .*m.dropped.tsv"):
        write_manifests(tmp_path / "m", [recording("a")], [], [Drop("a-1", "empty")], 0.01, {})
    assert "a-1\tempty" in (tmp_path / "m.dropped.tsv").read_text()


def test_a_full_disk_ends_in_one_line_and_no_manifest(tmp_path: Path) -> None:
    program = """
import random, resource, sys
from pathlib import Path
from lhotse import AudioSource, Recording, SupervisionSegment
from asrtool.corpus.manifest import write_manifests
from asrtool.errors import AsrtoolError
recording = Recording("a", [AudioSource("file", [0], "a.wav")], 8000, 80000, 10.0, [0])
text = [" ".join(map(str, random.sample(range(10**9), 9))) for _ in range(500)]
segments = [SupervisionSegment(f"a-{i}", "a", 1.0, 1.0, 0, t) for i, t in enumerate(text)]
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    write_manifests(Path(sys.argv[1]), [recording], segments, [], 0.01, {})
except AsrtoolError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "swbd")], capture_output=True, text=True, check=True
    )
    assert "supervisions.jsonl.gz: cannot be written, file too large; free some space" in done.stdout
    assert not (tmp_path / "swbd" / "report.json").exists()
    assert sorted(path.name for path in (tmp_path / "swbd").iterdir()) == ["recordings.jsonl.gz"]
